/* Handlers: for completions, and for errors that no descriptor can carry. */
#include "suite.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static struct {
    int calls;
    VIP_PVOID context;
    VIP_NIC_HANDLE nic;
    VIP_VI_HANDLE vi;
    VIP_DESCRIPTOR *d;
    VIP_BOOLEAN recv;
    VIP_ERROR_DESCRIPTOR error;
    /* A bit for each code. */
    unsigned codes;
} seen;

static void note(VIP_PVOID context, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d)
{
    pthread_mutex_lock(&lock);
    seen.calls++;
    seen.context = context;
    seen.nic = nic;
    seen.vi = vi;
    seen.d = d;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static void note_entry(VIP_PVOID context, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_BOOLEAN recv)
{
    seen.recv = recv;
    note(context, nic, vi, NULL);
}

static void note_error(VIP_PVOID context, VIP_ERROR_DESCRIPTOR *error)
{
    pthread_mutex_lock(&lock);
    seen.error = *error;
    seen.codes |= 1u << error->ErrorCode;
    pthread_mutex_unlock(&lock);
    note(context, error->NicHandle, error->ViHandle, error->DescriptorPtr);
}

static void wait_calls(int calls)
{
    pthread_mutex_lock(&lock);
    while (seen.calls < calls)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void of_a_receive(int early)
{
    memset(&seen, 0, sizeof seen);
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    DO(post_recv(&pair.b, 0, 0, 100));
    if (early)
        OK(VipRecvNotify(pair.b.vi, &pair, note));
    DO(post_send(&pair.a, 0, 0, 100));
    OK(sent(&pair.a, 0));
    if (!early)
        OK(VipRecvNotify(pair.b.vi, &pair, note));
    wait_calls(1);
    CHECK(seen.context == &pair && seen.nic == pair.b.nic && seen.vi == pair.b.vi);
    CHECK(seen.d == descriptor(&pair.b, 0) && seen.d->CS.Length == 100);
}

static void of_a_send(int argument)
{
    (void)argument;
    memset(&seen, 0, sizeof seen);
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    DO(post_recv(&pair.b, 0, 0, 100));
    OK(VipSendNotify(pair.a.vi, &pair, note));
    DO(post_send(&pair.a, 0, 0, 100));
    wait_calls(1);
    CHECK(seen.vi == pair.a.vi && seen.d == descriptor(&pair.a, 0));
}

/* A registration is one call; several queue up. */
static void one_call_each(int argument)
{
    VIP_DESCRIPTOR *d;
    int n;
    (void)argument;
    memset(&seen, 0, sizeof seen);
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    for (n = 0; n < 4; n++)
        DO(post_recv(&pair.b, n, 0, 100));
    for (n = 0; n < 3; n++)
        OK(VipRecvNotify(pair.b.vi, &pair, note));
    for (n = 0; n < 4; n++)
        DO(post_send(&pair.a, n, 0, 100));
    wait_calls(3);
    CHECK(seen.d == descriptor(&pair.b, 2));
    OK(VipRecvWait(pair.b.vi, PATIENCE, &d));
    CHECK(d == descriptor(&pair.b, 3) && seen.calls == 3);
}

static void of_a_flush(int argument)
{
    (void)argument;
    memset(&seen, 0, sizeof seen);
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    DO(post_recv(&pair.b, 0, 0, 100));
    OK(VipRecvNotify(pair.b.vi, &pair, note));
    OK(VipDisconnect(pair.b.vi));
    wait_calls(1);
    CHECK((seen.d->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR) != 0);
}

static void of_a_completion_queue(int argument)
{
    VIP_DESCRIPTOR *d;
    (void)argument;
    memset(&seen, 0, sizeof seen);
    DO(open_end(&pair.a, device_a));
    DO(open_end(&pair.b, device_b));
    OK(VipCreateCQ(pair.b.nic, 10, &pair.b.recv_cq));
    DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_DELIVERY));
    DO(open_vi(&pair.b, VIP_SERVICE_RELIABLE_DELIVERY));
    DO(join(&pair.a, pair.a.vi, &pair.b, pair.b.vi, 0));
    DO(post_recv(&pair.b, 0, 0, 100));
    OK(VipCQNotify(pair.b.recv_cq, &seen, note_entry));
    DO(post_send(&pair.a, 0, 0, 100));
    wait_calls(1);
    CHECK(seen.context == &seen && seen.nic == pair.b.nic && seen.vi == pair.b.vi && seen.recv);
    OK(VipRecvDone(seen.vi, &d));
    CHECK(d == descriptor(&pair.b, 0));
    GIVES(VIP_INVALID_PARAMETER, VipRecvNotify(pair.b.vi, &pair, note));
}

static void cancelled(int argument)
{
    VIP_CQ_HANDLE cq;
    (void)argument;
    memset(&seen, 0, sizeof seen);
    DO(open_end(&pair.a, device_a));
    DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_DELIVERY));
    OK(VipCreateCQ(pair.a.nic, 10, &cq));
    OK(VipCQNotify(cq, &seen, note_entry));
    OK(VipRecvNotify(pair.a.vi, &seen, note));
    OK(VipDestroyCQ(cq));
    OK(VipDestroyVi(pair.a.vi));
    CHECK(seen.calls == 0);
}

static void again(VIP_PVOID context, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d)
{
    if (seen.calls < 9)
        VipRecvNotify(vi, context, again);
    note(context, nic, vi, d);
}

/* A handler may call any function, and register again. */
static void registers_again(int argument)
{
    int n;
    (void)argument;
    memset(&seen, 0, sizeof seen);
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    for (n = 0; n < 10; n++)
        DO(post_recv(&pair.b, n, 0, 100));
    OK(VipRecvNotify(pair.b.vi, NULL, again));
    for (n = 0; n < 10; n++)
        DO(post_send(&pair.a, n, 0, 10));
    wait_calls(10);
    CHECK(seen.d == descriptor(&pair.b, 9));
}

static void a_lost_connection(int argument)
{
    (void)argument;
    memset(&seen, 0, sizeof seen);
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    OK(VipErrorCallback(pair.b.nic, &pair, note_error));
    OK(VipDisconnect(pair.a.vi));
    wait_calls(1);
    CHECK(seen.error.ErrorCode == VIP_ERROR_CONN_LOST && seen.error.ResourceCode == VIP_RESOURCE_VI);
    CHECK(seen.nic == pair.b.nic && seen.vi == pair.b.vi && seen.context == &pair);
}

static void a_bad_post(int argument)
{
    (void)argument;
    memset(&seen, 0, sizeof seen);
    DO(open_end(&pair.a, device_a));
    DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_DELIVERY));
    OK(VipErrorCallback(pair.a.nic, &pair, note_error));
    GIVES(VIP_INVALID_PARAMETER, VipPostSend(pair.a.vi, prepare(&pair.a, 0, 0, 10), 0));
    wait_calls(1);
    CHECK(seen.error.ErrorCode == VIP_ERROR_POST_DESC && seen.error.ResourceCode == VIP_RESOURCE_DESCRIPTOR);
    CHECK(seen.d == descriptor(&pair.a, 0) && seen.vi == pair.a.vi);
}

static void an_empty_receive_queue(int level)
{
    memset(&seen, 0, sizeof seen);
    DO(connect_pair(level));
    OK(VipErrorCallback(pair.b.nic, &pair, note_error));
    DO(post_send(&pair.a, 0, 0, 10));
    pthread_mutex_lock(&lock);
    while ((seen.codes & 1u << VIP_ERROR_RECVQ_EMPTY) == 0)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    CHECK(seen.vi == pair.b.vi);
}

const struct test notify_cases[] = {
    {"notify_of_a_receive_before_it_comes", FULL, of_a_receive, 1},
    {"notify_of_a_receive_that_has_come", FULL, of_a_receive, 0},
    {"notify_of_a_send", FULL, of_a_send, 0},
    {"notify_one_call_each", FULL, one_call_each, 0},
    {"notify_of_a_flush", FULL, of_a_flush, 0},
    {"notify_of_a_completion_queue", FULL, of_a_completion_queue, 0},
    {"notify_cancelled", FULL, cancelled, 0},
    {"notify_registers_again", FULL, registers_again, 0},
    {"error_lost_connection", FUNCTIONAL, a_lost_connection, 0},
    {"error_bad_post", FUNCTIONAL, a_bad_post, 0},
    {"error_empty_receive_queue_unreliable", FUNCTIONAL, an_empty_receive_queue, VIP_SERVICE_UNRELIABLE},
    {"error_empty_receive_queue_delivery", FUNCTIONAL, an_empty_receive_queue, VIP_SERVICE_RELIABLE_DELIVERY},
    {NULL, EARLY_ADOPTER, NULL, 0},
};
