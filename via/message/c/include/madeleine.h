/* Messages between ranked processes, packed and unpacked piece by piece, on virtual interfaces.
 *
 * Messages do not describe themselves: a receiver unpacks the pieces with the lengths and the modes with which they were
 * packed. Functions answer 0, a handle or a number when all is well; else -1 or NULL, and mad_error() says why.
 * Link with -lmadeleine -lpthread -ldl -lm. */
#ifndef UVIA_MADELEINE_H
#define UVIA_MADELEINE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mad_session *mad_session_t;
typedef struct mad_channel *mad_channel_t;
/* A message that is being packed, or unpacked. */
typedef struct mad_connection *mad_connection_t;

/* When a buffer is read by the sender. */
typedef enum {
    mad_send_SAFER = 1,  /* before the call returns */
    mad_send_LATER = 2,  /* at the message's end, and not before */
    mad_send_CHEAPER = 3 /* whenever it is cheapest: it stays as it is until the end */
} mad_send_mode_t;

/* When a buffer is filled at the receiver. */
typedef enum {
    mad_receive_EXPRESS = 1, /* before the call returns: it may steer what is unpacked next */
    mad_receive_CHEAPER = 2  /* at the message's end */
} mad_receive_mode_t;

/* Becomes the rank that uvia-launch has started. NULL: see mad_error(). */
mad_session_t mad_init(void);
/* Waits for what was sent to arrive, and leaves. Its channels and messages must be gone. */
void mad_exit(mad_session_t session);
int mad_rank(mad_session_t session);
int mad_size(mad_session_t session);

/* A stream of messages of its own between each two ranks; numbers are 0 to 63. */
mad_channel_t mad_open_channel(mad_session_t session, int number);
void mad_close_channel(mad_channel_t channel);

mad_connection_t mad_begin_packing(mad_channel_t channel, int rank);
int mad_pack(mad_connection_t message, const void *data, size_t length, mad_send_mode_t send,
             mad_receive_mode_t receive);
/* The message goes, and all its buffers are the program's again. The handle is gone, whatever the answer. */
int mad_end_packing(mad_connection_t message);

/* The next message of whatever rank; mad_from() says of which. */
mad_connection_t mad_begin_unpacking(mad_channel_t channel);
mad_connection_t mad_begin_unpacking_from(mad_channel_t channel, int rank);
int mad_unpack(mad_connection_t message, void *data, size_t length, mad_send_mode_t send, mad_receive_mode_t receive);
int mad_end_unpacking(mad_connection_t message);

/* The other end of a message. */
int mad_from(mad_connection_t message);

/* Why the last call of this thread that failed did. */
const char *mad_error(void);

#ifdef __cplusplus
}
#endif
#endif
