/* Threads that wait: nothing wakes them but what they wait for, and whatever ends a wait does so at once. */
#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include "suite.h"

/* What a thread waits in. */
enum wait { RECEIVES, COMPLETIONS, REQUESTS };

struct waiter {
    enum wait in;
    End *end;
    VIP_ULONG timeout;
    VIP_RETURN given;
    VIP_DESCRIPTOR *descriptor;
    /* How often it has slept. */
    long slept;
    volatile int begun;
};

static long switches(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

static void *wait_there(void *argument)
{
    struct waiter *waiter = argument;
    Address here, there;
    VIP_VI_ATTRIBUTES attributes;
    VIP_CONN_HANDLE connection;
    VIP_VI_HANDLE which;
    VIP_BOOLEAN recv;
    End *end = waiter->end;
    long before = switches();
    address_of(end, &here, 7);
    waiter->begun = 1;
    switch (waiter->in) {
    case RECEIVES:
        waiter->given = VipRecvWait(end->vi, waiter->timeout, &waiter->descriptor);
        break;
    case COMPLETIONS:
        waiter->given = VipCQWait(end->recv_cq, waiter->timeout, &which, &recv);
        break;
    case REQUESTS:
        waiter->given =
            VipConnectWait(end->nic, &here.address, waiter->timeout, &there.address, &attributes, &connection);
        break;
    }
    waiter->slept = switches() - before;
    return NULL;
}

/* The two ends connected; where completions are waited for, the receives of `b` have a queue. */
static void open_for(enum wait in)
{
    if (in != COMPLETIONS) {
        connect_pair(VIP_SERVICE_RELIABLE_DELIVERY);
        return;
    }
    DO(open_end(&pair.a, device_a));
    DO(open_end(&pair.b, device_b));
    OK(VipCreateCQ(pair.b.nic, 64, &pair.b.recv_cq));
    DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_DELIVERY));
    DO(open_vi(&pair.b, VIP_SERVICE_RELIABLE_DELIVERY));
    DO(join(&pair.a, pair.a.vi, &pair.b, pair.b.vi, 0));
}

/* Far below what looks at intervals would come to, and above what frames of the connection's own may. */
#define SELDOM 15
#define A_WHILE 400

static void nothing_wakes(int in)
{
    struct waiter waiter;
    DO(open_for((enum wait)in));
    DO(post_recv(&pair.b, 0, 0, 64));
    memset(&waiter, 0, sizeof waiter);
    waiter.in = (enum wait)in;
    waiter.end = &pair.b;
    waiter.timeout = A_WHILE;
    wait_there(&waiter);
    GIVES(VIP_TIMEOUT, waiter.given);
    if (waiter.slept > SELDOM)
        fail(__FILE__, __LINE__, "it sleeps on while there is nothing", waiter.slept);
}

/* How often the thread of that name has slept. */
static long slept_by(const char *name)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *task;
    long slept = -1;
    if (tasks == NULL)
        return -1;
    while ((task = readdir(tasks)) != NULL) {
        char path[300], line[200];
        int is_it = 0;
        FILE *status;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        status = fopen(path, "r");
        while (status != NULL && fgets(line, sizeof line, status) != NULL) {
            if (strncmp(line, "Name:\t", 6) == 0)
                is_it = strncmp(line + 6, name, strlen(name)) == 0;
            if (is_it)
                sscanf(line, "voluntary_ctxt_switches: %ld", &slept);
        }
        if (status != NULL)
            fclose(status);
    }
    closedir(tasks);
    return slept;
}

static volatile int called;

static void count_call(VIP_PVOID context, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d)
{
    (void)context;
    (void)nic;
    (void)vi;
    (void)d;
    called++;
}

/* Handlers wait too, by a thread of the library's. */
static void nothing_wakes_for_handlers(int argument)
{
    long before;
    (void)argument;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    called = 0;
    DO(post_recv(&pair.b, 0, 0, 64));
    OK(VipRecvNotify(pair.b.vi, NULL, count_call));
    usleep(20000);
    before = slept_by("vipl-notify");
    CHECK(before >= 0);
    usleep(A_WHILE * 1000);
    before = slept_by("vipl-notify") - before;
    if (before > SELDOM)
        fail(__FILE__, __LINE__, "it sleeps on while there is nothing", before);
    DO(post_send(&pair.a, 0, 0, 64));
    OK(sent(&pair.a, 0));
    while (called == 0)
        usleep(1000);
    CHECK(called == 1);
}

/* What ends a wait, done by another thread. */
enum end_of_wait { MESSAGE, DISCONNECTED, DESTROYED, CLOSED, REFUSED, TAKEN_UP, DEREGISTERED, REQUESTED };

static void ends(enum wait in, enum end_of_wait by, VIP_RETURN expected)
{
    struct waiter waiter;
    pthread_t thread;
    VIP_DESCRIPTOR *d;
    VIP_MEM_HANDLE handle;
    VIP_RETURN given;
    Address here, there;
    VIP_VI_ATTRIBUTES attributes;
    DO(open_for(in));
    memset(&waiter, 0, sizeof waiter);
    waiter.in = in;
    waiter.end = &pair.b;
    waiter.timeout = PATIENCE;
    if (by == DESTROYED) {
        OK(VipDisconnect(pair.b.vi));
        OK(VipDestroyVi(pair.b.vi));
    } else if (by != REFUSED) {
        DO(post_recv(&pair.b, 0, 0, 64));
    }
    CHECK(pthread_create(&thread, NULL, wait_there, &waiter) == 0);
    while (!waiter.begun)
        usleep(1000);
    /* It is asleep then, most likely; it has to end in any case. */
    usleep(20000);
    switch (by) {
    case MESSAGE:
        DO(post_send(&pair.a, 0, 0, 64));
        break;
    case DISCONNECTED:
        OK(VipDisconnect(pair.b.vi));
        break;
    case DESTROYED:
        OK(VipDestroyCQ(pair.b.recv_cq));
        break;
    case CLOSED:
        OK(VipCloseNic(pair.b.nic));
        break;
    case REFUSED:
        /* What cannot be is not given to the NIC: it completes at once. */
        d = prepare(&pair.b, 0, 0, 64);
        d->CS.Control = 0xFFF0;
        OK(VipPostRecv(pair.b.vi, d, pair.b.handle));
        break;
    case TAKEN_UP:
        /* Another thread asks the interface before the completion queue: the queue's entry is there all the same. */
        DO(post_send(&pair.a, 0, 0, 64));
        while ((given = VipRecvDone(pair.b.vi, &d)) == VIP_NOT_DONE)
            ;
        OK(given);
        break;
    case DEREGISTERED:
        /* What has completed is taken up for this. */
        OK(VipRegisterMem(pair.b.nic, pair.b.memory, 64, NULL, &handle));
        DO(post_send(&pair.a, 0, 0, 64));
        OK(sent(&pair.a, 0));
        OK(VipDeregisterMem(pair.b.nic, pair.b.memory, handle));
        break;
    case REQUESTED:
        address_of(&pair.a, &here, 8);
        address_of(&pair.b, &there, 7);
        OK(VipDisconnect(pair.a.vi));
        given = VipConnectRequest(pair.a.vi, &here.address, &there.address, 100, &attributes);
        CHECK(given == VIP_TIMEOUT || given == VIP_REJECT);
        break;
    }
    pthread_join(thread, NULL);
    GIVES(expected, waiter.given);
    if (by == CLOSED)
        pair.b.nic = NULL;
}

static void receive_wait_ends(int by)
{
    ends(RECEIVES, (enum end_of_wait)by,
         by == MESSAGE || by == DEREGISTERED ? VIP_SUCCESS
         : by == CLOSED                      ? VIP_INVALID_PARAMETER
                                             : VIP_DESCRIPTOR_ERROR);
}

static void queue_wait_ends(int by)
{
    ends(COMPLETIONS, (enum end_of_wait)by, by == CLOSED || by == DESTROYED ? VIP_INVALID_PARAMETER : VIP_SUCCESS);
}

static void request_wait_ends(int by)
{
    ends(REQUESTS, (enum end_of_wait)by, by == CLOSED ? VIP_INVALID_PARAMETER : VIP_SUCCESS);
}

const struct test wait_cases[] = {
    {"waits_receive_sleeps_on", FUNCTIONAL, nothing_wakes, RECEIVES},
    {"waits_queue_sleeps_on", FUNCTIONAL, nothing_wakes, COMPLETIONS},
    {"waits_requests_sleep_on", FUNCTIONAL, nothing_wakes, REQUESTS},
    {"waits_handlers_sleep_on", FULL, nothing_wakes_for_handlers, 0},
    {"waits_receive_ends_by_message", FUNCTIONAL, receive_wait_ends, MESSAGE},
    {"waits_receive_ends_by_disconnect", FUNCTIONAL, receive_wait_ends, DISCONNECTED},
    {"waits_receive_ends_by_close", FUNCTIONAL, receive_wait_ends, CLOSED},
    {"waits_receive_ends_though_taken_up", FUNCTIONAL, receive_wait_ends, DEREGISTERED},
    {"waits_queue_ends_by_message", FUNCTIONAL, queue_wait_ends, MESSAGE},
    {"waits_queue_ends_by_disconnect", FUNCTIONAL, queue_wait_ends, DISCONNECTED},
    {"waits_queue_ends_by_destruction", FUNCTIONAL, queue_wait_ends, DESTROYED},
    {"waits_queue_ends_by_close", FUNCTIONAL, queue_wait_ends, CLOSED},
    {"waits_queue_ends_by_refused_post", FUNCTIONAL, queue_wait_ends, REFUSED},
    {"waits_queue_ends_though_taken_up", FUNCTIONAL, queue_wait_ends, TAKEN_UP},
    {"waits_requests_end_by_request", FUNCTIONAL, request_wait_ends, REQUESTED},
    {"waits_requests_end_by_close", FUNCTIONAL, request_wait_ends, CLOSED},
    {NULL, EARLY_ADOPTER, NULL, 0},
};
