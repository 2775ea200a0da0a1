// SPDX-License-Identifier: MIT OR Apache-2.0
// asymmetric-free: one thread only allocates, others only free. The allocating
// thread keeps a bounded set of long-lived nodes; a node that it replaces goes
// through a bounded queue to a thread that checks and frees it. The allocating
// thread frees nothing: when the queue is full it waits. Memory must not ratchet:
// what others free has to come back to the one who allocates.
#include "harness/block.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    FREERS_MAX = 64,
    BATCH = 64,
    QUEUE_BATCHES = 32,
    SAMPLES = 200,
    FIFTH = SAMPLES / 5,
    RATCHET_PERCENT = 50, // growth at a constant live set that nothing excuses
};

static uint64_t freer_count = 2;
static uint64_t block_count = 5000000;
static uint64_t live_target_mb = 64;
static uint64_t size_min = 32;
static uint64_t size_max = 512;
static uint64_t seed = 1;

static const struct bench_option options[] = {
    {"freers", &freer_count, 1, FREERS_MAX, "threads that free"},
    {"blocks", &block_count, SAMPLES, UINT64_MAX / 128, "nodes in all"},
    {"live-mb", &live_target_mb, 1, 1 << 14, "live bytes, in 10^6"},
    {"min", &size_min, 1, 1 << 20, "smallest node in bytes"},
    {"max", &size_max, 1, 1 << 20, "largest node in bytes"},
    {"seed", &seed, 0, UINT32_MAX, "seed of the generator"},
};

static const struct bench_program program = {
    "asymmetric-free", "one thread allocates long-lived nodes that others free", options,
    sizeof options / sizeof options[0]};

struct batch {
    uint32_t count;
    struct block nodes[BATCH];
};

// Under `lock`.
static struct {
    struct batch batches[QUEUE_BATCHES];
    uint64_t pushed;
    uint64_t popped;
    bool ended;
} queue;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_batch = PTHREAD_COND_INITIALIZER;
static pthread_cond_t has_room = PTHREAD_COND_INITIALIZER;

struct freer {
    _Alignas(BENCH_LINE_BYTES) pthread_t thread;
    uint64_t freed;
    uint64_t spoiled;
    _Atomic uint64_t freed_bytes;
};

// The allocating thread's own: nobody else touches it while it runs.
struct allocating {
    struct block *slots;
    uint64_t slot_count;
    uint64_t slots_bytes;
    uint64_t made_bytes;
    uint64_t handed_over;
    struct batch outgoing;
    double live[SAMPLES];
    double rss[SAMPLES]; // without the slots
};

static struct freer freers[FREERS_MAX];
static struct allocating allocating;

// --- the queue -----------------------------------------------------------------

static void push(const struct batch *batch)
{
    pthread_mutex_lock(&lock);
    while (queue.pushed - queue.popped == QUEUE_BATCHES)
        pthread_cond_wait(&has_room, &lock);
    queue.batches[queue.pushed++ % QUEUE_BATCHES] = *batch;
    pthread_cond_signal(&has_batch);
    pthread_mutex_unlock(&lock);
}

// False: all has been sent and the queue is empty.
static bool pop(struct batch *batch)
{
    pthread_mutex_lock(&lock);
    while (queue.pushed == queue.popped && !queue.ended)
        pthread_cond_wait(&has_batch, &lock);
    bool found = queue.pushed != queue.popped;
    if (found) {
        *batch = queue.batches[queue.popped++ % QUEUE_BATCHES];
        pthread_cond_signal(&has_room);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void end_queue(void)
{
    pthread_mutex_lock(&lock);
    queue.ended = true;
    pthread_cond_broadcast(&has_batch);
    pthread_mutex_unlock(&lock);
}

// --- the two roles -------------------------------------------------------------

static void *run_freer(void *argument)
{
    struct freer *freer = argument;
    struct batch batch;
    while (pop(&batch)) {
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < batch.count; i++) {
            freer->spoiled += !block_is_intact(&batch.nodes[i]);
            bytes += batch.nodes[i].size_bytes;
            free(batch.nodes[i].start);
        }
        freer->freed += batch.count;
        // Relaxed: a figure, read by the sampler.
        atomic_fetch_add_explicit(&freer->freed_bytes, bytes, memory_order_relaxed);
    }
    return NULL;
}

static void flush_outgoing(void)
{
    if (allocating.outgoing.count == 0)
        return;
    push(&allocating.outgoing);
    allocating.handed_over += allocating.outgoing.count;
    allocating.outgoing.count = 0;
}

static void hand_over(const struct block *node)
{
    allocating.outgoing.nodes[allocating.outgoing.count++] = *node;
    if (allocating.outgoing.count == BATCH)
        flush_outgoing();
}

// The first nodes fill the slots in order, each later one replaces a random one.
static uint32_t make_node(uint64_t number, uint32_t r)
{
    uint64_t count = allocating.slot_count;
    r = bench_lcg(r);
    struct block *slot = &allocating.slots[number < count ? number : (r >> 4) % count];
    if (slot->start != NULL)
        hand_over(slot);
    r = bench_lcg(r);
    *slot = block_make(block_size(r, size_min, size_max), (unsigned char)(r >> 24));
    allocating.made_bytes += slot->size_bytes;
    return r;
}

static void take_sample(uint64_t index)
{
    uint64_t freed_bytes = 0;
    for (uint64_t i = 0; i < freer_count; i++)
        freed_bytes += atomic_load_explicit(&freers[i].freed_bytes, memory_order_relaxed);
    allocating.live[index] = (double)(allocating.made_bytes - freed_bytes);
    allocating.rss[index] = (double)bench_rss_kb() * 1024 - (double)allocating.slots_bytes;
}

static void run(void)
{
    uint32_t r = (uint32_t)seed;
    uint64_t made = 0;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        for (uint64_t end = block_count * (i + 1) / SAMPLES; made < end; made++)
            r = make_node(made, r);
        take_sample(i);
    }
    for (uint64_t k = 0; k < allocating.slot_count; k++)
        hand_over(&allocating.slots[k]);
    flush_outgoing();
    end_queue();
    for (uint64_t i = 0; i < freer_count; i++)
        pthread_join(freers[i].thread, NULL);
}

// --- figures -------------------------------------------------------------------

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median_of_fifth(const double *values, uint64_t fifth)
{
    double sorted[FIFTH];
    for (uint64_t i = 0; i < FIFTH; i++)
        sorted[i] = values[fifth * FIFTH + i];
    qsort(sorted, FIFTH, sizeof sorted[0], compare);
    return (sorted[FIFTH / 2 - 1] + sorted[FIFTH / 2]) / 2;
}

// The slots fill within the first fifth, which therefore does not count.
static void report_memory(struct bench_result *result, const struct bench_clock *clock)
{
    double rss = 0, live = 0;
    for (uint64_t i = FIFTH; i < SAMPLES; i++) {
        rss += allocating.rss[i];
        live += allocating.live[i];
    }
    double early = median_of_fifth(allocating.rss, 1);
    double late = median_of_fifth(allocating.rss, 4);
    bench_figure(result, "mean_live_mb", live / (SAMPLES - FIFTH) * 1e-6);
    bench_figure(result, "harness_mb", (double)allocating.slots_bytes * 1e-6);
    double growth_percent = 100.0 * (late / early - 1.0);
    bench_figure(result, "rss_growth_percent", growth_percent);
    bench_verify(result, "memory_does_not_ratchet", growth_percent <= RATCHET_PERCENT);
    bench_figure(result, "rss_per_live", rss / live);
    // Samples lie equal numbers of nodes apart; their distance in time is the mean one.
    result->series_step_s = clock->wall_s / SAMPLES;
    for (uint64_t i = 0; i < SAMPLES; i++)
        result->series[result->series_count++] =
            (allocating.rss[i] + (double)allocating.slots_bytes) * 1e-6;
}

static int report(const struct bench_clock *clock)
{
    static struct bench_result result;
    uint64_t freed = 0, freed_bytes = 0, spoiled = 0;
    for (uint64_t i = 0; i < freer_count; i++) {
        freed += freers[i].freed;
        freed_bytes += atomic_load_explicit(&freers[i].freed_bytes, memory_order_relaxed);
        spoiled += freers[i].spoiled;
    }
    bench_figures_of(&result, clock, block_count);
    report_memory(&result, clock);
    bench_figure(&result, "handed_over", (double)allocating.handed_over);
    bench_figure(&result, "fallbacks", (double)(block_count - allocating.handed_over));
    bench_verify(&result, "contents_intact", spoiled == 0);
    bench_verify(&result, "every_node_handed_over", allocating.handed_over == block_count);
    bench_verify(&result, "every_node_freed_by_others",
                 freed == block_count && freed_bytes == allocating.made_bytes);
    return bench_report(&program, &result);
}

static void prepare(void)
{
    uint64_t count = live_target_mb * 1000000 / ((size_min + size_max) / 2);
    count = count > 0 ? count : 1;
    if (block_count / 5 < count)
        bench_fail("--blocks is too small: want five times the live nodes, %lu",
                   (unsigned long)(5 * count));
    allocating.slot_count = count;
    allocating.slots_bytes = count * sizeof(struct block);
    allocating.slots = bench_map(allocating.slots_bytes);
}

int main(int argc, char **argv)
{
    bench_open(&program, argc, argv);
    if (size_min > size_max)
        bench_fail("--min is above --max");
    prepare();

    struct bench_clock clock;
    bench_clock_start(&clock);
    for (uint64_t i = 0; i < freer_count; i++)
        if (pthread_create(&freers[i].thread, NULL, run_freer, &freers[i]) != 0)
            bench_fail("cannot start a thread that frees");
    run();
    bench_clock_stop(&clock);
    return report(&clock);
}
