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

/* Sends a message into a receive whose descriptor and data are named by these handles. */
static void exchange(VIP_MEM_HANDLE of_descriptor, VIP_MEM_HANDLE of_data)
{
    VIP_DESCRIPTOR *d = prepare(&pair.b, 0, 0, 64);
    d->DS[0].Local.Handle = of_data;
    OK(VipPostRecv(pair.b.vi, d, of_descriptor));
    DO(post_send(&pair.a, 0, 0, 64));
    OK(received(&pair.b, 0));
    OK(sent(&pair.a, 0));
}

/* What is changed of memory after it was used: the next post of the same descriptor finds it as it is then. */
enum change { DATA_DEREGISTERED, DESCRIPTOR_DEREGISTERED, ANOTHER_TAG, BEYOND_THE_END, BEFORE_THE_START };

static void memory_used_before(int change)
{
    VIP_MEM_ATTRIBUTES attributes;
    VIP_PROTECTION_HANDLE tag;
    VIP_MEM_HANDLE handle;
    VIP_DESCRIPTOR *d;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    OK(VipQueryMem(pair.b.nic, pair.b.memory, pair.b.handle, &attributes));
    OK(VipRegisterMem(pair.b.nic, pair.b.memory, MEMORY, &attributes, &handle));
    DO(exchange(change == DESCRIPTOR_DEREGISTERED ? handle : pair.b.handle, handle));
    DO(exchange(change == DESCRIPTOR_DEREGISTERED ? handle : pair.b.handle, handle));
    d = prepare(&pair.b, 0, 0, 64);
    d->DS[0].Local.Handle = handle;
    switch ((enum change)change) {
    case DATA_DEREGISTERED:
        OK(VipDeregisterMem(pair.b.nic, pair.b.memory, handle));
        break;
    case DESCRIPTOR_DEREGISTERED:
        OK(VipDeregisterMem(pair.b.nic, pair.b.memory, handle));
        d->DS[0].Local.Handle = pair.b.handle;
        GIVES(VIP_INVALID_PARAMETER, VipPostRecv(pair.b.vi, d, handle));
        return;
    case ANOTHER_TAG:
        OK(VipCreatePtag(pair.b.nic, &tag));
        attributes.Ptag = tag;
        OK(VipSetMemAttributes(pair.b.nic, pair.b.memory, handle, &attributes));
        break;
    case BEYOND_THE_END:
        d->DS[0].Local.Data.Address = pair.b.memory + MEMORY - 63;
        break;
    case BEFORE_THE_START:
        d->DS[0].Local.Data.Address = pair.b.memory - 1;
        break;
    }
    OK(VipPostRecv(pair.b.vi, d, pair.b.handle));
    GIVES(VIP_DESCRIPTOR_ERROR, received(&pair.b, 0));
    CHECK((d->CS.Status & VIP_STATUS_PROTECTION_ERROR) != 0);
}

/* Descriptors of one queue that lie in regions in turn, and so does their data. */
static void regions_in_turn(int argument)
{
    VIP_MEM_ATTRIBUTES attributes;
    VIP_MEM_HANDLE handles[3];
    int n;
    (void)argument;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    OK(VipQueryMem(pair.b.nic, pair.b.memory, pair.b.handle, &attributes));
    for (n = 0; n < 3; n++)
        OK(VipRegisterMem(pair.b.nic, pair.b.memory, MEMORY, &attributes, &handles[n]));
    for (n = 0; n < 60; n++)
        DO(exchange(handles[n % 3], handles[n / 3 % 3]));
    for (n = 0; n < 3; n++)
        OK(VipDeregisterMem(pair.b.nic, pair.b.memory, handles[n]));
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
    {"memory_used_before_data_deregistered", FUNCTIONAL, memory_used_before, DATA_DEREGISTERED},
    {"memory_used_before_descriptor_deregistered", FUNCTIONAL, memory_used_before, DESCRIPTOR_DEREGISTERED},
    {"memory_used_before_another_tag", FUNCTIONAL, memory_used_before, ANOTHER_TAG},
    {"memory_used_before_beyond_the_end", FUNCTIONAL, memory_used_before, BEYOND_THE_END},
    {"memory_used_before_before_the_start", FUNCTIONAL, memory_used_before, BEFORE_THE_START},
    {"memory_regions_in_turn", FUNCTIONAL, regions_in_turn, 0},
    {"memory_handles_are_of_their_nic", FUNCTIONAL, handles_are_of_the_nic_that_gave_them, 0},
    {"memory_a_thousand_regions", FULL, a_thousand_regions, 0},
    {NULL, EARLY_ADOPTER, NULL, 0},
};
