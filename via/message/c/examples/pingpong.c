/* Two ranks send a message back and forth, and rank 0 prints half of a round trip: pingpong [SIZE [ROUNDS]] */
#define _POSIX_C_SOURCE 199309L
#include "common.h"

#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void send_to(mad_channel_t channel, int rank, const void *data, size_t size)
{
    mad_connection_t message = mad_begin_packing(channel, rank);
    must(message != NULL, "mad_begin_packing");
    MUST(mad_pack(message, data, size, mad_send_CHEAPER, mad_receive_CHEAPER));
    MUST(mad_end_packing(message));
}

static void receive_from(mad_channel_t channel, int rank, void *data, size_t size)
{
    mad_connection_t message = mad_begin_unpacking_from(channel, rank);
    must(message != NULL, "mad_begin_unpacking_from");
    MUST(mad_unpack(message, data, size, mad_send_CHEAPER, mad_receive_CHEAPER));
    MUST(mad_end_unpacking(message));
}

int main(int argc, char **argv)
{
    size_t size = argc > 1 ? strtoul(argv[1], NULL, 0) : 64;
    int rounds = argc > 2 ? atoi(argv[2]) : 1000;
    mad_session_t session = mad_init();
    must(session != NULL, "mad_init");
    mad_channel_t channel = mad_open_channel(session, 0);
    must(channel != NULL, "mad_open_channel");
    unsigned char *data = malloc(size ? size : 1);
    int rank = mad_rank(session);
    double start = 0;

    memset(data, rank == 0 ? 0x5a : 0, size);
    for (int n = -10; n < rounds; n++) {
        if (n == 0)
            start = now();
        if (rank == 0) {
            send_to(channel, 1, data, size);
            receive_from(channel, 1, data, size);
        } else {
            receive_from(channel, 0, data, size);
            send_to(channel, 0, data, size);
        }
    }
    for (size_t n = 0; n < size; n++)
        if (data[n] != 0x5a) {
            fprintf(stderr, "byte %zu is wrong\n", n);
            return 1;
        }
    if (rank == 0)
        printf("%zu bytes: %.2f us\n", size, (now() - start) / rounds / 2);
    free(data);
    mad_close_channel(channel);
    mad_exit(session);
    return 0;
}
