// SPDX-License-Identifier: MIT OR Apache-2.0
// pin: what it costs to begin and end a pin, in a tight loop, around one load of a
// shared pointer, and inside another pin; beside threads that are registered and idle.
// With --timed, then once more with each pin by itself between two clock readings.
#include "harness/histogram.h"
#include "harness/timer.h"
#include "idlers.h"

enum { MODE_TIGHT, MODE_LOAD, MODE_NESTED, MODES };

static const char *const modes[MODES] = {"tight", "load", "nested"};

static uint64_t thread_count = 1;
static uint64_t iteration_count = 20000000;
static uint64_t idle_count = 0;
static uint64_t mode = MODE_TIGHT;
static uint64_t timed_count = 0;

static const struct bench_option options[] = {
    {"threads", &thread_count, 1, 64, "threads that pin"},
    {"iters", &iteration_count, 10, UINT64_MAX / 128, "pins of each thread"},
    {"idle", &idle_count, 0, IDLERS_MAX, "threads that pin once, then sleep"},
    {"mode", &mode, 0, MODES - 1, "tight (0), load (1) or nested (2)"},
    {"timed", &timed_count, 0, UINT64_MAX / 128, "pins of each thread that are timed singly"},
};

static const struct bench_program program = {"pin", "pin and unpin, over and over", options,
                                             sizeof options / sizeof options[0]};

struct worker {
    pthread_t thread;
    struct scheme_thread scheme;
    struct histogram *pin_ns;
    uint64_t wrong; // loads that showed another node than the one there
} __attribute__((aligned(LINE_BYTES)));

static struct team team;
static struct bench_timer timer;
static struct node *shared;

// The compiler may not melt neighbouring pins into one.
static void pin_tight(struct scheme_thread *me, uint64_t iterations)
{
    for (uint64_t i = 0; i < iterations; i++) {
        scheme_pin(me);
        ebbi_compiler_fence();
        scheme_unpin(me);
        ebbi_compiler_fence();
    }
}

static uint64_t pin_and_load(struct scheme_thread *me, uint64_t iterations)
{
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < iterations; i++) {
        wrong += !node_is_intact(scheme_protect(me, &shared));
        ebbi_compiler_fence();
        scheme_release(me);
        ebbi_compiler_fence();
    }
    return wrong;
}

static uint64_t pin_often(struct scheme_thread *me, uint64_t iterations)
{
    if (mode == MODE_LOAD)
        return pin_and_load(me, iterations);
    if (mode == MODE_NESTED)
        scheme_pin(me);
    pin_tight(me, iterations);
    if (mode == MODE_NESTED)
        scheme_unpin(me);
    return 0;
}

// What an empty section costs is taken off, and most pins cost less than that: the low
// percentiles are near the clock's resolution, the high ones tell what is rare.
static void pin_timed(struct worker *worker)
{
    for (uint64_t i = 0; i < timed_count; i++) {
        uint64_t start = bench_timer_start();
        scheme_pin(&worker->scheme);
        ebbi_compiler_fence();
        scheme_unpin(&worker->scheme);
        uint64_t stop = bench_timer_stop();
        histogram_record(worker->pin_ns, bench_timer_ns(&timer, start, stop));
    }
}

static void *run_worker(void *argument)
{
    struct worker *worker = argument;
    scheme_enter(&worker->scheme);
    worker->wrong = pin_often(&worker->scheme, iteration_count / 10);
    team_ready(&team);
    worker->wrong += pin_often(&worker->scheme, iteration_count);
    team_finished(&team);
    pin_timed(worker);
    scheme_leave(&worker->scheme);
    return NULL;
}

static struct worker workers[THREADS_MAX];

static void prepare_timing(void)
{
    timer = bench_timer_open();
    for (uint64_t i = 0; i < thread_count; i++) {
        workers[i].pin_ns = histogram_create();
        histogram_make_resident(workers[i].pin_ns);
    }
}

// The loads that were wrong.
static uint64_t join_workers(void)
{
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < thread_count; i++) {
        pthread_join(workers[i].thread, NULL);
        wrong += workers[i].wrong;
    }
    return wrong;
}

static void report_percentiles(struct bench_result *result)
{
    struct histogram *pin_ns = workers[0].pin_ns;
    for (uint64_t i = 1; i < thread_count; i++)
        histogram_merge(pin_ns, workers[i].pin_ns);
    histogram_report(result, "pin", pin_ns);
    bench_timer_report(result, &timer);
    bench_verify(result, "every_pin_timed", histogram_total(pin_ns) == timed_count * thread_count);
}

int main(int argc, char **argv)
{
    static struct bench_result result;
    harness_number_words(argc, argv, "--mode", modes, MODES);
    bench_open(&program, argc, argv);
    scheme_open();
    shared = node_create(sizeof *shared, 1);
    if (timed_count > 0)
        prepare_timing();
    idlers_start(idle_count);
    team_open(&team, (unsigned)thread_count);
    for (uint64_t i = 0; i < thread_count; i++)
        team_run(&workers[i].thread, run_worker, &workers[i]);

    struct bench_clock clock;
    team_start(&team, &clock);
    team_stop(&team, &clock);
    uint64_t wrong = join_workers();
    idlers_stop(idle_count);
    free(shared);

    bench_figures_of(&result, &clock, iteration_count * thread_count);
    bench_figure(&result, "ns_per_op", clock.wall_s * 1e9 / (double)iteration_count);
    bench_verify(&result, "loads_right", wrong == 0);
    if (timed_count > 0)
        report_percentiles(&result);
    return bench_report(&program, &result);
}
