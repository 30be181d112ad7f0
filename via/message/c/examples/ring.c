/* A token goes round all ranks, each of which adds its own number: ring [ROUNDS] */
#include "common.h"

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 3;
    mad_session_t session = mad_init();
    must(session != NULL, "mad_init");
    mad_channel_t channel = mad_open_channel(session, 0);
    must(channel != NULL, "mad_open_channel");
    int rank = mad_rank(session), size = mad_size(session);
    long token = 0;

    for (int n = 0; n < rounds; n++) {
        if (rank != 0 || n > 0) {
            mad_connection_t message = mad_begin_unpacking(channel);
            must(message != NULL, "mad_begin_unpacking");
            MUST(mad_unpack(message, &token, sizeof token, mad_send_SAFER, mad_receive_EXPRESS));
            MUST(mad_end_unpacking(message));
        }
        token += rank;
        mad_connection_t message = mad_begin_packing(channel, (rank + 1) % size);
        must(message != NULL, "mad_begin_packing");
        MUST(mad_pack(message, &token, sizeof token, mad_send_SAFER, mad_receive_EXPRESS));
        MUST(mad_end_packing(message));
    }
    if (rank == 0) {
        mad_connection_t message = mad_begin_unpacking(channel);
        must(message != NULL, "mad_begin_unpacking");
        MUST(mad_unpack(message, &token, sizeof token, mad_send_SAFER, mad_receive_EXPRESS));
        MUST(mad_end_unpacking(message));
        long expected = (long)rounds * size * (size - 1) / 2;
        printf("token %ld, expected %ld\n", token, expected);
        if (token != expected)
            return 1;
    }
    mad_close_channel(channel);
    mad_exit(session);
    return 0;
}
