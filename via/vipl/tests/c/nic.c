/* NICs, their attributes, names and protection tags. */
#include "suite.h"

static void opens_and_closes(int argument)
{
    (void)argument;
    OK(VipOpenNic(device_a, &pair.a.nic));
    OK(VipCloseNic(pair.a.nic));
    pair.a.nic = NULL;
}

static void each_open_is_a_handle_of_its_own(int argument)
{
    VIP_NIC_ATTRIBUTES about;
    VIP_NIC_HANDLE first;
    (void)argument;
    OK(VipOpenNic(device_a, &pair.a.nic));
    OK(VipOpenNic(device_a, &pair.b.nic));
    CHECK(pair.a.nic != pair.b.nic);
    first = pair.a.nic;
    OK(VipCloseNic(first));
    pair.a.nic = NULL;
    GIVES(VIP_INVALID_PARAMETER, VipQueryNic(first, &about));
    OK(VipQueryNic(pair.b.nic, &about));
}

static void a_closed_handle_is_stale(int argument)
{
    VIP_NIC_HANDLE nic;
    VIP_NIC_ATTRIBUTES about;
    VIP_PROTECTION_HANDLE tag;
    (void)argument;
    OK(VipOpenNic(device_a, &nic));
    OK(VipCloseNic(nic));
    GIVES(VIP_INVALID_PARAMETER, VipCloseNic(nic));
    GIVES(VIP_INVALID_PARAMETER, VipQueryNic(nic, &about));
    GIVES(VIP_INVALID_PARAMETER, VipCreatePtag(nic, &tag));
}

static void tells_what_it_is(int argument)
{
    (void)argument;
    DO(open_end(&pair.a, device_a));
    CHECK(pair.a.about.NicAddressLen == 6 && pair.a.about.LocalNicAddress != NULL);
    CHECK(strncmp(pair.a.about.Name, device_a, 63) == 0);
    CHECK(pair.a.about.ThreadSafe != VIP_FALSE);
    CHECK(pair.a.about.NativeMTU > 0 && pair.a.about.MaxTransferSize >= pair.a.about.NativeMTU);
}

static void tells_its_limits(int argument)
{
    VIP_NIC_ATTRIBUTES *about = &pair.a.about;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    CHECK(about->MaxDiscriminatorLen >= 16 && about->MaxVI >= 64 && about->MaxCQ >= 16);
    CHECK(about->MaxRegisterBytes >= 1 << 20 && about->MaxRegisterRegions >= 64);
    CHECK(about->MaxRegisterBlockBytes >= 1 << 20 && about->MaxDescriptorsPerQueue >= 64);
    CHECK(about->MaxSegmentsPerDesc >= 252 && about->MaxCQEntries >= 1024 && about->MaxPtags >= 16);
}

static void supports_all_levels(int argument)
{
    (void)argument;
    DO(open_end(&pair.a, device_a));
    CHECK(pair.a.about.ReliabilityLevelSupport == 7);
    CHECK(pair.a.about.ReliabilityLevelSupport >= VIP_SERVICE_RELIABLE_RECEPTION);
    CHECK((pair.a.about.RDMAReadSupport & VIP_SERVICE_UNRELIABLE) == 0);
}

static void closing_takes_all_with_it(int argument)
{
    VIP_VI_HANDLE vi;
    VIP_VI_STATE state;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_DELIVERY));
    vi = pair.a.vi;
    OK(VipCloseNic(pair.a.nic));
    pair.a.nic = NULL;
    GIVES(VIP_INVALID_PARAMETER, VipQueryVi(vi, &state, NULL, NULL, NULL));
}

static void tags_are_created_and_destroyed(int argument)
{
    VIP_PROTECTION_HANDLE one, two;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    OK(VipCreatePtag(pair.a.nic, &one));
    OK(VipCreatePtag(pair.a.nic, &two));
    CHECK(one != two && one != NULL);
    OK(VipDestroyPtag(pair.a.nic, one));
    GIVES(VIP_INVALID_PARAMETER, VipDestroyPtag(pair.a.nic, one));
    OK(VipDestroyPtag(pair.a.nic, two));
}

static void a_tag_of_memory_stays(int argument)
{
    (void)argument;
    DO(open_end(&pair.a, device_a));
    GIVES(VIP_ERROR_RESOURCE, VipDestroyPtag(pair.a.nic, pair.a.tag));
    OK(VipDeregisterMem(pair.a.nic, pair.a.memory, pair.a.handle));
    OK(VipDestroyPtag(pair.a.nic, pair.a.tag));
}

static void a_tag_of_a_vi_stays(int argument)
{
    (void)argument;
    DO(open_end(&pair.a, device_a));
    DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_DELIVERY));
    OK(VipDeregisterMem(pair.a.nic, pair.a.memory, pair.a.handle));
    GIVES(VIP_ERROR_RESOURCE, VipDestroyPtag(pair.a.nic, pair.a.tag));
    OK(VipDestroyVi(pair.a.vi));
    OK(VipDestroyPtag(pair.a.nic, pair.a.tag));
}

static void a_tag_of_another_nic_is_none(int argument)
{
    (void)argument;
    DO(open_end(&pair.a, device_a));
    DO(open_end(&pair.b, device_a));
    GIVES(VIP_INVALID_PARAMETER, VipDestroyPtag(pair.a.nic, pair.b.tag));
    pair.a.attributes.Ptag = pair.b.tag;
    GIVES(VIP_INVALID_PTAG, VipCreateVi(pair.a.nic, &pair.a.attributes, NULL, NULL, &pair.a.vi));
}

static void names_are_found(int argument)
{
    Address address;
    char name[] = "localhost", unknown[] = "no-such-host";
    (void)argument;
    DO(open_end(&pair.a, device_a));
    OK(VipNSInit(pair.a.nic, NULL));
    memset(&address, 0xee, sizeof address);
    OK(VipNSGetHostByName(pair.a.nic, name, &address.address, 0));
    CHECK(address.address.HostAddressLen == 6);
    CHECK(memcmp(address.bytes + 4, pair.a.about.LocalNicAddress, 6) == 0);
    GIVES(VIP_ERROR_NAMESERVICE, VipNSGetHostByName(pair.a.nic, name, &address.address, 1));
    GIVES(VIP_ERROR_NAMESERVICE, VipNSGetHostByName(pair.a.nic, unknown, &address.address, 0));
    OK(VipNSShutdown(pair.a.nic));
}

static void a_name_fills_the_host_only(int argument)
{
    Address address;
    char name[] = "localhost";
    (void)argument;
    DO(open_end(&pair.a, device_a));
    OK(VipNSInit(pair.a.nic, NULL));
    memset(&address, 0xee, sizeof address);
    OK(VipNSGetHostByName(pair.a.nic, name, &address.address, 0));
    CHECK(address.address.DiscriminatorLen == 0xeeee && address.bytes[10] == 0xee);
}

static void addresses_have_names(int argument)
{
    Address address;
    char name[80];
    VIP_ULONG length = sizeof name, small = 1;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    OK(VipNSInit(pair.a.nic, NULL));
    address_of(&pair.a, &address, 0);
    memset(name, 'x', sizeof name);
    OK(VipNSGetHostByAddr(pair.a.nic, &address.address, name, &length));
    CHECK(strlen(name) + 1 == length && length > 1);
    GIVES(VIP_ERROR_RESOURCE, VipNSGetHostByAddr(pair.a.nic, &address.address, name, &small));
    CHECK(small == length);
    address.bytes[5] ^= 0x55;
    length = sizeof name;
    GIVES(VIP_ERROR_NAMESERVICE, VipNSGetHostByAddr(pair.a.nic, &address.address, name, &length));
}

static void names_end_with_the_service(int argument)
{
    Address address;
    char name[] = "localhost";
    (void)argument;
    DO(open_end(&pair.a, device_a));
    GIVES(VIP_ERROR_NAMESERVICE, VipNSGetHostByName(pair.a.nic, name, &address.address, 0));
    OK(VipNSInit(pair.a.nic, NULL));
    OK(VipNSShutdown(pair.a.nic));
    GIVES(VIP_ERROR_NAMESERVICE, VipNSGetHostByName(pair.a.nic, name, &address.address, 0));
}

static void management_is_not_supported(int argument)
{
    VIP_AUTODISCOVERY_LIST list;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    GIVES(VIP_ERROR_NOT_SUPPORTED, VipQuerySystemManagementInfo(pair.a.nic, VIP_SMI_AUTODISCOVERY, &list));
    GIVES(VIP_INVALID_PARAMETER, VipQuerySystemManagementInfo(pair.a.nic, 77, &list));
}

const struct test nic_cases[] = {
    {"nic_opens_and_closes", EARLY_ADOPTER, opens_and_closes, 0},
    {"nic_each_open_is_a_handle_of_its_own", EARLY_ADOPTER, each_open_is_a_handle_of_its_own, 0},
    {"nic_a_closed_handle_is_stale", EARLY_ADOPTER, a_closed_handle_is_stale, 0},
    {"nic_tells_what_it_is", EARLY_ADOPTER, tells_what_it_is, 0},
    {"nic_tells_its_limits", EARLY_ADOPTER, tells_its_limits, 0},
    {"nic_supports_all_levels", EARLY_ADOPTER, supports_all_levels, 0},
    {"nic_closing_takes_all_with_it", FUNCTIONAL, closing_takes_all_with_it, 0},
    {"tag_is_created_and_destroyed", EARLY_ADOPTER, tags_are_created_and_destroyed, 0},
    {"tag_of_memory_stays", FUNCTIONAL, a_tag_of_memory_stays, 0},
    {"tag_of_a_vi_stays", FUNCTIONAL, a_tag_of_a_vi_stays, 0},
    {"tag_of_another_nic_is_none", FUNCTIONAL, a_tag_of_another_nic_is_none, 0},
    {"name_is_found", EARLY_ADOPTER, names_are_found, 0},
    {"name_fills_the_host_only", EARLY_ADOPTER, a_name_fills_the_host_only, 0},
    {"name_of_an_address", FUNCTIONAL, addresses_have_names, 0},
    {"name_service_ends", FUNCTIONAL, names_end_with_the_service, 0},
    {"management_is_not_supported", FUNCTIONAL, management_is_not_supported, 0},
    {NULL, EARLY_ADOPTER, NULL, 0},
};
