/*
 * The suite's harness: cases in three levels, two ends, and what most cases begin with.
 *
 * All of a case's objects belong to NIC handles of its own, so that closing these leaves nothing behind, however the
 * case has ended.
 */
#ifndef VIPL_SUITE_H
#define VIPL_SUITE_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vipl.h>

/* The levels of the vendors' suite, each with the ones before. */
enum level { EARLY_ADOPTER, FUNCTIONAL, FULL };

struct test {
    const char *name;
    enum level level;
    void (*run)(int argument);
    int argument;
};

/* Tables of cases end with an entry without a name. */
extern const struct test nic_cases[], memory_cases[], vi_cases[], connect_cases[], transfer_cases[], rdma_cases[],
    cq_cases[], argument_cases[], peer_cases[], notify_cases[], wait_cases[], stress_cases[];

/* Set by the first check of a case that fails. */
extern int failed;
void fail(const char *file, int line, const char *what, long value);

#define CHECK(condition)                                                                                             \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            fail(__FILE__, __LINE__, #condition, 0);                                                                 \
            return;                                                                                                  \
        }                                                                                                            \
    } while (0)

/* The call returns what it should. */
#define GIVES(expected, call)                                                                                        \
    do {                                                                                                             \
        VIP_RETURN returned_ = (call);                                                                               \
        if (returned_ != (expected)) {                                                                               \
            fail(__FILE__, __LINE__, #call " gives " #expected, (long)returned_);                                    \
            return;                                                                                                  \
        }                                                                                                            \
    } while (0)

#define OK(call) GIVES(VIP_SUCCESS, call)

/* Goes on unless a function that was called has failed. */
#define DO(call)                                                                                                     \
    do {                                                                                                             \
        call;                                                                                                        \
        if (failed)                                                                                                  \
            return;                                                                                                  \
    } while (0)

#define MEMORY (512 * 1024)
#define DESCRIPTORS 512
#define PATIENCE 60000

extern const char *device_a, *device_b;

/* Room for an address with any discriminator. */
typedef union {
    VIP_NET_ADDRESS address;
    unsigned char bytes[4 + 6 + 64];
} Address;

/* One end. Descriptors lie in its memory first, two units of 64 bytes each, then data. */
typedef struct {
    VIP_NIC_HANDLE nic;
    VIP_NIC_ATTRIBUTES about;
    VIP_PROTECTION_HANDLE tag;
    char *raw, *memory;
    VIP_MEM_HANDLE handle;
    VIP_VI_ATTRIBUTES attributes;
    VIP_CQ_HANDLE send_cq, recv_cq;
    VIP_VI_HANDLE vi;
} End;

typedef struct {
    End a, b;
} Pair;

/* The ends of the case that runs; closed after it. */
extern Pair pair;

void open_end(End *end, const char *device);
/* With a VI of that level. */
void open_vi(End *end, int level);
/* Both ends, with VIs that are not connected. */
void open_pair(int level);
/* And connected. */
void connect_pair(int level);
/* Connects two VIs; `at` tells waits of a case apart. */
void join(End *from, VIP_VI_HANDLE from_vi, End *to, VIP_VI_HANDLE to_vi, int at);
void address_of(End *end, Address *address, int at);

VIP_DESCRIPTOR *descriptor(End *end, int n);
char *data(End *end, size_t at);
/* A descriptor of one segment. */
VIP_DESCRIPTOR *prepare(End *end, int n, size_t at, VIP_UINT32 length);
VIP_DESCRIPTOR *prepare_rdma(End *end, int n, End *to, size_t from, size_t at, VIP_UINT32 length, int operation);
void post_recv(End *end, int n, size_t at, VIP_UINT32 length);
void post_send(End *end, int n, size_t at, VIP_UINT32 length);
/* Waits for the head, which has to be descriptor `n`, and answers what the wait gave. */
VIP_RETURN sent(End *end, int n);
VIP_RETURN received(End *end, int n);
void fill(char *at, size_t length, unsigned seed);
int is_filled(const char *at, size_t length, unsigned seed);

#endif
