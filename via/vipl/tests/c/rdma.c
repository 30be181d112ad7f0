/* RDMA. */
#include "suite.h"

static void writes(int level)
{
    VIP_DESCRIPTOR *d;
    DO(connect_pair(level));
    fill(data(&pair.a, 0), 5000, 3);
    d = prepare_rdma(&pair.a, 0, &pair.b, 0, 777, 5000, VIP_CONTROL_OP_RDMAWRITE);
    OK(VipPostSend(pair.a.vi, d, pair.a.handle));
    OK(sent(&pair.a, 0));
    CHECK(d->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_WRITE));
    /* A send behind it tells when it is there, at any level. */
    DO(post_recv(&pair.b, 0, 9000, 10));
    DO(post_send(&pair.a, 1, 0, 0));
    OK(received(&pair.b, 0));
    CHECK(is_filled(data(&pair.b, 777), 5000, 3) && data(&pair.b, 776)[0] == 0 && data(&pair.b, 5777)[0] == 0);
}

static void completed_is_there(int argument)
{
    (void)argument;
    DO(connect_pair(VIP_SERVICE_RELIABLE_RECEPTION));
    fill(data(&pair.a, 0), 60000, 4);
    OK(VipPostSend(pair.a.vi, prepare_rdma(&pair.a, 0, &pair.b, 0, 0, 60000, VIP_CONTROL_OP_RDMAWRITE), pair.a.handle));
    OK(sent(&pair.a, 0));
    CHECK(is_filled(data(&pair.b, 0), 60000, 4));
}

static void writes_with_immediate(int level)
{
    VIP_DESCRIPTOR *d;
    DO(connect_pair(level));
    DO(post_recv(&pair.b, 0, 9000, 10));
    fill(data(&pair.a, 0), 100, 5);
    d = prepare_rdma(&pair.a, 0, &pair.b, 0, 0, 100, VIP_CONTROL_OP_RDMAWRITE | VIP_CONTROL_IMMEDIATE);
    d->CS.ImmediateData = 0x12345678;
    OK(VipPostSend(pair.a.vi, d, pair.a.handle));
    OK(received(&pair.b, 0));
    d = descriptor(&pair.b, 0);
    CHECK(d->CS.ImmediateData == 0x12345678);
    CHECK((d->CS.Status & VIP_STATUS_OP_MASK) == VIP_STATUS_OP_REMOTE_RDMA_WRITE);
    CHECK((d->CS.Status & VIP_STATUS_IMMEDIATE) != 0 && is_filled(data(&pair.b, 0), 100, 5));
    OK(sent(&pair.a, 0));
}

static void without_immediate_takes_no_receive(int argument)
{
    VIP_DESCRIPTOR *d;
    (void)argument;
    DO(connect_pair(VIP_SERVICE_RELIABLE_RECEPTION));
    DO(post_recv(&pair.b, 0, 9000, 10));
    OK(VipPostSend(pair.a.vi, prepare_rdma(&pair.a, 0, &pair.b, 0, 0, 100, VIP_CONTROL_OP_RDMAWRITE), pair.a.handle));
    OK(sent(&pair.a, 0));
    GIVES(VIP_NOT_DONE, VipRecvDone(pair.b.vi, &d));
}

/* The target makes no call: it looks at its memory. */
static void a_spinning_target_sees_it(int argument)
{
    volatile char *flag;
    (void)argument;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    flag = data(&pair.b, 100);
    data(&pair.a, 0)[0] = 'x';
    OK(VipPostSend(pair.a.vi, prepare_rdma(&pair.a, 0, &pair.b, 0, 100, 1, VIP_CONTROL_OP_RDMAWRITE), pair.a.handle));
    while (*flag != 'x')
        ;
    OK(sent(&pair.a, 0));
}

static void writes_are_seen_in_order(int rounds)
{
    volatile VIP_UINT32 *flag;
    VIP_UINT32 n;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    flag = (volatile VIP_UINT32 *)(void *)data(&pair.b, 64);
    for (n = 1; n <= (VIP_UINT32)rounds; n++) {
        fill(data(&pair.a, 1000), 3000, n);
        memcpy(data(&pair.a, 0), &n, sizeof n);
        OK(VipPostSend(pair.a.vi, prepare_rdma(&pair.a, 0, &pair.b, 1000, 1000, 3000, VIP_CONTROL_OP_RDMAWRITE),
                       pair.a.handle));
        OK(VipPostSend(pair.a.vi, prepare_rdma(&pair.a, 1, &pair.b, 0, 64, 4, VIP_CONTROL_OP_RDMAWRITE), pair.a.handle));
        while (*flag != n)
            ;
        CHECK(is_filled(data(&pair.b, 1000), 3000, n));
        OK(sent(&pair.a, 0));
        OK(sent(&pair.a, 1));
    }
}

static void reads(int level)
{
    VIP_DESCRIPTOR *d;
    DO(connect_pair(level));
    fill(data(&pair.b, 50), 7000, 6);
    d = prepare_rdma(&pair.a, 0, &pair.b, 500, 50, 7000, VIP_CONTROL_OP_RDMAREAD);
    OK(VipPostSend(pair.a.vi, d, pair.a.handle));
    OK(sent(&pair.a, 0));
    CHECK(d->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_READ) && is_filled(data(&pair.a, 500), 7000, 6));
}

/* What is fenced goes when the read before it has come. */
static void a_fence_waits_for_reads(int argument)
{
    VIP_DESCRIPTOR *d;
    (void)argument;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    fill(data(&pair.b, 0), 20000, 7);
    DO(post_recv(&pair.b, 0, 100000, 20000));
    OK(VipPostSend(pair.a.vi, prepare_rdma(&pair.a, 0, &pair.b, 0, 0, 20000, VIP_CONTROL_OP_RDMAREAD), pair.a.handle));
    d = prepare(&pair.a, 1, 0, 20000);
    d->CS.Control = VIP_CONTROL_OP_SENDRECV | VIP_CONTROL_QFENCE;
    OK(VipPostSend(pair.a.vi, d, pair.a.handle));
    OK(sent(&pair.a, 0));
    OK(sent(&pair.a, 1));
    OK(received(&pair.b, 0));
    CHECK(is_filled(data(&pair.b, 100000), 20000, 7));
}

static void unreliable_reads_are_refused(int argument)
{
    VIP_DESCRIPTOR *d;
    (void)argument;
    DO(connect_pair(VIP_SERVICE_UNRELIABLE));
    d = prepare_rdma(&pair.a, 0, &pair.b, 0, 0, 10, VIP_CONTROL_OP_RDMAREAD);
    OK(VipPostSend(pair.a.vi, d, pair.a.handle));
    GIVES(VIP_DESCRIPTOR_ERROR, sent(&pair.a, 0));
}

enum { BAD_HANDLE, BAD_BOUNDS, NO_RIGHT_OF_MEMORY, NO_RIGHT_OF_VI, ANOTHER_TAG, RIGHT_TAKEN_AWAY };

/* What may not be touched is not, and the connection ends. */
static void refused(int what, int operation)
{
    VIP_MEM_ATTRIBUTES attributes;
    VIP_PROTECTION_HANDLE tag;
    VIP_DESCRIPTOR *d;
    DO(open_end(&pair.a, device_a));
    DO(open_end(&pair.b, device_b));
    if (what == NO_RIGHT_OF_VI)
        pair.b.attributes.EnableRdmaWrite = VIP_FALSE;
    DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_RECEPTION));
    DO(open_vi(&pair.b, VIP_SERVICE_RELIABLE_RECEPTION));
    if (what == NO_RIGHT_OF_VI) {
        pair.b.attributes.EnableRdmaRead = VIP_FALSE;
        OK(VipSetViAttributes(pair.b.vi, &pair.b.attributes));
    }
    DO(join(&pair.a, pair.a.vi, &pair.b, pair.b.vi, 0));
    d = prepare_rdma(&pair.a, 0, &pair.b, 0, 0, 100, operation);
    memset(&attributes, 0, sizeof attributes);
    attributes.Ptag = pair.b.tag;
    switch (what) {
    case BAD_HANDLE:
        d->DS[0].Remote.Handle += 5;
        break;
    case BAD_BOUNDS:
        d->DS[0].Remote.Data.Address = pair.b.memory + MEMORY - 99;
        break;
    case NO_RIGHT_OF_MEMORY:
        OK(VipRegisterMem(pair.b.nic, pair.b.memory, MEMORY, &attributes, &d->DS[0].Remote.Handle));
        break;
    case RIGHT_TAKEN_AWAY:
        OK(VipSetMemAttributes(pair.b.nic, pair.b.memory, pair.b.handle, &attributes));
        break;
    case ANOTHER_TAG:
        OK(VipCreatePtag(pair.b.nic, &tag));
        attributes.Ptag = tag;
        attributes.EnableRdmaWrite = attributes.EnableRdmaRead = VIP_TRUE;
        OK(VipRegisterMem(pair.b.nic, pair.b.memory, MEMORY, &attributes, &d->DS[0].Remote.Handle));
        break;
    default:
        break;
    }
    fill(data(&pair.a, 0), 100, 8);
    OK(VipPostSend(pair.a.vi, d, pair.a.handle));
    GIVES(VIP_DESCRIPTOR_ERROR, sent(&pair.a, 0));
    CHECK((d->CS.Status & VIP_STATUS_RDMA_PROT_ERROR) != 0);
    CHECK(data(&pair.b, 0)[1] == 0);
}

static void write_refused(int what)
{
    refused(what, VIP_CONTROL_OP_RDMAWRITE);
}

static void read_refused(int what)
{
    refused(what, VIP_CONTROL_OP_RDMAREAD);
}

const struct test rdma_cases[] = {
    {"write_unreliable", FUNCTIONAL, writes, VIP_SERVICE_UNRELIABLE},
    {"write_delivery", EARLY_ADOPTER, writes, VIP_SERVICE_RELIABLE_DELIVERY},
    {"write_reception", FUNCTIONAL, writes, VIP_SERVICE_RELIABLE_RECEPTION},
    {"write_completed_is_there", FUNCTIONAL, completed_is_there, 0},
    {"write_with_immediate_delivery", FUNCTIONAL, writes_with_immediate, VIP_SERVICE_RELIABLE_DELIVERY},
    {"write_with_immediate_reception", FUNCTIONAL, writes_with_immediate, VIP_SERVICE_RELIABLE_RECEPTION},
    {"write_without_immediate_takes_no_receive", FUNCTIONAL, without_immediate_takes_no_receive, 0},
    {"write_is_seen_by_a_spinning_target", FUNCTIONAL, a_spinning_target_sees_it, 0},
    {"write_is_seen_in_order", FUNCTIONAL, writes_are_seen_in_order, 50},
    {"read_delivery", FUNCTIONAL, reads, VIP_SERVICE_RELIABLE_DELIVERY},
    {"read_reception", FUNCTIONAL, reads, VIP_SERVICE_RELIABLE_RECEPTION},
    {"read_fence", FUNCTIONAL, a_fence_waits_for_reads, 0},
    {"read_unreliable_is_refused", FUNCTIONAL, unreliable_reads_are_refused, 0},
    {"write_bad_handle", FUNCTIONAL, write_refused, BAD_HANDLE},
    {"write_bad_bounds", FUNCTIONAL, write_refused, BAD_BOUNDS},
    {"write_no_right_of_memory", FUNCTIONAL, write_refused, NO_RIGHT_OF_MEMORY},
    {"write_no_right_of_vi", FUNCTIONAL, write_refused, NO_RIGHT_OF_VI},
    {"write_another_tag", FUNCTIONAL, write_refused, ANOTHER_TAG},
    {"write_right_taken_away", FUNCTIONAL, write_refused, RIGHT_TAKEN_AWAY},
    {"read_bad_handle", FUNCTIONAL, read_refused, BAD_HANDLE},
    {"read_no_right_of_memory", FUNCTIONAL, read_refused, NO_RIGHT_OF_MEMORY},
    {"read_no_right_of_vi", FUNCTIONAL, read_refused, NO_RIGHT_OF_VI},
    {NULL, EARLY_ADOPTER, NULL, 0},
};
