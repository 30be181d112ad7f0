/*
 * refused DEVICE                 opens it, says so, and waits for the end of its input
 * refused DEVICE HOST TIMES      asks there for what nobody waits at, and measures its own memory
 *
 * Prints what the process's resident memory has grown by in KiB, between the tenth part of the calls and the last.
 */
#include <unistd.h>

#include "../../../examples/common.h"

static long resident(void)
{
    long all = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld %ld", &all, &pages) != 2)
        exit(1);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

int main(int count, char **words)
{
    End end;
    Address here, there;
    VIP_VI_ATTRIBUTES attributes;
    long n, times, before = 0;
    if (count != 2 && count != 4) {
        fprintf(stderr, "usage: %s DEVICE [HOST TIMES]\n", words[0]);
        return 2;
    }
    open_end(&end, words[1]);
    if (count == 2) {
        printf("open\n");
        fflush(stdout);
        while (getchar() != EOF)
            ;
        close_end(&end);
        return 0;
    }
    local_address(&end, &here, "refused");
    remote_address(&end, &there, words[2], "nobody waits here");
    times = atol(words[3]);
    for (n = 0; n < times; n++) {
        VIP_RETURN returned = VipConnectRequest(end.vi, &here.address, &there.address, 60000, &attributes);
        if (returned != VIP_NO_MATCH) {
            fprintf(stderr, "request %ld returned %d\n", n, (int)returned);
            return 1;
        }
        if (n == times / 10)
            before = resident();
    }
    printf("%ld\n", resident() - before);
    close_end(&end);
    return 0;
}
