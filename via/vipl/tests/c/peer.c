/* Peers that ask each other. */
#include "suite.h"

static void ask(End *end, End *other, int own, int its, VIP_ULONG timeout)
{
    Address here, there;
    address_of(end, &here, own);
    address_of(other, &there, its);
    OK(VipConnectPeerRequest(end->vi, &here.address, &there.address, timeout));
}

static void meet(int level)
{
    VIP_VI_ATTRIBUTES attributes;
    VIP_VI_STATE state;
    DO(open_pair(level));
    DO(post_recv(&pair.a, 0, 0, 100));
    DO(post_recv(&pair.b, 0, 0, 100));
    DO(ask(&pair.a, &pair.b, 1, 2, PATIENCE));
    OK(VipQueryVi(pair.a.vi, &state, NULL, NULL, NULL));
    CHECK(state == VIP_STATE_CONNECT_PENDING);
    DO(ask(&pair.b, &pair.a, 2, 1, PATIENCE));
    OK(VipConnectPeerWait(pair.a.vi, &attributes));
    CHECK(attributes.ReliabilityLevel == level && attributes.MaxTransferSize == 262144);
    OK(VipConnectPeerWait(pair.b.vi, &attributes));
    OK(VipQueryVi(pair.a.vi, &state, NULL, NULL, NULL));
    CHECK(state == VIP_STATE_CONNECTED);
    DO(post_send(&pair.a, 1, 0, 10));
    DO(post_send(&pair.b, 1, 0, 10));
    OK(received(&pair.a, 0));
    OK(received(&pair.b, 0));
    GIVES(VIP_INVALID_STATE, VipConnectPeerDone(pair.a.vi, &attributes));
}

static void by_polling(int argument)
{
    VIP_VI_ATTRIBUTES attributes;
    VIP_RETURN given;
    (void)argument;
    DO(open_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    DO(ask(&pair.a, &pair.b, 1, 2, PATIENCE));
    GIVES(VIP_NOT_DONE, VipConnectPeerDone(pair.a.vi, &attributes));
    DO(ask(&pair.b, &pair.a, 2, 1, PATIENCE));
    do
        given = VipConnectPeerDone(pair.a.vi, &attributes);
    while (given == VIP_NOT_DONE);
    OK(given);
    do
        given = VipConnectPeerDone(pair.b.vi, &attributes);
    while (given == VIP_NOT_DONE);
    OK(given);
}

static void alone(int argument)
{
    VIP_VI_ATTRIBUTES attributes;
    VIP_VI_STATE state;
    (void)argument;
    DO(open_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    DO(ask(&pair.a, &pair.b, 1, 2, 100));
    GIVES(VIP_TIMEOUT, VipConnectPeerWait(pair.a.vi, &attributes));
    OK(VipQueryVi(pair.a.vi, &state, NULL, NULL, NULL));
    CHECK(state == VIP_STATE_IDLE);
}

/* Discriminators have to match crosswise. */
static void past_each_other(int argument)
{
    VIP_VI_ATTRIBUTES attributes;
    (void)argument;
    DO(open_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    DO(ask(&pair.a, &pair.b, 1, 2, 200));
    DO(ask(&pair.b, &pair.a, 2, 3, 200));
    GIVES(VIP_TIMEOUT, VipConnectPeerWait(pair.a.vi, &attributes));
    GIVES(VIP_TIMEOUT, VipConnectPeerWait(pair.b.vi, &attributes));
}

static void of_another_level(int argument)
{
    VIP_VI_ATTRIBUTES attributes;
    VIP_RETURN one, other;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    DO(open_end(&pair.b, device_b));
    DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_DELIVERY));
    DO(open_vi(&pair.b, VIP_SERVICE_RELIABLE_RECEPTION));
    DO(ask(&pair.a, &pair.b, 1, 2, 500));
    DO(ask(&pair.b, &pair.a, 2, 1, 500));
    one = VipConnectPeerWait(pair.a.vi, &attributes);
    other = VipConnectPeerWait(pair.b.vi, &attributes);
    CHECK(one == VIP_INVALID_RELIABILITY_LEVEL || other == VIP_INVALID_RELIABILITY_LEVEL);
    CHECK(one != VIP_SUCCESS && other != VIP_SUCCESS);
}

static void given_up(int argument)
{
    VIP_VI_STATE state;
    (void)argument;
    DO(open_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    DO(ask(&pair.a, &pair.b, 1, 2, PATIENCE));
    OK(VipDisconnect(pair.a.vi));
    OK(VipQueryVi(pair.a.vi, &state, NULL, NULL, NULL));
    CHECK(state == VIP_STATE_IDLE);
    OK(VipDestroyVi(pair.a.vi));
}

const struct test peer_cases[] = {
    {"peer_meet_unreliable", FUNCTIONAL, meet, VIP_SERVICE_UNRELIABLE},
    {"peer_meet_delivery", FUNCTIONAL, meet, VIP_SERVICE_RELIABLE_DELIVERY},
    {"peer_meet_reception", FUNCTIONAL, meet, VIP_SERVICE_RELIABLE_RECEPTION},
    {"peer_by_polling", FUNCTIONAL, by_polling, 0},
    {"peer_alone", FUNCTIONAL, alone, 0},
    {"peer_past_each_other", FUNCTIONAL, past_each_other, 0},
    {"peer_of_another_level", FUNCTIONAL, of_another_level, 0},
    {"peer_given_up", FUNCTIONAL, given_up, 0},
    {NULL, EARLY_ADOPTER, NULL, 0},
};
