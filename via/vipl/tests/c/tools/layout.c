/* Prints the layout of every structure of vipl.h, as it is on record in layout.txt. */
#include <stdio.h>

#include <vipl.h>

#define SIZE(type) printf("%s: %lu bytes\n", #type, (unsigned long)sizeof(type))
#define AT(type, field)                                                                                              \
    printf("%s.%s at %lu, %lu bytes\n", #type, #field, (unsigned long)offsetof(type, field),                         \
           (unsigned long)sizeof(((type *)0)->field))

int main(void)
{
    SIZE(VIP_NET_ADDRESS);
    AT(VIP_NET_ADDRESS, HostAddressLen), AT(VIP_NET_ADDRESS, DiscriminatorLen), AT(VIP_NET_ADDRESS, HostAddress);
    SIZE(VIP_NIC_ATTRIBUTES);
    AT(VIP_NIC_ATTRIBUTES, Name), AT(VIP_NIC_ATTRIBUTES, HardwareVersion), AT(VIP_NIC_ATTRIBUTES, ProviderVersion);
    AT(VIP_NIC_ATTRIBUTES, NicAddressLen), AT(VIP_NIC_ATTRIBUTES, LocalNicAddress);
    AT(VIP_NIC_ATTRIBUTES, ThreadSafe), AT(VIP_NIC_ATTRIBUTES, MaxDiscriminatorLen);
    AT(VIP_NIC_ATTRIBUTES, MaxRegisterBytes), AT(VIP_NIC_ATTRIBUTES, MaxRegisterRegions);
    AT(VIP_NIC_ATTRIBUTES, MaxRegisterBlockBytes), AT(VIP_NIC_ATTRIBUTES, MaxVI);
    AT(VIP_NIC_ATTRIBUTES, MaxDescriptorsPerQueue), AT(VIP_NIC_ATTRIBUTES, MaxSegmentsPerDesc);
    AT(VIP_NIC_ATTRIBUTES, MaxCQ), AT(VIP_NIC_ATTRIBUTES, MaxCQEntries), AT(VIP_NIC_ATTRIBUTES, MaxTransferSize);
    AT(VIP_NIC_ATTRIBUTES, NativeMTU), AT(VIP_NIC_ATTRIBUTES, MaxPtags);
    AT(VIP_NIC_ATTRIBUTES, ReliabilityLevelSupport), AT(VIP_NIC_ATTRIBUTES, RDMAReadSupport);
    SIZE(VIP_VI_ATTRIBUTES);
    AT(VIP_VI_ATTRIBUTES, ReliabilityLevel), AT(VIP_VI_ATTRIBUTES, MaxTransferSize), AT(VIP_VI_ATTRIBUTES, QoS);
    AT(VIP_VI_ATTRIBUTES, Ptag), AT(VIP_VI_ATTRIBUTES, EnableRdmaWrite), AT(VIP_VI_ATTRIBUTES, EnableRdmaRead);
    SIZE(VIP_MEM_ATTRIBUTES);
    AT(VIP_MEM_ATTRIBUTES, Ptag), AT(VIP_MEM_ATTRIBUTES, EnableRdmaWrite), AT(VIP_MEM_ATTRIBUTES, EnableRdmaRead);
    SIZE(VIP_PVOID64);
    SIZE(VIP_CONTROL_SEGMENT);
    AT(VIP_CONTROL_SEGMENT, Next), AT(VIP_CONTROL_SEGMENT, NextHandle), AT(VIP_CONTROL_SEGMENT, SegCount);
    AT(VIP_CONTROL_SEGMENT, Control), AT(VIP_CONTROL_SEGMENT, Reserved), AT(VIP_CONTROL_SEGMENT, ImmediateData);
    AT(VIP_CONTROL_SEGMENT, Length), AT(VIP_CONTROL_SEGMENT, Status);
    SIZE(VIP_ADDRESS_SEGMENT);
    AT(VIP_ADDRESS_SEGMENT, Data), AT(VIP_ADDRESS_SEGMENT, Handle), AT(VIP_ADDRESS_SEGMENT, Reserved);
    SIZE(VIP_DATA_SEGMENT);
    AT(VIP_DATA_SEGMENT, Data), AT(VIP_DATA_SEGMENT, Handle), AT(VIP_DATA_SEGMENT, Length);
    SIZE(VIP_DESCRIPTOR);
    AT(VIP_DESCRIPTOR, CS), AT(VIP_DESCRIPTOR, Control), AT(VIP_DESCRIPTOR, DS), AT(VIP_DESCRIPTOR, Data);
    SIZE(VIP_ERROR_DESCRIPTOR);
    AT(VIP_ERROR_DESCRIPTOR, NicHandle), AT(VIP_ERROR_DESCRIPTOR, ViHandle), AT(VIP_ERROR_DESCRIPTOR, CQHandle);
    AT(VIP_ERROR_DESCRIPTOR, DescriptorPtr), AT(VIP_ERROR_DESCRIPTOR, OpCode);
    AT(VIP_ERROR_DESCRIPTOR, ResourceCode), AT(VIP_ERROR_DESCRIPTOR, ErrorCode);
    SIZE(VIP_AUTODISCOVERY_LIST);
    AT(VIP_AUTODISCOVERY_LIST, NumberOfHops), AT(VIP_AUTODISCOVERY_LIST, ADAddrArray);
    AT(VIP_AUTODISCOVERY_LIST, NumAdAddrs);
    return 0;
}
