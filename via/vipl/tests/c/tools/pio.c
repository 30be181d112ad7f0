/*
 * Interfaces whose sends lie in an adapter's memory, between two NICs: pio A B. The environment names the memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vipl.h>

#define GIVES(expected, call)                                                                                        \
    do {                                                                                                             \
        VIP_RETURN given_ = (call);                                                                                  \
        if (given_ != (expected)) {                                                                                  \
            fprintf(stderr, "%d: %s gives %d\n", __LINE__, #call, (int)given_);                                      \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)
#define OK(call) GIVES(VIP_SUCCESS, call)
#define CHECK(condition)                                                                                             \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            fprintf(stderr, "%d: %s\n", __LINE__, #condition);                                                       \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

#define MOST_WINDOWS 256
#define PATIENCE 60000

struct address {
    VIP_UINT16 host_len, discriminator_len;
    unsigned char bytes[8];
};

struct memory {
    VIP_DESCRIPTOR descriptor;
    unsigned char bytes[1024];
};

static void set(struct memory *memory, VIP_MEM_HANDLE handle, unsigned length)
{
    memset(&memory->descriptor, 0, sizeof memory->descriptor);
    memory->descriptor.CS.SegCount = 1;
    memory->descriptor.CS.Length = length;
    memory->descriptor.DS[0].Local.Data.Address = memory->bytes;
    memory->descriptor.DS[0].Local.Handle = handle;
    memory->descriptor.DS[0].Local.Length = length;
}

int main(int argc, char **argv)
{
    static VIP_VI_HANDLE windows[MOST_WINDOWS];
    static struct memory memory[2];
    VIP_NIC_HANDLE a, b;
    VIP_NIC_ATTRIBUTES about;
    VIPX_PIO_ATTRIBUTES pio;
    VIP_VI_ATTRIBUTES wanted, got;
    VIP_VI_HANDLE vi, peer;
    VIP_MEM_HANDLE handles[2];
    VIP_DESCRIPTOR *done;
    static unsigned char message[512], other[512];
    VIPX_TEMPLATE_HANDLE template;
    struct address there = {6, 1, {0}}, here = {6, 1, {0}};
    unsigned n;

    if (argc != 3)
        return 2;
    OK(VipOpenNic(argv[1], &a));
    OK(VipOpenNic(argv[2], &b));
    GIVES(VIP_INVALID_PARAMETER, VipxQueryPio(a, NULL));
    GIVES(VIP_INVALID_PARAMETER, VipxQueryPio(NULL, &pio));
    memset(&wanted, 0, sizeof wanted);
    wanted.ReliabilityLevel = VIP_SERVICE_RELIABLE_DELIVERY;
    wanted.MaxTransferSize = 256;
    if (getenv("UVIA_ADAPTER_MEMORY") == NULL) {
        GIVES(VIP_ERROR_NOT_SUPPORTED, VipxQueryPio(a, &pio));
        GIVES(VIP_ERROR_NOT_SUPPORTED, VipxCreatePioVi(a, &wanted, NULL, NULL, &vi));
        puts("none");
        return 0;
    }
    OK(VipxQueryPio(a, &pio));
    CHECK(pio.Windows == pio.WindowsLeft && pio.Windows > 0 && pio.Windows <= MOST_WINDOWS);
    CHECK(pio.Credits == 16 && pio.MaxTransferSize == 448 && pio.StoreWidth == 8 && pio.Alignment == 8);
    CHECK(pio.Missing & VIPX_PIO_NO_RDMA_SOURCE && pio.Missing & VIPX_PIO_NO_RDMA_TARGET);

    wanted.EnableRdmaWrite = VIP_TRUE;
    GIVES(VIP_ERROR_NOT_SUPPORTED, VipxCreatePioVi(a, &wanted, NULL, NULL, &vi));
    wanted.EnableRdmaWrite = VIP_FALSE;
    wanted.MaxTransferSize = pio.MaxTransferSize + 1;
    GIVES(VIP_INVALID_MTU, VipxCreatePioVi(a, &wanted, NULL, NULL, &vi));
    wanted.MaxTransferSize = pio.MaxTransferSize;
    for (n = 0; n < pio.Windows; n++)
        OK(VipxCreatePioVi(n % 2 ? a : b, &wanted, NULL, NULL, &windows[n]));
    GIVES(VIP_ERROR_RESOURCE, VipxCreatePioVi(a, &wanted, NULL, NULL, &vi));
    for (n = 0; n < pio.Windows; n++)
        OK(VipDestroyVi(windows[n]));
    OK(VipxCreatePioVi(a, &wanted, NULL, NULL, &vi));
    OK(VipCreateVi(b, &wanted, NULL, NULL, &peer));

    /* The peer is of the usual kind. */
    OK(VipQueryNic(b, &about));
    memcpy(there.bytes, about.LocalNicAddress, 6);
    there.bytes[6] = 'p';
    OK(VipQueryNic(a, &about));
    memcpy(here.bytes, about.LocalNicAddress, 6);
    here.bytes[6] = 'q';
    OK(VipConnectPeerRequest(vi, (VIP_NET_ADDRESS *)&here, (VIP_NET_ADDRESS *)&there, PATIENCE));
    OK(VipConnectPeerRequest(peer, (VIP_NET_ADDRESS *)&there, (VIP_NET_ADDRESS *)&here, PATIENCE));
    OK(VipConnectPeerWait(vi, &got));
    OK(VipConnectPeerWait(peer, &got));

    OK(VipRegisterMem(a, &memory[0], sizeof memory[0], NULL, &handles[0]));
    OK(VipRegisterMem(b, &memory[1], sizeof memory[1], NULL, &handles[1]));
    for (n = 0; n < 100; n++) {
        unsigned length = 1 + n * 13 % 448;
        set(&memory[1], handles[1], 448);
        OK(VipPostRecv(peer, &memory[1].descriptor, handles[1]));
        set(&memory[0], handles[0], length);
        memset(memory[0].bytes, (int)n, length);
        OK(VipPostSend(vi, &memory[0].descriptor, handles[0]));
        OK(VipRecvWait(peer, PATIENCE, &done));
        CHECK(done == &memory[1].descriptor && done->CS.Length == length);
        CHECK(memcmp(memory[0].bytes, memory[1].bytes, length) == 0);
        OK(VipSendWait(vi, PATIENCE, &done));
    }

    /* Bytes that are registered nowhere, and a message that is prebuilt. */
    GIVES(VIP_ERROR_NOT_SUPPORTED, VipxPostInject(peer, &memory[1].descriptor, handles[1], "x", 1));
    GIVES(VIP_ERROR_NOT_SUPPORTED, VipxCreateTemplate(peer, "x", 1, &template));
    GIVES(VIP_INVALID_MTU, VipxCreateTemplate(vi, message, pio.MaxTransferSize + 1, &template));
    GIVES(VIP_INVALID_PARAMETER, VipxCreateTemplate(vi, message, 1, NULL));
    GIVES(VIP_INVALID_PARAMETER, VipxCreateTemplate(vi, NULL, 1, &template));
    memset(message, 7, sizeof message);
    OK(VipxCreateTemplate(vi, message, 200, &template));
    GIVES(VIP_INVALID_PARAMETER, VipxPatchTemplate(template, 199, "ab", 2));
    GIVES(VIP_INVALID_PARAMETER, VipxPatchTemplate(vi, 0, "ab", 2));
    for (n = 0; n < 100; n++) {
        unsigned length = n % 3 ? 200 : 1 + n * 13 % 448;
        set(&memory[1], handles[1], 448);
        OK(VipPostRecv(peer, &memory[1].descriptor, handles[1]));
        set(&memory[0], handles[0], 0);
        memory[0].descriptor.CS.SegCount = 0;
        if (n % 3) {
            message[3 + n] = (unsigned char)n;
            OK(VipxPatchTemplate(template, 3 + n, &message[3 + n], 1));
            OK(VipxPostTemplate(template, &memory[0].descriptor, handles[0]));
        } else {
            memset(other, (int)n, length);
            OK(VipxPostInject(vi, &memory[0].descriptor, handles[0], other, length));
            memset(other, 0xee, length);
            memset(other, (int)n, length);
        }
        OK(VipRecvWait(peer, PATIENCE, &done));
        CHECK(done == &memory[1].descriptor && done->CS.Length == length);
        CHECK(memcmp(n % 3 ? message : other, memory[1].bytes, length) == 0);
        OK(VipSendWait(vi, PATIENCE, &done));
        CHECK(done == &memory[0].descriptor);
    }
    OK(VipxDestroyTemplate(template));
    GIVES(VIP_INVALID_PARAMETER, VipxDestroyTemplate(template));
    set(&memory[0], handles[0], 0);
    memory[0].descriptor.CS.SegCount = 0;
    GIVES(VIP_INVALID_PARAMETER, VipxPostTemplate(template, &memory[0].descriptor, handles[0]));
    OK(VipDisconnect(vi));
    OK(VipDisconnect(peer));
    OK(VipDestroyVi(vi));
    OK(VipDestroyVi(peer));
    OK(VipCloseNic(a));
    OK(VipCloseNic(b));
    puts("done");
    return 0;
}
