// SPDX-License-Identifier: MIT OR Apache-2.0
// atomic-swap: threads swap new nodes into one shared pointer and retire the old ones.
// Every node is read once by whoever swapped it out and owns it now, in every scheme, so
// the sums must agree. With --timed, then some more swaps, each between two clock readings.
#include "harness.h"
#include "harness/histogram.h"
#include "harness/timer.h"
#include "scheme.h"

enum { SAMPLE_PERIOD = 1024 };

static uint64_t thread_count = 2;
static uint64_t iteration_count = 1000000;
static uint64_t timed_count = 0;

static const struct bench_option options[] = {
    {"threads", &thread_count, 1, 64, "threads that swap"},
    {"iters", &iteration_count, 10, UINT64_MAX / 128, "swaps of each thread while the clock runs"},
    {"timed", &timed_count, 0, UINT64_MAX / 128, "swaps of each thread that are timed singly"},
};

static const struct bench_program program = {
    "atomic-swap", "new nodes into one shared pointer, the old ones retired", options,
    sizeof options / sizeof options[0]};

struct worker {
    pthread_t thread;
    struct scheme_thread scheme;
    struct histogram *swap_ns;
    bool samples;
    uint64_t written;          // sum of the words put in
    uint64_t read;             // sum of the words taken out
    uint64_t peak_unreclaimed; // as sampled
} __attribute__((aligned(LINE_BYTES)));

static struct team team;
static struct bench_timer timer;
static struct node *shared __attribute__((aligned(LINE_BYTES)));

static inline void swap_one(struct worker *worker, uint64_t word)
{
    scheme_pin(&worker->scheme);
    struct node *fresh = node_create(sizeof *fresh, word);
    // release[node-publish -> node-read]: the contents of the new node
    // acquire[node-read <- node-publish]: the contents of the old one
    struct node *old = ebbi_exchange_acq_rel(&shared, fresh);
    worker->read += old->word;
    scheme_retire(&worker->scheme, old);
    scheme_unpin(&worker->scheme);
    scheme_poll(&worker->scheme);
}

static void sample(struct worker *worker)
{
    uint64_t waiting = scheme_unreclaimed();
    if (waiting > worker->peak_unreclaimed)
        worker->peak_unreclaimed = waiting;
}

static void swap_often(struct worker *worker, uint64_t iterations, uint64_t first_word)
{
    for (uint64_t i = 0; i < iterations; i++) {
        swap_one(worker, first_word + i);
        worker->written += first_word + i;
        if (worker->samples && i % SAMPLE_PERIOD == 0)
            sample(worker);
    }
}

static void swap_timed(struct worker *worker, uint64_t first_word)
{
    for (uint64_t i = 0; i < timed_count; i++) {
        uint64_t start = bench_timer_start();
        swap_one(worker, first_word + i);
        uint64_t stop = bench_timer_stop();
        histogram_record(worker->swap_ns, bench_timer_ns(&timer, start, stop));
        worker->written += first_word + i;
    }
}

static struct worker workers[THREADS_MAX];

static void *run_worker(void *argument)
{
    struct worker *worker = argument;
    uint64_t index = (uint64_t)(worker - workers);
    worker->samples = SCHEME_COUNTS && index == 0;
    scheme_enter(&worker->scheme);
    swap_often(worker, iteration_count / 10, index << 40);
    team_ready(&team);
    swap_often(worker, iteration_count, index << 48);
    team_finished(&team);
    swap_timed(worker, index << 32);
    scheme_leave(&worker->scheme);
    return NULL;
}

// Before resident memory is looked at, which these are not to make grow.
static void prepare_timing(void)
{
    timer = bench_timer_open();
    for (uint64_t i = 0; i < thread_count; i++) {
        workers[i].swap_ns = histogram_create();
        histogram_make_resident(workers[i].swap_ns);
    }
}

static void report_percentiles(struct bench_result *result)
{
    for (uint64_t i = 1; i < thread_count; i++)
        histogram_merge(workers[0].swap_ns, workers[i].swap_ns);
    uint64_t timed = histogram_total(workers[0].swap_ns);
    histogram_report(result, "swap", workers[0].swap_ns);
    bench_timer_report(result, &timer);
    bench_verify(result, "every_swap_timed", timed == timed_count * thread_count);
}

// What is left in the pointer is nobody's any more.
static void join_all(struct bench_result *result)
{
    uint64_t written = 0, read = 0;
    for (uint64_t i = 0; i < thread_count; i++) {
        pthread_join(workers[i].thread, NULL);
        written += workers[i].written;
        read += workers[i].read;
    }
    read += shared->word;
    free(shared);
    bench_verify(result, "every_node_swapped_out_once", read == written);
}

int main(int argc, char **argv)
{
    static struct bench_result result;
    bench_open(&program, argc, argv);
    scheme_open();
    shared = node_create(sizeof *shared, 0);
    if (timed_count > 0)
        prepare_timing();
    uint64_t start_kb = bench_peak_rss_kb();
    team_open(&team, (unsigned)thread_count);
    for (uint64_t i = 0; i < thread_count; i++)
        team_run(&workers[i].thread, run_worker, &workers[i]);

    struct bench_clock clock;
    team_start(&team, &clock);
    team_stop(&team, &clock);
    uint64_t ops = iteration_count * thread_count;
    bench_figures_of(&result, &clock, ops);
    bench_figure(&result, "ops_per_s", (double)ops / clock.wall_s);
    bench_figure(&result, "peak_growth_kb", (double)(bench_peak_rss_kb() - start_kb));
    if (SCHEME_COUNTS)
        bench_figure(&result, "peak_unreclaimed", (double)workers[0].peak_unreclaimed);

    join_all(&result);
    scheme_flush();
    uint64_t unreclaimed = scheme_unreclaimed();
    bench_figure(&result, "unreclaimed", (double)unreclaimed);
    bench_verify(&result, "all_reclaimed", unreclaimed == 0);
    if (timed_count > 0)
        report_percentiles(&result);
    return bench_report(&program, &result);
}
