// SPDX-License-Identifier: MIT OR Apache-2.0
// slack: many regions open at once with a kilobyte in each: what one of them costs in
// resident memory. A mimalloc heap likewise. Without a scope the same blocks by malloc.
#include "scope.h"

#include <string.h>

enum { OBJECTS_MAX = 64 };

static uint64_t region_count = 10000;
static uint64_t object_count = 8;
static uint64_t object_bytes = 128;

static const struct bench_option options[] = {
    {"regions", &region_count, 1, 1000000, "open at once"},
    {"objects", &object_count, 1, OBJECTS_MAX, "in each region"},
    {"bytes", &object_bytes, 8, 65536, "size of an object"},
    SCOPE_OPTIONS,
};

static const struct bench_program program = {"slack", "many open regions with little in each",
                                             options, sizeof options / sizeof options[0]};

struct phase {
    struct scope scope;
    unsigned char *objects[OBJECTS_MAX];
};

static struct phase *phases;

static unsigned char mark_of(uint64_t phase, uint64_t object)
{
    return (unsigned char)(phase * 31 + object * 7 + 1);
}

static void fill(uint64_t number)
{
    struct phase *phase = &phases[number];
    scope_open(&phase->scope);
    for (uint64_t i = 0; i < object_count; i++) {
        unsigned char *object = scope_alloc(&phase->scope, object_bytes);
        if (object == NULL)
            bench_fail("object %d of region %d was refused", (int)i, (int)number);
        bench_touch(object, object_bytes, mark_of(number, i));
        phase->objects[i] = object;
    }
}

static uint64_t count_spoiled(uint64_t number)
{
    uint64_t spoiled = 0;
    for (uint64_t i = 0; i < object_count; i++) {
        const unsigned char *object = phases[number].objects[i];
        unsigned char mark = mark_of(number, i);
        spoiled += object[0] != mark || object[object_bytes - 1] != mark;
    }
    return spoiled;
}

static void end(uint64_t number)
{
    struct phase *phase = &phases[number];
    for (uint64_t i = 0; scope_frees_objects() && i < object_count; i++)
        scope_free(&phase->scope, phase->objects[i]);
    scope_end(&phase->scope);
}

// The harness's own memory is there before the first reading.
static void make_phases(void)
{
    phases = bench_map(region_count * sizeof *phases);
    memset(phases, 0, region_count * sizeof *phases);
}

static void check_options(void)
{
    if (scope_kind == SCOPE_DOMAIN)
        bench_fail("--scope 1: a thread has one epoch of a domain, not many");
    if (scope_kind == SCOPE_ARENA)
        bench_fail("--scope 4: jemalloc has at most 4094 arenas");
    if (scope_resets != 0)
        bench_fail("--reset 1: a region that is reset stays open");
}

int main(int argc, char **argv)
{
    static struct bench_result result;
    struct bench_clock clock;
    uint64_t spoiled = 0;
    bench_open(&program, argc, argv);
    check_options();
    scope_prepare("slack", false);
    make_phases();
    uint64_t before_kb = bench_rss_kb();
    bench_clock_start(&clock);
    for (uint64_t i = 0; i < region_count; i++)
        fill(i);
    bench_clock_stop(&clock);
    uint64_t full_kb = bench_rss_kb();
    bench_figures_of(&result, &clock, region_count);

    scope_probe(&phases[0].scope, object_bytes);
    for (uint64_t i = 0; i < region_count; i++)
        spoiled += count_spoiled(i);
    for (uint64_t i = 0; i < region_count; i++)
        end(i);
    double grown_kb = (double)full_kb - (double)before_kb;
    bench_figure(&result, "rss_per_region_kb", grown_kb / (double)region_count);
    bench_figure(&result, "rss_after_end_kb", (double)bench_rss_kb());
    bench_verify(&result, "contents_intact", spoiled == 0);
    bench_verify(&result, "objects_in_scope", phases[0].scope.astray == 0);
    bench_verify(&result, "memory_grew",
                 grown_kb * 1024 >= 0.8 * (double)(region_count * object_count * object_bytes));
    bench_unmap(phases, region_count * sizeof *phases);
    return bench_report(&program, &result);
}
