/*
 * How far two processors lie apart: nanoseconds in which a line written on one is seen on the other, the median of many.
 * Of the processors that it may run on, these are the first two.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS 20000

/* Each on a line, and a neighbour's, of its own. */
static struct {
    long value;
    char room[248];
} asked, answered;

static int nth_processor(int n)
{
    cpu_set_t ours;
    int cpu;
    if (sched_getaffinity(0, sizeof ours, &ours) == 0)
        for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &ours) && n-- == 0)
                return cpu;
    fprintf(stderr, "it takes two processors\n");
    exit(1);
}

static void *answer(void *unused)
{
    long n;
    for (n = 1; n <= ROUNDS; n++) {
        while (__atomic_load_n(&asked.value, __ATOMIC_ACQUIRE) != n)
            ;
        __atomic_store_n(&answered.value, n, __ATOMIC_RELEASE);
    }
    return unused;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

int main(void)
{
    static double times[ROUNDS];
    int here = nth_processor(0), there = nth_processor(1);
    pthread_attr_t attributes;
    pthread_t thread;
    cpu_set_t one;
    double last;
    long n;
    CPU_ZERO(&one);
    CPU_SET(there, &one);
    pthread_attr_init(&attributes);
    pthread_attr_setaffinity_np(&attributes, sizeof one, &one);
    if (pthread_create(&thread, &attributes, answer, NULL) != 0)
        return 1;
    CPU_ZERO(&one);
    CPU_SET(here, &one);
    sched_setaffinity(0, sizeof one, &one);
    last = now();
    for (n = 1; n <= ROUNDS; n++) {
        double time;
        __atomic_store_n(&asked.value, n, __ATOMIC_RELEASE);
        while (__atomic_load_n(&answered.value, __ATOMIC_ACQUIRE) != n)
            ;
        time = now();
        times[n - 1] = (time - last) / 2;
        last = time;
    }
    pthread_join(thread, NULL);
    qsort(times, ROUNDS, sizeof *times, compare);
    printf("%.0f\n", times[ROUNDS / 2]);
    return 0;
}
