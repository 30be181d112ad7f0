/*
 * How long a message takes from one process to another: both ends poll, and half of each round trip is counted.
 *
 *     latency [OPTIONS] DEVICE          on one host
 *     latency [OPTIONS] DEVICE HOST     on another; prints the figures
 *
 *     --size BYTES      of a message (64; both ends have to be told the same)
 *     --rounds COUNT    round trips that are counted (100000): so many for the mean, in which the clock is not looked at in
 *                       between, and as many for the rest
 *     --warm COUNT      round trips before these (10000)
 *     --json            prints one line of JSON
 */
#define _POSIX_C_SOURCE 200112L
#include <time.h>

#include "common.h"

/* Receives that are posted at a time. */
#define DEPTH 8

static int size = 64, json = 0;
static long rounds = 100000, warm = 10000;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

/* Receives lie behind the two places that sends use in turn. */
static void receive_into(End *end, int n)
{
    receive(end, 2 + n, (size_t)(2 + n) * (size_t)size, (VIP_UINT32)size);
}

/* Takes the message that comes next. */
static void take(End *end, long n)
{
    VIP_DESCRIPTOR *d;
    VIP_RETURN returned;
    do
        returned = VipRecvDone(end->vi, &d);
    while (returned == VIP_NOT_DONE);
    MUST(returned);
    if (d != descriptor(end, 2 + (int)(n % DEPTH)) || d->CS.Length != (VIP_UINT32)size) {
        fprintf(stderr, "not the message that was to come\n");
        exit(1);
    }
}

/* Takes back a send: the peer's answer has said that it arrived. */
static void sent(End *end)
{
    VIP_DESCRIPTOR *d;
    VIP_RETURN returned;
    do
        returned = VipSendDone(end->vi, &d);
    while (returned == VIP_NOT_DONE);
    MUST(returned);
}

/*
 * Sends one. While it is on its way, the receive of the message that was taken before is posted again, and the send before
 * it taken back.
 */
static void put(End *end, long n, int taken)
{
    int place = (int)(n % 2);
    MUST(VipPostSend(end->vi, prepare(end, place, (size_t)place * (size_t)size, (VIP_UINT32)size), end->handle));
    if (taken >= 0)
        receive_into(end, taken);
    if (n > 0)
        sent(end);
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static void report(double *halves, double mean)
{
    double p50, p99, p999;
    long n, late = 0;
    qsort(halves, (size_t)rounds, sizeof *halves, compare);
    p50 = halves[rounds / 2];
    p99 = halves[rounds - 1 - rounds / 100];
    p999 = halves[rounds - 1 - rounds / 1000];
    /* Those that something came in between of: another program, or the system. */
    for (n = rounds; n > 0 && halves[n - 1] > 10 * p50; n--)
        late++;
    if (json)
        printf("{\"size\": %d, \"rounds\": %ld, \"min\": %.3f, \"p50\": %.3f, \"p99\": %.3f, \"p999\": %.3f, "
               "\"max\": %.3f, \"late\": %ld, \"mean\": %.3f}\n",
               size, rounds, halves[0], p50, p99, p999, halves[rounds - 1], late, mean);
    else
        printf("half a round trip of %d bytes: min %.3f, p50 %.3f, p99 %.3f, p99.9 %.3f, max %.3f, mean %.3f us; "
               "%ld above ten times p50\n",
               size, halves[0], p50, p99, p999, halves[rounds - 1], mean, late);
}

/* The figures are of the client alone: the server answers. */
static void ask(End *end)
{
    double *halves = calloc((size_t)rounds, sizeof *halves), start = 0, last = 0, mean = 0;
    long n;
    if (halves == NULL)
        exit(1);
    for (n = 0; n < warm + 2 * rounds; n++) {
        if (n == warm)
            start = now();
        else if (n == warm + rounds)
            mean = ((last = now()) - start) / 2 / (double)rounds;
        put(end, n, n == 0 ? -1 : (int)((n - 1) % DEPTH));
        take(end, n);
        if (n >= warm + rounds) {
            double time = now();
            halves[n - warm - rounds] = (time - last) / 2;
            last = time;
        }
    }
    sent(end);
    report(halves, mean);
    free(halves);
}

static void answer(End *end)
{
    long n;
    for (n = 0; n < warm + 2 * rounds; n++) {
        take(end, n);
        put(end, n, (int)(n % DEPTH));
    }
    sent(end);
}

/* Who is done first leaves, which is no error of the other's; a connection that is lost earlier, descriptors tell of. */
static void happened(VIP_PVOID context, VIP_ERROR_DESCRIPTOR *error)
{
    (void)context;
    if (error->ErrorCode != VIP_ERROR_CONN_LOST)
        fprintf(stderr, "latency: asynchronous error %d\n", (int)error->ErrorCode);
}

static int usage(void)
{
    fprintf(stderr, "usage: latency [--size BYTES] [--rounds COUNT] [--warm COUNT] [--json] DEVICE [HOST]\n");
    return 2;
}

int main(int count, char **words)
{
    End end;
    int n;
    for (n = 1; n < count && words[n][0] == '-' && words[n][1] == '-'; n++) {
        if (strcmp(words[n], "--json") == 0)
            json = 1;
        else if (n + 1 < count && strcmp(words[n], "--size") == 0)
            size = atoi(words[++n]);
        else if (n + 1 < count && strcmp(words[n], "--rounds") == 0)
            rounds = atol(words[++n]);
        else if (n + 1 < count && strcmp(words[n], "--warm") == 0)
            warm = atol(words[++n]);
        else
            return usage();
    }
    if (n == count || n + 2 < count || size < 1 || size > (ROOM - 4096) / (DEPTH + 2) || rounds < 1 || warm < 0)
        return usage();
    open_end(&end, words[n]);
    MUST(VipErrorCallback(end.nic, NULL, happened));
    for (count -= n, words += n, n = 0; n < DEPTH; n++)
        receive_into(&end, n);
    if (count == 1) {
        serve(&end, "latency");
        answer(&end);
    } else {
        join(&end, words[1], "latency");
        ask(&end);
    }
    close_end(&end);
    return 0;
}
