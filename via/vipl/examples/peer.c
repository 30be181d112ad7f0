/*
 * Two peers that ask each other; neither is a server.
 *
 *     peer DEVICE OWN-NAME OTHER-HOST OTHER-NAME
 */
#include "common.h"

int main(int count, char **words)
{
    End end;
    Address here, there;
    VIP_VI_ATTRIBUTES attributes;
    VIP_DESCRIPTOR *d;
    if (count != 5) {
        fprintf(stderr, "usage: %s DEVICE OWN-NAME OTHER-HOST OTHER-NAME\n", words[0]);
        return 2;
    }
    open_end(&end, words[1]);
    receive(&end, 0, 4096, 64);
    receive(&end, 2, 4160, 64);
    local_address(&end, &here, words[2]);
    remote_address(&end, &there, words[3], words[4]);
    MUST(VipConnectPeerRequest(end.vi, &here.address, &there.address, 60000));
    MUST(VipConnectPeerWait(end.vi, &attributes));
    strncpy(data(&end), words[2], 63);
    send_out(&end, 1, 0, 64);
    MUST(VipRecvWait(end.vi, VIP_INFINITE, &d));
    printf("%s has met %s\n", words[2], data(&end) + 4096);
    /* A second message each, so that neither leaves before the other has the first. */
    send_out(&end, 1, 0, 64);
    MUST(VipRecvWait(end.vi, VIP_INFINITE, &d));
    close_end(&end);
    return 0;
}
