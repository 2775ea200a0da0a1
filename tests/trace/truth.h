// SPDX-License-Identifier: MIT OR Apache-2.0
// Calls of malloc by a program that counts them: what a recording of it must say. Nothing in here allocates
// but what is counted; the truth is one line of JSON.
#ifndef TRUTH_H
#define TRUTH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            dprintf(2, "%s:%d: %s\n", __FILE__, __LINE__, #x);                                     \
            _exit(9);                                                                              \
        }                                                                                          \
    } while (0)

// An object and who made it.
struct item {
    unsigned char *p;
    size_t size;
    int maker, hops;
};

static struct {
    _Atomic uint64_t mallocs, callocs, aligned, frees, reallocs, handed_over, bytes, live, peak;
} truth;

static _Thread_local int me;
static _Thread_local uint64_t seed = 88172645463325252U;

static inline uint64_t dice(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static inline void begin_thread(int number)
{
    me = number;
    seed = (uint64_t)number * 0x9e3779b97f4a7c15U + 88172645463325252U;
}

static struct item count_made(void *p, size_t size)
{
    MUST(p != NULL);
    truth.bytes += size;
    uint64_t live = (truth.live += size), peak = truth.peak;
    while (live > peak && !atomic_compare_exchange_weak(&truth.peak, &peak, live)) {
    }
    if (size > 0) {
        memset(p, me, size < 64 ? size : 64);
    }
    return (struct item){p, size, me, 0};
}

static void count_end(const struct item *item)
{
    truth.live -= item->size;
    truth.handed_over += item->maker != me;
    MUST(item->size == 0 || item->p[0] == (unsigned char)item->maker);
}

static inline struct item make(size_t size)
{
    truth.mallocs++;
    return count_made(malloc(size), size);
}

static inline struct item make_zero(size_t count, size_t size)
{
    truth.callocs++;
    return count_made(calloc(count, size), count * size);
}

static inline struct item make_aligned(size_t align, size_t size)
{
    void *p = NULL;
    truth.aligned++;
    MUST(posix_memalign(&p, align, size) == 0 && (uintptr_t)p % align == 0);
    return count_made(p, size);
}

static inline void end(struct item item)
{
    truth.frees++;
    count_end(&item);
    free(item.p);
}

static inline struct item resize(struct item item, size_t size)
{
    truth.reallocs++;
    count_end(&item);
    struct item resized = count_made(realloc(item.p, size), size);
    resized.hops = item.hops;
    return resized;
}

static inline struct item make_any(void)
{
    size_t size = dice(4) == 0 ? dice(3000) : dice(200);
    switch (dice(8)) {
    case 0:
        return make_zero(1, size);
    case 1:
        return make_aligned((size_t)16 << dice(6), size);
    default:
        return make(size);
    }
}

static inline int tell_truth(int threads)
{
    char line[512];
    int length = snprintf(
        line, sizeof line,
        "{\"mallocs\": %lu, \"callocs\": %lu, \"aligned\": %lu, \"frees\": %lu, "
        "\"reallocs\": %lu, \"handed_over\": %lu, \"bytes_made\": %lu, \"end_bytes\": %lu, "
        "\"peak_bytes\": %lu, \"threads\": %d}\n",
        truth.mallocs, truth.callocs, truth.aligned, truth.frees, truth.reallocs, truth.handed_over,
        truth.bytes, truth.live, truth.peak, threads);
    MUST(write(1, line, (size_t)length) == length);
    return 0;
}

#endif
