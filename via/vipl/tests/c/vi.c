/* Virtual interfaces, not connected. */
#include "suite.h"

static void is_created_and_destroyed(int level)
{
    VIP_VI_STATE state;
    VIP_VI_HANDLE vi;
    DO(open_end(&pair.a, device_a));
    DO(open_vi(&pair.a, level));
    vi = pair.a.vi;
    OK(VipDestroyVi(vi));
    GIVES(VIP_INVALID_PARAMETER, VipDestroyVi(vi));
    GIVES(VIP_INVALID_PARAMETER, VipQueryVi(vi, &state, NULL, NULL, NULL));
}

static void is_idle_and_empty(int argument)
{
    VIP_VI_STATE state = VIP_STATE_ERROR;
    VIP_VI_ATTRIBUTES attributes;
    VIP_BOOLEAN send_empty = 0, recv_empty = 0;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_DELIVERY));
    OK(VipQueryVi(pair.a.vi, &state, &attributes, &send_empty, &recv_empty));
    CHECK(state == VIP_STATE_IDLE && send_empty && recv_empty);
    CHECK(attributes.ReliabilityLevel == VIP_SERVICE_RELIABLE_DELIVERY && attributes.Ptag == pair.a.tag);
    CHECK(attributes.MaxTransferSize == 262144 && attributes.QoS == NULL);
    CHECK(attributes.EnableRdmaWrite && attributes.EnableRdmaRead);
    DO(post_recv(&pair.a, 0, 0, 10));
    OK(VipQueryVi(pair.a.vi, &state, &attributes, &send_empty, &recv_empty));
    CHECK(send_empty && !recv_empty);
}

static void bad_level_is_refused(int level)
{
    DO(open_end(&pair.a, device_a));
    pair.a.attributes.ReliabilityLevel = (VIP_RELIABILITY_LEVEL)level;
    GIVES(VIP_INVALID_RELIABILITY_LEVEL, VipCreateVi(pair.a.nic, &pair.a.attributes, NULL, NULL, &pair.a.vi));
}

static void bad_transfer_size_is_refused(int argument)
{
    (void)argument;
    DO(open_end(&pair.a, device_a));
    pair.a.attributes.MaxTransferSize = pair.a.about.MaxTransferSize + 1;
    GIVES(VIP_INVALID_MTU, VipCreateVi(pair.a.nic, &pair.a.attributes, NULL, NULL, &pair.a.vi));
    pair.a.attributes.MaxTransferSize = ~0UL;
    GIVES(VIP_INVALID_MTU, VipCreateVi(pair.a.nic, &pair.a.attributes, NULL, NULL, &pair.a.vi));
    pair.a.attributes.MaxTransferSize = pair.a.about.MaxTransferSize;
    OK(VipCreateVi(pair.a.nic, &pair.a.attributes, NULL, NULL, &pair.a.vi));
}

static void an_unknown_quality_of_service_is_refused(int argument)
{
    VIP_VI_ATTRIBUTES attributes;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    pair.a.attributes.QoS = &pair;
    GIVES(VIP_INVALID_QOS, VipCreateVi(pair.a.nic, &pair.a.attributes, NULL, NULL, &pair.a.vi));
    pair.a.attributes.QoS = (VIP_QOS)255;
    OK(VipCreateVi(pair.a.nic, &pair.a.attributes, NULL, NULL, &pair.a.vi));
    OK(VipQueryVi(pair.a.vi, NULL, &attributes, NULL, NULL));
    CHECK(attributes.QoS == (VIP_QOS)255);
}

static void reads_need_a_reliable_level(int argument)
{
    (void)argument;
    DO(open_end(&pair.a, device_a));
    pair.a.attributes.ReliabilityLevel = VIP_SERVICE_UNRELIABLE;
    pair.a.attributes.EnableRdmaRead = VIP_TRUE;
    GIVES(VIP_INVALID_RDMAREAD, VipCreateVi(pair.a.nic, &pair.a.attributes, NULL, NULL, &pair.a.vi));
}

static void attributes_change_while_idle(int argument)
{
    VIP_VI_ATTRIBUTES attributes;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_DELIVERY));
    attributes = pair.a.attributes;
    attributes.ReliabilityLevel = VIP_SERVICE_RELIABLE_RECEPTION;
    attributes.MaxTransferSize = 1000;
    attributes.EnableRdmaWrite = VIP_FALSE;
    OK(VipSetViAttributes(pair.a.vi, &attributes));
    memset(&attributes, 0, sizeof attributes);
    OK(VipQueryVi(pair.a.vi, NULL, &attributes, NULL, NULL));
    CHECK(attributes.ReliabilityLevel == VIP_SERVICE_RELIABLE_RECEPTION && attributes.MaxTransferSize == 1000);
    CHECK(!attributes.EnableRdmaWrite);
    attributes.ReliabilityLevel = 3;
    GIVES(VIP_INVALID_RELIABILITY_LEVEL, VipSetViAttributes(pair.a.vi, &attributes));
}

static void attributes_stay_while_connected(int argument)
{
    (void)argument;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    GIVES(VIP_INVALID_STATE, VipSetViAttributes(pair.a.vi, &pair.a.attributes));
}

static void a_connected_vi_is_not_destroyed(int argument)
{
    (void)argument;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    GIVES(VIP_INVALID_STATE, VipDestroyVi(pair.a.vi));
    OK(VipDisconnect(pair.a.vi));
    OK(VipDestroyVi(pair.a.vi));
}

static void empty_queues_say_so(int argument)
{
    VIP_DESCRIPTOR *d = (VIP_DESCRIPTOR *)&pair;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_DELIVERY));
    GIVES(VIP_DESCRIPTOR_ERROR, VipSendDone(pair.a.vi, &d));
    CHECK(d == NULL);
    GIVES(VIP_DESCRIPTOR_ERROR, VipRecvDone(pair.a.vi, &d));
    CHECK(d == NULL);
}

static void a_receive_waits_while_idle(int argument)
{
    VIP_DESCRIPTOR *d;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_DELIVERY));
    DO(post_recv(&pair.a, 0, 0, 10));
    GIVES(VIP_NOT_DONE, VipRecvDone(pair.a.vi, &d));
    GIVES(VIP_TIMEOUT, VipRecvWait(pair.a.vi, 1, &d));
    GIVES(VIP_TIMEOUT, VipRecvWait(pair.a.vi, 0, &d));
}

static void a_send_while_idle_is_flushed(int level)
{
    DO(open_end(&pair.a, device_a));
    DO(open_vi(&pair.a, level));
    DO(post_send(&pair.a, 0, 0, 10));
    GIVES(VIP_DESCRIPTOR_ERROR, sent(&pair.a, 0));
    CHECK((descriptor(&pair.a, 0)->CS.Status & VIP_STATUS_ERROR_MASK) == VIP_STATUS_DESC_FLUSHED_ERROR);
}

static void disconnecting_while_idle_flushes(int argument)
{
    int n;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_DELIVERY));
    for (n = 0; n < 8; n++)
        DO(post_recv(&pair.a, n, 0, 10));
    OK(VipDisconnect(pair.a.vi));
    for (n = 0; n < 8; n++)
        GIVES(VIP_DESCRIPTOR_ERROR, received(&pair.a, n));
}

static void leaves_with_receives_queued(int argument)
{
    int n;
    (void)argument;
    DO(connect_pair(VIP_SERVICE_RELIABLE_DELIVERY));
    for (n = 0; n < 8; n++)
        DO(post_recv(&pair.a, n, 0, 10));
    OK(VipDisconnect(pair.a.vi));
    OK(VipDisconnect(pair.a.vi));
    OK(VipDestroyVi(pair.a.vi));
    OK(VipDeregisterMem(pair.a.nic, pair.a.memory, pair.a.handle));
}

static void queues_are_as_deep_as_told(int argument)
{
    VIP_ULONG n, depth;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_DELIVERY));
    depth = pair.a.about.MaxDescriptorsPerQueue;
    for (n = 0; n < depth; n++)
        OK(VipPostRecv(pair.a.vi, prepare(&pair.a, (int)(n % DESCRIPTORS), 0, 10), pair.a.handle));
    GIVES(VIP_ERROR_RESOURCE, VipPostRecv(pair.a.vi, prepare(&pair.a, 0, 0, 10), pair.a.handle));
    OK(VipDisconnect(pair.a.vi));
}

static void keeps_a_word_of_the_programs(int argument)
{
    VIP_PVOID word = NULL;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_DELIVERY));
    OK(VipGetUserData(pair.a.vi, &word));
    CHECK(word == NULL);
    OK(VipSetUserData(pair.a.vi, &pair));
    OK(VipGetUserData(pair.a.vi, &word));
    CHECK(word == &pair);
}

static void as_many_as_told(int argument)
{
    static VIP_VI_HANDLE vis[2000];
    VIP_ULONG n, made;
    (void)argument;
    DO(open_end(&pair.a, device_a));
    for (made = 0; made < 2000; made++) {
        VIP_RETURN given = VipCreateVi(pair.a.nic, &pair.a.attributes, NULL, NULL, &vis[made]);
        if (given == VIP_ERROR_RESOURCE)
            break;
        OK(given);
    }
    CHECK(made == 2000 || made == pair.a.about.MaxVI);
    for (n = 0; n < made; n++)
        OK(VipDestroyVi(vis[n]));
    DO(open_vi(&pair.a, VIP_SERVICE_RELIABLE_DELIVERY));
}

const struct test vi_cases[] = {
    {"vi_is_created_and_destroyed_unreliable", EARLY_ADOPTER, is_created_and_destroyed, VIP_SERVICE_UNRELIABLE},
    {"vi_is_created_and_destroyed_delivery", EARLY_ADOPTER, is_created_and_destroyed, VIP_SERVICE_RELIABLE_DELIVERY},
    {"vi_is_created_and_destroyed_reception", EARLY_ADOPTER, is_created_and_destroyed, VIP_SERVICE_RELIABLE_RECEPTION},
    {"vi_is_idle_and_empty", EARLY_ADOPTER, is_idle_and_empty, 0},
    {"vi_level_0_is_refused", FUNCTIONAL, bad_level_is_refused, 0},
    {"vi_level_3_is_refused", FUNCTIONAL, bad_level_is_refused, 3},
    {"vi_level_8_is_refused", FUNCTIONAL, bad_level_is_refused, 8},
    {"vi_bad_transfer_size_is_refused", FUNCTIONAL, bad_transfer_size_is_refused, 0},
    {"vi_unknown_quality_of_service_is_refused", FUNCTIONAL, an_unknown_quality_of_service_is_refused, 0},
    {"vi_reads_need_a_reliable_level", FUNCTIONAL, reads_need_a_reliable_level, 0},
    {"vi_attributes_change_while_idle", FUNCTIONAL, attributes_change_while_idle, 0},
    {"vi_attributes_stay_while_connected", FUNCTIONAL, attributes_stay_while_connected, 0},
    {"vi_connected_is_not_destroyed", FUNCTIONAL, a_connected_vi_is_not_destroyed, 0},
    {"vi_empty_queues_say_so", EARLY_ADOPTER, empty_queues_say_so, 0},
    {"vi_receive_waits_while_idle", EARLY_ADOPTER, a_receive_waits_while_idle, 0},
    {"vi_send_while_idle_is_flushed_unreliable", FUNCTIONAL, a_send_while_idle_is_flushed, VIP_SERVICE_UNRELIABLE},
    {"vi_send_while_idle_is_flushed_delivery", FUNCTIONAL, a_send_while_idle_is_flushed, VIP_SERVICE_RELIABLE_DELIVERY},
    {"vi_send_while_idle_is_flushed_reception", FUNCTIONAL, a_send_while_idle_is_flushed, VIP_SERVICE_RELIABLE_RECEPTION},
    {"vi_disconnecting_while_idle_flushes", FUNCTIONAL, disconnecting_while_idle_flushes, 0},
    {"vi_leaves_with_receives_queued", FUNCTIONAL, leaves_with_receives_queued, 0},
    {"vi_queues_are_as_deep_as_told", FUNCTIONAL, queues_are_as_deep_as_told, 0},
    {"vi_keeps_a_word", FUNCTIONAL, keeps_a_word_of_the_programs, 0},
    {"vi_as_many_as_told", FULL, as_many_as_told, 0},
    {NULL, EARLY_ADOPTER, NULL, 0},
};
