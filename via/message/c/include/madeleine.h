/* Messages between ranked processes, packed and unpacked piece by piece, on virtual interfaces.
 *
 * Messages do not describe themselves: a receiver unpacks the pieces with the lengths and the modes with which they were
 * packed. Functions answer 0, a handle or a number when all is well; else -1 or NULL, and mad_error() says why.
 * Handles are looked up, and never followed: one that is NULL, stale or of another kind fails as any other wrong argument.
 * All functions may be called from any thread; a message is one thread's at a time. Build with
 * $(pkg-config --cflags --libs madeleine). */
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
/* Waits for what was sent to arrive, and leaves. Channels that are open are closed, messages that are begun given up. */
void mad_exit(mad_session_t session);
int mad_rank(mad_session_t session);
int mad_size(mad_session_t session);
/* Drives the session once, for programs that neither send nor receive for long while others wait for them. */
int mad_progress(mad_session_t session);

/* A stream of messages of its own between each two ranks; numbers are 0 to 63. */
mad_channel_t mad_open_channel(mad_session_t session, int number);
/* The same on some of the session's rails only, by their names. */
mad_channel_t mad_open_channel_on(mad_session_t session, int number, const char *const *rails, size_t count);
void mad_close_channel(mad_channel_t channel);
/* Connects ahead of the first message. */
int mad_connect(mad_channel_t channel, int rank);

mad_connection_t mad_begin_packing(mad_channel_t channel, int rank);
int mad_pack(mad_connection_t message, const void *data, size_t length, mad_send_mode_t send,
             mad_receive_mode_t receive);
/* The message goes, and all its buffers are the program's again. The handle is gone, whatever the answer. */
int mad_end_packing(mad_connection_t message);

/* The next message of whatever rank; mad_from() says of which. */
mad_connection_t mad_begin_unpacking(mad_channel_t channel);
mad_connection_t mad_begin_unpacking_from(mad_channel_t channel, int rank);
/* As these, if there is one: 1 and its handle, else 0 and NULL. For `rank`, MAD_ANY is whichever. */
#define MAD_ANY (-1)
int mad_try_begin_unpacking(mad_channel_t channel, int rank, mad_connection_t *message);
int mad_unpack(mad_connection_t message, void *data, size_t length, mad_send_mode_t send, mad_receive_mode_t receive);
int mad_end_unpacking(mad_connection_t message);

/* The other end of a message. */
int mad_from(mad_connection_t message);

/* Why the last call of this thread that failed did; the text is good until the next that fails. */
const char *mad_error(void);

#ifdef __cplusplus
}
#endif
#endif
