/* Every function with every argument: the documented code, and no crash. */
#include "suite.h"

/* Handles that are none: null, stale, of another kind, and addresses. */
#define BAD 7
static VIP_PVOID bad[BAD];

static void prepare_bad(void)
{
    VIP_NIC_HANDLE stale;
    if (pair.a.nic != NULL)
        return;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    OK(VipOpenNic(device_a, &stale));
    OK(VipCloseNic(stale));
    bad[0] = NULL;
    bad[1] = stale;
    bad[2] = pair.a.tag;
    bad[3] = &pair;
    bad[4] = (VIP_PVOID)8;
    bad[5] = (VIP_PVOID)~0UL;
    bad[6] = (VIP_PVOID)((VIP_UINT64)pair.a.nic ^ (1UL << 30));
}

#define REFUSES(call)                                                                                                \
    do {                                                                                                             \
        int n;                                                                                                       \
        DO(prepare_bad());                                                                                           \
        for (n = 0; n < BAD; n++)                                                                                    \
            GIVES(VIP_INVALID_PARAMETER, call);                                                                      \
    } while (0)

#define CASE(name, body)                                                                                             \
    static void name(int argument)                                                                                   \
    {                                                                                                                \
        VIP_DESCRIPTOR *d = NULL;                                                                                    \
        VIP_PVOID out = NULL;                                                                                        \
        VIP_BOOLEAN flag = 0;                                                                                        \
        VIP_MEM_HANDLE handle = 0;                                                                                   \
        VIP_MEM_ATTRIBUTES memory;                                                                                   \
        VIP_VI_ATTRIBUTES attributes;                                                                                \
        VIP_NIC_ATTRIBUTES about;                                                                                    \
        VIP_ULONG length = 64;                                                                                       \
        char text[64] = "name";                                                                                      \
        Address here, there;                                                                                         \
        memset(&memory, 0, sizeof memory);                                                                           \
        memset(&attributes, 0, sizeof attributes);                                                                   \
        (void)argument, (void)d, (void)out, (void)flag, (void)handle, (void)about, (void)length, (void)text;         \
        (void)here, (void)there;                                                                                     \
        body                                                                                                         \
    }

static void on_error(VIP_PVOID context, VIP_ERROR_DESCRIPTOR *error)
{
    (void)context, (void)error;
}

static void on_descriptor(VIP_PVOID context, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d)
{
    (void)context, (void)nic, (void)vi, (void)d;
}

static void on_entry(VIP_PVOID context, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_BOOLEAN recv)
{
    (void)context, (void)nic, (void)vi, (void)recv;
}

CASE(open_nic, {
    VIP_NIC_HANDLE nic;
    GIVES(VIP_INVALID_PARAMETER, VipOpenNic(NULL, &nic));
    GIVES(VIP_INVALID_PARAMETER, VipOpenNic(device_a, NULL));
    GIVES(VIP_ERROR_RESOURCE, VipOpenNic("vfio-user:/nowhere/at/all", &nic));
})
CASE(close_nic, { REFUSES(VipCloseNic(bad[n])); })
CASE(query_nic, {
    REFUSES(VipQueryNic(bad[n], &about));
    GIVES(VIP_INVALID_PARAMETER, VipQueryNic(pair.a.nic, NULL));
})
CASE(management, {
    REFUSES(VipQuerySystemManagementInfo(bad[n], VIP_SMI_AUTODISCOVERY, &about));
    GIVES(VIP_INVALID_PARAMETER, VipQuerySystemManagementInfo(pair.a.nic, VIP_SMI_AUTODISCOVERY, NULL));
})
CASE(error_callback, {
    REFUSES(VipErrorCallback(bad[n], NULL, on_error));
    OK(VipErrorCallback(pair.a.nic, NULL, on_error));
    OK(VipErrorCallback(pair.a.nic, NULL, NULL));
})
CASE(create_ptag, {
    REFUSES(VipCreatePtag(bad[n], &out));
    GIVES(VIP_INVALID_PARAMETER, VipCreatePtag(pair.a.nic, NULL));
})
CASE(destroy_ptag, {
    REFUSES(VipDestroyPtag(bad[n], pair.a.tag));
    GIVES(VIP_INVALID_PARAMETER, VipDestroyPtag(pair.a.nic, NULL));
    GIVES(VIP_INVALID_PARAMETER, VipDestroyPtag(pair.a.nic, pair.a.vi));
})
CASE(register_mem, {
    REFUSES(VipRegisterMem(bad[n], pair.a.memory, 10, NULL, &handle));
    GIVES(VIP_INVALID_PARAMETER, VipRegisterMem(pair.a.nic, pair.a.memory, 10, NULL, NULL));
})
CASE(deregister_mem, {
    REFUSES(VipDeregisterMem(bad[n], pair.a.memory, pair.a.handle));
    GIVES(VIP_INVALID_PARAMETER, VipDeregisterMem(pair.a.nic, pair.a.memory, 0));
    GIVES(VIP_INVALID_PARAMETER, VipDeregisterMem(pair.a.nic, pair.a.memory, 0xFFFFFFFF));
    GIVES(VIP_INVALID_PARAMETER, VipDeregisterMem(pair.a.nic, pair.a.memory + 1, pair.a.handle));
    GIVES(VIP_INVALID_PARAMETER, VipDeregisterMem(pair.a.nic, NULL, pair.a.handle));
})
CASE(query_mem, {
    REFUSES(VipQueryMem(bad[n], pair.a.memory, pair.a.handle, &memory));
    GIVES(VIP_INVALID_PARAMETER, VipQueryMem(pair.a.nic, pair.a.memory, pair.a.handle, NULL));
    GIVES(VIP_INVALID_PARAMETER, VipQueryMem(pair.a.nic, pair.a.memory, 0, &memory));
    GIVES(VIP_INVALID_PARAMETER, VipQueryMem(pair.a.nic, pair.a.memory, 0xFFFFFFFF, &memory));
})
CASE(set_mem, {
    REFUSES(VipSetMemAttributes(bad[n], pair.a.memory, pair.a.handle, &memory));
    GIVES(VIP_INVALID_PARAMETER, VipSetMemAttributes(pair.a.nic, pair.a.memory, pair.a.handle, NULL));
    GIVES(VIP_INVALID_PARAMETER, VipSetMemAttributes(pair.a.nic, NULL, pair.a.handle, &memory));
    memory.Ptag = &memory;
    GIVES(VIP_INVALID_PTAG, VipSetMemAttributes(pair.a.nic, pair.a.memory, pair.a.handle, &memory));
})
CASE(create_vi, {
    REFUSES(VipCreateVi(bad[n], &pair.a.attributes, NULL, NULL, &out));
    GIVES(VIP_INVALID_PARAMETER, VipCreateVi(pair.a.nic, NULL, NULL, NULL, &out));
    GIVES(VIP_INVALID_PARAMETER, VipCreateVi(pair.a.nic, &pair.a.attributes, NULL, NULL, NULL));
    GIVES(VIP_INVALID_PARAMETER, VipCreateVi(pair.a.nic, &pair.a.attributes, pair.a.vi, NULL, &out));
    GIVES(VIP_INVALID_PARAMETER, VipCreateVi(pair.a.nic, &pair.a.attributes, NULL, &pair, &out));
})
CASE(destroy_vi, { REFUSES(VipDestroyVi(bad[n])); })
CASE(set_vi, {
    REFUSES(VipSetViAttributes(bad[n], &pair.a.attributes));
    GIVES(VIP_INVALID_PARAMETER, VipSetViAttributes(pair.a.vi, NULL));
})
CASE(query_vi, {
    VIP_VI_STATE state;
    REFUSES(VipQueryVi(bad[n], &state, &attributes, &flag, &flag));
    OK(VipQueryVi(pair.a.vi, NULL, NULL, NULL, NULL));
})
CASE(connect_wait, {
    DO(prepare_bad());
    address_of(&pair.a, &here, 0);
    REFUSES(VipConnectWait(bad[n], &here.address, 0, &there.address, &attributes, &out));
    GIVES(VIP_INVALID_PARAMETER, VipConnectWait(pair.a.nic, NULL, 0, &there.address, &attributes, &out));
    GIVES(VIP_INVALID_PARAMETER, VipConnectWait(pair.a.nic, &here.address, 0, &there.address, &attributes, NULL));
    GIVES(VIP_TIMEOUT, VipConnectWait(pair.a.nic, &here.address, 0, NULL, NULL, &out));
    here.address.DiscriminatorLen = 65;
    GIVES(VIP_INVALID_PARAMETER, VipConnectWait(pair.a.nic, &here.address, 0, &there.address, &attributes, &out));
    here.address.DiscriminatorLen = 0xFFFF;
    GIVES(VIP_INVALID_PARAMETER, VipConnectWait(pair.a.nic, &here.address, 0, &there.address, &attributes, &out));
    here.address.DiscriminatorLen = 1;
    here.address.HostAddressLen = 0xFFFF;
    GIVES(VIP_INVALID_PARAMETER, VipConnectWait(pair.a.nic, &here.address, 0, &there.address, &attributes, &out));
})
CASE(connect_accept, {
    REFUSES(VipConnectAccept(bad[n], pair.a.vi));
    GIVES(VIP_INVALID_PARAMETER, VipConnectAccept(pair.a.vi, pair.a.vi));
    GIVES(VIP_INVALID_PARAMETER, VipConnectAccept(NULL, NULL));
})
CASE(connect_reject, { REFUSES(VipConnectReject(bad[n])); })
CASE(connect_request, {
    DO(prepare_bad());
    address_of(&pair.a, &here, 0);
    address_of(&pair.b, &there, 0);
    REFUSES(VipConnectRequest(bad[n], &here.address, &there.address, 10, &attributes));
    GIVES(VIP_INVALID_PARAMETER, VipConnectRequest(pair.a.vi, NULL, &there.address, 10, &attributes));
    GIVES(VIP_INVALID_PARAMETER, VipConnectRequest(pair.a.vi, &here.address, NULL, 10, &attributes));
    there.address.HostAddressLen = 5;
    GIVES(VIP_INVALID_PARAMETER, VipConnectRequest(pair.a.vi, &here.address, &there.address, 10, &attributes));
    there.address.HostAddressLen = 0;
    GIVES(VIP_INVALID_PARAMETER, VipConnectRequest(pair.a.vi, &here.address, &there.address, 10, &attributes));
})
CASE(disconnect, { REFUSES(VipDisconnect(bad[n])); })
CASE(peer_request, {
    DO(prepare_bad());
    address_of(&pair.a, &here, 0);
    address_of(&pair.b, &there, 0);
    REFUSES(VipConnectPeerRequest(bad[n], &here.address, &there.address, 10));
    GIVES(VIP_INVALID_PARAMETER, VipConnectPeerRequest(pair.a.vi, NULL, &there.address, 10));
    GIVES(VIP_INVALID_PARAMETER, VipConnectPeerRequest(pair.a.vi, &here.address, NULL, 10));
    GIVES(VIP_INVALID_PARAMETER, VipConnectPeerRequest(pair.a.vi, &here.address, &there.address, 0));
    GIVES(VIP_INVALID_STATE, VipConnectPeerRequest(pair.a.vi, &here.address, &there.address, 10));
})
CASE(peer_done, {
    REFUSES(VipConnectPeerDone(bad[n], &attributes));
    GIVES(VIP_INVALID_STATE, VipConnectPeerDone(pair.a.vi, &attributes));
})
CASE(peer_wait, {
    REFUSES(VipConnectPeerWait(bad[n], &attributes));
    GIVES(VIP_INVALID_STATE, VipConnectPeerWait(pair.a.vi, &attributes));
})
static VIP_RETURN post(int recv, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d, VIP_MEM_HANDLE handle)
{
    return recv ? VipPostRecv(vi, d, handle) : VipPostSend(vi, d, handle);
}
CASE(post_descriptor, {
    union {
        char *address;
        VIP_DESCRIPTOR *d;
    } shifted;
    REFUSES(post(argument, bad[n], prepare(&pair.a, 0, 0, 10), pair.a.handle));
    VipErrorCallback(pair.a.nic, NULL, on_error);
    GIVES(VIP_INVALID_PARAMETER, post(argument, pair.a.vi, NULL, pair.a.handle));
    GIVES(VIP_INVALID_PARAMETER, post(argument, pair.a.vi, prepare(&pair.a, 0, 0, 10), 0));
    GIVES(VIP_INVALID_PARAMETER, post(argument, pair.a.vi, prepare(&pair.a, 0, 0, 10), 0xFFFFFFFF));
    /* Not aligned, and not in the region. */
    shifted.address = pair.a.memory + 32;
    GIVES(VIP_INVALID_PARAMETER, post(argument, pair.a.vi, shifted.d, pair.a.handle));
    shifted.address = pair.a.memory + MEMORY;
    GIVES(VIP_INVALID_PARAMETER, post(argument, pair.a.vi, shifted.d, pair.a.handle));
    shifted.address = pair.a.memory - 64;
    GIVES(VIP_INVALID_PARAMETER, post(argument, pair.a.vi, shifted.d, pair.a.handle));
})
CASE(send_done, {
    REFUSES(VipSendDone(bad[n], &d));
    GIVES(VIP_INVALID_PARAMETER, VipSendDone(pair.a.vi, NULL));
})
CASE(recv_done, {
    REFUSES(VipRecvDone(bad[n], &d));
    GIVES(VIP_INVALID_PARAMETER, VipRecvDone(pair.a.vi, NULL));
})
CASE(send_wait, {
    REFUSES(VipSendWait(bad[n], 0, &d));
    GIVES(VIP_INVALID_PARAMETER, VipSendWait(pair.a.vi, 0, NULL));
    GIVES(VIP_DESCRIPTOR_ERROR, VipSendWait(pair.a.vi, VIP_INFINITE, &d));
})
CASE(recv_wait, {
    REFUSES(VipRecvWait(bad[n], 0, &d));
    GIVES(VIP_INVALID_PARAMETER, VipRecvWait(pair.a.vi, 0, NULL));
    GIVES(VIP_DESCRIPTOR_ERROR, VipRecvWait(pair.a.vi, VIP_INFINITE, &d));
})
CASE(send_notify, {
    REFUSES(VipSendNotify(bad[n], NULL, on_descriptor));
    GIVES(VIP_INVALID_PARAMETER, VipSendNotify(pair.a.vi, NULL, NULL));
})
CASE(recv_notify, {
    REFUSES(VipRecvNotify(bad[n], NULL, on_descriptor));
    GIVES(VIP_INVALID_PARAMETER, VipRecvNotify(pair.a.vi, NULL, NULL));
})
CASE(create_cq, {
    REFUSES(VipCreateCQ(bad[n], 10, &out));
    GIVES(VIP_INVALID_PARAMETER, VipCreateCQ(pair.a.nic, 10, NULL));
})
CASE(destroy_cq, { REFUSES(VipDestroyCQ(bad[n])); })
CASE(resize_cq, { REFUSES(VipResizeCQ(bad[n], 10)); })
CASE(cq_done, {
    REFUSES(VipCQDone(bad[n], &out, &flag));
    OK(VipCreateCQ(pair.a.nic, 10, &pair.a.send_cq));
    GIVES(VIP_INVALID_PARAMETER, VipCQDone(pair.a.send_cq, NULL, &flag));
    GIVES(VIP_INVALID_PARAMETER, VipCQDone(pair.a.send_cq, &out, NULL));
})
CASE(cq_wait, {
    REFUSES(VipCQWait(bad[n], 0, &out, &flag));
    OK(VipCreateCQ(pair.a.nic, 10, &pair.a.send_cq));
    GIVES(VIP_INVALID_PARAMETER, VipCQWait(pair.a.send_cq, 0, NULL, &flag));
    GIVES(VIP_INVALID_PARAMETER, VipCQWait(pair.a.send_cq, 0, &out, NULL));
})
CASE(cq_notify, {
    REFUSES(VipCQNotify(bad[n], NULL, on_entry));
    OK(VipCreateCQ(pair.a.nic, 10, &pair.a.send_cq));
    GIVES(VIP_INVALID_PARAMETER, VipCQNotify(pair.a.send_cq, NULL, NULL));
})
CASE(ns_init, { REFUSES(VipNSInit(bad[n], NULL)); })
CASE(ns_by_name, {
    REFUSES(VipNSGetHostByName(bad[n], text, &here.address, 0));
    OK(VipNSInit(pair.a.nic, NULL));
    GIVES(VIP_INVALID_PARAMETER, VipNSGetHostByName(pair.a.nic, NULL, &here.address, 0));
    GIVES(VIP_INVALID_PARAMETER, VipNSGetHostByName(pair.a.nic, text, NULL, 0));
})
CASE(ns_by_address, {
    REFUSES(VipNSGetHostByAddr(bad[n], &here.address, text, &length));
    OK(VipNSInit(pair.a.nic, NULL));
    address_of(&pair.a, &here, 0);
    GIVES(VIP_INVALID_PARAMETER, VipNSGetHostByAddr(pair.a.nic, NULL, text, &length));
    GIVES(VIP_INVALID_PARAMETER, VipNSGetHostByAddr(pair.a.nic, &here.address, NULL, &length));
    GIVES(VIP_INVALID_PARAMETER, VipNSGetHostByAddr(pair.a.nic, &here.address, text, NULL));
    here.address.HostAddressLen = 60000;
    GIVES(VIP_INVALID_PARAMETER, VipNSGetHostByAddr(pair.a.nic, &here.address, text, &length));
})
CASE(ns_shutdown, {
    REFUSES(VipNSShutdown(bad[n]));
    OK(VipNSShutdown(pair.a.nic));
    OK(VipNSShutdown(pair.a.nic));
})
CASE(set_user_data, { REFUSES(VipSetUserData(bad[n], NULL)); })
CASE(get_user_data, {
    REFUSES(VipGetUserData(bad[n], &out));
    GIVES(VIP_INVALID_PARAMETER, VipGetUserData(pair.a.vi, NULL));
})

const struct test argument_cases[] = {
    {"arguments_VipOpenNic", EARLY_ADOPTER, open_nic, 0},
    {"arguments_VipCloseNic", FUNCTIONAL, close_nic, 0},
    {"arguments_VipQueryNic", FUNCTIONAL, query_nic, 0},
    {"arguments_VipQuerySystemManagementInfo", FUNCTIONAL, management, 0},
    {"arguments_VipErrorCallback", FUNCTIONAL, error_callback, 0},
    {"arguments_VipCreatePtag", FUNCTIONAL, create_ptag, 0},
    {"arguments_VipDestroyPtag", FUNCTIONAL, destroy_ptag, 0},
    {"arguments_VipRegisterMem", FUNCTIONAL, register_mem, 0},
    {"arguments_VipDeregisterMem", FUNCTIONAL, deregister_mem, 0},
    {"arguments_VipQueryMem", FUNCTIONAL, query_mem, 0},
    {"arguments_VipSetMemAttributes", FUNCTIONAL, set_mem, 0},
    {"arguments_VipCreateVi", FUNCTIONAL, create_vi, 0},
    {"arguments_VipDestroyVi", FUNCTIONAL, destroy_vi, 0},
    {"arguments_VipSetViAttributes", FUNCTIONAL, set_vi, 0},
    {"arguments_VipQueryVi", FUNCTIONAL, query_vi, 0},
    {"arguments_VipConnectWait", FUNCTIONAL, connect_wait, 0},
    {"arguments_VipConnectAccept", FUNCTIONAL, connect_accept, 0},
    {"arguments_VipConnectReject", FUNCTIONAL, connect_reject, 0},
    {"arguments_VipConnectRequest", FUNCTIONAL, connect_request, 0},
    {"arguments_VipDisconnect", FUNCTIONAL, disconnect, 0},
    {"arguments_VipConnectPeerRequest", FUNCTIONAL, peer_request, 0},
    {"arguments_VipConnectPeerDone", FUNCTIONAL, peer_done, 0},
    {"arguments_VipConnectPeerWait", FUNCTIONAL, peer_wait, 0},
    {"arguments_VipPostSend", FUNCTIONAL, post_descriptor, 0},
    {"arguments_VipPostRecv", FUNCTIONAL, post_descriptor, 1},
    {"arguments_VipSendDone", FUNCTIONAL, send_done, 0},
    {"arguments_VipRecvDone", FUNCTIONAL, recv_done, 0},
    {"arguments_VipSendWait", FUNCTIONAL, send_wait, 0},
    {"arguments_VipRecvWait", FUNCTIONAL, recv_wait, 0},
    {"arguments_VipSendNotify", FULL, send_notify, 0},
    {"arguments_VipRecvNotify", FULL, recv_notify, 0},
    {"arguments_VipCreateCQ", FUNCTIONAL, create_cq, 0},
    {"arguments_VipDestroyCQ", FUNCTIONAL, destroy_cq, 0},
    {"arguments_VipResizeCQ", FUNCTIONAL, resize_cq, 0},
    {"arguments_VipCQDone", FUNCTIONAL, cq_done, 0},
    {"arguments_VipCQWait", FUNCTIONAL, cq_wait, 0},
    {"arguments_VipCQNotify", FULL, cq_notify, 0},
    {"arguments_VipNSInit", FUNCTIONAL, ns_init, 0},
    {"arguments_VipNSGetHostByName", FUNCTIONAL, ns_by_name, 0},
    {"arguments_VipNSGetHostByAddr", FUNCTIONAL, ns_by_address, 0},
    {"arguments_VipNSShutdown", FUNCTIONAL, ns_shutdown, 0},
    {"arguments_VipSetUserData", FUNCTIONAL, set_user_data, 0},
    {"arguments_VipGetUserData", FUNCTIONAL, get_user_data, 0},
    {NULL, EARLY_ADOPTER, NULL, 0},
};
