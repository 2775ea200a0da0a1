// SPDX-License-Identifier: MIT OR Apache-2.0
// tail: the loop of random-mixed on one or more threads, with every 16th malloc and
// every 16th free timed into two histograms per thread. The mean hides a refill, a
// purge or a page fault; the high percentiles show them.
#include "harness/block.h"
#include "harness/histogram.h"
#include "harness/timer.h"

#include <pthread.h>

enum { THREADS_MAX = 64, PERIOD = 16 };

static uint64_t thread_count = 1;
static uint64_t slot_count = 400;
static uint64_t op_count = 10000000;
static uint64_t size_min = 16;
static uint64_t size_max = 1040;
static uint64_t seed = 1;

static const struct bench_option options[] = {
    {"threads", &thread_count, 1, THREADS_MAX, "threads, each with slots of its own"},
    {"slots", &slot_count, 1, 100000000, "slots of each thread, half of them full on average"},
    {"iters", &op_count, 10, UINT64_MAX / 128, "measured operations of each thread"},
    {"min", &size_min, 1, 1 << 20, "smallest block in bytes"},
    {"max", &size_max, 1, 1 << 20, "largest block in bytes"},
    {"seed", &seed, 1, UINT32_MAX, "seed of the first thread"},
};

static const struct bench_program program = {
    "tail", "the slow mallocs and frees of a loop over random slots", options,
    sizeof options / sizeof options[0]};

struct worker {
    pthread_t thread;
    unsigned char **slots;
    uint32_t state;
    uint64_t mallocs;
    uint64_t frees;
    uint64_t live; // blocks in the slots
    uint64_t drained;
    struct histogram *malloc_ns;
    struct histogram *free_ns;
};

static struct bench_timer timer;
static pthread_barrier_t ready;

static uint32_t clamp(uint32_t size_bytes)
{
    if (size_bytes < size_min)
        return (uint32_t)size_min;
    return size_bytes > size_max ? (uint32_t)size_max : size_bytes;
}

static unsigned char *timed_alloc(struct worker *worker, size_t size_bytes)
{
    uint64_t start = bench_timer_start();
    unsigned char *block = malloc(size_bytes);
    uint64_t stop = bench_timer_stop();
    if (block == NULL)
        bench_fail("malloc(%zu) gave NULL", size_bytes);
    histogram_record(worker->malloc_ns, bench_timer_ns(&timer, start, stop));
    return block;
}

static void timed_free(struct worker *worker, unsigned char *block)
{
    uint64_t start = bench_timer_start();
    free(block);
    uint64_t stop = bench_timer_stop();
    histogram_record(worker->free_ns, bench_timer_ns(&timer, start, stop));
}

// One of `period` mallocs is timed, and one of as many frees.
static void toggle_slots(struct worker *worker, uint64_t iterations, uint64_t period)
{
    unsigned char **slots = worker->slots;
    uint32_t count = (uint32_t)slot_count;
    uint32_t r = worker->state;
    uint64_t mallocs = 0, frees = 0;
    uint64_t until_malloc = period, until_free = period;
    for (uint64_t i = 0; i < iterations; i++) {
        r = bench_xs32(r);
        unsigned char **slot = &slots[r % count];
        if (*slot != NULL) {
            frees++;
            if (--until_free == 0) {
                until_free = period;
                timed_free(worker, *slot);
            } else {
                free(*slot);
            }
            *slot = NULL;
        } else {
            mallocs++;
            uint32_t size_bytes = clamp(16 + (r & 1023));
            if (--until_malloc == 0) {
                until_malloc = period;
                *slot = timed_alloc(worker, size_bytes);
            } else {
                *slot = bench_alloc(size_bytes);
            }
            **slot = (unsigned char)r;
        }
    }
    worker->mallocs = mallocs;
    worker->frees = frees;
    worker->live += mallocs - frees;
}

// A zero state would stay zero for ever.
static uint32_t seed_of(uint32_t index, uint32_t offset)
{
    uint32_t state = (uint32_t)seed + index * 7919U + offset;
    return state == 0 ? 1 : state;
}

static void warm_up(struct worker *worker, uint32_t index)
{
    worker->slots = bench_map(slot_count * sizeof *worker->slots);
    worker->malloc_ns = histogram_create();
    worker->free_ns = histogram_create();
    worker->state = seed_of(index, 0xDEADBEEFU);
    toggle_slots(worker, op_count / 10, UINT64_MAX);
    worker->state = seed_of(index, 0);
}

static void run(struct worker *worker)
{
    toggle_slots(worker, op_count, PERIOD);
    worker->drained = bench_drain(worker->slots, slot_count);
}

static struct worker workers[THREADS_MAX];

static void *run_thread(void *argument)
{
    struct worker *worker = argument;
    warm_up(worker, (uint32_t)(worker - workers));
    pthread_barrier_wait(&ready);
    run(worker);
    return NULL;
}

// The main thread is the first worker: with one thread the process stays single-threaded.
static struct bench_clock run_workers(void)
{
    struct bench_clock clock;
    pthread_barrier_init(&ready, NULL, (unsigned)thread_count);
    for (uint64_t i = 1; i < thread_count; i++)
        if (pthread_create(&workers[i].thread, NULL, run_thread, &workers[i]) != 0)
            bench_fail("cannot start a thread");
    warm_up(&workers[0], 0);
    pthread_barrier_wait(&ready);
    bench_clock_start(&clock);
    run(&workers[0]);
    for (uint64_t i = 1; i < thread_count; i++)
        pthread_join(workers[i].thread, NULL);
    bench_clock_stop(&clock);
    return clock;
}

struct sum {
    uint64_t ops;
    uint64_t timed_mallocs;
    uint64_t timed_frees;
    bool all_drained;
};

static struct sum add_up(void)
{
    struct sum sum = {.all_drained = true};
    for (uint64_t i = 0; i < thread_count; i++) {
        const struct worker *worker = &workers[i];
        sum.ops += op_count + worker->drained;
        sum.timed_mallocs += worker->mallocs / PERIOD;
        sum.timed_frees += worker->frees / PERIOD;
        sum.all_drained = sum.all_drained && worker->drained == worker->live;
    }
    return sum;
}

int main(int argc, char **argv)
{
    static struct bench_result result;
    bench_open(&program, argc, argv);
    if (size_min > size_max)
        bench_fail("--min is above --max");
    timer = bench_timer_open();
    struct bench_clock clock = run_workers();

    struct sum sum = add_up();
    bench_figures_of(&result, &clock, sum.ops);
    for (uint64_t i = 1; i < thread_count; i++) {
        histogram_merge(workers[0].malloc_ns, workers[i].malloc_ns);
        histogram_merge(workers[0].free_ns, workers[i].free_ns);
    }
    histogram_report(&result, "malloc", workers[0].malloc_ns);
    histogram_report(&result, "free", workers[0].free_ns);
    bench_timer_report(&result, &timer);
    bench_verify(&result, "every_block_freed", sum.all_drained);
    bench_verify(&result, "every_16th_malloc_timed",
                 histogram_total(workers[0].malloc_ns) == sum.timed_mallocs);
    bench_verify(&result, "every_16th_free_timed",
                 histogram_total(workers[0].free_ns) == sum.timed_frees);
    block_verify_probe(&result, size_min, size_max);
    return bench_report(&program, &result);
}
