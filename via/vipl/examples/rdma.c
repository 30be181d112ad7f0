/*
 * An RDMA write into a program that only looks at its memory.
 *
 *     rdma DEVICE         on one host: calls no function of the library while it waits
 *     rdma DEVICE HOST    on another
 */
#include "common.h"

#define SIZE 10000
#define FLAG 20000

/* Where the other end may write, in a message. */
typedef struct {
    VIP_UINT64 address;
    VIP_MEM_HANDLE handle;
} Target;

int main(int count, char **words)
{
    End end;
    VIP_DESCRIPTOR *d;
    Target target;
    int n;
    if (count < 2) {
        fprintf(stderr, "usage: %s DEVICE [HOST]\n", words[0]);
        return 2;
    }
    open_end(&end, words[1]);
    if (count == 2) {
        volatile char *flag = data(&end) + FLAG;
        receive(&end, 2, 0, 1);
        serve(&end, "rdma");
        target.address = (VIP_UINT64)(data(&end) + 8192);
        target.handle = end.handle;
        memcpy(data(&end), &target, sizeof target);
        send_out(&end, 0, 0, sizeof target);
        while (*flag != 'Y')
            ;
        for (n = 0; n < SIZE; n++)
            if (data(&end)[8192 + n] != (char)n) {
                fprintf(stderr, "byte %d is not what was written\n", n);
                return 1;
            }
        printf("%d bytes came with nobody waiting for them\n", SIZE);
        /* The other end may go. */
        MUST(VipRecvWait(end.vi, VIP_INFINITE, &d));
    } else {
        receive(&end, 0, 0, sizeof target);
        join(&end, words[2], "rdma");
        MUST(VipRecvWait(end.vi, VIP_INFINITE, &d));
        memcpy(&target, data(&end), sizeof target);
        for (n = 0; n < SIZE; n++)
            data(&end)[8192 + n] = (char)n;
        data(&end)[0] = 'Y';
        for (n = 0; n < 2; n++) {
            /* First the bytes, then the flag: writes are seen in the order in which they were posted. */
            d = descriptor(&end, 2 * n + 2);
            memset(d, 0, sizeof *d);
            d->CS.SegCount = 2;
            d->CS.Control = VIP_CONTROL_OP_RDMAWRITE;
            d->CS.Length = n == 0 ? SIZE : 1;
            d->DS[0].Remote.Data.AddressBits = target.address + (n == 0 ? 0 : FLAG - 8192);
            d->DS[0].Remote.Handle = target.handle;
            d->DS[1].Local.Data.Address = data(&end) + (n == 0 ? 8192 : 0);
            d->DS[1].Local.Handle = end.handle;
            d->DS[1].Local.Length = n == 0 ? SIZE : 1;
            MUST(VipPostSend(end.vi, d, end.handle));
        }
        MUST(VipSendWait(end.vi, VIP_INFINITE, &d));
        MUST(VipSendWait(end.vi, VIP_INFINITE, &d));
        send_out(&end, 8, 0, 1);
    }
    close_end(&end);
    return 0;
}
