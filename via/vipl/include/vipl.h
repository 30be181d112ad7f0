/*
 * vipl.h: the Virtual Interface Provider Library over uvia.
 *
 * The interface of the Virtual Interface Architecture 1.0, so that programs written for it build and run unchanged.
 * C89 to C23, C++98 to C++23; 64-bit systems (LP64).
 */
#ifndef VIPL_H
#define VIPL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Anonymous unions are older in compilers than in the C standard, and are asked for by this word without a warning. */
#if defined(__GNUC__)
#define VIPL_EXTENSION __extension__
#define VIPL_ALIGNED(bytes) __attribute__((__aligned__(bytes)))
#else
#define VIPL_EXTENSION
#define VIPL_ALIGNED(bytes)
#endif

/* Fails to compile when the condition does not hold; in every version of both languages. */
#define VIPL_ASSERT(name, condition) typedef char vipl_assert_##name[(condition) ? 1 : -1] VIPL_UNUSED
#if defined(__GNUC__)
#define VIPL_UNUSED __attribute__((__unused__))
#else
#define VIPL_UNUSED
#endif

/* ---- Plain types ---- */

typedef void VIP_VOID;
typedef void *VIP_PVOID;
typedef char VIP_CHAR;
typedef unsigned char VIP_UCHAR;
typedef int VIP_BOOLEAN;
typedef int VIP_INT;
typedef unsigned int VIP_UINT;
typedef unsigned short VIP_USHORT;
typedef long VIP_LONG;
typedef unsigned long VIP_ULONG;
typedef signed char VIP_INT8;
typedef short VIP_INT16;
typedef int VIP_INT32;
typedef long VIP_INT64;
typedef unsigned char VIP_UINT8;
typedef unsigned short VIP_UINT16;
typedef unsigned int VIP_UINT32;
typedef unsigned long VIP_UINT64;

#ifndef VIP_TRUE
#define VIP_TRUE 1
#endif
#ifndef VIP_FALSE
#define VIP_FALSE 0
#endif

/* Handles are names, not addresses: they are looked up, and one of an object that is gone stays invalid. */
typedef VIP_PVOID VIP_NIC_HANDLE;
typedef VIP_PVOID VIP_VI_HANDLE;
typedef VIP_PVOID VIP_PROTECTION_HANDLE;
typedef VIP_PVOID VIP_CONN_HANDLE;
typedef VIP_PVOID VIP_CQ_HANDLE;
typedef VIP_PVOID VIP_QOS;

/* Names a registered region; never 0 and never 0xFFFFFFFF. */
typedef VIP_UINT32 VIP_MEM_HANDLE;

/* Time-outs are milliseconds; this one does not end. */
#define VIP_INFINITE (~(VIP_ULONG)0)

/* ---- What functions return ---- */

typedef enum _VIP_RETURN {
    VIP_SUCCESS = 0,
    VIP_NOT_DONE = 1,
    VIP_INVALID_PARAMETER = 2,
    VIP_ERROR_RESOURCE = 3,
    VIP_TIMEOUT = 4,
    VIP_REJECT = 5,
    VIP_INVALID_RELIABILITY_LEVEL = 6,
    VIP_INVALID_MTU = 7,
    VIP_INVALID_QOS = 8,
    VIP_INVALID_PTAG = 9,
    VIP_INVALID_RDMAREAD = 10,
    VIP_DESCRIPTOR_ERROR = 11,
    VIP_INVALID_STATE = 12,
    VIP_ERROR_NAMESERVICE = 13,
    VIP_NO_MATCH = 14,
    VIP_NOT_REACHABLE = 15,
    VIP_ERROR_NOT_SUPPORTED = 16
} VIP_RETURN;

/* Programs ask for this one by #ifndef. */
#define VIP_ERROR_NOT_SUPPORTED VIP_ERROR_NOT_SUPPORTED

/* ---- Addresses ---- */

/* A connection point. The discriminator's bytes follow the host's bytes directly; a host's address has 6. */
typedef struct _VIP_NET_ADDRESS {
    VIP_UINT16 HostAddressLen;
    VIP_UINT16 DiscriminatorLen;
    VIP_UINT8 HostAddress[1];
} VIP_NET_ADDRESS;

/* ---- NICs ---- */

typedef VIP_USHORT VIP_RELIABILITY_LEVEL;

#define VIP_SERVICE_UNRELIABLE ((VIP_RELIABILITY_LEVEL)1)
#define VIP_SERVICE_RELIABLE_DELIVERY ((VIP_RELIABILITY_LEVEL)2)
#define VIP_SERVICE_RELIABLE_RECEPTION ((VIP_RELIABILITY_LEVEL)4)

typedef struct _VIP_NIC_ATTRIBUTES {
    VIP_CHAR Name[64];
    VIP_ULONG HardwareVersion;
    VIP_ULONG ProviderVersion;
    VIP_UINT16 NicAddressLen;
    const VIP_UINT8 *LocalNicAddress;
    VIP_BOOLEAN ThreadSafe;
    VIP_UINT16 MaxDiscriminatorLen;
    VIP_ULONG MaxRegisterBytes;
    VIP_ULONG MaxRegisterRegions;
    VIP_ULONG MaxRegisterBlockBytes;
    VIP_ULONG MaxVI;
    VIP_ULONG MaxDescriptorsPerQueue;
    VIP_ULONG MaxSegmentsPerDesc;
    VIP_ULONG MaxCQ;
    VIP_ULONG MaxCQEntries;
    VIP_ULONG MaxTransferSize;
    VIP_ULONG NativeMTU;
    VIP_ULONG MaxPtags;
    VIP_RELIABILITY_LEVEL ReliabilityLevelSupport;
    VIP_RELIABILITY_LEVEL RDMAReadSupport;
} VIP_NIC_ATTRIBUTES;

/* ---- Virtual interfaces ---- */

typedef struct _VIP_VI_ATTRIBUTES {
    VIP_RELIABILITY_LEVEL ReliabilityLevel;
    VIP_ULONG MaxTransferSize;
    VIP_QOS QoS;
    VIP_PROTECTION_HANDLE Ptag;
    VIP_BOOLEAN EnableRdmaWrite;
    VIP_BOOLEAN EnableRdmaRead;
} VIP_VI_ATTRIBUTES;

typedef enum _VIP_VI_STATE {
    VIP_STATE_IDLE = 0,
    VIP_STATE_CONNECTED = 1,
    VIP_STATE_CONNECT_PENDING = 2,
    VIP_STATE_ERROR = 3
} VIP_VI_STATE;

/* ---- Memory ---- */

typedef struct _VIP_MEM_ATTRIBUTES {
    VIP_PROTECTION_HANDLE Ptag;
    VIP_BOOLEAN EnableRdmaWrite;
    VIP_BOOLEAN EnableRdmaRead;
} VIP_MEM_ATTRIBUTES;

/* ---- Descriptors ---- */

typedef union _VIP_PVOID64 {
    VIP_UINT64 AddressBits;
    VIP_PVOID Address;
} VIP_PVOID64;

typedef struct _VIP_CONTROL_SEGMENT {
    VIP_PVOID64 Next;
    VIP_MEM_HANDLE NextHandle;
    VIP_UINT16 SegCount;
    VIP_UINT16 Control;
    VIP_UINT32 Reserved;
    VIP_UINT32 ImmediateData;
    VIP_UINT32 Length;
    VIP_UINT32 Status;
} VIP_CONTROL_SEGMENT;

typedef struct _VIP_ADDRESS_SEGMENT {
    VIP_PVOID64 Data;
    VIP_MEM_HANDLE Handle;
    VIP_UINT32 Reserved;
} VIP_ADDRESS_SEGMENT;

typedef struct _VIP_DATA_SEGMENT {
    VIP_PVOID64 Data;
    VIP_MEM_HANDLE Handle;
    VIP_UINT32 Length;
} VIP_DATA_SEGMENT;

typedef union _VIP_DESCRIPTOR_SEGMENT {
    VIP_ADDRESS_SEGMENT Remote;
    VIP_DATA_SEGMENT Local;
} VIP_DESCRIPTOR_SEGMENT;

/* Where a descriptor may lie. */
#define VIP_DESCRIPTOR_ALIGNMENT 64

/* Two spellings are in use, of one layout. Programs add segments behind it. */
VIPL_EXTENSION typedef struct _VIP_DESCRIPTOR {
    VIPL_EXTENSION union {
        VIP_CONTROL_SEGMENT CS;
        VIP_CONTROL_SEGMENT Control;
    };
    VIPL_EXTENSION union {
        VIP_DESCRIPTOR_SEGMENT DS[2];
        VIP_DESCRIPTOR_SEGMENT Data[2];
    };
} VIPL_ALIGNED(64) VIP_DESCRIPTOR;

/* Bits of a control segment's Control. */
#define VIP_CONTROL_OP_SENDRECV 0x0000
#define VIP_CONTROL_OP_RDMAWRITE 0x0001
#define VIP_CONTROL_OP_RDMAREAD 0x0002
#define VIP_CONTROL_OP_RESERVED 0x0003
#define VIP_CONTROL_OP_MASK 0x0003
#define VIP_CONTROL_IMMEDIATE 0x0004
#define VIP_CONTROL_QFENCE 0x0008
#define VIP_CONTROL_RESERVED 0xFFF0

/* Bits of a control segment's Status. */
#define VIP_STATUS_DONE 0x00000001
#define VIP_STATUS_FORMAT_ERROR 0x00000002
#define VIP_STATUS_PROTECTION_ERROR 0x00000004
#define VIP_STATUS_LENGTH_ERROR 0x00000008
#define VIP_STATUS_PARTIAL_ERROR 0x00000010
#define VIP_STATUS_DESC_FLUSHED_ERROR 0x00000020
#define VIP_STATUS_TRANSPORT_ERROR 0x00000040
#define VIP_STATUS_RDMA_PROT_ERROR 0x00000080
#define VIP_STATUS_REMOTE_DESC_ERROR 0x00000100
#define VIP_STATUS_ERROR_MASK 0x000001FE
#define VIP_STATUS_OP_SEND 0x00000000
#define VIP_STATUS_OP_RECEIVE 0x00010000
#define VIP_STATUS_OP_RDMA_WRITE 0x00020000
#define VIP_STATUS_OP_REMOTE_RDMA_WRITE 0x00030000
#define VIP_STATUS_OP_RDMA_READ 0x00040000
#define VIP_STATUS_OP_MASK 0x00070000
#define VIP_STATUS_IMMEDIATE 0x00080000
#define VIP_STATUS_RESERVED 0xFFF0FE00

/* ---- Errors that no descriptor can carry ---- */

typedef enum _VIP_RESOURCE_CODE {
    VIP_RESOURCE_NIC = 0,
    VIP_RESOURCE_VI = 1,
    VIP_RESOURCE_CQ = 2,
    VIP_RESOURCE_DESCRIPTOR = 3
} VIP_RESOURCE_CODE;

typedef enum _VIP_ERROR_CODE {
    VIP_ERROR_POST_DESC = 0,
    VIP_ERROR_CONN_LOST = 1,
    VIP_ERROR_RECVQ_EMPTY = 2,
    VIP_ERROR_VI_OVERRUN = 3,
    VIP_ERROR_RDMAW_PROT = 4,
    VIP_ERROR_RDMAW_DATA = 5,
    VIP_ERROR_RDMAW_ABORT = 6,
    VIP_ERROR_RDMAR_PROT = 7,
    VIP_ERROR_COMP_PROT = 8,
    VIP_ERROR_RDMA_TRANSPORT = 9,
    VIP_ERROR_CATASTROPHIC = 10
} VIP_ERROR_CODE;

typedef struct _VIP_ERROR_DESCRIPTOR {
    VIP_NIC_HANDLE NicHandle;
    VIP_VI_HANDLE ViHandle;
    VIP_CQ_HANDLE CQHandle;
    VIP_DESCRIPTOR *DescriptorPtr;
    VIP_ULONG OpCode;
    VIP_RESOURCE_CODE ResourceCode;
    VIP_ERROR_CODE ErrorCode;
} VIP_ERROR_DESCRIPTOR;

/* ---- System management ---- */

#define VIP_SMI_AUTODISCOVERY ((VIP_ULONG)1)

typedef struct _VIP_AUTODISCOVERY_LIST {
    VIP_ULONG NumberOfHops;
    VIP_NET_ADDRESS **ADAddrArray;
    VIP_ULONG NumAdAddrs;
} VIP_AUTODISCOVERY_LIST;

/* ---- Layouts, as the library has them ---- */

VIPL_ASSERT(lp64, sizeof(VIP_ULONG) == 8 && sizeof(VIP_PVOID) == 8);
VIPL_ASSERT(net_address, sizeof(VIP_NET_ADDRESS) == 6 && offsetof(VIP_NET_ADDRESS, HostAddress) == 4);
VIPL_ASSERT(nic_attributes,
            sizeof(VIP_NIC_ATTRIBUTES) == 200 && offsetof(VIP_NIC_ATTRIBUTES, NicAddressLen) == 80 &&
                offsetof(VIP_NIC_ATTRIBUTES, LocalNicAddress) == 88 &&
                offsetof(VIP_NIC_ATTRIBUTES, ThreadSafe) == 96 &&
                offsetof(VIP_NIC_ATTRIBUTES, MaxDiscriminatorLen) == 100 &&
                offsetof(VIP_NIC_ATTRIBUTES, MaxRegisterBytes) == 104 &&
                offsetof(VIP_NIC_ATTRIBUTES, MaxTransferSize) == 168 &&
                offsetof(VIP_NIC_ATTRIBUTES, MaxPtags) == 184 &&
                offsetof(VIP_NIC_ATTRIBUTES, ReliabilityLevelSupport) == 192 &&
                offsetof(VIP_NIC_ATTRIBUTES, RDMAReadSupport) == 194);
VIPL_ASSERT(vi_attributes,
            sizeof(VIP_VI_ATTRIBUTES) == 40 && offsetof(VIP_VI_ATTRIBUTES, MaxTransferSize) == 8 &&
                offsetof(VIP_VI_ATTRIBUTES, QoS) == 16 && offsetof(VIP_VI_ATTRIBUTES, Ptag) == 24 &&
                offsetof(VIP_VI_ATTRIBUTES, EnableRdmaWrite) == 32 &&
                offsetof(VIP_VI_ATTRIBUTES, EnableRdmaRead) == 36);
VIPL_ASSERT(mem_attributes,
            sizeof(VIP_MEM_ATTRIBUTES) == 16 && offsetof(VIP_MEM_ATTRIBUTES, EnableRdmaWrite) == 8 &&
                offsetof(VIP_MEM_ATTRIBUTES, EnableRdmaRead) == 12);
VIPL_ASSERT(control_segment,
            sizeof(VIP_CONTROL_SEGMENT) == 32 && offsetof(VIP_CONTROL_SEGMENT, NextHandle) == 8 &&
                offsetof(VIP_CONTROL_SEGMENT, SegCount) == 12 && offsetof(VIP_CONTROL_SEGMENT, Control) == 14 &&
                offsetof(VIP_CONTROL_SEGMENT, Reserved) == 16 &&
                offsetof(VIP_CONTROL_SEGMENT, ImmediateData) == 20 &&
                offsetof(VIP_CONTROL_SEGMENT, Length) == 24 && offsetof(VIP_CONTROL_SEGMENT, Status) == 28);
VIPL_ASSERT(segments, sizeof(VIP_ADDRESS_SEGMENT) == 16 && sizeof(VIP_DATA_SEGMENT) == 16 &&
                          offsetof(VIP_DATA_SEGMENT, Handle) == 8 && offsetof(VIP_DATA_SEGMENT, Length) == 12);
VIPL_ASSERT(descriptor, sizeof(VIP_DESCRIPTOR) == 64 && offsetof(VIP_DESCRIPTOR, DS) == 32 &&
                            offsetof(VIP_DESCRIPTOR, Data) == 32);
VIPL_ASSERT(error_descriptor, sizeof(VIP_ERROR_DESCRIPTOR) == 48 &&
                                  offsetof(VIP_ERROR_DESCRIPTOR, DescriptorPtr) == 24 &&
                                  offsetof(VIP_ERROR_DESCRIPTOR, OpCode) == 32 &&
                                  offsetof(VIP_ERROR_DESCRIPTOR, ResourceCode) == 40 &&
                                  offsetof(VIP_ERROR_DESCRIPTOR, ErrorCode) == 44);
VIPL_ASSERT(autodiscovery, sizeof(VIP_AUTODISCOVERY_LIST) == 24);

/* ---- NICs ---- */

VIP_RETURN VipOpenNic(const VIP_CHAR *DeviceName, VIP_NIC_HANDLE *NicHandle);
VIP_RETURN VipCloseNic(VIP_NIC_HANDLE NicHandle);
VIP_RETURN VipQueryNic(VIP_NIC_HANDLE NicHandle, VIP_NIC_ATTRIBUTES *NicAttribs);
VIP_RETURN VipQuerySystemManagementInfo(VIP_NIC_HANDLE NicHandle, VIP_ULONG InfoType, VIP_PVOID SysManInfo);
VIP_RETURN VipErrorCallback(VIP_NIC_HANDLE NicHandle, VIP_PVOID Context,
                            void (*Handler)(VIP_PVOID Context, VIP_ERROR_DESCRIPTOR *ErrorDesc));

/* ---- Memory ---- */

VIP_RETURN VipCreatePtag(VIP_NIC_HANDLE NicHandle, VIP_PROTECTION_HANDLE *Ptag);
VIP_RETURN VipDestroyPtag(VIP_NIC_HANDLE NicHandle, VIP_PROTECTION_HANDLE Ptag);
VIP_RETURN VipRegisterMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress, VIP_ULONG Length,
                          VIP_MEM_ATTRIBUTES *MemAttribs, VIP_MEM_HANDLE *MemoryHandle);
VIP_RETURN VipDeregisterMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress, VIP_MEM_HANDLE MemoryHandle);
VIP_RETURN VipQueryMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress, VIP_MEM_HANDLE MemoryHandle,
                       VIP_MEM_ATTRIBUTES *MemAttribs);
VIP_RETURN VipSetMemAttributes(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress, VIP_MEM_HANDLE MemoryHandle,
                               VIP_MEM_ATTRIBUTES *MemAttribs);

/* ---- Virtual interfaces ---- */

VIP_RETURN VipCreateVi(VIP_NIC_HANDLE NicHandle, VIP_VI_ATTRIBUTES *ViAttribs, VIP_CQ_HANDLE SendCQHandle,
                       VIP_CQ_HANDLE RecvCQHandle, VIP_VI_HANDLE *ViHandle);
VIP_RETURN VipDestroyVi(VIP_VI_HANDLE ViHandle);
VIP_RETURN VipSetViAttributes(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES *ViAttribs);
VIP_RETURN VipQueryVi(VIP_VI_HANDLE ViHandle, VIP_VI_STATE *State, VIP_VI_ATTRIBUTES *ViAttribs,
                      VIP_BOOLEAN *ViSendQEmpty, VIP_BOOLEAN *ViRecvQEmpty);

/* ---- Connections ---- */

VIP_RETURN VipConnectWait(VIP_NIC_HANDLE NicHandle, VIP_NET_ADDRESS *LocalAddr, VIP_ULONG Timeout,
                          VIP_NET_ADDRESS *RemoteAddr, VIP_VI_ATTRIBUTES *RemoteViAttribs,
                          VIP_CONN_HANDLE *ConnHandle);
VIP_RETURN VipConnectAccept(VIP_CONN_HANDLE ConnHandle, VIP_VI_HANDLE ViHandle);
VIP_RETURN VipConnectReject(VIP_CONN_HANDLE ConnHandle);
VIP_RETURN VipConnectRequest(VIP_VI_HANDLE ViHandle, VIP_NET_ADDRESS *LocalAddr, VIP_NET_ADDRESS *RemoteAddr,
                             VIP_ULONG Timeout, VIP_VI_ATTRIBUTES *RemoteViAttribs);
VIP_RETURN VipDisconnect(VIP_VI_HANDLE ViHandle);
VIP_RETURN VipConnectPeerRequest(VIP_VI_HANDLE ViHandle, VIP_NET_ADDRESS *LocalAddr, VIP_NET_ADDRESS *RemoteAddr,
                                 VIP_ULONG Timeout);
VIP_RETURN VipConnectPeerDone(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES *RemoteViAttribs);
VIP_RETURN VipConnectPeerWait(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES *RemoteViAttribs);

/* ---- Data transfer ---- */

VIP_RETURN VipPostSend(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR *DescriptorPtr, VIP_MEM_HANDLE MemoryHandle);
VIP_RETURN VipPostRecv(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR *DescriptorPtr, VIP_MEM_HANDLE MemoryHandle);
VIP_RETURN VipSendDone(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR **DescriptorPtr);
VIP_RETURN VipRecvDone(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR **DescriptorPtr);
VIP_RETURN VipSendWait(VIP_VI_HANDLE ViHandle, VIP_ULONG Timeout, VIP_DESCRIPTOR **DescriptorPtr);
VIP_RETURN VipRecvWait(VIP_VI_HANDLE ViHandle, VIP_ULONG Timeout, VIP_DESCRIPTOR **DescriptorPtr);
VIP_RETURN VipSendNotify(VIP_VI_HANDLE ViHandle, VIP_PVOID Context,
                         void (*Handler)(VIP_PVOID Context, VIP_NIC_HANDLE NicHandle, VIP_VI_HANDLE ViHandle,
                                         VIP_DESCRIPTOR *DescriptorPtr));
VIP_RETURN VipRecvNotify(VIP_VI_HANDLE ViHandle, VIP_PVOID Context,
                         void (*Handler)(VIP_PVOID Context, VIP_NIC_HANDLE NicHandle, VIP_VI_HANDLE ViHandle,
                                         VIP_DESCRIPTOR *DescriptorPtr));

/* ---- Completion queues ---- */

VIP_RETURN VipCreateCQ(VIP_NIC_HANDLE NicHandle, VIP_ULONG EntryCount, VIP_CQ_HANDLE *CQHandle);
VIP_RETURN VipDestroyCQ(VIP_CQ_HANDLE CQHandle);
VIP_RETURN VipResizeCQ(VIP_CQ_HANDLE CQHandle, VIP_ULONG EntryCount);
VIP_RETURN VipCQDone(VIP_CQ_HANDLE CQHandle, VIP_VI_HANDLE *ViHandle, VIP_BOOLEAN *RecvQueue);
VIP_RETURN VipCQWait(VIP_CQ_HANDLE CQHandle, VIP_ULONG Timeout, VIP_VI_HANDLE *ViHandle, VIP_BOOLEAN *RecvQueue);
VIP_RETURN VipCQNotify(VIP_CQ_HANDLE CQHandle, VIP_PVOID Context,
                       void (*Handler)(VIP_PVOID Context, VIP_NIC_HANDLE NicHandle, VIP_VI_HANDLE ViHandle,
                                       VIP_BOOLEAN RecvQueue));

/* ---- Names ---- */

VIP_RETURN VipNSInit(VIP_NIC_HANDLE NicHandle, VIP_PVOID NSInitInfo);
VIP_RETURN VipNSGetHostByName(VIP_NIC_HANDLE NicHandle, VIP_CHAR *Name, VIP_NET_ADDRESS *Address,
                              VIP_ULONG NameIndex);
VIP_RETURN VipNSGetHostByAddr(VIP_NIC_HANDLE NicHandle, VIP_NET_ADDRESS *Address, VIP_CHAR *Name,
                              VIP_ULONG *NameLen);
VIP_RETURN VipNSShutdown(VIP_NIC_HANDLE NicHandle);

/* ---- A word of the program's for each VI; an addition of vendors ---- */

VIP_RETURN VipSetUserData(VIP_VI_HANDLE ViHandle, VIP_PVOID UserData);
VIP_RETURN VipGetUserData(VIP_VI_HANDLE ViHandle, VIP_PVOID *UserData);

/* ---- Endpoints whose sends lie in an adapter's memory; an addition of this project, see vipl(7) ---- */

/* Bits of Missing: what such an interface lacks. */
#define VIPX_PIO_NO_RDMA_SOURCE ((VIP_ULONG)0x1)
#define VIPX_PIO_NO_RDMA_TARGET ((VIP_ULONG)0x2)
#define VIPX_PIO_NO_GATHER_BEYOND_SLOT ((VIP_ULONG)0x4)
#define VIPX_PIO_NO_CHECKSUM_OFFLOAD ((VIP_ULONG)0x8)

typedef struct _VIPX_PIO_ATTRIBUTES {
    VIP_ULONG Windows;         /* each interface takes one */
    VIP_ULONG WindowsLeft;     /* other processes take some too */
    VIP_ULONG Credits;         /* most descriptors posted to the send queue */
    VIP_ULONG MaxTransferSize; /* longest message, bytes */
    VIP_ULONG StoreWidth;      /* bytes that the memory is stored into at a time */
    VIP_ULONG Alignment;
    VIP_ULONG Missing;
} VIPX_PIO_ATTRIBUTES;

VIPL_ASSERT(pio_attributes, sizeof(VIPX_PIO_ATTRIBUTES) == 56);

VIP_RETURN VipxQueryPio(VIP_NIC_HANDLE NicHandle, VIPX_PIO_ATTRIBUTES *PioAttribs);
VIP_RETURN VipxCreatePioVi(VIP_NIC_HANDLE NicHandle, VIP_VI_ATTRIBUTES *ViAttribs, VIP_CQ_HANDLE SendCQHandle,
                           VIP_CQ_HANDLE RecvCQHandle, VIP_VI_HANDLE *ViHandle);

/* Sends of bytes that are registered nowhere. The descriptor has no segments. */
VIP_RETURN VipxPostInject(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR *DescriptorPtr, VIP_MEM_HANDLE MemoryHandle,
                          const void *Bytes, VIP_ULONG Length);

/* Messages that are prebuilt in the adapter's memory, and sent again and again with a few bytes changed. */
typedef VIP_PVOID VIPX_TEMPLATE_HANDLE;

VIP_RETURN VipxCreateTemplate(VIP_VI_HANDLE ViHandle, const void *Bytes, VIP_ULONG Length,
                              VIPX_TEMPLATE_HANDLE *TemplateHandle);
VIP_RETURN VipxPatchTemplate(VIPX_TEMPLATE_HANDLE TemplateHandle, VIP_ULONG Offset, const void *Bytes,
                             VIP_ULONG Length);
VIP_RETURN VipxPostTemplate(VIPX_TEMPLATE_HANDLE TemplateHandle, VIP_DESCRIPTOR *DescriptorPtr,
                            VIP_MEM_HANDLE MemoryHandle);
VIP_RETURN VipxDestroyTemplate(VIPX_TEMPLATE_HANDLE TemplateHandle);

#ifdef __cplusplus
}
#endif

#endif
