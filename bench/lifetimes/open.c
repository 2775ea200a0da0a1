// SPDX-License-Identifier: MIT OR Apache-2.0
// open: a region that is opened, gets one object and is released, over and over, so that
// its memory is warm. A mimalloc heap likewise; a jemalloc arena is not made anew but
// reset. Without a scope: malloc and free.
#include "scope.h"

static uint64_t round_count = 1000000;
static uint64_t object_bytes = 64;

static const struct bench_option options[] = {
    {"iters", &round_count, 10, UINT64_MAX / 1024, "regions, one after the other"},
    {"bytes", &object_bytes, 8, 65536, "size of the one object"},
    SCOPE_OPTIONS,
};

static const struct bench_program program = {"open", "opens and ends a region around one object",
                                             options, sizeof options / sizeof options[0]};

static struct scope scope;

// How many objects were refused, or did not hold what was written.
static uint64_t run_rounds(uint64_t count)
{
    uint64_t spoiled = 0;
    for (uint64_t round = 0; round < count; round++) {
        scope_open(&scope);
        volatile uint64_t *object = scope_alloc(&scope, object_bytes);
        if (object == NULL) {
            spoiled++;
            continue;
        }
        *object = round;
        spoiled += *object != round;
        if (scope_frees_objects())
            scope_free(&scope, (void *)(uintptr_t)object);
        scope_end(&scope);
    }
    return spoiled;
}

int main(int argc, char **argv)
{
    static struct bench_result result;
    bench_open(&program, argc, argv);
    scope_prepare("open", false);
    if (scope_kind == SCOPE_DOMAIN)
        bench_fail("--scope 1: a domain lasts as long as the process; see the program enter");
    if (scope_resets != 0)
        bench_fail("--reset 1: a region that is reset is not opened again");
    scope_open(&scope);
    scope_probe(&scope, object_bytes);
    scope_end(&scope);
    uint64_t spoiled = run_rounds(round_count / 10);

    struct bench_clock clock;
    bench_clock_start(&clock);
    spoiled += run_rounds(round_count);
    bench_clock_stop(&clock);
    bench_figures_of(&result, &clock, round_count);
    bench_verify(&result, "objects_in_scope", scope.astray == 0);
    bench_verify(&result, "contents_intact", spoiled == 0);
    bench_verify(&result, "every_scope_ended", scope.ended == round_count + round_count / 10 + 1);
    return bench_report(&program, &result);
}
