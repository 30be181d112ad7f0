/* Connections of client and server. */
#include "suite.h"

static VIP_VI_STATE state_of(End *end)
{
    VIP_VI_STATE state = VIP_STATE_ERROR;
    VipQueryVi(end->vi, &state, NULL, NULL, NULL);
    return state;
}

static void connects(int level)
{
    DO(connect_pair(level));
    CHECK(state_of(&pair.a) == VIP_STATE_CONNECTED && state_of(&pair.b) == VIP_STATE_CONNECTED);
}

/* A client on a thread of its own: the case is the server. */
struct client {
    VIP_RETURN given;
    int at;
    VIP_ULONG timeout;
    VIP_VI_ATTRIBUTES attributes;
};

static void *ask(void *argument)
{
    struct client *client = argument;
    Address here, there;
    address_of(&pair.a, &here, client->at + 1000);
    address_of(&pair.b, &there, client->at);
    do
        client->given = VipConnectRequest(pair.a.vi, &here.address, &there.address, client->timeout, &client->attributes);
    while (client->given == VIP_NO_MATCH);
    return NULL;
}

static VIP_RETURN wait_for(int at, Address *there, VIP_VI_ATTRIBUTES *attributes, VIP_CONN_HANDLE *connection)
{
    Address here;
    address_of(&pair.b, &here, at);
    return VipConnectWait(pair.b.nic, &here.address, PATIENCE, &there->address, attributes, connection);
}

static void tells_who_asks(int argument)
{
    struct client client = {VIP_NOT_DONE, 0, PATIENCE, {0, 0, NULL, NULL, 0, 0}};
    pthread_t thread;
    Address there, expected;
    VIP_VI_ATTRIBUTES attributes;
    VIP_CONN_HANDLE connection;
    (void)argument;
    DO(open_pair(VIP_SERVICE_RELIABLE_RECEPTION));
    CHECK(pthread_create(&thread, NULL, ask, &client) == 0);
    OK(wait_for(0, &there, &attributes, &connection));
    address_of(&pair.a, &expected, 1000);
    CHECK(there.address.HostAddressLen == 6 && memcmp(there.bytes + 4, expected.bytes + 4, 6) == 0);
    /* Its discriminator, as much of it as our own is long. */
    CHECK(memcmp(there.bytes + 10, expected.bytes + 10, there.address.DiscriminatorLen) == 0);
    CHECK(attributes.ReliabilityLevel == VIP_SERVICE_RELIABLE_RECEPTION && attributes.MaxTransferSize == 262144);
    CHECK(attributes.EnableRdmaWrite && attributes.EnableRdmaRead);
    OK(VipConnectAccept(connection, pair.b.vi));
    pthread_join(thread, NULL);
    OK(client.given);
    CHECK(client.attributes.ReliabilityLevel == VIP_SERVICE_RELIABLE_RECEPTION);
    CHECK(client.attributes.MaxTransferSize == 262144);
    GIVES(VIP_INVALID_PARAMETER, VipConnectAccept(connection, pair.b.vi));
    GIVES(VIP_INVALID_PARAMETER, VipConnectReject(connection));
}

static void writes_no_more_than_there_is_room(int argument)
{
    struct client client = {VIP_NOT_DONE, 0, PATIENCE, {0, 0, NULL, NULL, 0, 0}};
    pthread_t thread;
    Address here, there;
    VIP_VI_ATTRIBUTES attributes;
    VIP_CONN_HANDLE connection;
    (void)argument;
    DO(open_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    CHECK(pthread_create(&thread, NULL, ask, &client) == 0);
    address_of(&pair.b, &here, 0);
    memset(&there, 0xee, sizeof there);
    OK(VipConnectWait(pair.b.nic, &here.address, PATIENCE, &there.address, &attributes, &connection));
    CHECK(there.bytes[10 + here.address.DiscriminatorLen] == 0xee);
    OK(VipConnectReject(connection));
    pthread_join(thread, NULL);
    GIVES(VIP_REJECT, client.given);
}

static void rejects(int argument)
{
    struct client client = {VIP_NOT_DONE, 0, PATIENCE, {0, 0, NULL, NULL, 0, 0}};
    pthread_t thread;
    Address there;
    VIP_VI_ATTRIBUTES attributes;
    VIP_CONN_HANDLE connection;
    (void)argument;
    DO(open_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    CHECK(pthread_create(&thread, NULL, ask, &client) == 0);
    OK(wait_for(0, &there, &attributes, &connection));
    CHECK(state_of(&pair.a) == VIP_STATE_CONNECT_PENDING);
    OK(VipConnectReject(connection));
    pthread_join(thread, NULL);
    GIVES(VIP_REJECT, client.given);
    CHECK(state_of(&pair.a) == VIP_STATE_IDLE);
    /* And may ask again. */
    DO(join(&pair.a, pair.a.vi, &pair.b, pair.b.vi, 1));
}

static void nobody_waits(int argument)
{
    Address here, there;
    VIP_VI_ATTRIBUTES attributes;
    (void)argument;
    DO(open_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    address_of(&pair.a, &here, 1);
    address_of(&pair.b, &there, 2);
    GIVES(VIP_NO_MATCH, VipConnectRequest(pair.a.vi, &here.address, &there.address, PATIENCE, &attributes));
    CHECK(state_of(&pair.a) == VIP_STATE_IDLE);
}

static void nobody_answers(int argument)
{
    struct client client = {VIP_NOT_DONE, 0, 200, {0, 0, NULL, NULL, 0, 0}};
    pthread_t thread;
    Address there;
    VIP_VI_ATTRIBUTES attributes;
    VIP_CONN_HANDLE connection;
    (void)argument;
    DO(open_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    CHECK(pthread_create(&thread, NULL, ask, &client) == 0);
    OK(wait_for(0, &there, &attributes, &connection));
    pthread_join(thread, NULL);
    GIVES(VIP_TIMEOUT, client.given);
    CHECK(state_of(&pair.a) == VIP_STATE_IDLE);
    OK(VipConnectReject(connection));
}

static void no_host_answers(int argument)
{
    Address here, there;
    VIP_VI_ATTRIBUTES attributes;
    (void)argument;
    DO(open_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    address_of(&pair.a, &here, 1);
    address_of(&pair.b, &there, 2);
    there.bytes[4] = 0x02;
    there.bytes[9] ^= 0x77;
    there.bytes[6] ^= 0x55;
    GIVES(VIP_TIMEOUT, VipConnectRequest(pair.a.vi, &here.address, &there.address, 100, &attributes));
    CHECK(state_of(&pair.a) == VIP_STATE_IDLE);
}

static void a_request_needs_time(int argument)
{
    Address here, there;
    VIP_VI_ATTRIBUTES attributes;
    (void)argument;
    DO(open_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    address_of(&pair.a, &here, 1);
    address_of(&pair.b, &there, 2);
    GIVES(VIP_INVALID_PARAMETER, VipConnectRequest(pair.a.vi, &here.address, &there.address, 0, &attributes));
}

static void waiting_ends_in_time(int time)
{
    Address here, there;
    VIP_VI_ATTRIBUTES attributes;
    VIP_CONN_HANDLE connection;
    DO(open_end(&pair.b, device_b));
    address_of(&pair.b, &here, 0);
    GIVES(VIP_TIMEOUT,
          VipConnectWait(pair.b.nic, &here.address, (VIP_ULONG)time, &there.address, &attributes, &connection));
}

static void a_connected_vi_asks_not(int argument)
{
    Address here, there;
    VIP_VI_ATTRIBUTES attributes;
    (void)argument;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    address_of(&pair.a, &here, 1);
    address_of(&pair.b, &there, 2);
    GIVES(VIP_INVALID_STATE, VipConnectRequest(pair.a.vi, &here.address, &there.address, PATIENCE, &attributes));
}

enum { OTHER_LEVEL, OTHER_SIZE, OTHER_QOS, OTHER_RIGHTS, NOT_IDLE };

/* The server's VI does not match: nothing is sent, it is changed, and accepts. */
static void accepts_again(int what)
{
    struct client client = {VIP_NOT_DONE, 0, PATIENCE, {0, 0, NULL, NULL, 0, 0}};
    pthread_t thread;
    Address there;
    VIP_VI_ATTRIBUTES attributes, mine;
    VIP_CONN_HANDLE connection;
    VIP_RETURN refusal = VIP_INVALID_RELIABILITY_LEVEL;
    DO(open_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    DO(post_recv(&pair.b, 0, 0, 100));
    mine = pair.b.attributes;
    if (what == OTHER_LEVEL)
        mine.ReliabilityLevel = VIP_SERVICE_RELIABLE_RECEPTION;
    if (what == OTHER_SIZE)
        mine.MaxTransferSize = 1024, refusal = VIP_INVALID_MTU;
    if (what == OTHER_QOS)
        mine.QoS = (VIP_QOS)7, refusal = VIP_INVALID_QOS;
    if (what == OTHER_RIGHTS)
        mine.EnableRdmaWrite = mine.EnableRdmaRead = VIP_FALSE;
    OK(VipSetViAttributes(pair.b.vi, &mine));
    CHECK(pthread_create(&thread, NULL, ask, &client) == 0);
    OK(wait_for(0, &there, &attributes, &connection));
    if (what == OTHER_RIGHTS) {
        OK(VipConnectAccept(connection, pair.b.vi));
    } else {
        GIVES(refusal, VipConnectAccept(connection, pair.b.vi));
        CHECK(state_of(&pair.a) == VIP_STATE_CONNECT_PENDING && state_of(&pair.b) == VIP_STATE_IDLE);
        OK(VipSetViAttributes(pair.b.vi, &pair.b.attributes));
        OK(VipConnectAccept(connection, pair.b.vi));
    }
    pthread_join(thread, NULL);
    OK(client.given);
    CHECK((client.attributes.EnableRdmaWrite != 0) == (what != OTHER_RIGHTS));
    DO(post_send(&pair.a, 1, 1000, 100));
    OK(received(&pair.b, 0));
}

static void a_busy_vi_accepts_not(int argument)
{
    struct client client = {VIP_NOT_DONE, 5, PATIENCE, {0, 0, NULL, NULL, 0, 0}};
    pthread_t thread;
    Address there;
    VIP_VI_ATTRIBUTES attributes;
    VIP_CONN_HANDLE connection;
    VIP_VI_HANDLE first, second;
    (void)argument;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    first = pair.b.vi;
    OK(VipCreateVi(pair.a.nic, &pair.a.attributes, NULL, NULL, &pair.a.vi));
    OK(VipCreateVi(pair.b.nic, &pair.b.attributes, NULL, NULL, &second));
    CHECK(pthread_create(&thread, NULL, ask, &client) == 0);
    OK(wait_for(5, &there, &attributes, &connection));
    GIVES(VIP_INVALID_STATE, VipConnectAccept(connection, first));
    OK(VipConnectAccept(connection, second));
    pthread_join(thread, NULL);
    OK(client.given);
}

static void the_other_end_hears_of_a_disconnect(int level)
{
    int n;
    DO(connect_pair(level));
    for (n = 0; n < 4; n++)
        DO(post_recv(&pair.b, n, 0, 10));
    VipErrorCallback(pair.b.nic, NULL, NULL);
    OK(VipDisconnect(pair.a.vi));
    CHECK(state_of(&pair.a) == VIP_STATE_IDLE);
    for (n = 0; n < 4; n++) {
        GIVES(VIP_DESCRIPTOR_ERROR, received(&pair.b, n));
        CHECK((descriptor(&pair.b, n)->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR) != 0);
    }
    CHECK(state_of(&pair.b) == VIP_STATE_ERROR);
    /* In this state all that is posted is flushed. */
    DO(post_recv(&pair.b, 0, 0, 10));
    GIVES(VIP_DESCRIPTOR_ERROR, received(&pair.b, 0));
    DO(post_send(&pair.b, 1, 0, 10));
    GIVES(VIP_DESCRIPTOR_ERROR, sent(&pair.b, 1));
    GIVES(VIP_INVALID_STATE, VipDestroyVi(pair.b.vi));
    OK(VipDisconnect(pair.b.vi));
    CHECK(state_of(&pair.b) == VIP_STATE_IDLE);
    DO(join(&pair.a, pair.a.vi, &pair.b, pair.b.vi, 1));
}

static void connects_again_and_again(int rounds)
{
    int n;
    DO(open_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    for (n = 0; n < rounds; n++) {
        DO(post_recv(&pair.b, 0, 0, 10));
        DO(join(&pair.a, pair.a.vi, &pair.b, pair.b.vi, n));
        DO(post_send(&pair.a, 1, 0, 10));
        OK(sent(&pair.a, 1));
        OK(received(&pair.b, 0));
        OK(VipDisconnect(pair.a.vi));
        OK(VipDisconnect(pair.b.vi));
    }
}

struct waiter {
    int at;
    VIP_RETURN given;
    VIP_CONN_HANDLE connection;
};

static void *wait_there(void *argument)
{
    struct waiter *waiter = argument;
    Address there;
    VIP_VI_ATTRIBUTES attributes;
    waiter->given = wait_for(waiter->at, &there, &attributes, &waiter->connection);
    if (waiter->given == VIP_SUCCESS)
        waiter->given = VipConnectReject(waiter->connection);
    return NULL;
}

/* Threads wait at discriminators of their own. */
static void many_wait(int count)
{
    struct waiter waiters[8];
    pthread_t threads[8];
    Address here, there;
    VIP_VI_ATTRIBUTES attributes;
    int n;
    DO(open_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    for (n = 0; n < count; n++) {
        waiters[n].at = n;
        CHECK(pthread_create(&threads[n], NULL, wait_there, &waiters[n]) == 0);
    }
    for (n = count - 1; n >= 0; n--) {
        VIP_RETURN given;
        address_of(&pair.a, &here, 100);
        address_of(&pair.b, &there, n);
        do
            given = VipConnectRequest(pair.a.vi, &here.address, &there.address, PATIENCE, &attributes);
        while (given == VIP_NO_MATCH);
        GIVES(VIP_REJECT, given);
        pthread_join(threads[n], NULL);
        OK(waiters[n].given);
    }
}

static void refused_many_times(int times)
{
    Address here, there;
    VIP_VI_ATTRIBUTES attributes;
    int n;
    DO(open_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    address_of(&pair.a, &here, 1);
    address_of(&pair.b, &there, 2);
    if (getenv("UVIA_LONG") != NULL)
        times = 1000000;
    for (n = 0; n < times; n++)
        GIVES(VIP_NO_MATCH, VipConnectRequest(pair.a.vi, &here.address, &there.address, PATIENCE, &attributes));
}

const struct test connect_cases[] = {
    {"connect_unreliable", EARLY_ADOPTER, connects, VIP_SERVICE_UNRELIABLE},
    {"connect_delivery", EARLY_ADOPTER, connects, VIP_SERVICE_RELIABLE_DELIVERY},
    {"connect_reception", EARLY_ADOPTER, connects, VIP_SERVICE_RELIABLE_RECEPTION},
    {"connect_tells_who_asks", FUNCTIONAL, tells_who_asks, 0},
    {"connect_writes_no_more_than_there_is_room", FUNCTIONAL, writes_no_more_than_there_is_room, 0},
    {"connect_rejected", EARLY_ADOPTER, rejects, 0},
    {"connect_nobody_waits", EARLY_ADOPTER, nobody_waits, 0},
    {"connect_nobody_answers", FUNCTIONAL, nobody_answers, 0},
    {"connect_no_host_answers", FUNCTIONAL, no_host_answers, 0},
    {"connect_needs_time", FUNCTIONAL, a_request_needs_time, 0},
    {"connect_wait_of_no_time", FUNCTIONAL, waiting_ends_in_time, 0},
    {"connect_wait_ends_in_time", FUNCTIONAL, waiting_ends_in_time, 30},
    {"connect_connected_vi_asks_not", FUNCTIONAL, a_connected_vi_asks_not, 0},
    {"connect_other_level_is_changed_and_accepted", FUNCTIONAL, accepts_again, OTHER_LEVEL},
    {"connect_other_size_is_changed_and_accepted", FUNCTIONAL, accepts_again, OTHER_SIZE},
    {"connect_other_qos_is_changed_and_accepted", FUNCTIONAL, accepts_again, OTHER_QOS},
    {"connect_other_rights_are_accepted", FUNCTIONAL, accepts_again, OTHER_RIGHTS},
    {"connect_busy_vi_accepts_not", FUNCTIONAL, a_busy_vi_accepts_not, 0},
    {"disconnect_is_heard_unreliable", FUNCTIONAL, the_other_end_hears_of_a_disconnect, VIP_SERVICE_UNRELIABLE},
    {"disconnect_is_heard_delivery", EARLY_ADOPTER, the_other_end_hears_of_a_disconnect, VIP_SERVICE_RELIABLE_DELIVERY},
    {"disconnect_is_heard_reception", FUNCTIONAL, the_other_end_hears_of_a_disconnect, VIP_SERVICE_RELIABLE_RECEPTION},
    {"connect_again_and_again", FUNCTIONAL, connects_again_and_again, 20},
    {"connect_many_wait", FULL, many_wait, 8},
    {"connect_refused_many_times", FULL, refused_many_times, 2000},
    {NULL, EARLY_ADOPTER, NULL, 0},
};
