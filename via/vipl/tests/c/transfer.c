/* Sends and receives. */
#include "suite.h"

static void a_message(int level)
{
    DO(open_pair(level));
    fill(data(&pair.a, 0), 1000, 1);
    DO(post_recv(&pair.b, 0, 5000, 2000));
    DO(join(&pair.a, pair.a.vi, &pair.b, pair.b.vi, 0));
    descriptor(&pair.b, 0)->CS.ImmediateData = 0;
    DO(post_send(&pair.a, 0, 0, 1000));
    OK(sent(&pair.a, 0));
    OK(received(&pair.b, 0));
    CHECK(descriptor(&pair.a, 0)->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_SEND));
    CHECK(descriptor(&pair.b, 0)->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE));
    CHECK(descriptor(&pair.b, 0)->CS.Length == 1000 && descriptor(&pair.a, 0)->CS.Length == 1000);
    CHECK(is_filled(data(&pair.b, 5000), 1000, 1) && data(&pair.b, 6000)[0] == 0);
}

static void of_size(int size)
{
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    fill(data(&pair.a, 3), (size_t)size, 2);
    DO(post_recv(&pair.b, 0, 1, (VIP_UINT32)size));
    DO(post_send(&pair.a, 0, 3, (VIP_UINT32)size));
    OK(sent(&pair.a, 0));
    OK(received(&pair.b, 0));
    CHECK(descriptor(&pair.b, 0)->CS.Length == (VIP_UINT32)size && is_filled(data(&pair.b, 1), (size_t)size, 2));
}

static void without_segments(int argument)
{
    VIP_DESCRIPTOR *d;
    (void)argument;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    d = prepare(&pair.b, 0, 0, 0);
    d->CS.SegCount = 0;
    OK(VipPostRecv(pair.b.vi, d, pair.b.handle));
    d = prepare(&pair.a, 0, 0, 0);
    d->CS.SegCount = 0;
    OK(VipPostSend(pair.a.vi, d, pair.a.handle));
    OK(sent(&pair.a, 0));
    OK(received(&pair.b, 0));
    CHECK(descriptor(&pair.b, 0)->CS.Length == 0);
}

/* A descriptor of many segments, with room of its own. */
static VIP_DESCRIPTOR *scattered(End *end, int segments, VIP_UINT32 length)
{
    VIP_DESCRIPTOR *d = (VIP_DESCRIPTOR *)(void *)data(end, 256 * 1024);
    int n;
    memset(d, 0, sizeof *d);
    d->CS.SegCount = (VIP_UINT16)segments;
    for (n = 0; n < segments; n++) {
        d->DS[n].Local.Data.Address = data(end, (size_t)n * (length + 3));
        d->DS[n].Local.Handle = end->handle;
        d->DS[n].Local.Length = length;
    }
    d->CS.Length = length * (VIP_UINT32)segments;
    return d;
}

static void gathered_and_scattered(int segments)
{
    VIP_DESCRIPTOR *d, *done;
    int n;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    for (n = 0; n < segments; n++)
        fill(data(&pair.a, (size_t)n * 103), 100, (unsigned)n);
    d = scattered(&pair.b, segments, 100);
    OK(VipPostRecv(pair.b.vi, d, pair.b.handle));
    OK(VipPostSend(pair.a.vi, scattered(&pair.a, segments, 100), pair.a.handle));
    OK(VipSendWait(pair.a.vi, PATIENCE, &done));
    OK(VipRecvWait(pair.b.vi, PATIENCE, &done));
    CHECK(done == d && d->CS.Length == (VIP_UINT32)segments * 100);
    for (n = 0; n < segments; n++)
        CHECK(is_filled(data(&pair.b, (size_t)n * 103), 100, (unsigned)n));
}

static void too_many_segments(int argument)
{
    VIP_DESCRIPTOR *done;
    (void)argument;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    OK(VipPostSend(pair.a.vi, scattered(&pair.a, (int)pair.a.about.MaxSegmentsPerDesc + 1, 4), pair.a.handle));
    GIVES(VIP_DESCRIPTOR_ERROR, VipSendWait(pair.a.vi, PATIENCE, &done));
    CHECK((done->CS.Status & VIP_STATUS_FORMAT_ERROR) != 0);
}

static void immediate_data(int level)
{
    VIP_DESCRIPTOR *d;
    DO(connect_pair(level));
    DO(post_recv(&pair.b, 0, 0, 100));
    DO(post_recv(&pair.b, 1, 0, 100));
    descriptor(&pair.b, 1)->CS.ImmediateData = 99;
    d = prepare(&pair.a, 0, 0, 10);
    d->CS.Control |= VIP_CONTROL_IMMEDIATE;
    d->CS.ImmediateData = 0xdeadbeef;
    OK(VipPostSend(pair.a.vi, d, pair.a.handle));
    DO(post_send(&pair.a, 1, 0, 10));
    OK(received(&pair.b, 0));
    CHECK(descriptor(&pair.b, 0)->CS.ImmediateData == 0xdeadbeef);
    CHECK((descriptor(&pair.b, 0)->CS.Status & VIP_STATUS_IMMEDIATE) != 0);
    OK(received(&pair.b, 1));
    CHECK(descriptor(&pair.b, 1)->CS.ImmediateData == 0);
    CHECK((descriptor(&pair.b, 1)->CS.Status & VIP_STATUS_IMMEDIATE) == 0);
    OK(sent(&pair.a, 0));
    OK(sent(&pair.a, 1));
}

static void in_order(int level)
{
    int n, round;
    DO(connect_pair(level));
    for (round = 0; round < 4; round++) {
        for (n = 0; n < 64; n++)
            DO(post_recv(&pair.b, n, (size_t)n * 64, 64));
        for (n = 0; n < 64; n++) {
            data(&pair.a, 64 * (size_t)n)[0] = (char)n;
            DO(post_send(&pair.a, n, 64 * (size_t)n, 64));
        }
        for (n = 0; n < 64; n++) {
            OK(received(&pair.b, n));
            CHECK(data(&pair.b, 64 * (size_t)n)[0] == (char)n);
        }
        for (n = 0; n < 64; n++)
            OK(sent(&pair.a, n));
    }
}

static void by_polling(int argument)
{
    VIP_DESCRIPTOR *d;
    VIP_RETURN given;
    (void)argument;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    DO(post_recv(&pair.b, 0, 0, 100));
    GIVES(VIP_NOT_DONE, VipRecvDone(pair.b.vi, &d));
    DO(post_send(&pair.a, 0, 0, 100));
    do
        given = VipRecvDone(pair.b.vi, &d);
    while (given == VIP_NOT_DONE);
    OK(given);
    CHECK(d == descriptor(&pair.b, 0));
    do
        given = VipSendDone(pair.a.vi, &d);
    while (given == VIP_NOT_DONE);
    OK(given);
    CHECK(d == descriptor(&pair.a, 0));
}

static void too_long_for_the_receive(int level)
{
    DO(connect_pair(level));
    DO(post_recv(&pair.b, 0, 0, 99));
    DO(post_send(&pair.a, 0, 0, 100));
    GIVES(VIP_DESCRIPTOR_ERROR, received(&pair.b, 0));
    CHECK((descriptor(&pair.b, 0)->CS.Status & VIP_STATUS_LENGTH_ERROR) != 0);
}

static void too_long_for_the_vi(int argument)
{
    (void)argument;
    DO(open_end(&pair.a, device_a));
    DO(open_end(&pair.b, device_b));
    pair.a.attributes.MaxTransferSize = pair.b.attributes.MaxTransferSize = 1000;
    DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_DELIVERY));
    DO(open_vi(&pair.b, VIP_SERVICE_RELIABLE_DELIVERY));
    DO(join(&pair.a, pair.a.vi, &pair.b, pair.b.vi, 0));
    DO(post_recv(&pair.b, 0, 0, 2000));
    DO(post_send(&pair.a, 0, 0, 1000));
    OK(sent(&pair.a, 0));
    OK(received(&pair.b, 0));
    DO(post_send(&pair.a, 0, 0, 1001));
    GIVES(VIP_DESCRIPTOR_ERROR, sent(&pair.a, 0));
    CHECK((descriptor(&pair.a, 0)->CS.Status & VIP_STATUS_LENGTH_ERROR) != 0);
}

static volatile int dropped;

static void is_dropped(VIP_PVOID context, VIP_ERROR_DESCRIPTOR *error)
{
    (void)context;
    dropped |= error->ErrorCode == VIP_ERROR_RECVQ_EMPTY;
}

static void nothing_posted(int level)
{
    VIP_VI_STATE state;
    VIP_DESCRIPTOR *d;
    DO(connect_pair(level));
    dropped = 0;
    OK(VipErrorCallback(pair.b.nic, NULL, is_dropped));
    DO(post_send(&pair.a, 0, 0, 100));
    if (level == VIP_SERVICE_UNRELIABLE) {
        /* It is dropped, and the connection stays. */
        OK(sent(&pair.a, 0));
        while (!dropped)
            ;
        DO(post_recv(&pair.b, 0, 0, 100));
        GIVES(VIP_TIMEOUT, VipRecvWait(pair.b.vi, 50, &d));
        DO(post_send(&pair.a, 1, 0, 10));
        OK(received(&pair.b, 0));
        CHECK(descriptor(&pair.b, 0)->CS.Length == 10);
        return;
    }
    do
        OK(VipQueryVi(pair.b.vi, &state, NULL, NULL, NULL));
    while (state == VIP_STATE_CONNECTED);
    CHECK(state == VIP_STATE_ERROR);
    do
        OK(VipQueryVi(pair.a.vi, &state, NULL, NULL, NULL));
    while (state == VIP_STATE_CONNECTED);
    CHECK(state == VIP_STATE_ERROR);
}

enum { RESERVED_BITS, RESERVED_OPERATION, RDMA_ON_RECEIVE, RDMA_WITHOUT_ADDRESS, READ_WITH_IMMEDIATE };

/* A descriptor that cannot be right completes in error, and breaks a reliable connection; what came before it goes. */
static void malformed(int what)
{
    VIP_VI_STATE state;
    VIP_DESCRIPTOR *d;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    DO(post_recv(&pair.b, 0, 0, 100));
    if (what == RDMA_ON_RECEIVE) {
        d = prepare(&pair.b, 1, 0, 10);
        d->CS.Control = VIP_CONTROL_OP_RDMAWRITE;
        OK(VipPostRecv(pair.b.vi, d, pair.b.handle));
        DO(post_send(&pair.a, 0, 0, 10));
        OK(received(&pair.b, 0));
        GIVES(VIP_DESCRIPTOR_ERROR, received(&pair.b, 1));
    } else {
        DO(post_send(&pair.a, 0, 0, 10));
        d = prepare(&pair.a, 1, 0, 10);
        d->CS.Control = what == RESERVED_BITS          ? 0x10
                        : what == RESERVED_OPERATION   ? 3
                        : what == RDMA_WITHOUT_ADDRESS ? VIP_CONTROL_OP_RDMAWRITE
                                                       : VIP_CONTROL_OP_RDMAREAD | VIP_CONTROL_IMMEDIATE;
        if (what == RDMA_WITHOUT_ADDRESS)
            d->CS.SegCount = 0;
        OK(VipPostSend(pair.a.vi, d, pair.a.handle));
        DO(post_send(&pair.a, 2, 0, 10));
        OK(sent(&pair.a, 0));
        GIVES(VIP_DESCRIPTOR_ERROR, sent(&pair.a, 1));
        GIVES(VIP_DESCRIPTOR_ERROR, sent(&pair.a, 2));
        CHECK((descriptor(&pair.a, 2)->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR) != 0);
        OK(received(&pair.b, 0));
    }
    CHECK((d->CS.Status & VIP_STATUS_FORMAT_ERROR) != 0);
    OK(VipQueryVi(what == RDMA_ON_RECEIVE ? pair.b.vi : pair.a.vi, &state, NULL, NULL, NULL));
    CHECK(state == VIP_STATE_ERROR);
}

enum { NO_HANDLE, STALE_HANDLE, BEYOND_THE_END, BEFORE_THE_START, WRAPS, OTHER_TAG };

static void unprotected(int what)
{
    VIP_DESCRIPTOR *d;
    VIP_MEM_HANDLE handle;
    VIP_MEM_ATTRIBUTES attributes;
    VIP_PROTECTION_HANDLE tag;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    d = prepare(&pair.a, 0, 0, 64);
    switch (what) {
    case NO_HANDLE:
        d->DS[0].Local.Handle = 0;
        break;
    case STALE_HANDLE:
        OK(VipRegisterMem(pair.a.nic, pair.a.memory, MEMORY, NULL, &handle));
        OK(VipDeregisterMem(pair.a.nic, pair.a.memory, handle));
        d->DS[0].Local.Handle = handle;
        break;
    case BEYOND_THE_END:
        d->DS[0].Local.Data.Address = pair.a.memory + MEMORY - 63;
        break;
    case BEFORE_THE_START:
        d->DS[0].Local.Data.Address = pair.a.memory - 1;
        break;
    case WRAPS:
        d->DS[0].Local.Data.AddressBits = ~0UL - 10;
        break;
    default:
        OK(VipCreatePtag(pair.a.nic, &tag));
        memset(&attributes, 0, sizeof attributes);
        attributes.Ptag = tag;
        OK(VipRegisterMem(pair.a.nic, pair.a.memory, MEMORY, &attributes, &handle));
        d->DS[0].Local.Handle = handle;
    }
    OK(VipPostSend(pair.a.vi, d, pair.a.handle));
    GIVES(VIP_DESCRIPTOR_ERROR, sent(&pair.a, 0));
    CHECK((d->CS.Status & VIP_STATUS_PROTECTION_ERROR) != 0);
}

/* An error on an unreliable connection leaves it. */
static void an_error_leaves_an_unreliable_connection(int argument)
{
    VIP_DESCRIPTOR *d;
    (void)argument;
    DO(connect_pair(VIP_SERVICE_UNRELIABLE));
    DO(post_recv(&pair.b, 0, 0, 100));
    d = prepare(&pair.a, 0, 0, 10);
    d->CS.Control = 0x100;
    OK(VipPostSend(pair.a.vi, d, pair.a.handle));
    DO(post_send(&pair.a, 1, 0, 10));
    GIVES(VIP_DESCRIPTOR_ERROR, sent(&pair.a, 0));
    OK(sent(&pair.a, 1));
    OK(received(&pair.b, 0));
}

static void memory_without_a_tag(int argument)
{
    VIP_DESCRIPTOR *d;
    VIP_MEM_HANDLE handle;
    (void)argument;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    OK(VipRegisterMem(pair.a.nic, pair.a.memory, MEMORY, NULL, &handle));
    DO(post_recv(&pair.b, 0, 0, 100));
    fill(data(&pair.a, 0), 50, 9);
    d = prepare(&pair.a, 0, 0, 50);
    d->DS[0].Local.Handle = handle;
    OK(VipPostSend(pair.a.vi, d, handle));
    OK(sent(&pair.a, 0));
    OK(received(&pair.b, 0));
    CHECK(is_filled(data(&pair.b, 0), 50, 9));
    OK(VipDeregisterMem(pair.a.nic, pair.a.memory, handle));
}

static void both_ways(int rounds)
{
    int n;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    DO(post_recv(&pair.a, 0, 0, 64));
    DO(post_recv(&pair.b, 0, 0, 64));
    for (n = 0; n < rounds; n++) {
        DO(post_send(&pair.a, 2, 64, 64));
        OK(received(&pair.b, 0));
        DO(post_recv(&pair.b, 0, 0, 64));
        DO(post_send(&pair.b, 2, 64, 64));
        OK(received(&pair.a, 0));
        DO(post_recv(&pair.a, 0, 0, 64));
        OK(sent(&pair.a, 2));
        OK(sent(&pair.b, 2));
    }
}

struct poster {
    int stop;
    VIP_RETURN given;
};

static void *waits_long(void *argument)
{
    struct poster *poster = argument;
    VIP_DESCRIPTOR *d;
    poster->given = VipRecvWait(pair.b.vi, VIP_INFINITE, &d);
    return NULL;
}

/* A thread that waits at one end of a VI is in nobody's way, and hears of what comes. */
static void a_wait_blocks_nobody(int argument)
{
    struct poster poster = {0, VIP_NOT_DONE};
    pthread_t thread;
    VIP_DESCRIPTOR *d;
    int n;
    (void)argument;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    DO(post_recv(&pair.b, 0, 0, 64));
    DO(post_recv(&pair.a, 0, 0, 64));
    CHECK(pthread_create(&thread, NULL, waits_long, &poster) == 0);
    for (n = 0; n < 100; n++)
        GIVES(VIP_DESCRIPTOR_ERROR, VipSendDone(pair.b.vi, &d));
    DO(post_send(&pair.b, 1, 0, 64));
    OK(sent(&pair.b, 1));
    OK(received(&pair.a, 0));
    DO(post_send(&pair.a, 1, 0, 64));
    pthread_join(thread, NULL);
    OK(poster.given);
}

const struct test transfer_cases[] = {
    {"send_unreliable", EARLY_ADOPTER, a_message, VIP_SERVICE_UNRELIABLE},
    {"send_delivery", EARLY_ADOPTER, a_message, VIP_SERVICE_RELIABLE_DELIVERY},
    {"send_reception", EARLY_ADOPTER, a_message, VIP_SERVICE_RELIABLE_RECEPTION},
    {"send_0_bytes", EARLY_ADOPTER, of_size, 0},
    {"send_1_byte", FUNCTIONAL, of_size, 1},
    {"send_128_bytes", FUNCTIONAL, of_size, 128},
    {"send_1400_bytes", FUNCTIONAL, of_size, 1400},
    {"send_1500_bytes", FUNCTIONAL, of_size, 1500},
    {"send_40001_bytes", FUNCTIONAL, of_size, 40001},
    {"send_200000_bytes", FULL, of_size, 200000},
    {"send_without_segments", FUNCTIONAL, without_segments, 0},
    {"send_2_segments", FUNCTIONAL, gathered_and_scattered, 2},
    {"send_17_segments", FUNCTIONAL, gathered_and_scattered, 17},
    {"send_252_segments", FUNCTIONAL, gathered_and_scattered, 252},
    {"send_too_many_segments", FUNCTIONAL, too_many_segments, 0},
    {"send_immediate_unreliable", FUNCTIONAL, immediate_data, VIP_SERVICE_UNRELIABLE},
    {"send_immediate_delivery", FUNCTIONAL, immediate_data, VIP_SERVICE_RELIABLE_DELIVERY},
    {"send_immediate_reception", FUNCTIONAL, immediate_data, VIP_SERVICE_RELIABLE_RECEPTION},
    {"send_in_order_delivery", FUNCTIONAL, in_order, VIP_SERVICE_RELIABLE_DELIVERY},
    {"send_in_order_reception", FUNCTIONAL, in_order, VIP_SERVICE_RELIABLE_RECEPTION},
    {"send_by_polling", EARLY_ADOPTER, by_polling, 0},
    {"send_too_long_for_the_receive_delivery", FUNCTIONAL, too_long_for_the_receive, VIP_SERVICE_RELIABLE_DELIVERY},
    {"send_too_long_for_the_receive_reception", FUNCTIONAL, too_long_for_the_receive, VIP_SERVICE_RELIABLE_RECEPTION},
    {"send_too_long_for_the_receive_unreliable", FUNCTIONAL, too_long_for_the_receive, VIP_SERVICE_UNRELIABLE},
    {"send_too_long_for_the_vi", FUNCTIONAL, too_long_for_the_vi, 0},
    {"send_nothing_posted_unreliable", FUNCTIONAL, nothing_posted, VIP_SERVICE_UNRELIABLE},
    {"send_nothing_posted_delivery", FUNCTIONAL, nothing_posted, VIP_SERVICE_RELIABLE_DELIVERY},
    {"send_nothing_posted_reception", FUNCTIONAL, nothing_posted, VIP_SERVICE_RELIABLE_RECEPTION},
    {"descriptor_with_reserved_bits", FUNCTIONAL, malformed, RESERVED_BITS},
    {"descriptor_with_reserved_operation", FUNCTIONAL, malformed, RESERVED_OPERATION},
    {"descriptor_rdma_on_receive", FUNCTIONAL, malformed, RDMA_ON_RECEIVE},
    {"descriptor_rdma_without_address", FUNCTIONAL, malformed, RDMA_WITHOUT_ADDRESS},
    {"descriptor_read_with_immediate", FUNCTIONAL, malformed, READ_WITH_IMMEDIATE},
    {"segment_without_handle", FUNCTIONAL, unprotected, NO_HANDLE},
    {"segment_with_stale_handle", FUNCTIONAL, unprotected, STALE_HANDLE},
    {"segment_beyond_the_end", FUNCTIONAL, unprotected, BEYOND_THE_END},
    {"segment_before_the_start", FUNCTIONAL, unprotected, BEFORE_THE_START},
    {"segment_wraps", FUNCTIONAL, unprotected, WRAPS},
    {"segment_of_another_tag", FUNCTIONAL, unprotected, OTHER_TAG},
    {"error_leaves_an_unreliable_connection", FUNCTIONAL, an_error_leaves_an_unreliable_connection, 0},
    {"send_from_memory_without_a_tag", EARLY_ADOPTER, memory_without_a_tag, 0},
    {"send_both_ways", FUNCTIONAL, both_ways, 200},
    {"wait_blocks_nobody", FUNCTIONAL, a_wait_blocks_nobody, 0},
    {NULL, EARLY_ADOPTER, NULL, 0},
};
