// SPDX-License-Identifier: MIT OR Apache-2.0
// batches: in each round a thread allocates a batch of small blocks, then frees it in the order of
// allocation, from its end, or shuffled. With --pass 1 each batch is freed by the next thread.
#include "harness/block.h"

#include <pthread.h>

enum { THREADS_MAX = 64, BATCH_MIN = 16, BATCH_MAX = 2000, ORDERS = 3 };

static uint64_t thread_count = 2;
static uint64_t rounds = 12000;
static uint64_t pass;
static uint64_t size_min = 8;
static uint64_t size_max = 256;
static uint64_t scale = 100;
static uint64_t seed = 1;

static const struct bench_option options[] = {
    {"threads", &thread_count, 1, THREADS_MAX, "threads"},
    {"rounds", &rounds, 1, 100000000, "batches of each thread"},
    {"pass", &pass, 0, 1, "1: the next thread frees a batch"},
    {"min", &size_min, 1, 1 << 20, "smallest block in bytes"},
    {"max", &size_max, 1, 1 << 20, "largest block in bytes"},
    {"scale", &scale, 1, 10000, "percent of the rounds"},
    {"seed", &seed, 1, UINT32_MAX, "seed of the first thread"},
};

static const struct bench_program program = {
    "batches", "batches of small blocks, freed in order, from the end or shuffled", options,
    sizeof options / sizeof options[0]};

struct worker {
    _Alignas(BENCH_LINE_BYTES) pthread_t thread;
    uint32_t state;
    uint32_t count; // of the batch
    uint64_t made;
    uint64_t freed;
    uint64_t damaged;
    struct block batch[BATCH_MAX];
};

static struct worker *workers;
static pthread_barrier_t round_barrier;

static uint32_t make_batch(struct worker *worker, uint32_t r)
{
    r = bench_xs32(r);
    worker->count = BATCH_MIN + (r >> 4) % (BATCH_MAX - BATCH_MIN + 1);
    for (uint32_t i = 0; i < worker->count; i++) {
        r = bench_xs32(r);
        worker->batch[i] = block_make(block_size(r, size_min, size_max), (unsigned char)(r >> 24));
    }
    worker->made += worker->count;
    return r;
}

static void exchange(struct block *left, struct block *right)
{
    struct block kept = *left;
    *left = *right;
    *right = kept;
}

static uint32_t shuffle(struct block *batch, uint32_t count, uint32_t r)
{
    for (uint32_t i = count - 1; i > 0; i--) {
        r = bench_xs32(r);
        exchange(&batch[i], &batch[(r >> 4) % (i + 1)]);
    }
    return r;
}

static uint32_t put_in_order(struct worker *from, uint32_t r)
{
    r = bench_xs32(r);
    uint32_t order = (r >> 4) % ORDERS;
    for (uint32_t i = 0; order == 1 && i < from->count / 2; i++)
        exchange(&from->batch[i], &from->batch[from->count - 1 - i]);
    if (order == 2)
        r = shuffle(from->batch, from->count, r);
    return r;
}

static void free_batch(struct worker *worker, struct worker *from)
{
    for (uint32_t i = 0; i < from->count; i++) {
        worker->damaged += !block_is_intact(&from->batch[i]);
        free(from->batch[i].start);
    }
    worker->freed += from->count;
}

// Behind it, all batches of the round are made, or all are freed.
static void meet_others(void)
{
    if (pass == 1)
        pthread_barrier_wait(&round_barrier);
}

static void *run_worker(void *argument)
{
    struct worker *worker = argument;
    uint64_t index = (uint64_t)(worker - workers);
    struct worker *from = &workers[(index + pass) % thread_count];
    uint32_t r = worker->state;
    for (uint64_t round = rounds * scale / 100 + 1; round > 0; round--) {
        r = make_batch(worker, r);
        meet_others();
        r = put_in_order(from, r);
        free_batch(worker, from);
        meet_others();
    }
    return NULL;
}

static void start_worker(struct worker *worker, uint32_t index)
{
    worker->state = (uint32_t)seed + index * 7919U;
    worker->state += worker->state == 0; // a zero state would stay zero for ever
    if (pthread_create(&worker->thread, NULL, run_worker, worker) != 0)
        bench_fail("cannot start thread %u", index);
}

int main(int argc, char **argv)
{
    bench_open(&program, argc, argv);
    if (size_min > size_max)
        bench_fail("--min is above --max");
    workers = bench_map(thread_count * sizeof *workers);
    pthread_barrier_init(&round_barrier, NULL, (unsigned)thread_count);

    struct bench_clock clock;
    struct bench_result result = {0};
    uint64_t made = 0, freed = 0, damaged = 0;
    bench_clock_start(&clock);
    for (uint32_t i = 0; i < thread_count; i++)
        start_worker(&workers[i], i);
    for (uint64_t i = 0; i < thread_count; i++) {
        pthread_join(workers[i].thread, NULL);
        made += workers[i].made;
        freed += workers[i].freed;
        damaged += workers[i].damaged;
    }
    bench_clock_stop(&clock);
    bench_figures_of(&result, &clock, made);
    bench_verify(&result, "contents_intact", damaged == 0);
    bench_verify(&result, "every_block_freed", made == freed);
    return bench_report(&program, &result);
}
