/*
 * The name service: addresses of hosts, and back.
 *
 *     names DEVICE NAME...
 */
#include "common.h"

int main(int count, char **words)
{
    VIP_NIC_HANDLE nic;
    int n, missing = 0;
    if (count < 3) {
        fprintf(stderr, "usage: %s DEVICE NAME...\n", words[0]);
        return 2;
    }
    MUST(VipOpenNic(words[1], &nic));
    MUST(VipNSInit(nic, NULL));
    for (n = 2; n < count; n++) {
        Address address;
        VIP_ULONG index;
        for (index = 0; VipNSGetHostByName(nic, words[n], &address.address, index) == VIP_SUCCESS; index++) {
            char name[64];
            VIP_ULONG length = sizeof name;
            const unsigned char *host = address.address.HostAddress;
            VIP_RETURN returned = VipNSGetHostByAddr(nic, &address.address, name, &length);
            printf("%s is %02x:%02x:%02x:%02x:%02x:%02x", words[n], host[0], host[1], host[2], host[3], host[4],
                   host[5]);
            printf(", which is %s\n", returned == VIP_SUCCESS ? name : "nobody");
        }
        if (index == 0) {
            printf("nobody is called %s\n", words[n]);
            missing = 1;
        }
    }
    MUST(VipNSShutdown(nic));
    MUST(VipCloseNic(nic));
    return missing;
}
