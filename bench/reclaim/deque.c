// SPDX-License-Identifier: MIT OR Apache-2.0
// deque: a work-stealing deque, either pushed to and popped from by its owner alone, or
// filled by its owner and emptied by thieves. Every item must be seen exactly once.
#include "harness.h"

#include <sched.h>

#include "ebbtide/deque.h"

enum { THIEVES_MAX = 64, MODE_PAIR = 0, MODE_STEAL, MODES };

static const char *const modes[MODES] = {"pair", "steal"};

static uint64_t thief_count = 1;
static uint64_t item_count = 10000000;
static uint64_t mode = MODE_PAIR;

static const struct bench_option options[] = {
    {"thieves", &thief_count, 1, THIEVES_MAX, "threads that steal, in mode steal"},
    {"iters", &item_count, 10, UINT64_C(1) << 40, "items"},
    {"mode", &mode, 0, MODES - 1, "pair (0): push and pop; steal (1): push, others steal"},
};

static const struct bench_program program = {"deque", "a work-stealing deque", options,
                                             sizeof options / sizeof options[0]};

// Three sums that only one set of items gives, each item once.
struct tally {
    uint64_t count;
    uint64_t sum;
    uint64_t squares;
};

struct worker {
    pthread_t thread;
    struct tally tally;
} __attribute__((aligned(BENCH_LINE_BYTES)));

static struct team team;
static struct ebb_deque *deque;
static bool pushed_all __attribute__((aligned(BENCH_LINE_BYTES)));

static inline void tally_add(struct tally *tally, uint64_t item)
{
    tally->count++;
    tally->sum += item;
    tally->squares += item * item;
}

// Of the items 1 to `items`.
static struct tally tally_of(uint64_t items)
{
    struct tally tally = {0};
    for (uint64_t item = 1; item <= items; item++)
        tally_add(&tally, item);
    return tally;
}

static inline void push(uint64_t item)
{
    if (ebb_deque_push(deque, (void *)(uintptr_t)item) != 0)
        bench_fail("the deque cannot grow");
}

static struct tally push_and_pop(uint64_t items)
{
    struct tally tally = {0};
    for (uint64_t item = 1; item <= items; item++) {
        void *popped;
        push(item);
        ebbi_compiler_fence();
        if (ebb_deque_pop(deque, &popped))
            tally_add(&tally, (uint64_t)(uintptr_t)popped);
        ebbi_compiler_fence();
    }
    return tally;
}

static void push_all(uint64_t items)
{
    for (uint64_t item = 1; item <= items; item++)
        push(item);
    // release[pushed-all -> thief-end]: the last push comes before
    ebbi_store_release(&pushed_all, true);
}

// Until the deque is empty for good.
static struct tally steal_all(void)
{
    struct tally tally = {0};
    for (;;) {
        void *item;
        // acquire[thief-end <- pushed-all]: all pushes, so an empty deque stays empty
        bool last_round = ebbi_load_acquire(&pushed_all);
        enum ebb_steal outcome = ebb_deque_steal(deque, &item);
        if (outcome == EBB_STEAL_SUCCESS)
            tally_add(&tally, (uint64_t)(uintptr_t)item);
        else if (outcome == EBB_STEAL_EMPTY && last_round)
            return tally;
        else if (outcome == EBB_STEAL_EMPTY)
            sched_yield();
    }
}

static void *run_owner(void *argument)
{
    struct worker *worker = argument;
    push_and_pop(item_count / 10);
    team_ready(&team);
    if (mode == MODE_PAIR)
        worker->tally = push_and_pop(item_count);
    else
        push_all(item_count);
    team_finished(&team);
    return NULL;
}

static void *run_thief(void *argument)
{
    struct worker *worker = argument;
    team_ready(&team);
    worker->tally = steal_all();
    team_finished(&team);
    return NULL;
}

static bool tally_matches(const struct worker *workers, uint64_t threads, uint64_t *lost)
{
    struct tally seen = {0};
    for (uint64_t i = 0; i < threads; i++) {
        seen.count += workers[i].tally.count;
        seen.sum += workers[i].tally.sum;
        seen.squares += workers[i].tally.squares;
    }
    struct tally wanted = tally_of(item_count);
    *lost = wanted.count - seen.count;
    return seen.count == wanted.count && seen.sum == wanted.sum && seen.squares == wanted.squares;
}

static uint64_t unreclaimed_after_flush(void)
{
    struct ebb_reclaim_stats stats;
    ebb_synchronize();
    ebb_barrier();
    ebb_reclaim();
    ebb_reclaim_stats_get(NULL, &stats);
    return stats.retired_blocks + stats.destructors;
}

int main(int argc, char **argv)
{
    static struct bench_result result;
    static struct worker workers[THIEVES_MAX + 1];
    harness_number_words(argc, argv, "--mode", modes, MODES);
    bench_open(&program, argc, argv);
    deque = ebb_deque_create(0);
    if (deque == NULL)
        bench_fail("cannot create a deque");
    uint64_t threads = mode == MODE_PAIR ? 1 : 1 + thief_count;
    team_open(&team, (unsigned)threads);
    for (uint64_t i = 0; i < threads; i++)
        team_run(&workers[i].thread, i == 0 ? run_owner : run_thief, &workers[i]);

    struct bench_clock clock;
    team_start(&team, &clock);
    team_stop(&team, &clock);
    for (uint64_t i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    bench_figures_of(&result, &clock, item_count);
    if (mode == MODE_PAIR)
        bench_figure(&result, "ns_per_op", clock.wall_s * 1e9 / (double)item_count);
    else
        bench_figure(&result, "items_per_s", (double)item_count / clock.wall_s);

    uint64_t lost = 0;
    bench_verify(&result, "every_item_once", tally_matches(workers, threads, &lost));
    bench_figure(&result, "items_lost", (double)(int64_t)lost);
    ebb_deque_destroy(deque);
    uint64_t unreclaimed = unreclaimed_after_flush();
    bench_figure(&result, "unreclaimed", (double)unreclaimed);
    bench_verify(&result, "all_reclaimed", unreclaimed == 0);
    return bench_report(&program, &result);
}
