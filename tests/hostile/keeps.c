// SPDX-License-Identifier: MIT OR Apache-2.0
// After mallopt(M_TRIM_THRESHOLD, -1), or with the longest delay, what is freed stays: a program that does the same again takes no
// page faults, and has no more than half as much again as it used at most. After another threshold, or none of these, what a burst has left is returned.
//   keeps mallopt|option|usual THREADS
#include "hostile.h"
#include <malloc.h>
#include <sys/resource.h>

enum { ROUNDS = 6, MOST = 2000, FAULTS = 400 };

static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

// align 0: zeroed.
static void once(size_t align, size_t size, int count)
{
    static char *blocks[MOST];
    for (int i = 0; i < count; i++) {
        blocks[i] = align > 0 ? aligned_alloc(align, size) : calloc(1, size);
        MUST(blocks[i] != NULL, "malloc(%zu)", size);
        for (size_t at = 0; at < size; at += 4096)
            blocks[i][at] = 1;
    }
    for (int i = 0; i < count; i++)
        free(blocks[i]);
}

// Faults of all rounds but the first two.
static long again(size_t align, size_t size, int count)
{
    long before = 0;
    for (int round = 0; round < ROUNDS; round++) {
        if (round == 2)
            before = faults();
        once(align, size, count);
    }
    return faults() - before;
}

static void *sleeps(void *unused)
{
    pause();
    return unused;
}

static long resident_mib(void) { return proc_number("/proc/self/status", "\nVmRSS:") / 1024; }

static void stays(void)
{
    static const struct {
        size_t align, size;
        int count;
    } loads[] = {{16, 3000, 2000},  {16, 50000, 1900}, {16, 100000, 800},     {16, 1000000, 80},
                 {16, 40000000, 2}, {0, 40000000, 2},  {2 << 20, 40 << 20, 2}};
    for (size_t i = 0; i < sizeof loads / sizeof loads[0]; i++) {
        long many = again(loads[i].align, loads[i].size, loads[i].count);
        MUST(many < FAULTS, "%d of %zu bytes, %zu: %ld faults in %d rounds", loads[i].count,
             loads[i].size, loads[i].align, many, ROUNDS - 2);
    }
}

// What fits nothing that comes later does not pile up: what stays is bounded by what was in use.
static void is_bounded(void)
{
    for (int i = 0; i < 30; i++)
        once((size_t)1 << (27 + i % 2), (size_t)1 << (27 + i % 2), 1);
    MUST(resident_mib() < 600, "%ld MiB are resident, of at most 256 in use", resident_mib());
}

static void returns(void)
{
    once(16, 1000000, 80);
    for (int i = 0; i < 40; i++) {
        usleep(100000);
        once(16, 100, 500); // a slow call, and some more
    }
    MUST(resident_mib() < 40, "%ld of 80 MiB stay", resident_mib());
}

static void *once_elsewhere(void *unused)
{
    once(0, 300000, 300);
    return unused;
}

// When the last thread has ended, nobody hurries to return what it has left.
static void outlasts_threads(void)
{
    long before = 0;
    for (int round = 0; round < ROUNDS; round++) {
        if (round == 2)
            before = faults();
        pthread_join(start(once_elsewhere, NULL), NULL);
        nap_ms(400);
    }
    MUST(faults() - before < FAULTS, "%ld page faults by threads", faults() - before);
}

int main(int argc, char **argv)
{
    const char *by = argc > 2 ? argv[1] : "usual";
    for (int i = argc > 2 ? atoi(argv[2]) : 0; i > 1; i--)
        start(sleeps, NULL);
    if (strcmp(by, "mallopt") == 0)
        MUST(mallopt(M_TRIM_THRESHOLD, -1) == 1, "mallopt");
    if (strcmp(by, "usual") != 0) {
        stays();
        is_bounded();
        outlasts_threads();
    }
    if (strcmp(by, "option") != 0) {
        mallopt(M_TRIM_THRESHOLD, 1 << 20);
        returns();
    }
    return pass("%ld MiB at the end", resident_mib());
}
