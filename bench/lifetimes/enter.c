// SPDX-License-Identifier: MIT OR Apache-2.0
// enter: makes a domain (--scope 1) or one open region (--scope 2) current and leaves it
// again, over and over, with nothing in between.
#include "scope_report.h"

#include <pthread.h>

static uint64_t round_count = 10000000;

static const struct bench_option options[] = {
    {"iters", &round_count, 10, UINT64_MAX / 1024, "times to enter and leave"},
    SCOPE_OPTIONS,
};

static const struct bench_program program = {"enter", "enters and leaves a domain or a region",
                                             options, sizeof options / sizeof options[0]};

static struct scope scope;

static void enter_domain(uint64_t count)
{
    for (uint64_t round = 0; round < count; round++) {
        scope_enter(&scope);
        scope_leave(&scope);
    }
}

static void enter_region(uint64_t count)
{
    for (uint64_t round = 0; round < count; round++)
        scope_calls.leave(scope_calls.region_enter(scope.handle));
    scope.entered += count;
}

static void enter_often(uint64_t count)
{
    if (scope_kind == SCOPE_DOMAIN)
        enter_domain(count);
    else
        enter_region(count);
}

// Whether plain malloc comes from the region inside, and only there.
static bool region_routes(void)
{
    struct ebb_scope before = scope_calls.region_enter(scope.handle);
    void *inside = malloc(100);
    scope_calls.leave(before);
    void *outside = malloc(100);
    bool routes =
        scope_calls.region_of(inside) == scope.handle && scope_calls.region_of(outside) == NULL;
    free(inside);
    free(outside);
    return routes;
}

// Of a domain only its statistics tell: the first block in it takes a slab.
static bool domain_routes(void)
{
    bool is_empty = scope_stats().held_bytes == 0;
    scope_enter(&scope);
    void *inside = malloc(100);
    scope_leave(&scope);
    bool routes = is_empty && scope_stats().held_bytes > 0;
    free(inside);
    return routes;
}

static bool scope_routes(void)
{
    return scope_kind == SCOPE_DOMAIN ? domain_routes() : region_routes();
}

struct run {
    struct bench_clock clock;
    bool routes;
};

// In a thread that ends before its scopes are counted: what a thread has counted may wait
// for its next slow call.
static void *run_rounds(void *argument)
{
    struct run *run = argument;
    scope_open(&scope);
    run->routes = scope_routes();
    enter_often(round_count / 10);
    bench_clock_start(&run->clock);
    enter_often(round_count);
    bench_clock_stop(&run->clock);
    if (scope_kind == SCOPE_REGION)
        scope_end(&scope);
    return NULL;
}

int main(int argc, char **argv)
{
    static struct bench_result result;
    struct run run;
    pthread_t thread;
    bench_open(&program, argc, argv);
    if (scope_kind != SCOPE_DOMAIN && scope_kind != SCOPE_REGION)
        bench_fail("--scope %d: only a domain (1) or a region (2) is entered", (int)scope_kind);
    scope_prepare("enter", false);
    if (pthread_create(&thread, NULL, run_rounds, &run) != 0)
        bench_fail("cannot start a thread");
    pthread_join(thread, NULL);
    bench_figures_of(&result, &run.clock, round_count);
    bench_verify(&result, "malloc_is_routed", run.routes);
    if (scope_kind == SCOPE_DOMAIN)
        bench_verify(&result, "units_counted", scope_stats().opened == scope.entered);
    return bench_report(&program, &result);
}
