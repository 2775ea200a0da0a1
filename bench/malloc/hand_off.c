// SPDX-License-Identifier: MIT OR Apache-2.0
// hand-off: threads in a circle, each with a bounded ring to its neighbour. Per
// iteration a thread drains its own ring (reads the first byte, frees), then
// visits a random slot: a full one is sent with probability R %, else freed; an
// empty one gets a block with both ends written. A full ring: drain and yield.
#include "harness/common.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum {
    THREADS_MAX = 64,
    RING_SLOTS = 1024,
    SLOTS_MAX = 100000,
    // A neighbour that takes nothing for this many yields is stuck.
    YIELDS_MAX = 2000000,
    IDLE_MS = 1,
};

static uint64_t thread_count = 2;
static uint64_t remote_percent = 50;
static uint64_t iteration_count = 2000000;
static uint64_t slot_count = 400;
static uint64_t size_min = 16;
static uint64_t size_max = 2048;
static uint64_t seed = 1;

static const struct bench_option options[] = {
    {"threads", &thread_count, 2, THREADS_MAX, "threads in the circle"},
    {"remote", &remote_percent, 0, 100, "percent of full slots that are sent"},
    {"iters", &iteration_count, 10, UINT64_MAX / 128, "iterations of each thread"},
    {"slots", &slot_count, 1, SLOTS_MAX, "slots of each thread"},
    {"min", &size_min, 1, 1 << 30, "smallest block in bytes"},
    {"max", &size_max, 1, 1 << 30, "largest block in bytes"},
    {"seed", &seed, 0, UINT32_MAX, "seed of the first thread"},
};

static const struct bench_program program = {"hand-off",
                                             "threads free blocks that their neighbours allocated",
                                             options, sizeof options / sizeof options[0]};

// One producer, one consumer. head and tail are on lines of their own, and each
// side keeps a copy of the other's index to read the shared line seldom.
struct ring {
    _Alignas(64) _Atomic uint32_t tail; // written by the sender
    uint32_t seen_head;                 // the sender's copy
    _Alignas(64) _Atomic uint32_t head; // written by the receiver
    uint32_t seen_tail;                 // the receiver's copy
    _Alignas(64) unsigned char *blocks[RING_SLOTS];
};

struct worker {
    struct ring inbox;
    struct ring *outbox;
    pthread_t thread;
    uint32_t state;
    unsigned char mark;       // first byte of every block that this thread makes
    unsigned char inbox_mark; // and of those that its predecessor sends
    unsigned char **slots;
    uint64_t sent;
    uint64_t received;
    uint64_t fallbacks;
    uint64_t spoiled;
};

static pthread_barrier_t ready;
static pthread_barrier_t finished;
static _Atomic uint32_t senders_left;

static bool push(struct ring *ring, unsigned char *block)
{
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    if (tail - ring->seen_head == RING_SLOTS) {
        // Acquire: the receiver's reads of the slot come before our reuse of it.
        ring->seen_head = atomic_load_explicit(&ring->head, memory_order_acquire);
        if (tail - ring->seen_head == RING_SLOTS)
            return false;
    }
    ring->blocks[tail % RING_SLOTS] = block;
    // Release: publishes the slot and the block's contents to pop.
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
    return true;
}

static unsigned char *pop(struct ring *ring)
{
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (head == ring->seen_tail) {
        // Acquire: the slot and the block that push published are visible now.
        ring->seen_tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
        if (head == ring->seen_tail)
            return NULL;
    }
    unsigned char *block = ring->blocks[head % RING_SLOTS];
    // Release: our read of the slot comes before the sender's reuse of it.
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return block;
}

static void drain(struct worker *worker)
{
    unsigned char *block = pop(&worker->inbox);
    for (; block != NULL; block = pop(&worker->inbox)) {
        worker->spoiled += block[0] != worker->inbox_mark;
        worker->received++;
        free(block);
    }
}

static void send_block(struct worker *worker, unsigned char *block)
{
    for (uint32_t yields = 0; !push(worker->outbox, block); yields++) {
        if (yields == YIELDS_MAX) {
            worker->fallbacks++;
            free(block);
            return;
        }
        drain(worker);
        sched_yield();
    }
    worker->sent++;
}

static void visit_slot(struct worker *worker, unsigned char **slot, uint32_t r)
{
    if (*slot == NULL) {
        uint32_t size_bytes = (uint32_t)size_min + (r >> 4) % (uint32_t)(size_max - size_min + 1);
        *slot = bench_alloc(size_bytes);
        bench_touch(*slot, size_bytes, worker->mark);
        return;
    }
    unsigned char *block = *slot;
    *slot = NULL;
    if ((r >> 16) % 100 < (uint32_t)remote_percent)
        send_block(worker, block);
    else
        free(block);
}

static void iterate(struct worker *worker)
{
    uint32_t r = worker->state;
    uint32_t count = (uint32_t)slot_count;
    unsigned char **slots = worker->slots;
    for (uint64_t i = 0; i < iteration_count; i++) {
        drain(worker);
        r = bench_lcg(r);
        visit_slot(worker, &slots[r % count], r);
    }
}

// The others may still send: serve them until all have finished, asleep rather
// than spinning so that the wait is not charged as CPU time.
static void finish(struct worker *worker)
{
    for (uint64_t k = 0; k < slot_count; k++)
        free(worker->slots[k]);
    // Release and acquire: whoever sees no sender left sees every block sent.
    atomic_fetch_sub_explicit(&senders_left, 1, memory_order_acq_rel);
    while (atomic_load_explicit(&senders_left, memory_order_acquire) > 0) {
        drain(worker);
        bench_sleep_ms(IDLE_MS);
    }
    drain(worker);
}

static void *run_worker(void *argument)
{
    struct worker *worker = argument;
    pthread_barrier_wait(&ready);
    iterate(worker);
    finish(worker);
    pthread_barrier_wait(&finished);
    return NULL;
}

static void prepare_workers(struct worker *workers)
{
    uint32_t threads = (uint32_t)thread_count;
    for (uint32_t i = 0; i < threads; i++) {
        uint32_t previous = (i + threads - 1) % threads;
        workers[i].outbox = &workers[(i + 1) % threads].inbox;
        workers[i].state = (uint32_t)seed + i * 7919U;
        workers[i].mark = (unsigned char)(i + 1);
        workers[i].inbox_mark = (unsigned char)(previous + 1);
        workers[i].slots = bench_map(slot_count * sizeof *workers[i].slots);
    }
}

static void start_workers(struct worker *workers)
{
    uint32_t threads = (uint32_t)thread_count;
    pthread_barrier_init(&ready, NULL, threads + 1);
    pthread_barrier_init(&finished, NULL, threads + 1);
    atomic_store_explicit(&senders_left, threads, memory_order_relaxed);
    for (uint32_t i = 0; i < threads; i++)
        if (pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]) != 0)
            bench_fail("cannot start thread %u", i);
}

static int report(const struct worker *workers, const struct bench_clock *clock)
{
    struct bench_result result = {0};
    uint64_t sent = 0, received = 0, fallbacks = 0, spoiled = 0;
    for (uint64_t i = 0; i < thread_count; i++) {
        sent += workers[i].sent;
        received += workers[i].received;
        fallbacks += workers[i].fallbacks;
        spoiled += workers[i].spoiled;
    }
    bench_figures_of(&result, clock, iteration_count * thread_count);
    bench_figure(&result, "sent", (double)sent);
    bench_figure(&result, "fallbacks", (double)fallbacks);
    bench_verify(&result, "every_sent_block_received", sent == received);
    bench_verify(&result, "contents_intact", spoiled == 0);
    bench_verify(&result, "fallbacks_within_0.1_percent", fallbacks * 1000 <= sent + fallbacks);
    bench_verify(&result, "something_sent", sent > 0 || remote_percent == 0);
    return bench_report(&program, &result);
}

int main(int argc, char **argv)
{
    bench_open(&program, argc, argv);
    if (size_min > size_max)
        bench_fail("--min is above --max");
    struct worker *workers = bench_map(thread_count * sizeof *workers);
    prepare_workers(workers);
    start_workers(workers);

    struct bench_clock clock;
    pthread_barrier_wait(&ready);
    bench_clock_start(&clock);
    pthread_barrier_wait(&finished);
    bench_clock_stop(&clock);
    for (uint64_t i = 0; i < thread_count; i++)
        pthread_join(workers[i].thread, NULL);
    return report(workers, &clock);
}
