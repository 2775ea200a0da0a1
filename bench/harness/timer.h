// SPDX-License-Identifier: MIT OR Apache-2.0
// A timer for sections of a few nanoseconds: the processor's own counter, fenced so
// that neither the work before nor the work inside slips over an edge. What an
// empty section costs is measured and subtracted.
#ifndef EBB_BENCH_TIMER_H
#define EBB_BENCH_TIMER_H

#include "common.h"

// One reading of the counter and of CLOCK_MONOTONIC_RAW at the same moment.
struct bench_moment {
    uint64_t ticks;
    uint64_t raw_ns;
};

struct bench_timer {
    struct bench_moment opened;
    double ns_per_tick;
    uint64_t overhead_ticks;
    uint64_t resolution_ticks; // the counter goes up by multiples of this
};

// Takes about 20 ms.
struct bench_timer bench_timer_open(void);

// Adds the figures timer_overhead_ns and timer_resolution_ns, and the check that the
// counter has kept step with the clock since the timer was opened.
void bench_timer_report(struct bench_result *result, const struct bench_timer *timer);

#if defined(__x86_64__)
// The first fence waits for the work before, the second holds the section back.
static inline uint64_t bench_timer_start(void)
{
    uint32_t low, high;
    __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high)::"memory");
    return (uint64_t)high << 32 | low;
}

// rdtscp waits for the section by itself.
static inline uint64_t bench_timer_stop(void)
{
    uint32_t low, high;
    __asm__ volatile("rdtscp\n\tlfence" : "=a"(low), "=d"(high)::"rcx", "memory");
    return (uint64_t)high << 32 | low;
}
#elif defined(__aarch64__)
static inline uint64_t bench_timer_start(void)
{
    uint64_t ticks;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks)::"memory");
    return ticks;
}

static inline uint64_t bench_timer_stop(void) { return bench_timer_start(); }
#else
#error "no processor counter is known for this architecture"
#endif

// Time since `start`, as measured: for sections so long that the overhead is nothing.
static inline uint64_t bench_timer_since(const struct bench_timer *timer, uint64_t start)
{
    uint64_t stop = bench_timer_stop();
    return stop <= start ? 0 : (uint64_t)((double)(stop - start) * timer->ns_per_tick + 0.5);
}

// Time of the section alone.
static inline uint64_t bench_timer_ns(const struct bench_timer *timer, uint64_t start,
                                      uint64_t stop)
{
    uint64_t empty = start + timer->overhead_ticks;
    return stop <= empty ? 0 : (uint64_t)((double)(stop - empty) * timer->ns_per_tick + 0.5);
}

#endif
