/*
 * Receives by a handler, which the library calls on a thread of its own.
 *
 *     notify DEVICE               on one host: counts ten messages
 *     notify DEVICE HOST          on another
 */
#include <pthread.h>

#include "common.h"

#define MESSAGES 10

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int seen;

static void arrived(VIP_PVOID context, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d)
{
    End *end = context;
    (void)nic;
    if ((d->CS.Status & VIP_STATUS_ERROR_MASK) != 0)
        return;
    /* One call a registration: for the next message there is to be another. */
    if (vi == end->vi && seen + 1 < MESSAGES)
        MUST(VipRecvNotify(vi, context, arrived));
    pthread_mutex_lock(&lock);
    seen++;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

int main(int count, char **words)
{
    End end;
    int n;
    if (count < 2) {
        fprintf(stderr, "usage: %s DEVICE [HOST]\n", words[0]);
        return 2;
    }
    open_end(&end, words[1]);
    if (count == 2) {
        for (n = 0; n < MESSAGES; n++)
            receive(&end, 2 * n, (size_t)n * 64, 64);
        MUST(VipRecvNotify(end.vi, &end, arrived));
        serve(&end, "notify");
        pthread_mutex_lock(&lock);
        while (seen < MESSAGES)
            pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
        printf("%d messages\n", seen);
        data(&end)[0] = 0;
        send_out(&end, 30, 0, 1);
    } else {
        VIP_DESCRIPTOR *d;
        receive(&end, 2, 4096, 64);
        join(&end, words[2], "notify");
        for (n = 0; n < MESSAGES; n++)
            send_out(&end, 0, 0, 64);
        MUST(VipRecvWait(end.vi, VIP_INFINITE, &d));
    }
    close_end(&end);
    return 0;
}
