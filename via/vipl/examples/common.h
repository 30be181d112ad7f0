/* What the examples share: an end with registered memory, and addresses. */
#ifndef UVIA_EXAMPLES_COMMON_H
#define UVIA_EXAMPLES_COMMON_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vipl.h>

/* Ends the program when a call does not return what it should. */
#define MUST(call)                                                                                                   \
    do {                                                                                                             \
        VIP_RETURN returned_ = (call);                                                                               \
        if (returned_ != VIP_SUCCESS) {                                                                              \
            fprintf(stderr, "%s:%d: %s returned %d\n", __FILE__, __LINE__, #call, (int)returned_);                   \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

#define ROOM 65536

/* Room for an address with any discriminator. */
typedef union {
    VIP_NET_ADDRESS address;
    char bytes[4 + 6 + 64];
} Address;

/* One end of a connection: descriptors first in its memory, then data. */
typedef struct {
    VIP_NIC_HANDLE nic;
    VIP_NIC_ATTRIBUTES about;
    VIP_PROTECTION_HANDLE tag;
    VIP_VI_ATTRIBUTES attributes;
    VIP_VI_HANDLE vi;
    /* As it was allocated, and aligned. */
    char *allocated, *memory;
    VIP_MEM_HANDLE handle;
} End;

static inline VIP_DESCRIPTOR *descriptor(End *end, int n)
{
    return (VIP_DESCRIPTOR *)(void *)end->memory + n;
}

static inline char *data(End *end)
{
    return end->memory + 4096;
}

static inline void open_end(End *end, const char *device)
{
    VIP_MEM_ATTRIBUTES memory;
    memset(end, 0, sizeof *end);
    MUST(VipOpenNic(device, &end->nic));
    MUST(VipQueryNic(end->nic, &end->about));
    MUST(VipCreatePtag(end->nic, &end->tag));
    end->allocated = calloc(1, ROOM + 4096);
    if (end->allocated == NULL)
        exit(1);
    end->memory = end->allocated + 64 - (VIP_UINT64)end->allocated % 64;
    memory.Ptag = end->tag;
    memory.EnableRdmaWrite = VIP_TRUE;
    memory.EnableRdmaRead = VIP_FALSE;
    MUST(VipRegisterMem(end->nic, end->memory, ROOM, &memory, &end->handle));
    end->attributes.ReliabilityLevel = VIP_SERVICE_RELIABLE_DELIVERY;
    end->attributes.MaxTransferSize = 32768;
    end->attributes.Ptag = end->tag;
    end->attributes.EnableRdmaWrite = VIP_TRUE;
    MUST(VipCreateVi(end->nic, &end->attributes, NULL, NULL, &end->vi));
    MUST(VipNSInit(end->nic, NULL));
}

static inline void close_end(End *end)
{
    MUST(VipDisconnect(end->vi));
    MUST(VipDestroyVi(end->vi));
    MUST(VipDeregisterMem(end->nic, end->memory, end->handle));
    MUST(VipDestroyPtag(end->nic, end->tag));
    MUST(VipNSShutdown(end->nic));
    MUST(VipCloseNic(end->nic));
    free(end->allocated);
}

/* Puts a discriminator behind a host's address. */
static inline void discriminate(Address *address, const char *discriminator)
{
    address->address.DiscriminatorLen = (VIP_UINT16)strlen(discriminator);
    memcpy(address->bytes + 4 + address->address.HostAddressLen, discriminator, strlen(discriminator));
}

static inline void local_address(End *end, Address *address, const char *discriminator)
{
    address->address.HostAddressLen = end->about.NicAddressLen;
    memcpy(address->address.HostAddress, end->about.LocalNicAddress, end->about.NicAddressLen);
    discriminate(address, discriminator);
}

static inline void remote_address(End *end, Address *address, const char *host, const char *discriminator)
{
    char name[64];
    VIP_RETURN returned;
    strncpy(name, host, sizeof name - 1);
    name[sizeof name - 1] = 0;
    do
        returned = VipNSGetHostByName(end->nic, name, &address->address, 0);
    while (returned == VIP_ERROR_NAMESERVICE);
    MUST(returned);
    discriminate(address, discriminator);
}

/* A descriptor of one segment: of data, from `at` on. */
static inline VIP_DESCRIPTOR *prepare(End *end, int n, size_t at, VIP_UINT32 length)
{
    VIP_DESCRIPTOR *d = descriptor(end, n);
    memset(d, 0, sizeof *d);
    d->CS.SegCount = 1;
    d->CS.Control = VIP_CONTROL_OP_SENDRECV;
    d->CS.Length = length;
    d->DS[0].Local.Data.Address = data(end) + at;
    d->DS[0].Local.Handle = end->handle;
    d->DS[0].Local.Length = length;
    return d;
}

static inline void receive(End *end, int n, size_t at, VIP_UINT32 length)
{
    MUST(VipPostRecv(end->vi, prepare(end, n, at, length), end->handle));
}

static inline void send_out(End *end, int n, size_t at, VIP_UINT32 length)
{
    VIP_DESCRIPTOR *d;
    MUST(VipPostSend(end->vi, prepare(end, n, at, length), end->handle));
    MUST(VipSendWait(end->vi, VIP_INFINITE, &d));
}

/* Waits for who asks, and accepts. */
static inline void serve(End *end, const char *discriminator)
{
    Address here, there;
    VIP_VI_ATTRIBUTES attributes;
    VIP_CONN_HANDLE connection;
    local_address(end, &here, discriminator);
    MUST(VipConnectWait(end->nic, &here.address, VIP_INFINITE, &there.address, &attributes, &connection));
    MUST(VipConnectAccept(connection, end->vi));
}

/* Asks until somebody waits there. */
static inline void join(End *end, const char *host, const char *discriminator)
{
    Address here, there;
    VIP_VI_ATTRIBUTES attributes;
    VIP_RETURN returned;
    local_address(end, &here, discriminator);
    remote_address(end, &there, host, discriminator);
    do
        returned = VipConnectRequest(end->vi, &here.address, &there.address, 10000, &attributes);
    while (returned == VIP_NO_MATCH);
    MUST(returned);
}

#endif
