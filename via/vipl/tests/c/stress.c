/* Many at a time. */
#include "suite.h"

#define VIS 64

static unsigned chance = 12345;

static unsigned random_below(unsigned bound)
{
    chance = chance * 1103515245u + 12345u;
    return (chance >> 16) % bound;
}

/* Connections are left on purpose: losses need not be told. */
static void quiet(VIP_PVOID context, VIP_ERROR_DESCRIPTOR *error)
{
    (void)context;
    (void)error;
}

/*
 * A receive CQ that 64 VIs share, which connect and disconnect in random order: each message comes once, in order, and
 * before the flush of its VI.
 */
static void shared_queue(int messages)
{
    static VIP_VI_HANDLE from[VIS], to[VIS];
    static unsigned sent_to[VIS], seen_from[VIS];
    static int posted[VIS];
    int n, done = 0, round = 0;
    unsigned pending;
    if (getenv("UVIA_LONG") != NULL)
        messages = 100000;
    DO(open_end(&pair.a, device_a));
    DO(open_end(&pair.b, device_b));
    OK(VipErrorCallback(pair.b.nic, NULL, quiet));
    OK(VipCreateCQ(pair.b.nic, 4096, &pair.b.recv_cq));
    for (n = 0; n < VIS; n++) {
        DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_DELIVERY));
        DO(open_vi(&pair.b, VIP_SERVICE_RELIABLE_DELIVERY));
        from[n] = pair.a.vi;
        to[n] = pair.b.vi;
        posted[n] = 0;
    }
    while (done < messages) {
        /* Sixteen of them, this time. */
        unsigned first = random_below(VIS);
        round++;
        pending = 0;
        for (n = 0; n < 16; n++) {
            unsigned vi = (first + (unsigned)n * 4) % VIS;
            int slot;
            sent_to[vi] = seen_from[vi] = 0;
            pair.b.vi = to[vi];
            for (slot = 0; slot < 6; slot++)
                DO(post_recv(&pair.b, (int)vi * 6 + slot, ((size_t)vi * 6 + (size_t)slot) * 64, 64));
            posted[vi] = 6;
            DO(join(&pair.a, from[vi], &pair.b, to[vi], round * VIS + (int)vi));
            pending += 6;
        }
        while (pending > 0) {
            unsigned vi = (first + random_below(16) * 4) % VIS;
            VIP_VI_HANDLE which;
            VIP_BOOLEAN recv;
            VIP_DESCRIPTOR *d;
            VIP_RETURN given;
            if (posted[vi] > 0 && sent_to[vi] < 5) {
                pair.a.vi = from[vi];
                data(&pair.a, vi * 64)[0] = (char)++sent_to[vi];
                DO(post_send(&pair.a, (int)vi, vi * 64, 64));
                OK(sent(&pair.a, (int)vi));
                if (sent_to[vi] == 5)
                    OK(VipDisconnect(from[vi]));
            }
            given = VipCQDone(pair.b.recv_cq, &which, &recv);
            if (given == VIP_NOT_DONE)
                continue;
            OK(given);
            for (n = 0; to[n] != which; n++)
                CHECK(n + 1 < VIS);
            given = VipRecvDone(which, &d);
            pending--;
            posted[n]--;
            if (given == VIP_SUCCESS) {
                CHECK(*(char *)d->DS[0].Local.Data.Address == (char)++seen_from[n]);
                done++;
            } else {
                GIVES(VIP_DESCRIPTOR_ERROR, given);
                CHECK(d != NULL && (d->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR) != 0);
                CHECK(seen_from[n] == 5);
                OK(VipDisconnect(which));
            }
        }
    }
}

struct streamer {
    End *end;
    int messages;
    VIP_RETURN given;
    /* Messages that were taken, and whose receives are posted again. */
    volatile int taken;
};

static void *take_all(void *argument)
{
    struct streamer *streamer = argument;
    int n;
    for (n = 0; n < streamer->messages && !failed; n++) {
        streamer->given = received(streamer->end, n % 32);
        if (streamer->given != VIP_SUCCESS)
            break;
        post_recv(streamer->end, n % 32, (size_t)(n % 32) * 64, 64);
        streamer->taken = n + 1;
    }
    return NULL;
}

/* One thread sends, another waits for what comes, both ways of one process's NICs. */
static void threads(int messages)
{
    struct streamer streamer;
    pthread_t thread;
    int n;
    DO(open_pair(VIP_SERVICE_RELIABLE_RECEPTION));
    for (n = 0; n < 32; n++)
        DO(post_recv(&pair.b, n, (size_t)n * 64, 64));
    DO(join(&pair.a, pair.a.vi, &pair.b, pair.b.vi, 0));
    streamer.end = &pair.b;
    streamer.messages = messages;
    streamer.given = VIP_NOT_DONE;
    streamer.taken = 0;
    CHECK(pthread_create(&thread, NULL, take_all, &streamer) == 0);
    for (n = 0; n < messages && !failed; n++) {
        while (n - streamer.taken >= 32 && !failed)
            ;
        post_send(&pair.a, n % 16, 0, 64);
        if (n >= 8)
            sent(&pair.a, (n - 8) % 16);
    }
    pthread_join(thread, NULL);
    OK(streamer.given);
}

const struct test stress_cases[] = {
    {"stress_shared_queue", FULL, shared_queue, 1000},
    {"stress_threads", FULL, threads, 1000},
    {NULL, EARLY_ADOPTER, NULL, 0},
};
