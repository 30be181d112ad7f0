/* Registered memory. */
#include <sys/mman.h>

#include "suite.h"

static void registers_and_deregisters(int argument)
{
    (void)argument;
    DO(open_end(&pair.a, device_a));
    CHECK(pair.a.handle != 0 && pair.a.handle != 0xFFFFFFFF);
    OK(VipDeregisterMem(pair.a.nic, pair.a.memory, pair.a.handle));
    GIVES(VIP_INVALID_PARAMETER, VipDeregisterMem(pair.a.nic, pair.a.memory, pair.a.handle));
}

static void without_attributes(int argument)
{
    VIP_MEM_HANDLE handle;
    VIP_MEM_ATTRIBUTES attributes;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    OK(VipRegisterMem(pair.a.nic, pair.a.memory, 100, NULL, &handle));
    OK(VipQueryMem(pair.a.nic, pair.a.memory, handle, &attributes));
    CHECK(attributes.Ptag == NULL && !attributes.EnableRdmaWrite && !attributes.EnableRdmaRead);
    OK(VipDeregisterMem(pair.a.nic, pair.a.memory, handle));
}

static void any_address_and_length(int argument)
{
    VIP_MEM_HANDLE handles[16];
    int n;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    for (n = 0; n < 16; n++)
        OK(VipRegisterMem(pair.a.nic, pair.a.memory + n * 7, (VIP_ULONG)(1 + n * 5001), NULL, &handles[n]));
    for (n = 0; n < 16; n++)
        OK(VipDeregisterMem(pair.a.nic, pair.a.memory + n * 7, handles[n]));
}

static void bad_ranges_are_refused(int argument)
{
    VIP_MEM_HANDLE handle = 5;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    GIVES(VIP_INVALID_PARAMETER, VipRegisterMem(pair.a.nic, pair.a.memory, 0, NULL, &handle));
    GIVES(VIP_INVALID_PARAMETER, VipRegisterMem(pair.a.nic, NULL, 100, NULL, &handle));
    GIVES(VIP_INVALID_PARAMETER, VipRegisterMem(pair.a.nic, pair.a.memory, ~0UL, NULL, &handle));
    GIVES(VIP_INVALID_PARAMETER, VipRegisterMem(pair.a.nic, pair.a.memory, ~0UL - (VIP_ULONG)pair.a.memory, NULL, &handle));
    CHECK(handle == 5);
}

static void what_is_not_mapped_is_refused(int argument)
{
    VIP_MEM_HANDLE handle;
    char *pages = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)argument;
    CHECK(pages != MAP_FAILED);
    munmap(pages + 4096, 4096);
    DO(open_end(&pair.a, device_a));
    GIVES(VIP_INVALID_PARAMETER, VipRegisterMem(pair.a.nic, pages + 4096, 100, NULL, &handle));
    GIVES(VIP_INVALID_PARAMETER, VipRegisterMem(pair.a.nic, pages, 3 * 4096, NULL, &handle));
    OK(VipRegisterMem(pair.a.nic, pages, 4096, NULL, &handle));
    OK(VipDeregisterMem(pair.a.nic, pages, handle));
    munmap(pages, 4096);
    munmap(pages + 8192, 4096);
}

static void a_foreign_tag_is_refused(int argument)
{
    VIP_MEM_HANDLE handle;
    VIP_MEM_ATTRIBUTES attributes;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    DO(open_end(&pair.b, device_a));
    memset(&attributes, 0, sizeof attributes);
    attributes.Ptag = pair.b.tag;
    GIVES(VIP_INVALID_PTAG, VipRegisterMem(pair.a.nic, pair.a.memory, 100, &attributes, &handle));
    attributes.Ptag = &attributes;
    GIVES(VIP_INVALID_PTAG, VipRegisterMem(pair.a.nic, pair.a.memory, 100, &attributes, &handle));
}

static void queries_what_was_registered(int argument)
{
    VIP_MEM_ATTRIBUTES attributes;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    OK(VipQueryMem(pair.a.nic, pair.a.memory, pair.a.handle, &attributes));
    CHECK(attributes.Ptag == pair.a.tag && attributes.EnableRdmaWrite && attributes.EnableRdmaRead);
    GIVES(VIP_INVALID_PARAMETER, VipQueryMem(pair.a.nic, pair.a.memory - 1, pair.a.handle, &attributes));
    GIVES(VIP_INVALID_PARAMETER, VipQueryMem(pair.a.nic, pair.a.memory + MEMORY, pair.a.handle, &attributes));
}

static void attributes_change(int argument)
{
    VIP_MEM_ATTRIBUTES attributes;
    VIP_PROTECTION_HANDLE tag;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    OK(VipCreatePtag(pair.a.nic, &tag));
    attributes.Ptag = tag;
    attributes.EnableRdmaWrite = VIP_FALSE;
    attributes.EnableRdmaRead = VIP_TRUE;
    OK(VipSetMemAttributes(pair.a.nic, pair.a.memory, pair.a.handle, &attributes));
    memset(&attributes, 0, sizeof attributes);
    OK(VipQueryMem(pair.a.nic, pair.a.memory, pair.a.handle, &attributes));
    CHECK(attributes.Ptag == tag && !attributes.EnableRdmaWrite && attributes.EnableRdmaRead);
    GIVES(VIP_ERROR_RESOURCE, VipDestroyPtag(pair.a.nic, tag));
    OK(VipDestroyPtag(pair.a.nic, pair.a.tag));
}

static void memory_in_use_stays(int argument)
{
    VIP_DESCRIPTOR *d;
    (void)argument;
    DO(open_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    DO(post_recv(&pair.a, 0, 0, 100));
    GIVES(VIP_ERROR_RESOURCE, VipDeregisterMem(pair.a.nic, pair.a.memory, pair.a.handle));
    OK(VipDisconnect(pair.a.vi));
    /* It has completed, flushed: it need not have been asked for. */
    OK(VipDeregisterMem(pair.a.nic, pair.a.memory, pair.a.handle));
    GIVES(VIP_DESCRIPTOR_ERROR, VipRecvDone(pair.a.vi, &d));
    CHECK(d == descriptor(&pair.a, 0) && (d->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR) != 0);
}

static void a_stale_handle_is_no_memory(int argument)
{
    VIP_MEM_HANDLE handle, next;
    (void)argument;
    DO(open_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    OK(VipRegisterMem(pair.a.nic, pair.a.memory, MEMORY, NULL, &handle));
    OK(VipDeregisterMem(pair.a.nic, pair.a.memory, handle));
    OK(VipRegisterMem(pair.a.nic, pair.a.memory, MEMORY, NULL, &next));
    CHECK(next != handle);
    GIVES(VIP_INVALID_PARAMETER, VipPostRecv(pair.a.vi, prepare(&pair.a, 0, 0, 10), handle));
    GIVES(VIP_INVALID_PARAMETER, VipDeregisterMem(pair.a.nic, pair.a.memory, handle));
}

static void handles_are_of_the_nic_that_gave_them(int argument)
{
    (void)argument;
    DO(open_end(&pair.a, device_a));
    DO(open_end(&pair.b, device_a));
    GIVES(VIP_INVALID_PARAMETER, VipDeregisterMem(pair.b.nic, pair.a.memory, pair.a.handle));
}

static void a_thousand_regions(int argument)
{
    static VIP_MEM_HANDLE handles[1000];
    int n, m;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    for (m = 0; m < 2; m++) {
        for (n = 0; n < 1000; n++) {
            OK(VipRegisterMem(pair.a.nic, pair.a.memory + n, 10, NULL, &handles[n]));
            CHECK(handles[n] != 0 && handles[n] != 0xFFFFFFFF);
        }
        for (n = 0; n < 1000; n++)
            OK(VipDeregisterMem(pair.a.nic, pair.a.memory + n, handles[n]));
    }
}

const struct test memory_cases[] = {
    {"memory_registers_and_deregisters", EARLY_ADOPTER, registers_and_deregisters, 0},
    {"memory_without_attributes", EARLY_ADOPTER, without_attributes, 0},
    {"memory_at_any_address_and_length", EARLY_ADOPTER, any_address_and_length, 0},
    {"memory_bad_ranges_are_refused", EARLY_ADOPTER, bad_ranges_are_refused, 0},
    {"memory_not_mapped_is_refused", FUNCTIONAL, what_is_not_mapped_is_refused, 0},
    {"memory_foreign_tag_is_refused", FUNCTIONAL, a_foreign_tag_is_refused, 0},
    {"memory_query", EARLY_ADOPTER, queries_what_was_registered, 0},
    {"memory_attributes_change", FUNCTIONAL, attributes_change, 0},
    {"memory_in_use_stays", FUNCTIONAL, memory_in_use_stays, 0},
    {"memory_stale_handle", FUNCTIONAL, a_stale_handle_is_no_memory, 0},
    {"memory_handles_are_of_their_nic", FUNCTIONAL, handles_are_of_the_nic_that_gave_them, 0},
    {"memory_a_thousand_regions", FULL, a_thousand_regions, 0},
    {NULL, EARLY_ADOPTER, NULL, 0},
};
