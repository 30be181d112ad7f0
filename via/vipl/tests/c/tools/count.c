/*
 * count ROUNDS DEVICE: messages of 64 bytes between two interfaces of this process, one each way and round, for counting
 * what a send and a receive take: the instructions of `message`.
 */
#include <pthread.h>
#include <sched.h>

#include "../../../examples/common.h"

static VIP_VI_HANDLE other;
static End end;

static void *wait_for_it(void *unused)
{
    Address here, there;
    VIP_VI_ATTRIBUTES attributes;
    VIP_CONN_HANDLE connection;
    local_address(&end, &here, "count");
    MUST(VipConnectWait(end.nic, &here.address, VIP_INFINITE, &there.address, &attributes, &connection));
    MUST(VipConnectAccept(connection, other));
    return unused;
}

static void take(VIP_RETURN (*done)(VIP_VI_HANDLE, VIP_DESCRIPTOR **), VIP_VI_HANDLE vi, int n)
{
    VIP_DESCRIPTOR *d;
    VIP_RETURN returned;
    /* Where threads run one at a time, the one that drives the NIC has to be let go on. */
    while ((returned = done(vi, &d)) == VIP_NOT_DONE)
        sched_yield();
    MUST(returned);
    if (d != descriptor(&end, n))
        exit(1);
}

/*
 * A message, whose receive is posted before it comes. It says too that the one before, the other way, has arrived: that
 * one's send is done then.
 */
__attribute__((noinline)) static void message(VIP_VI_HANDLE from, VIP_VI_HANDLE to, long n)
{
    MUST(VipPostRecv(to, prepare(&end, 2, 64, 64), end.handle));
    MUST(VipPostSend(from, prepare(&end, n % 2, 0, 64), end.handle));
    take(VipRecvDone, to, 2);
    if (n > 0)
        take(VipSendDone, to, (n - 1) % 2);
}

int main(int count, char **words)
{
    pthread_t thread;
    long n;
    if (count != 3) {
        fprintf(stderr, "usage: %s ROUNDS DEVICE\n", words[0]);
        return 2;
    }
    open_end(&end, words[2]);
    MUST(VipCreateVi(end.nic, &end.attributes, NULL, NULL, &other));
    if (pthread_create(&thread, NULL, wait_for_it, NULL) != 0)
        return 1;
    join(&end, "localhost", "count");
    pthread_join(thread, NULL);
    for (n = 0; n < 2 * atol(words[1]); n += 2) {
        message(end.vi, other, n);
        message(other, end.vi, n + 1);
    }
    MUST(VipDisconnect(other));
    MUST(VipDestroyVi(other));
    close_end(&end);
    return 0;
}
