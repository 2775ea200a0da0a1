// SPDX-License-Identifier: MIT OR Apache-2.0
// See timer.h.
#include "timer.h"

#include "histogram.h"

#include <time.h>

enum {
    CALIBRATION_MS = 20,
    MOMENT_TRIES = 64,
    EMPTY_SECTIONS = 10001,
    DRIFT_PER_CENT = 1,
};

static uint64_t raw_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

// The try that took least is the one that nothing interrupted.
static struct bench_moment read_moment(void)
{
    struct bench_moment best = {0};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < MOMENT_TRIES; i++) {
        uint64_t before = bench_timer_start();
        uint64_t raw_ns = raw_clock_ns();
        uint64_t width = bench_timer_stop() - before;
        if (width < least) {
            least = width;
            best = (struct bench_moment){before + width / 2, raw_ns};
        }
    }
    return best;
}

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// An empty section is timed in ticks; the median ignores the interrupted ones.
static void measure_empty_section(struct bench_timer *timer)
{
    struct histogram *ticks = histogram_create();
    uint64_t step = 0;
    for (int i = 0; i < EMPTY_SECTIONS; i++) {
        uint64_t start = bench_timer_start();
        uint64_t stop = bench_timer_stop();
        histogram_record(ticks, stop - start);
        step = greatest_common_divisor(step, stop - start);
    }
    timer->overhead_ticks = histogram_percentile(ticks, 50);
    timer->resolution_ticks = step;
    histogram_destroy(ticks);
}

struct bench_timer bench_timer_open(void)
{
    struct bench_timer timer = {.opened = read_moment()};
    bench_sleep_ms(CALIBRATION_MS);
    struct bench_moment later = read_moment();
    if (later.ticks <= timer.opened.ticks)
        bench_fail("the processor's counter does not run");
    timer.ns_per_tick =
        (double)(later.raw_ns - timer.opened.raw_ns) / (double)(later.ticks - timer.opened.ticks);
    measure_empty_section(&timer);
    return timer;
}

void bench_timer_report(struct bench_result *result, const struct bench_timer *timer)
{
    struct bench_moment now = read_moment();
    double counted_ns = (double)(now.ticks - timer->opened.ticks) * timer->ns_per_tick;
    double passed_ns = (double)(now.raw_ns - timer->opened.raw_ns);
    double drift_percent = 100 * (counted_ns - passed_ns) / passed_ns;
    bench_figure(result, "timer_overhead_ns", (double)timer->overhead_ticks * timer->ns_per_tick);
    bench_figure(result, "timer_resolution_ns",
                 (double)timer->resolution_ticks * timer->ns_per_tick);
    bench_verify(result, "timer_keeps_time",
                 drift_percent < DRIFT_PER_CENT && drift_percent > -DRIFT_PER_CENT);
}
