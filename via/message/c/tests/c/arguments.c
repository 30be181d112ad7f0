/* Every function with every argument that makes no sense: each call fails, says why, and leaves all as it was. Two ranks
 * do it at the same time, and send each other a message in between. */
#include <madeleine.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures, calls;

static void check(int good, const char *what, int line)
{
    calls++;
    if (good)
        return;
    failures++;
    fprintf(stderr, "line %d: %s; mad_error: %s\n", line, what, mad_error());
}

#define GOOD(what) check(what, #what, __LINE__)
/* Fails, and there is a text of it. */
#define BAD(call) check((call) == -1 && *mad_error(), #call, __LINE__)
#define NONE(call) check((call) == NULL && *mad_error(), #call, __LINE__)

enum { LONG = 100000, FORGED = 10 };

static mad_session_t session;
static mad_channel_t channel;
static int me, peer;

/* What is no handle of this kind: NULL, numbers, addresses, handles of other kinds, and those that are gone. */
static void *forged[FORGED];

static void with_wrong_handles(void)
{
    const char *rails[] = { "a" };
    char byte = 0;
    for (int n = 0; n < FORGED; n++) {
        void *wrong = forged[n];
        mad_connection_t got = NULL;
        if (wrong != (void *)session) {
            BAD(mad_rank(wrong));
            BAD(mad_size(wrong));
            BAD(mad_progress(wrong));
            NONE(mad_open_channel(wrong, 0));
            NONE(mad_open_channel_on(wrong, 0, rails, 1));
            mad_exit(wrong);
        }
        if (wrong != (void *)channel) {
            mad_close_channel(wrong);
            BAD(mad_connect(wrong, peer));
            NONE(mad_begin_packing(wrong, peer));
            NONE(mad_begin_unpacking(wrong));
            NONE(mad_begin_unpacking_from(wrong, peer));
            BAD(mad_try_begin_unpacking(wrong, MAD_ANY, &got));
        }
        BAD(mad_pack(wrong, &byte, 1, mad_send_SAFER, mad_receive_EXPRESS));
        BAD(mad_unpack(wrong, &byte, 1, mad_send_SAFER, mad_receive_EXPRESS));
        BAD(mad_end_packing(wrong));
        BAD(mad_end_unpacking(wrong));
        BAD(mad_from(wrong));
    }
}

static void with_wrong_arguments(void)
{
    const char *unknown[] = { "a", "nowhere" }, *null[] = { NULL };
    int numbers[] = { -1, 64, INT32_MIN, INT32_MAX }, ranks[] = { -2, me, 2, INT32_MIN, INT32_MAX };
    mad_connection_t got = NULL;
    for (int n = 0; n < 4; n++)
        NONE(mad_open_channel(session, numbers[n]));
    NONE(mad_open_channel_on(session, 1, unknown, 2));
    NONE(mad_open_channel_on(session, 1, null, 1));
    NONE(mad_open_channel_on(session, 1, NULL, 1));
    for (int n = 0; n < 5; n++) {
        BAD(mad_connect(channel, ranks[n]));
        NONE(mad_begin_packing(channel, ranks[n]));
        NONE(mad_begin_unpacking_from(channel, ranks[n]));
        BAD(mad_try_begin_unpacking(channel, ranks[n], &got));
    }
    BAD(mad_try_begin_unpacking(channel, MAD_ANY, NULL));
}

/* A message each way, with nonsense between all of its calls. */
static void with_a_message(void)
{
    static unsigned char out[LONG], in[LONG];
    int modes[] = { 0, 4, -1, 257, INT32_MIN };
    unsigned char byte = 9;
    mad_connection_t sent, got;
    memset(out, me + 1, LONG);
    GOOD((sent = mad_begin_packing(channel, peer)) != NULL);
    NONE(mad_begin_packing(channel, peer));
    GOOD(mad_from(sent) == peer);
    for (int n = 0; n < 5; n++) {
        BAD(mad_pack(sent, &byte, 1, modes[n], mad_receive_EXPRESS));
        BAD(mad_pack(sent, &byte, 1, mad_send_SAFER, modes[n]));
    }
    BAD(mad_pack(sent, &byte, 1, mad_send_SAFER, 3));
    BAD(mad_pack(sent, NULL, 1, mad_send_SAFER, mad_receive_EXPRESS));
    BAD(mad_pack(sent, &byte, SIZE_MAX, mad_send_SAFER, mad_receive_EXPRESS));
    BAD(mad_pack(sent, (void *)(UINTPTR_MAX - 5), 10, mad_send_SAFER, mad_receive_EXPRESS));
    BAD(mad_unpack(sent, &byte, 1, mad_send_SAFER, mad_receive_EXPRESS));
    BAD(mad_end_unpacking(sent));
    /* All of that left the message as it was. */
    GOOD(mad_pack(sent, &byte, 1, mad_send_SAFER, mad_receive_EXPRESS) == 0);
    GOOD(mad_pack(sent, NULL, 0, mad_send_CHEAPER, mad_receive_CHEAPER) == 0);
    if (me == 0) {
        /* Rank 1 takes it before it sends its own: both would wait for each other's long piece. */
        GOOD(mad_pack(sent, out, LONG, mad_send_CHEAPER, mad_receive_CHEAPER) == 0);
        GOOD(mad_end_packing(sent) == 0);
        BAD(mad_end_packing(sent));
        BAD(mad_pack(sent, &byte, 1, mad_send_SAFER, mad_receive_EXPRESS));
        BAD(mad_from(sent));
    }
    byte = 0;
    GOOD((got = mad_begin_unpacking(channel)) != NULL);
    GOOD(mad_from(got) == peer);
    NONE(mad_begin_unpacking_from(channel, peer));
    BAD(mad_unpack(got, &byte, 1, 0, mad_receive_EXPRESS));
    BAD(mad_unpack(got, &byte, 1, mad_send_SAFER, 0));
    BAD(mad_unpack(got, NULL, 1, mad_send_SAFER, mad_receive_EXPRESS));
    BAD(mad_unpack(got, &byte, SIZE_MAX, mad_send_SAFER, mad_receive_EXPRESS));
    BAD(mad_pack(got, &byte, 1, mad_send_SAFER, mad_receive_EXPRESS));
    BAD(mad_end_packing(got));
    GOOD(mad_unpack(got, &byte, 1, mad_send_SAFER, mad_receive_EXPRESS) == 0 && byte == 9);
    GOOD(mad_unpack(got, NULL, 0, mad_send_CHEAPER, mad_receive_CHEAPER) == 0);
    GOOD(mad_unpack(got, in, LONG, mad_send_CHEAPER, mad_receive_CHEAPER) == 0);
    GOOD(mad_end_unpacking(got) == 0);
    BAD(mad_end_unpacking(got));
    BAD(mad_unpack(got, &byte, 1, mad_send_SAFER, mad_receive_EXPRESS));
    BAD(mad_from(got));
    GOOD(in[0] == peer + 1 && memcmp(in, in + 1, LONG - 1) == 0);
    if (me == 1) {
        GOOD(mad_pack(sent, out, LONG, mad_send_CHEAPER, mad_receive_CHEAPER) == 0);
        GOOD(mad_end_packing(sent) == 0);
    }
    forged[6] = sent;
    forged[7] = got;
}

/* Threads have a text of their own. */
static void *another(void *unused)
{
    (void)unused;
    GOOD(*mad_error() == 0);
    BAD(mad_rank(NULL));
    return NULL;
}

int main(void)
{
    pthread_t thread;
    mad_connection_t left;
    mad_channel_t closed;
    const char *rails[] = { "a" };
    unsigned char byte = 1;

    GOOD(*mad_error() == 0);
    GOOD((session = mad_init()) != NULL);
    if (!session)
        return 1;
    me = mad_rank(session), peer = 1 - me;
    GOOD(mad_size(session) == 2);
    NONE(mad_init()); /* The place of this rank is taken. */
    GOOD((channel = mad_open_channel(session, 0)) != NULL);
    GOOD((closed = mad_open_channel_on(session, 5, rails, 1)) != NULL);
    mad_close_channel(closed);
    mad_close_channel(closed);
    GOOD(mad_connect(channel, peer) == 0);
    GOOD(mad_progress(session) == 0);

    forged[1] = (void *)1, forged[2] = (void *)UINTPTR_MAX, forged[3] = &byte, forged[4] = session;
    forged[5] = channel, forged[8] = closed, forged[9] = (void *)((uintptr_t)session ^ (uintptr_t)1 << 40);
    with_wrong_handles();
    with_wrong_arguments();
    with_a_message();
    with_wrong_handles();
    pthread_create(&thread, NULL, another, NULL);
    pthread_join(thread, NULL);

    /* Both have come as far as this. */
    if (me == 0) {
        mad_connection_t go = mad_begin_packing(channel, peer);
        GOOD(mad_end_packing(go) == 0);
        GOOD((go = mad_begin_unpacking(channel)) != NULL && mad_end_unpacking(go) == 0);
    } else {
        mad_connection_t go = NULL;
        int found;
        while ((found = mad_try_begin_unpacking(channel, peer, &go)) == 0)
            ;
        GOOD(found == 1 && mad_end_unpacking(go) == 0);
        GOOD((go = mad_begin_packing(channel, peer)) != NULL && mad_end_packing(go) == 0);
    }
    /* Leaving with a message begun and the channel open. */
    GOOD((left = mad_begin_packing(channel, peer)) != NULL);
    GOOD(mad_pack(left, &byte, 1, mad_send_LATER, mad_receive_CHEAPER) == 0);
    mad_exit(session);
    mad_exit(session);
    BAD(mad_pack(left, &byte, 1, mad_send_LATER, mad_receive_CHEAPER));
    BAD(mad_end_packing(left));
    NONE(mad_begin_packing(channel, peer));
    BAD(mad_rank(session));
    printf("rank %d: %d calls, %d failures\n", me, calls, failures);
    return failures != 0;
}
