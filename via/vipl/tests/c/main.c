/*
 * vipl-suite [--a DEVICE] [--b DEVICE] [--level early|functional|full] [--only PART-OF-A-NAME] [--list]
 *
 * The two ends are in one process: over one device that reaches itself, or over two that reach each other.
 * Prints a line a case, and a summary; the exit status is 0 when none failed.
 */
#include "suite.h"

int failed;
const char *device_a = "/dev/via_lo", *device_b = NULL;
Pair pair;
static int waiting_number;

void fail(const char *file, int line, const char *what, long value)
{
    if (!failed)
        fprintf(stderr, "%s:%d: %s (%ld)\n", file, line, what, value);
    failed = 1;
}

void open_end(End *end, const char *device)
{
    VIP_MEM_ATTRIBUTES attributes;
    memset(end, 0, sizeof *end);
    OK(VipOpenNic(device, &end->nic));
    OK(VipQueryNic(end->nic, &end->about));
    OK(VipCreatePtag(end->nic, &end->tag));
    end->raw = calloc(1, MEMORY + 64);
    CHECK(end->raw != NULL);
    end->memory = end->raw + 64 - (VIP_UINT64)end->raw % 64;
    attributes.Ptag = end->tag;
    attributes.EnableRdmaWrite = VIP_TRUE;
    attributes.EnableRdmaRead = VIP_TRUE;
    OK(VipRegisterMem(end->nic, end->memory, MEMORY, &attributes, &end->handle));
    end->attributes.ReliabilityLevel = VIP_SERVICE_RELIABLE_DELIVERY;
    end->attributes.MaxTransferSize = 262144;
    end->attributes.Ptag = end->tag;
    end->attributes.EnableRdmaWrite = VIP_TRUE;
}

void open_vi(End *end, int level)
{
    end->attributes.ReliabilityLevel = (VIP_RELIABILITY_LEVEL)level;
    end->attributes.EnableRdmaRead = level != VIP_SERVICE_UNRELIABLE;
    OK(VipCreateVi(end->nic, &end->attributes, end->send_cq, end->recv_cq, &end->vi));
}

void open_pair(int level)
{
    DO(open_end(&pair.a, device_a));
    DO(open_end(&pair.b, device_b));
    DO(open_vi(&pair.a, level));
    DO(open_vi(&pair.b, level));
}

void address_of(End *end, Address *address, int at)
{
    memset(address, 0, sizeof *address);
    address->address.HostAddressLen = end->about.NicAddressLen;
    memcpy(address->bytes + 4, end->about.LocalNicAddress, end->about.NicAddressLen);
    address->address.DiscriminatorLen = (VIP_UINT16)sprintf((char *)address->bytes + 10, "suite-%d-%d", waiting_number, at);
}

struct server {
    End *end;
    VIP_VI_HANDLE vi;
    int at;
    VIP_RETURN waited, accepted;
};

static void *serve(void *argument)
{
    struct server *server = argument;
    Address here, there;
    VIP_VI_ATTRIBUTES attributes;
    VIP_CONN_HANDLE connection;
    address_of(server->end, &here, server->at);
    server->waited =
        VipConnectWait(server->end->nic, &here.address, PATIENCE, &there.address, &attributes, &connection);
    if (server->waited == VIP_SUCCESS)
        server->accepted = VipConnectAccept(connection, server->vi);
    return NULL;
}

void join(End *from, VIP_VI_HANDLE from_vi, End *to, VIP_VI_HANDLE to_vi, int at)
{
    struct server server;
    pthread_t thread;
    Address here, there;
    VIP_VI_ATTRIBUTES attributes;
    VIP_RETURN asked;
    memset(&server, 0, sizeof server);
    server.end = to;
    server.vi = to_vi;
    server.at = at;
    CHECK(pthread_create(&thread, NULL, serve, &server) == 0);
    address_of(from, &here, at + 1000);
    address_of(to, &there, at);
    do
        asked = VipConnectRequest(from_vi, &here.address, &there.address, PATIENCE, &attributes);
    while (asked == VIP_NO_MATCH);
    pthread_join(thread, NULL);
    OK(asked);
    OK(server.waited);
    OK(server.accepted);
}

void connect_pair(int level)
{
    DO(open_pair(level));
    DO(join(&pair.a, pair.a.vi, &pair.b, pair.b.vi, 0));
}

VIP_DESCRIPTOR *descriptor(End *end, int n)
{
    return (VIP_DESCRIPTOR *)(void *)(end->memory + 128 * n);
}

char *data(End *end, size_t at)
{
    return end->memory + 128 * DESCRIPTORS + at;
}

VIP_DESCRIPTOR *prepare(End *end, int n, size_t at, VIP_UINT32 length)
{
    VIP_DESCRIPTOR *d = descriptor(end, n);
    memset(d, 0, 128);
    d->CS.SegCount = 1;
    d->CS.Control = VIP_CONTROL_OP_SENDRECV;
    d->CS.Length = length;
    d->DS[0].Local.Data.Address = data(end, at);
    d->DS[0].Local.Handle = end->handle;
    d->DS[0].Local.Length = length;
    return d;
}

VIP_DESCRIPTOR *prepare_rdma(End *end, int n, End *to, size_t from, size_t at, VIP_UINT32 length, int operation)
{
    VIP_DESCRIPTOR *d = prepare(end, n, from, length);
    d->CS.SegCount = 2;
    d->CS.Control = (VIP_UINT16)operation;
    d->DS[1] = d->DS[0];
    memset(&d->DS[0], 0, sizeof d->DS[0]);
    d->DS[0].Remote.Data.Address = data(to, at);
    d->DS[0].Remote.Handle = to->handle;
    return d;
}

void post_recv(End *end, int n, size_t at, VIP_UINT32 length)
{
    OK(VipPostRecv(end->vi, prepare(end, n, at, length), end->handle));
}

void post_send(End *end, int n, size_t at, VIP_UINT32 length)
{
    OK(VipPostSend(end->vi, prepare(end, n, at, length), end->handle));
}

static VIP_RETURN is_head(End *end, int n, VIP_DESCRIPTOR *d, VIP_RETURN given)
{
    if (d != descriptor(end, n))
        fail(__FILE__, __LINE__, "the head is the oldest descriptor", given);
    else if ((d->CS.Status & VIP_STATUS_DONE) == 0)
        fail(__FILE__, __LINE__, "a descriptor that comes back is done", (long)d->CS.Status);
    return given;
}

VIP_RETURN sent(End *end, int n)
{
    VIP_DESCRIPTOR *d = NULL;
    VIP_RETURN given = VipSendWait(end->vi, PATIENCE, &d);
    return is_head(end, n, d, given);
}

VIP_RETURN received(End *end, int n)
{
    VIP_DESCRIPTOR *d = NULL;
    VIP_RETURN given = VipRecvWait(end->vi, PATIENCE, &d);
    return is_head(end, n, d, given);
}

void fill(char *at, size_t length, unsigned seed)
{
    size_t n;
    for (n = 0; n < length; n++)
        at[n] = (char)(n * 7 + n / 251 + seed);
}

int is_filled(const char *at, size_t length, unsigned seed)
{
    size_t n;
    for (n = 0; n < length; n++)
        if (at[n] != (char)(n * 7 + n / 251 + seed))
            return 0;
    return 1;
}

static void close_end(End *end)
{
    if (end->nic != NULL && VipCloseNic(end->nic) != VIP_SUCCESS)
        fail(__FILE__, __LINE__, "the NIC closes", 0);
    free(end->raw);
    memset(end, 0, sizeof *end);
}

/* Errors of connections that cases break on purpose need not be told. */
static void quiet(VIP_PVOID context, VIP_ERROR_DESCRIPTOR *error)
{
    (void)context;
    (void)error;
}

static const struct test *const tables[] = {
    nic_cases,  memory_cases, vi_cases, connect_cases, transfer_cases, rdma_cases,
    cq_cases, argument_cases, peer_cases, notify_cases, wait_cases, stress_cases,
};

int main(int count, char **words)
{
    static const char *const levels[] = {"early", "functional", "full"};
    enum level level = FULL;
    const char *only = NULL;
    int list = 0, passed = 0, failures = 0, n;
    int of_level[3] = {0, 0, 0};
    size_t table;
    VIP_NIC_HANDLE hold_a, hold_b;
    for (n = 1; n < count; n++) {
        if (strcmp(words[n], "--list") == 0)
            list = 1;
        else if (n + 1 < count && strcmp(words[n], "--a") == 0)
            device_a = words[++n];
        else if (n + 1 < count && strcmp(words[n], "--b") == 0)
            device_b = words[++n];
        else if (n + 1 < count && strcmp(words[n], "--only") == 0)
            only = words[++n];
        else if (n + 1 < count && strcmp(words[n], "--level") == 0) {
            n++;
            for (level = EARLY_ADOPTER; level < FULL && strcmp(words[n], levels[level]) != 0; level++)
                ;
        } else {
            fprintf(stderr, "usage: %s [--a DEVICE] [--b DEVICE] [--level early|functional|full] [--only NAME] [--list]\n",
                    words[0]);
            return 2;
        }
    }
    if (device_b == NULL)
        device_b = device_a;
    /* Held, so that the devices are not opened anew for each case. */
    if (!list && (VipOpenNic(device_a, &hold_a) != VIP_SUCCESS || VipOpenNic(device_b, &hold_b) != VIP_SUCCESS))
        return 1;
    for (table = 0; table < sizeof tables / sizeof tables[0]; table++) {
        const struct test *test;
        for (test = tables[table]; test->name != NULL; test++) {
            if (test->level > level || (only != NULL && strstr(test->name, only) == NULL))
                continue;
            for (n = test->level; n <= FULL; n++)
                of_level[n]++;
            if (list) {
                printf("%s: test\n", test->name);
                continue;
            }
            failed = 0;
            waiting_number++;
            memset(&pair, 0, sizeof pair);
            test->run(test->argument);
            if (pair.a.nic != NULL)
                VipErrorCallback(pair.a.nic, NULL, quiet);
            close_end(&pair.a);
            close_end(&pair.b);
            printf("test %s ... %s\n", test->name, failed ? "FAILED" : "ok");
            fflush(stdout);
            if (failed)
                failures++;
            else
                passed++;
        }
    }
    if (list) {
        printf("early %d, functional %d, full %d\n", of_level[0], of_level[1], of_level[2]);
        return 0;
    }
    printf("test result: %d passed; %d failed\n", passed, failures);
    VipCloseNic(hold_a);
    VipCloseNic(hold_b);
    return failures != 0;
}
