/* Rank 0 reads a file, and all others write copies of it: the file goes down a tree. broadcast FROM TO, where TO gets the
 * rank's number appended. */
#include "common.h"

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: broadcast FROM TO\n");
        return 2;
    }
    mad_session_t session = mad_init();
    must(session != NULL, "mad_init");
    mad_channel_t channel = mad_open_channel(session, 0);
    must(channel != NULL, "mad_open_channel");
    int rank = mad_rank(session), size = mad_size(session);
    unsigned long long length = 0;
    unsigned char *data = NULL;

    if (rank == 0) {
        FILE *file = fopen(argv[1], "rb");
        if (!file) {
            perror(argv[1]);
            return 1;
        }
        fseek(file, 0, SEEK_END);
        length = (unsigned long long)ftell(file);
        rewind(file);
        data = malloc(length ? length : 1);
        if (!data || fread(data, 1, length, file) != length) {
            perror(argv[1]);
            return 1;
        }
        fclose(file);
    } else {
        mad_connection_t message = mad_begin_unpacking_from(channel, (rank - 1) / 2);
        must(message != NULL, "mad_begin_unpacking_from");
        /* The length steers what is unpacked next. */
        MUST(mad_unpack(message, &length, sizeof length, mad_send_SAFER, mad_receive_EXPRESS));
        data = malloc(length ? length : 1);
        MUST(mad_unpack(message, data, length, mad_send_CHEAPER, mad_receive_CHEAPER));
        MUST(mad_end_unpacking(message));
    }
    for (int child = 2 * rank + 1; child <= 2 * rank + 2 && child < size; child++) {
        mad_connection_t message = mad_begin_packing(channel, child);
        must(message != NULL, "mad_begin_packing");
        MUST(mad_pack(message, &length, sizeof length, mad_send_SAFER, mad_receive_EXPRESS));
        MUST(mad_pack(message, data, length, mad_send_CHEAPER, mad_receive_CHEAPER));
        MUST(mad_end_packing(message));
    }
    if (rank > 0) {
        char name[4096];
        snprintf(name, sizeof name, "%s.%d", argv[2], rank);
        FILE *file = fopen(name, "wb");
        if (!file || fwrite(data, 1, length, file) != length || fclose(file) != 0) {
            perror(name);
            return 1;
        }
    }
    free(data);
    mad_close_channel(channel);
    mad_exit(session);
    return 0;
}
