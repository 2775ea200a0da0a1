// SPDX-License-Identifier: MIT OR Apache-2.0
// The series of scope_report.h.
#include "scope_report.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { SERIES_OF_LABEL = 2, LABELS_MAX = BENCH_MORE_SERIES_MAX / SERIES_OF_LABEL, NAME_BYTES = 48 };

static struct {
    pthread_t thread;
    struct bench_result *result;
    uint64_t step_ms;
    atomic_bool is_over;
    char names[BENCH_MORE_SERIES_MAX][NAME_BYTES];
} sampler;

static void name_series(size_t series, const char *what, const char *label)
{
    snprintf(sampler.names[series], NAME_BYTES, "%s_%.*s_mb", what, EBB_LABEL_BYTES, label);
    sampler.result->more_series[series].name = sampler.names[series];
}

// Labels keep their places, new ones come behind: a label's values before its first use
// are 0.
static void sample_labels(size_t at)
{
    struct ebb_lifetime_stats lines[LABELS_MAX];
    struct bench_result *result = sampler.result;
    size_t count = scope_calls.lifetimes_get(lines, LABELS_MAX);
    for (size_t i = 0; i < count && i < LABELS_MAX; i++) {
        size_t series = i * SERIES_OF_LABEL;
        if (series == result->more_series_count) {
            name_series(series, "held", lines[i].label);
            name_series(series + 1, "live", lines[i].label);
            result->more_series_count += SERIES_OF_LABEL;
        }
        result->more_series[series].values[at] = (double)lines[i].held_bytes * 1e-6;
        result->more_series[series + 1].values[at] = (double)lines[i].live_bytes * 1e-6;
    }
}

static void halve(double *values)
{
    for (size_t i = 0; i < BENCH_SERIES_MAX / 2; i++)
        values[i] = values[2 * i];
    memset(values + BENCH_SERIES_MAX / 2, 0, BENCH_SERIES_MAX / 2 * sizeof *values);
}

static void make_room(void)
{
    struct bench_result *result = sampler.result;
    halve(result->series);
    for (size_t i = 0; i < result->more_series_count; i++)
        halve(result->more_series[i].values);
    result->series_count /= 2;
    sampler.step_ms *= 2;
}

static void sample(void)
{
    struct bench_result *result = sampler.result;
    if (result->series_count == BENCH_SERIES_MAX)
        make_room();
    size_t at = result->series_count++;
    result->series[at] = (double)bench_rss_kb() * 1024e-6;
    if (scope_calls.lifetimes_get != NULL)
        sample_labels(at);
}

static void *run_sampler(void *unused)
{
    (void)unused;
    sample(); // also of a run that ends before this thread begins
    while (!atomic_load_explicit(&sampler.is_over, memory_order_relaxed)) {
        bench_sleep_ms(sampler.step_ms);
        sample();
    }
    return NULL;
}

void scope_sampler_start(struct bench_result *result, uint64_t step_ms)
{
    sampler.result = result;
    sampler.step_ms = step_ms;
    if (pthread_create(&sampler.thread, NULL, run_sampler, NULL) != 0)
        bench_fail("cannot start the thread that samples");
}

void scope_sampler_stop(void)
{
    atomic_store_explicit(&sampler.is_over, true, memory_order_relaxed);
    pthread_join(sampler.thread, NULL);
    sampler.result->series_step_s = (double)sampler.step_ms * 1e-3;
}
