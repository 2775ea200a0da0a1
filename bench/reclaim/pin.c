// SPDX-License-Identifier: MIT OR Apache-2.0
// pin: what it costs to begin and end a pin, in a tight loop, around one load of a
// shared pointer, and inside another pin; beside threads that are registered and idle.
#include "idlers.h"

enum { MODE_TIGHT, MODE_LOAD, MODE_NESTED, MODES };

static const char *const modes[MODES] = {"tight", "load", "nested"};

static uint64_t thread_count = 1;
static uint64_t iteration_count = 20000000;
static uint64_t idle_count = 0;
static uint64_t mode = MODE_TIGHT;

static const struct bench_option options[] = {
    {"threads", &thread_count, 1, 64, "threads that pin"},
    {"iters", &iteration_count, 10, UINT64_MAX / 128, "pins of each thread"},
    {"idle", &idle_count, 0, IDLERS_MAX, "threads that pin once, then sleep"},
    {"mode", &mode, 0, MODES - 1, "tight (0), load (1) or nested (2)"},
};

static const struct bench_program program = {"pin", "pin and unpin, over and over", options,
                                             sizeof options / sizeof options[0]};

struct worker {
    pthread_t thread;
    struct scheme_thread scheme;
    uint64_t wrong; // loads that showed another node than the one there
} __attribute__((aligned(LINE_BYTES)));

static struct team team;
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

static void *run_worker(void *argument)
{
    struct worker *worker = argument;
    scheme_enter(&worker->scheme);
    worker->wrong = pin_often(&worker->scheme, iteration_count / 10);
    team_ready(&team);
    worker->wrong += pin_often(&worker->scheme, iteration_count);
    team_finished(&team);
    scheme_leave(&worker->scheme);
    return NULL;
}

static struct worker workers[THREADS_MAX];

int main(int argc, char **argv)
{
    static struct bench_result result;
    harness_number_words(argc, argv, "--mode", modes, MODES);
    bench_open(&program, argc, argv);
    scheme_open();
    shared = node_create(sizeof *shared, 1);
    idlers_start(idle_count);
    team_open(&team, (unsigned)thread_count);
    for (uint64_t i = 0; i < thread_count; i++)
        team_run(&workers[i].thread, run_worker, &workers[i]);

    struct bench_clock clock;
    team_start(&team, &clock);
    team_stop(&team, &clock);
    idlers_stop(idle_count);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < thread_count; i++) {
        pthread_join(workers[i].thread, NULL);
        wrong += workers[i].wrong;
    }
    free(shared);

    bench_figures_of(&result, &clock, iteration_count * thread_count);
    bench_figure(&result, "ns_per_op", clock.wall_s * 1e9 / (double)iteration_count);
    bench_verify(&result, "loads_right", wrong == 0);
    return bench_report(&program, &result);
}
