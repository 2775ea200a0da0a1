// SPDX-License-Identifier: MIT OR Apache-2.0
// object: what one of 225 objects costs in a scope: to allocate, to touch one byte, and its
// share of the scope's begin and end, or its free. One thread, one unit of work at a time.
#include "unit.h"

#define KEPT_INLINE static inline __attribute__((always_inline))

static uint64_t unit_count = 20000;

static const struct bench_option options[] = {
    {"iters", &unit_count, 10, UINT64_MAX / 1024, "units of work of 225 objects"},
    SCOPE_OPTIONS,
};

static const struct bench_program program = {
    "object", "objects of one unit of work, allocated, touched and gone", options,
    sizeof options / sizeof options[0]};

static struct scope scope;
static uint16_t sizes[UNIT_OBJECTS];
static unsigned char *objects[UNIT_OBJECTS];
static uint64_t refused;

KEPT_INLINE void fill_as(uint64_t kind)
{
    for (uint32_t i = 0; i < UNIT_OBJECTS; i++) {
        objects[i] = scope_alloc_as(kind, &scope, sizes[i]);
        if (__builtin_expect(objects[i] == NULL, 0)) {
            refused++;
            continue;
        }
        objects[i][0] = (unsigned char)i;
    }
}

// Each kind has a loop of its own, so that none pays for the choice.
static void fill(void)
{
    if (scope_kind == SCOPE_REGION)
        fill_as(SCOPE_REGION);
    else if (scope_kind == SCOPE_HEAP)
        fill_as(SCOPE_HEAP);
    else if (scope_kind == SCOPE_ARENA)
        fill_as(SCOPE_ARENA);
    else
        fill_as(SCOPE_NONE);
}

static void free_all(void)
{
    if (!scope_frees_objects())
        return;
    for (uint32_t i = 0; i < UNIT_OBJECTS; i++)
        scope_free(&scope, objects[i]);
}

static void run_units(uint64_t count)
{
    for (uint64_t unit = 0; unit < count; unit++) {
        scope_enter(&scope);
        fill();
        free_all();
        scope_leave(&scope);
    }
}

// One more unit, not measured, whose objects are written from end to end: what overlaps
// is found, and what was never there.
static bool objects_are_apart(void)
{
    uint32_t intact = 0;
    scope_enter(&scope);
    fill();
    for (uint32_t i = 0; i < UNIT_OBJECTS; i++)
        for (uint16_t at = 0; objects[i] != NULL && at < sizes[i]; at++)
            objects[i][at] = (unsigned char)(i + 1);
    for (uint32_t i = 0; i < UNIT_OBJECTS; i++) {
        uint16_t at = 0;
        while (objects[i] != NULL && at < sizes[i] && objects[i][at] == (unsigned char)(i + 1))
            at++;
        intact += at == sizes[i];
    }
    free_all();
    scope_leave(&scope);
    return intact == UNIT_OBJECTS;
}

int main(int argc, char **argv)
{
    static struct bench_result result;
    bench_open(&program, argc, argv);
    scope_prepare("objects", false);
    for (uint32_t i = 0; i < UNIT_OBJECTS; i++)
        sizes[i] = unit_size(i);
    scope_enter(&scope);
    scope_probe(&scope, sizes[0]);
    scope_leave(&scope);
    run_units(unit_count / 10);

    struct bench_clock clock;
    bench_clock_start(&clock);
    run_units(unit_count);
    bench_clock_stop(&clock);
    bench_figures_of(&result, &clock, unit_count * UNIT_OBJECTS);
    bench_verify(&result, "objects_apart", objects_are_apart());
    bench_verify(&result, "objects_in_scope", scope.astray == 0);
    bench_verify(&result, "no_failed_allocation", refused == 0);
    scope_finish(&scope);
    return bench_report(&program, &result);
}
