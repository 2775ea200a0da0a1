// SPDX-License-Identifier: MIT OR Apache-2.0
// producer-consumer: some threads only allocate, others only free. Batches of
// 1..256 blocks pass through a bounded queue under one lock, so the queue is the
// same for every allocator and its memory is fixed. A block is marked by its place
// in the batch.
#include "harness/common.h"

#include <pthread.h>

enum { THREADS_MAX = 64, BATCH_MAX = 256, QUEUE_BATCHES = 64 };

static uint64_t producer_count = 1;
static uint64_t consumer_count = 1;
static uint64_t block_count = 4000000;
static uint64_t batch_max = BATCH_MAX;
static uint64_t size_min = 64;
static uint64_t size_max = 64;
static uint64_t seed = 1;

static const struct bench_option options[] = {
    {"producers", &producer_count, 1, THREADS_MAX, "threads that allocate"},
    {"consumers", &consumer_count, 1, THREADS_MAX, "threads that free"},
    {"blocks", &block_count, 1, UINT64_MAX / 128, "blocks of each producer"},
    {"batch", &batch_max, 1, BATCH_MAX, "largest batch"},
    {"min", &size_min, 1, 1 << 30, "smallest block in bytes"},
    {"max", &size_max, 1, 1 << 30, "largest block in bytes"},
    {"seed", &seed, 0, UINT32_MAX, "seed of the first producer"},
};

static const struct bench_program program = {
    "producer-consumer", "blocks are allocated by some threads and freed by others", options,
    sizeof options / sizeof options[0]};

struct batch {
    uint32_t count;
    unsigned char *blocks[BATCH_MAX];
};

// Under `lock`.
static struct {
    struct batch batches[QUEUE_BATCHES];
    uint64_t pushed;
    uint64_t popped;
    uint64_t producers_left;
} queue;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_batch = PTHREAD_COND_INITIALIZER;
static pthread_cond_t has_room = PTHREAD_COND_INITIALIZER;

struct worker {
    pthread_t thread;
    uint32_t state;
    uint64_t blocks;
    uint64_t spoiled;
};

static pthread_barrier_t ready;

static void push(const struct batch *batch)
{
    pthread_mutex_lock(&lock);
    while (queue.pushed - queue.popped == QUEUE_BATCHES)
        pthread_cond_wait(&has_room, &lock);
    struct batch *slot = &queue.batches[queue.pushed++ % QUEUE_BATCHES];
    slot->count = batch->count;
    for (uint32_t i = 0; i < batch->count; i++)
        slot->blocks[i] = batch->blocks[i];
    pthread_cond_signal(&has_batch);
    pthread_mutex_unlock(&lock);
}

// False: the producers are done and the queue is empty.
static bool pop(struct batch *batch)
{
    pthread_mutex_lock(&lock);
    while (queue.pushed == queue.popped && queue.producers_left > 0)
        pthread_cond_wait(&has_batch, &lock);
    bool found = queue.pushed != queue.popped;
    if (found) {
        const struct batch *slot = &queue.batches[queue.popped++ % QUEUE_BATCHES];
        batch->count = slot->count;
        for (uint32_t i = 0; i < slot->count; i++)
            batch->blocks[i] = slot->blocks[i];
        pthread_cond_signal(&has_room);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static uint32_t fill(struct batch *batch, uint32_t r)
{
    uint32_t range = (uint32_t)(size_max - size_min + 1);
    for (uint32_t i = 0; i < batch->count; i++) {
        r = bench_lcg(r);
        uint32_t size_bytes = (uint32_t)size_min + (r >> 4) % range;
        batch->blocks[i] = bench_alloc(size_bytes);
        bench_touch(batch->blocks[i], size_bytes, (unsigned char)i);
    }
    return r;
}

static void *produce(void *argument)
{
    struct worker *worker = argument;
    struct batch batch;
    uint32_t r = worker->state;
    pthread_barrier_wait(&ready);
    while (worker->blocks < block_count) {
        r = bench_lcg(r);
        uint64_t left = block_count - worker->blocks;
        uint64_t wanted = 1 + (r >> 8) % (uint32_t)batch_max;
        batch.count = (uint32_t)(wanted < left ? wanted : left);
        r = fill(&batch, r);
        push(&batch);
        worker->blocks += batch.count;
    }
    pthread_mutex_lock(&lock);
    queue.producers_left--;
    pthread_cond_broadcast(&has_batch);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void *consume(void *argument)
{
    struct worker *worker = argument;
    struct batch batch;
    pthread_barrier_wait(&ready);
    while (pop(&batch)) {
        for (uint32_t i = 0; i < batch.count; i++) {
            worker->spoiled += batch.blocks[i][0] != (unsigned char)i;
            free(batch.blocks[i]);
        }
        worker->blocks += batch.count;
    }
    return NULL;
}

static void start_workers(struct worker *workers, uint64_t count, void *(*run)(void *))
{
    for (uint64_t i = 0; i < count; i++) {
        workers[i].state = (uint32_t)seed + (uint32_t)i * 7919U;
        if (pthread_create(&workers[i].thread, NULL, run, &workers[i]) != 0)
            bench_fail("cannot start a thread");
    }
}

static struct worker join_workers(struct worker *workers, uint64_t count)
{
    struct worker sum = {0};
    for (uint64_t i = 0; i < count; i++) {
        pthread_join(workers[i].thread, NULL);
        sum.blocks += workers[i].blocks;
        sum.spoiled += workers[i].spoiled;
    }
    return sum;
}

int main(int argc, char **argv)
{
    static struct worker producers[THREADS_MAX];
    static struct worker consumers[THREADS_MAX];
    bench_open(&program, argc, argv);
    if (size_min > size_max)
        bench_fail("--min is above --max");
    queue.producers_left = producer_count;
    pthread_barrier_init(&ready, NULL, (unsigned)(producer_count + consumer_count + 1));
    start_workers(producers, producer_count, produce);
    start_workers(consumers, consumer_count, consume);

    struct bench_clock clock;
    struct bench_result result = {0};
    pthread_barrier_wait(&ready);
    bench_clock_start(&clock);
    struct worker produced = join_workers(producers, producer_count);
    struct worker consumed = join_workers(consumers, consumer_count);
    bench_clock_stop(&clock);

    bench_figures_of(&result, &clock, produced.blocks);
    bench_verify(&result, "every_block_consumed", produced.blocks == consumed.blocks);
    bench_verify(&result, "contents_intact", consumed.spoiled == 0);
    return bench_report(&program, &result);
}
