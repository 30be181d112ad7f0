/*
 * Messages back and forth, by polling.
 *
 *     pingpong DEVICE                on one host
 *     pingpong DEVICE HOST [COUNT]   on another
 */
#define _POSIX_C_SOURCE 200112L
#include <time.h>

#include "common.h"

#define SIZE 64

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void take(End *end)
{
    VIP_DESCRIPTOR *d;
    VIP_RETURN returned;
    do
        returned = VipRecvDone(end->vi, &d);
    while (returned == VIP_NOT_DONE);
    MUST(returned);
    if (d->CS.Length != SIZE) {
        fprintf(stderr, "a message of %u bytes\n", (unsigned)d->CS.Length);
        exit(1);
    }
}

static void put(End *end)
{
    VIP_DESCRIPTOR *d;
    VIP_RETURN returned;
    MUST(VipPostSend(end->vi, prepare(end, 1, 0, SIZE), end->handle));
    do
        returned = VipSendDone(end->vi, &d);
    while (returned == VIP_NOT_DONE);
    MUST(returned);
}

int main(int count, char **words)
{
    End end;
    long rounds, n;
    if (count < 2) {
        fprintf(stderr, "usage: %s DEVICE [HOST [COUNT]]\n", words[0]);
        return 2;
    }
    open_end(&end, words[1]);
    receive(&end, 0, 4096, SIZE);
    if (count == 2) {
        serve(&end, "pingpong");
        for (;;) {
            VIP_BOOLEAN last;
            take(&end);
            last = data(&end)[4096] != 0;
            receive(&end, 0, 4096, SIZE);
            put(&end);
            if (last)
                break;
        }
    } else {
        double start;
        rounds = count > 3 ? atol(words[3]) : 1000;
        join(&end, words[2], "pingpong");
        start = seconds();
        for (n = 0; n < rounds; n++) {
            data(&end)[0] = (char)(n == rounds - 1);
            put(&end);
            take(&end);
            if (n < rounds - 1)
                receive(&end, 0, 4096, SIZE);
        }
        printf("%ld round trips of %d bytes, half of one takes %.2f us\n", rounds, SIZE,
               (seconds() - start) * 1e6 / (double)rounds / 2);
    }
    close_end(&end);
    return 0;
}
