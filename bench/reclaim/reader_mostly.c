// SPDX-License-Identifier: MIT OR Apache-2.0
// reader-mostly: readers look at one shared object, a writer replaces it and retires the
// old one. With a stalled reader, which protects one object from start to end, the
// series of resident memory shows what that holds back.
#include "harness.h"
#include "scheme.h"

#include <time.h>

enum { READS_AT_ONCE = 64, SAMPLES = 100, SAMPLE_MS_MIN = 10 };

static uint64_t reader_count = 3;
static uint64_t run_ms = 1000;
static uint64_t write_us = 100;
static uint64_t stalled = 0;
static uint64_t limit_mb = 4096;

static const struct bench_option options[] = {
    {"readers", &reader_count, 1, 64, "threads that read"},
    {"run-ms", &run_ms, SAMPLE_MS_MIN, 600000, "time to run"},
    {"write-us", &write_us, 0, 1000000, "sleep of the writer between writes, 0: none"},
    {"stalled", &stalled, 0, 1, "one more reader that protects an object to the end"},
    {"limit-mb", &limit_mb, 64, 1 << 20, "resident memory that ends the run early"},
};

static const struct bench_program program = {"reader-mostly", "one writer, many readers", options,
                                             sizeof options / sizeof options[0]};

struct worker {
    pthread_t thread;
    struct scheme_thread scheme;
    uint64_t done; // reads or writes
    uint64_t wrong;
} __attribute__((aligned(LINE_BYTES)));

static struct team team;
static struct node *shared __attribute__((aligned(LINE_BYTES)));
static bool stop_asked __attribute__((aligned(LINE_BYTES)));

// relaxed: whoever misses it sees it in the next round
static inline bool must_stop(void) { return ebbi_load_relaxed(&stop_asked); }

// An object says of itself that it is whole, and it is the same at the end of the pin.
static inline bool read_one(struct scheme_thread *me)
{
    const struct node *node = scheme_protect(me, &shared);
    uint64_t word = node->word;
    bool right = node_is_intact(node);
    ebbi_compiler_fence();
    right = right && node->word == word;
    scheme_release(me);
    return right;
}

static void read_often(struct worker *worker)
{
    uint64_t done = 0, right = 0;
    while (!must_stop()) {
        for (int i = 0; i < READS_AT_ONCE; i++)
            right += read_one(&worker->scheme);
        done += READS_AT_ONCE;
    }
    worker->done = done;
    worker->wrong += done - right;
}

static void sleep_us(uint64_t delay_us)
{
    struct timespec delay = {.tv_sec = (time_t)(delay_us / 1000000),
                             .tv_nsec = (long)(delay_us % 1000000) * 1000};
    nanosleep(&delay, NULL);
}

static void write_one(struct worker *worker)
{
    scheme_pin(&worker->scheme);
    struct node *fresh = node_create(sizeof *fresh, ++worker->done);
    // release[node-publish -> node-read]: the contents of the new node
    // acquire[node-read <- node-publish]: the contents of the old one
    struct node *old = ebbi_exchange_acq_rel(&shared, fresh);
    scheme_retire(&worker->scheme, old);
    scheme_unpin(&worker->scheme);
    scheme_poll(&worker->scheme);
}

static void *run_reader(void *argument)
{
    struct worker *worker = argument;
    scheme_enter(&worker->scheme);
    worker->wrong = 0;
    for (int i = 0; i < READS_AT_ONCE; i++)
        worker->wrong += !read_one(&worker->scheme);
    team_ready(&team);
    read_often(worker);
    team_finished(&team);
    scheme_leave(&worker->scheme);
    return NULL;
}

static void *run_writer(void *argument)
{
    struct worker *worker = argument;
    scheme_enter(&worker->scheme);
    team_ready(&team);
    while (!must_stop()) {
        write_one(worker);
        if (write_us > 0)
            sleep_us(write_us);
    }
    team_finished(&team);
    scheme_leave(&worker->scheme);
    return NULL;
}

// Sleeps inside its pin while the others work; its object may not have changed.
static void *run_stalled(void *argument)
{
    struct worker *worker = argument;
    scheme_enter(&worker->scheme);
    const struct node *node = scheme_protect(&worker->scheme, &shared);
    uint64_t word = node->word;
    team_ready(&team);
    team_finished(&team);
    worker->wrong = node->word != word || !node_is_intact(node);
    scheme_release(&worker->scheme);
    scheme_leave(&worker->scheme);
    return NULL;
}

// Resident memory, step by step, until the time is over or memory is.
static bool watch_memory(struct bench_result *result)
{
    uint64_t step_ms = run_ms / SAMPLES < SAMPLE_MS_MIN ? SAMPLE_MS_MIN : run_ms / SAMPLES;
    uint64_t steps = run_ms / step_ms;
    result->series_step_s = (double)step_ms * 1e-3;
    result->series[result->series_count++] = (double)bench_rss_kb() / 1024;
    for (uint64_t i = 0; i < steps; i++) {
        bench_sleep_ms(step_ms);
        double rss_mb = (double)bench_rss_kb() / 1024;
        result->series[result->series_count++] = rss_mb;
        if (rss_mb > (double)limit_mb)
            return false;
    }
    return true;
}

static struct worker workers[THREADS_MAX];

static uint64_t start_workers(void)
{
    uint64_t count = 0;
    team_open(&team, (unsigned)(reader_count + 1 + stalled));
    for (; count < reader_count; count++)
        team_run(&workers[count].thread, run_reader, &workers[count]);
    team_run(&workers[count].thread, run_writer, &workers[count]);
    count++;
    if (stalled)
        team_run(&workers[count].thread, run_stalled, &workers[count]);
    return count + stalled;
}

static void report_stall(struct bench_result *result)
{
    double grown_mb = result->series[result->series_count - 1] - result->series[0];
    bench_figure(result, "stalled_retained_kb", grown_mb * 1024);
    if (SCHEME_COUNTS)
        bench_figure(result, "stalled_retained_nodes", (double)scheme_unreclaimed());
}

int main(int argc, char **argv)
{
    static struct bench_result result;
    bench_open(&program, argc, argv);
    scheme_open();
    shared = node_create(sizeof *shared, 0);
    uint64_t count = start_workers();

    struct bench_clock clock;
    team_start(&team, &clock);
    bool in_limit = watch_memory(&result);
    if (stalled)
        report_stall(&result);
    ebbi_store_relaxed(&stop_asked, true); // relaxed: as in must_stop
    team_stop(&team, &clock);
    uint64_t reads = 0, wrong = 0;
    for (uint64_t i = 0; i < count; i++) {
        pthread_join(workers[i].thread, NULL);
        reads += i < reader_count ? workers[i].done : 0;
        wrong += workers[i].wrong;
    }
    free(shared);
    bench_figures_of(&result, &clock, reads);
    bench_figure(&result, "reads_per_s", (double)reads / clock.wall_s);
    bench_figure(&result, "writes_per_s", (double)workers[reader_count].done / clock.wall_s);
    bench_figure(&result, "stopped_by_limit", !in_limit);

    scheme_flush();
    uint64_t unreclaimed = scheme_unreclaimed();
    bench_figure(&result, "unreclaimed", (double)unreclaimed);
    bench_verify(&result, "reads_right", wrong == 0);
    bench_verify(&result, "all_reclaimed", unreclaimed == 0);
    return bench_report(&program, &result);
}
