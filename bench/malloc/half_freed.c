// SPDX-License-Identifier: MIT OR Apache-2.0
// half-freed: many blocks of a page, every second one freed, then random slots toggled for some
// seconds. There is always memory to give back, and the figure is how long one call waits for
// that: each is timed. A second thread sleeps, so that helpers that start with threads run.
#include "harness/block.h"
#include "harness/histogram.h"
#include "harness/timer.h"

#include <pthread.h>

enum { LONG_NS = 1000000, OPS_A_LOOK = 64 };

static uint64_t block_count = 200000;
static uint64_t size_bytes = 4096;
static uint64_t run_ms = 3000;
static uint64_t seed = 1;

static const struct bench_option options[] = {
    {"blocks", &block_count, 2, 100000000, "blocks at the start, half of them full on average"},
    {"size", &size_bytes, 1, 1 << 20, "bytes of each block"},
    {"run-ms", &run_ms, 1, 600000, "time of the toggling"},
    {"seed", &seed, 1, UINT32_MAX, "seed of the generator"},
};

static const struct bench_program program = {"half-freed",
                                             "the longest calls while memory is being given back",
                                             options, sizeof options / sizeof options[0]};

static struct bench_timer timer;
static struct histogram *malloc_ns, *free_ns;
static pthread_mutex_t over = PTHREAD_MUTEX_INITIALIZER;

static void *sleep_until_over(void *unused)
{
    pthread_mutex_lock(&over);
    pthread_mutex_unlock(&over);
    return unused;
}

static void timed_free(unsigned char **slot)
{
    uint64_t start = bench_timer_start();
    free(*slot);
    uint64_t stop = bench_timer_stop();
    histogram_record(free_ns, bench_timer_ns(&timer, start, stop));
    *slot = NULL;
}

static void timed_alloc(unsigned char **slot)
{
    uint64_t start = bench_timer_start();
    unsigned char *block = malloc(size_bytes);
    uint64_t stop = bench_timer_stop();
    if (block == NULL)
        bench_fail("malloc(%zu) gave NULL", (size_t)size_bytes);
    histogram_record(malloc_ns, bench_timer_ns(&timer, start, stop));
    *block = 1;
    *slot = block;
}

static uint64_t toggle_slots(unsigned char **slots)
{
    uint32_t r = (uint32_t)seed;
    uint64_t ops = 0, begin = bench_timer_start();
    while (bench_timer_since(&timer, begin) < run_ms * 1000000) {
        for (int i = 0; i < OPS_A_LOOK; i++, ops++) {
            r = bench_xs32(r);
            unsigned char **slot = &slots[r % (uint32_t)block_count];
            if (*slot != NULL)
                timed_free(slot);
            else
                timed_alloc(slot);
        }
    }
    return ops;
}

// A value that shares its count with shorter ones is not above.
static uint64_t calls_above(const struct histogram *histogram, uint64_t least_ns)
{
    uint64_t calls = 0;
    for (size_t i = 0; i < HISTOGRAM_COUNTS; i++)
        if (histogram_lowest_at(i) > least_ns)
            calls += histogram->counts[i];
    return calls;
}

int main(int argc, char **argv)
{
    static struct bench_result result;
    bench_open(&program, argc, argv);
    timer = bench_timer_open();
    malloc_ns = histogram_create();
    free_ns = histogram_create();
    pthread_t sleeper;
    pthread_mutex_lock(&over);
    if (pthread_create(&sleeper, NULL, sleep_until_over, NULL) != 0)
        bench_fail("cannot start a thread");
    unsigned char **slots = bench_map(block_count * sizeof *slots);
    for (uint64_t k = 0; k < block_count; k++) {
        slots[k] = bench_alloc(size_bytes);
        *slots[k] = 1;
    }

    struct bench_clock clock;
    bench_clock_start(&clock);
    for (uint64_t k = 0; k < block_count; k += 2)
        timed_free(&slots[k]);
    uint64_t ops = (block_count + 1) / 2 + toggle_slots(slots);
    bench_clock_stop(&clock);
    bench_figures_of(&result, &clock, ops);

    uint64_t mallocs = histogram_total(malloc_ns), frees = histogram_total(free_ns);
    histogram_report(&result, "malloc", malloc_ns);
    histogram_report(&result, "free", free_ns);
    bench_figure(&result, "calls_above_1ms",
                 (double)(calls_above(malloc_ns, LONG_NS) + calls_above(free_ns, LONG_NS)));
    bench_timer_report(&result, &timer);
    bench_verify(&result, "every_call_timed", mallocs + frees == ops);
    bench_verify(&result, "every_block_freed",
                 bench_drain(slots, block_count) == block_count + mallocs - frees);
    pthread_mutex_unlock(&over);
    pthread_join(sleeper, NULL);
    block_verify_probe(&result, size_bytes, size_bytes);
    return bench_report(&program, &result);
}
