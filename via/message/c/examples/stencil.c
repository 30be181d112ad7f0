/* Heat spreads over a plate that is cut into strips, one for each rank; rows at the edges are exchanged after each step.
 * Rank 0 gathers the plate, computes it alone too, and compares: stencil [STEPS] */
#include "common.h"

#include <string.h>

enum { WIDTH = 600, ROWS = 40 };

typedef double row_t[WIDTH];

static void send_row(mad_channel_t channel, int rank, const double *row)
{
    mad_connection_t message = mad_begin_packing(channel, rank);
    must(message != NULL, "mad_begin_packing");
    MUST(mad_pack(message, row, sizeof(row_t), mad_send_CHEAPER, mad_receive_CHEAPER));
    MUST(mad_end_packing(message));
}

static void receive_row(mad_channel_t channel, int rank, double *row)
{
    mad_connection_t message = mad_begin_unpacking_from(channel, rank);
    must(message != NULL, "mad_begin_unpacking_from");
    MUST(mad_unpack(message, row, sizeof(row_t), mad_send_CHEAPER, mad_receive_CHEAPER));
    MUST(mad_end_unpacking(message));
}

/* One step from `old` to `new`; rows 0 and `rows` + 1 are the neighbours'. */
static void step(row_t *old, row_t *new, int rows)
{
    for (int y = 1; y <= rows; y++) {
        new[y][0] = old[y][0];
        new[y][WIDTH - 1] = old[y][WIDTH - 1];
        for (int x = 1; x < WIDTH - 1; x++)
            new[y][x] = (old[y - 1][x] + old[y + 1][x] + old[y][x - 1] + old[y][x + 1]) / 4;
    }
}

static void heat(row_t *plate, int rows, int first)
{
    for (int y = 1; y <= rows; y++)
        for (int x = 0; x < WIDTH; x++)
            plate[y][x] = ((first + y) * 7 + x * 3) % 100;
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 20;
    mad_session_t session = mad_init();
    must(session != NULL, "mad_init");
    mad_channel_t channel = mad_open_channel(session, 0);
    must(channel != NULL, "mad_open_channel");
    int rank = mad_rank(session), size = mad_size(session);
    row_t *old = calloc(ROWS + 2, sizeof(row_t)), *new = calloc(ROWS + 2, sizeof(row_t));

    heat(old, ROWS, rank * ROWS);
    for (int n = 0; n < steps; n++) {
        /* Even ranks send first: whoever sends, somebody receives. */
        for (int turn = 0; turn < 2; turn++) {
            if ((rank + turn) % 2 == 0) {
                if (rank > 0)
                    send_row(channel, rank - 1, old[1]);
                if (rank < size - 1)
                    send_row(channel, rank + 1, old[ROWS]);
            } else {
                if (rank < size - 1)
                    receive_row(channel, rank + 1, old[ROWS + 1]);
                if (rank > 0)
                    receive_row(channel, rank - 1, old[0]);
            }
        }
        step(old, new, ROWS);
        row_t *other = old;
        old = new;
        new = other;
    }
    if (rank > 0) {
        mad_connection_t message = mad_begin_packing(channel, 0);
        must(message != NULL, "mad_begin_packing");
        MUST(mad_pack(message, old[1], ROWS * sizeof(row_t), mad_send_CHEAPER, mad_receive_CHEAPER));
        MUST(mad_end_packing(message));
    } else {
        int all = size * ROWS;
        row_t *plate = calloc(all + 2, sizeof(row_t)), *a = calloc(all + 2, sizeof(row_t));
        row_t *b = calloc(all + 2, sizeof(row_t));
        memcpy(plate[1], old[1], ROWS * sizeof(row_t));
        for (int n = 1; n < size; n++) {
            mad_connection_t message = mad_begin_unpacking(channel);
            must(message != NULL, "mad_begin_unpacking");
            row_t *to = plate + 1 + mad_from(message) * ROWS;
            MUST(mad_unpack(message, to, ROWS * sizeof(row_t), mad_send_CHEAPER, mad_receive_CHEAPER));
            MUST(mad_end_unpacking(message));
        }
        heat(a, all, 0);
        for (int n = 0; n < steps; n++) {
            step(a, b, all);
            row_t *other = a;
            a = b;
            b = other;
        }
        int same = memcmp(plate[1], a[1], all * sizeof(row_t)) == 0;
        printf("%d strips of %d rows, %d steps: %s\n", size, ROWS, steps, same ? "as one alone" : "WRONG");
        free(plate), free(a), free(b);
        if (!same)
            return 1;
    }
    free(old), free(new);
    mad_close_channel(channel);
    mad_exit(session);
    return 0;
}
