// SPDX-License-Identifier: MIT OR Apache-2.0
// local-churn: each thread toggles slots of its own, nothing is shared. Iterations
// per CPU second show the allocator, per wall second also its scaling.
#include "harness/block.h"

#include <pthread.h>

enum { THREADS_MAX = 64 };

static uint64_t thread_count = 2;
static uint64_t slot_count = 400;
static uint64_t iteration_count = 10000000;
static uint64_t seed = 1;
static uint64_t size_min = 16;
static uint64_t size_max = 2048;

static const struct bench_option options[] = {
    {"threads", &thread_count, 1, THREADS_MAX, "threads"},
    {"slots", &slot_count, 1, 1000000, "slots of each thread"},
    {"iters", &iteration_count, 10, UINT64_MAX / 128, "timed iterations of each thread"},
    {"seed", &seed, 0, UINT32_MAX, "seed of the first thread"},
    {"min", &size_min, 1, 1 << 30, "smallest block in bytes"},
    {"max", &size_max, 1, 1 << 30, "largest block in bytes"},
};

static const struct bench_program program = {
    "local-churn", "threads that each allocate and free in slots of their own", options,
    sizeof options / sizeof options[0]};

struct worker {
    pthread_t thread;
    uint32_t seed;
    unsigned char **slots;
    uint64_t drained;
    bool blocks_apart;
};

static pthread_barrier_t warmed_up;
static pthread_barrier_t clock_runs;
static pthread_barrier_t finished;
static pthread_barrier_t clock_read;

static uint32_t toggle_slots(unsigned char **slots, uint64_t iterations, uint32_t r)
{
    uint32_t count = (uint32_t)slot_count;
    uint32_t low = (uint32_t)size_min;
    uint32_t range = (uint32_t)(size_max - size_min + 1);
    for (uint64_t i = 0; i < iterations; i++) {
        r = bench_lcg(r);
        unsigned char **slot = &slots[r % count];
        if (*slot != NULL) {
            free(*slot);
            *slot = NULL;
        } else {
            uint32_t size_bytes = low + r % range;
            *slot = bench_alloc(size_bytes);
            bench_touch(*slot, size_bytes, (unsigned char)r);
        }
    }
    return r;
}

static void *run_worker(void *argument)
{
    struct worker *worker = argument;
    uint32_t state = toggle_slots(worker->slots, iteration_count / 10, worker->seed);
    pthread_barrier_wait(&warmed_up);
    pthread_barrier_wait(&clock_runs);
    toggle_slots(worker->slots, iteration_count, state);
    worker->drained = bench_drain(worker->slots, slot_count);
    pthread_barrier_wait(&finished);
    pthread_barrier_wait(&clock_read);
    worker->blocks_apart = block_probe(size_min, size_max);
    return NULL;
}

static void start_worker(struct worker *worker, uint32_t index)
{
    worker->seed = (uint32_t)seed + index * 7919U;
    worker->slots = bench_map(slot_count * sizeof *worker->slots);
    if (pthread_create(&worker->thread, NULL, run_worker, worker) != 0)
        bench_fail("cannot start thread %u", index);
}

// Each free undoes one malloc, so what was left has the parity of all toggles.
static bool has_parity_of_toggles(uint64_t drained)
{
    return (iteration_count / 10 + iteration_count - drained) % 2 == 0;
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS_MAX];
    bench_open(&program, argc, argv);
    if (size_min > size_max)
        bench_fail("--min is above --max");
    uint32_t threads = (uint32_t)thread_count;
    pthread_barrier_t *barriers[] = {&warmed_up, &clock_runs, &finished, &clock_read};
    for (size_t i = 0; i < sizeof barriers / sizeof barriers[0]; i++)
        pthread_barrier_init(barriers[i], NULL, threads + 1);
    for (uint32_t i = 0; i < threads; i++)
        start_worker(&workers[i], i);

    struct bench_clock clock;
    struct bench_result result = {0};
    pthread_barrier_wait(&warmed_up);
    bench_clock_start(&clock);
    pthread_barrier_wait(&clock_runs);
    pthread_barrier_wait(&finished);
    bench_clock_stop(&clock);
    pthread_barrier_wait(&clock_read);
    uint64_t drained_rightly = 0, apart = 0;
    for (uint32_t i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        drained_rightly += has_parity_of_toggles(workers[i].drained);
        apart += workers[i].blocks_apart;
    }

    bench_figures_of(&result, &clock, iteration_count * thread_count);
    bench_verify(&result, "drained_what_was_left", drained_rightly == thread_count);
    if (!bench_is_floor())
        bench_verify(&result, "blocks_apart", apart == thread_count);
    return bench_report(&program, &result);
}
