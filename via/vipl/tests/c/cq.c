/* Completion queues. */
#include "suite.h"

static void is_created_resized_destroyed(int argument)
{
    VIP_CQ_HANDLE cq;
    VIP_VI_HANDLE vi;
    VIP_BOOLEAN recv;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    OK(VipCreateCQ(pair.a.nic, 100, &cq));
    GIVES(VIP_NOT_DONE, VipCQDone(cq, &vi, &recv));
    GIVES(VIP_TIMEOUT, VipCQWait(cq, 0, &vi, &recv));
    GIVES(VIP_TIMEOUT, VipCQWait(cq, 5, &vi, &recv));
    OK(VipResizeCQ(cq, 1000));
    OK(VipResizeCQ(cq, 10));
    OK(VipDestroyCQ(cq));
    GIVES(VIP_INVALID_PARAMETER, VipDestroyCQ(cq));
}

static void sizes_are_checked(int argument)
{
    VIP_CQ_HANDLE cq;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    GIVES(VIP_INVALID_PARAMETER, VipCreateCQ(pair.a.nic, 0, &cq));
    GIVES(VIP_ERROR_RESOURCE, VipCreateCQ(pair.a.nic, pair.a.about.MaxCQEntries + 1, &cq));
    OK(VipCreateCQ(pair.a.nic, 8, &cq));
    GIVES(VIP_INVALID_PARAMETER, VipResizeCQ(cq, 0));
    GIVES(VIP_ERROR_RESOURCE, VipResizeCQ(cq, ~0UL));
}

static void in_use_stays(int argument)
{
    (void)argument;
    DO(open_end(&pair.a, device_a));
    OK(VipCreateCQ(pair.a.nic, 100, &pair.a.recv_cq));
    DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_DELIVERY));
    GIVES(VIP_ERROR_RESOURCE, VipDestroyCQ(pair.a.recv_cq));
    OK(VipDestroyVi(pair.a.vi));
    OK(VipDestroyCQ(pair.a.recv_cq));
}

/* Both ends, with a queue for receives at b, for sends at a. */
static void with_queues(int level)
{
    DO(open_end(&pair.a, device_a));
    DO(open_end(&pair.b, device_b));
    OK(VipCreateCQ(pair.a.nic, 1000, &pair.a.send_cq));
    OK(VipCreateCQ(pair.b.nic, 1000, &pair.b.recv_cq));
    DO(open_vi(&pair.a, level));
    DO(open_vi(&pair.b, level));
    DO(join(&pair.a, pair.a.vi, &pair.b, pair.b.vi, 0));
}

static void names_vi_and_queue(int level)
{
    VIP_VI_HANDLE vi;
    VIP_BOOLEAN recv;
    VIP_DESCRIPTOR *d;
    DO(with_queues(level));
    DO(post_recv(&pair.b, 0, 0, 100));
    DO(post_send(&pair.a, 0, 0, 100));
    OK(VipCQWait(pair.b.recv_cq, PATIENCE, &vi, &recv));
    CHECK(vi == pair.b.vi && recv == VIP_TRUE);
    OK(VipRecvDone(vi, &d));
    CHECK(d == descriptor(&pair.b, 0));
    OK(VipCQWait(pair.a.send_cq, PATIENCE, &vi, &recv));
    CHECK(vi == pair.a.vi && recv == VIP_FALSE);
    OK(VipSendDone(vi, &d));
    CHECK(d == descriptor(&pair.a, 0));
    GIVES(VIP_NOT_DONE, VipCQDone(pair.b.recv_cq, &vi, &recv));
}

static void by_polling(int argument)
{
    VIP_VI_HANDLE vi;
    VIP_BOOLEAN recv;
    VIP_DESCRIPTOR *d;
    int n, round;
    (void)argument;
    DO(with_queues(VIP_SERVICE_RELIABLE_DELIVERY));
    for (round = 0; round < 5; round++) {
        for (n = 0; n < 50; n++)
            DO(post_recv(&pair.b, n, 0, 100));
        for (n = 0; n < 50; n++)
            DO(post_send(&pair.a, n, 0, 100));
        for (n = 0; n < 50; n++) {
            VIP_RETURN given;
            do
                given = VipCQDone(pair.b.recv_cq, &vi, &recv);
            while (given == VIP_NOT_DONE);
            OK(given);
            OK(VipRecvDone(vi, &d));
            CHECK(d == descriptor(&pair.b, n));
        }
        for (n = 0; n < 50; n++) {
            OK(VipCQWait(pair.a.send_cq, PATIENCE, &vi, &recv));
            OK(VipSendDone(vi, &d));
            CHECK(d == descriptor(&pair.a, n));
        }
    }
}

static void flushed_come_too(int argument)
{
    VIP_VI_HANDLE vi;
    VIP_BOOLEAN recv;
    VIP_DESCRIPTOR *d;
    int n;
    (void)argument;
    DO(with_queues(VIP_SERVICE_RELIABLE_DELIVERY));
    for (n = 0; n < 5; n++)
        DO(post_recv(&pair.b, n, 0, 100));
    OK(VipDisconnect(pair.b.vi));
    for (n = 0; n < 5; n++) {
        OK(VipCQWait(pair.b.recv_cq, PATIENCE, &vi, &recv));
        CHECK(vi == pair.b.vi && recv);
        GIVES(VIP_DESCRIPTOR_ERROR, VipRecvDone(vi, &d));
        CHECK(d == descriptor(&pair.b, n));
    }
}

static void malformed_come_too(int argument)
{
    VIP_VI_HANDLE vi;
    VIP_BOOLEAN recv;
    VIP_DESCRIPTOR *d;
    (void)argument;
    DO(with_queues(VIP_SERVICE_RELIABLE_DELIVERY));
    d = prepare(&pair.a, 0, 0, 10);
    d->CS.Control = 0x8000;
    OK(VipPostSend(pair.a.vi, d, pair.a.handle));
    OK(VipCQWait(pair.a.send_cq, PATIENCE, &vi, &recv));
    CHECK(vi == pair.a.vi && !recv);
    GIVES(VIP_DESCRIPTOR_ERROR, VipSendDone(vi, &d));
    CHECK((d->CS.Status & VIP_STATUS_FORMAT_ERROR) != 0);
}

static void the_destroyed_are_not_named(int argument)
{
    VIP_VI_HANDLE vi;
    VIP_BOOLEAN recv;
    (void)argument;
    DO(with_queues(VIP_SERVICE_RELIABLE_DELIVERY));
    DO(post_recv(&pair.b, 0, 0, 100));
    OK(VipDisconnect(pair.b.vi));
    OK(VipDestroyVi(pair.b.vi));
    GIVES(VIP_NOT_DONE, VipCQDone(pair.b.recv_cq, &vi, &recv));
    GIVES(VIP_TIMEOUT, VipCQWait(pair.b.recv_cq, 5, &vi, &recv));
    OK(VipDestroyCQ(pair.b.recv_cq));
}

static void one_for_both_queues(int argument)
{
    VIP_VI_HANDLE vi;
    VIP_BOOLEAN recv;
    VIP_DESCRIPTOR *d;
    int sends = 0, receives = 0;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    DO(open_end(&pair.b, device_b));
    OK(VipCreateCQ(pair.a.nic, 1000, &pair.a.send_cq));
    pair.a.recv_cq = pair.a.send_cq;
    DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_DELIVERY));
    DO(open_vi(&pair.b, VIP_SERVICE_RELIABLE_DELIVERY));
    DO(post_recv(&pair.a, 0, 0, 100));
    DO(post_recv(&pair.b, 0, 0, 100));
    DO(join(&pair.a, pair.a.vi, &pair.b, pair.b.vi, 0));
    DO(post_send(&pair.a, 1, 0, 100));
    DO(post_send(&pair.b, 1, 0, 100));
    while (sends + receives < 2) {
        OK(VipCQWait(pair.a.send_cq, PATIENCE, &vi, &recv));
        CHECK(vi == pair.a.vi);
        OK(recv ? VipRecvDone(vi, &d) : VipSendDone(vi, &d));
        sends += !recv;
        receives += recv;
    }
    CHECK(sends == 1 && receives == 1);
    OK(received(&pair.b, 0));
}

static void a_tied_queue_is_not_waited_at(int argument)
{
    VIP_DESCRIPTOR *d;
    (void)argument;
    DO(with_queues(VIP_SERVICE_RELIABLE_DELIVERY));
    GIVES(VIP_INVALID_PARAMETER, VipSendWait(pair.a.vi, 0, &d));
    GIVES(VIP_INVALID_PARAMETER, VipRecvWait(pair.b.vi, 0, &d));
}

static void another_nics_queue_is_refused(int argument)
{
    (void)argument;
    DO(open_end(&pair.a, device_a));
    DO(open_end(&pair.b, device_a));
    OK(VipCreateCQ(pair.b.nic, 10, &pair.b.recv_cq));
    GIVES(VIP_INVALID_PARAMETER, VipCreateVi(pair.a.nic, &pair.a.attributes, pair.b.recv_cq, NULL, &pair.a.vi));
}

struct sleeper {
    VIP_CQ_HANDLE cq;
    VIP_RETURN given;
    VIP_VI_HANDLE vi;
};

static void *sleep_there(void *argument)
{
    struct sleeper *sleeper = argument;
    VIP_BOOLEAN recv;
    sleeper->given = VipCQWait(sleeper->cq, VIP_INFINITE, &sleeper->vi, &recv);
    return NULL;
}

/* One thread waits at the queue; another posts on the same NIC, on other VIs too. */
static void a_sleeper_wakes_while_others_post(int argument)
{
    struct sleeper sleeper = {NULL, VIP_NOT_DONE, NULL};
    pthread_t thread;
    VIP_VI_HANDLE first;
    int n;
    (void)argument;
    DO(with_queues(VIP_SERVICE_RELIABLE_DELIVERY));
    first = pair.b.vi;
    sleeper.cq = pair.b.recv_cq;
    DO(post_recv(&pair.b, 0, 0, 100));
    CHECK(pthread_create(&thread, NULL, sleep_there, &sleeper) == 0);
    pair.b.recv_cq = NULL;
    for (n = 0; n < 10; n++) {
        OK(VipCreateVi(pair.b.nic, &pair.b.attributes, NULL, NULL, &pair.b.vi));
        DO(post_recv(&pair.b, 1, 0, 100));
        OK(VipDisconnect(pair.b.vi));
        GIVES(VIP_DESCRIPTOR_ERROR, received(&pair.b, 1));
        OK(VipDestroyVi(pair.b.vi));
    }
    DO(post_send(&pair.a, 0, 0, 100));
    pthread_join(thread, NULL);
    OK(sleeper.given);
    CHECK(sleeper.vi == first);
}

const struct test cq_cases[] = {
    {"cq_is_created_resized_destroyed", EARLY_ADOPTER, is_created_resized_destroyed, 0},
    {"cq_sizes_are_checked", FUNCTIONAL, sizes_are_checked, 0},
    {"cq_in_use_stays", FUNCTIONAL, in_use_stays, 0},
    {"cq_names_vi_and_queue_unreliable", FUNCTIONAL, names_vi_and_queue, VIP_SERVICE_UNRELIABLE},
    {"cq_names_vi_and_queue_delivery", EARLY_ADOPTER, names_vi_and_queue, VIP_SERVICE_RELIABLE_DELIVERY},
    {"cq_names_vi_and_queue_reception", FUNCTIONAL, names_vi_and_queue, VIP_SERVICE_RELIABLE_RECEPTION},
    {"cq_by_polling", FUNCTIONAL, by_polling, 0},
    {"cq_flushed_come_too", FUNCTIONAL, flushed_come_too, 0},
    {"cq_malformed_come_too", FUNCTIONAL, malformed_come_too, 0},
    {"cq_destroyed_are_not_named", FUNCTIONAL, the_destroyed_are_not_named, 0},
    {"cq_one_for_both_queues", FUNCTIONAL, one_for_both_queues, 0},
    {"cq_tied_queue_is_not_waited_at", FUNCTIONAL, a_tied_queue_is_not_waited_at, 0},
    {"cq_of_another_nic_is_refused", FUNCTIONAL, another_nics_queue_is_refused, 0},
    {"cq_sleeper_wakes_while_others_post", FUNCTIONAL, a_sleeper_wakes_while_others_post, 0},
    {NULL, EARLY_ADOPTER, NULL, 0},
};
