// SPDX-License-Identifier: MIT OR Apache-2.0
// Passes every probe, and says on stdout what each must have told at least once: `probe argument...`, numbers in
// decimal, - for what only the library knows.
#include <ebbtide.h>
#include <ebbtide/profile.h>
#include <ebbtide/reclaim.h>
#include <ebbtide/region.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define LARGE 400000 // of a span
#define HUGE ((size_t)100 << 20)
#define BLOCKS 3000

static void *blocks[BLOCKS];

static void small(void)
{
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = ebb_malloc(48);
    for (int i = 0; i < BLOCKS; i++)
        ebb_free(blocks[i]);
    printf("refill 48 -\nflush 48 -\n");
}

static void large(size_t bytes, size_t more)
{
    void *p = ebb_malloc(bytes);
    printf("large_alloc %ju %zu\n", (uintmax_t)(uintptr_t)p, bytes);
    uintptr_t before = (uintptr_t)p;
    p = ebb_realloc(p, more);
    printf("large_resize %ju %ju %zu\n", (uintmax_t)before, (uintmax_t)(uintptr_t)p, more);
    printf("large_free %ju %zu\n", (uintmax_t)(uintptr_t)p, more);
    ebb_free(p);
}

static void announce(const char *probe, struct ebb_region *region)
{
    struct ebb_region_stats stats;
    ebb_region_stats_get(region, &stats);
    printf("%s %ju %s %zu\n", probe, (uintmax_t)(uintptr_t)region, ebb_region_label(region),
           stats.held_bytes);
}

static void regions(void)
{
    struct ebb_region_options options = {.label = "requests"};
    struct ebb_region *region = ebb_region_open(&options);
    (void)ebb_region_alloc(region, 100);
    announce("region_release", region);
    ebb_region_reset(region);
    (void)ebb_region_alloc(region, LARGE);
    announce("region_release", region);
    ebb_region_release(region);
    for (int drained = 0; drained < 2; drained++) {
        options.label = drained ? "drained" : "sessions";
        region = ebb_region_open(&options);
        void *block = ebb_region_alloc(region, 100);
        if (drained)
            ebb_free(block);
        announce("region_close", region);
        ebb_region_close(region);
    }
}

static void samples(void)
{
    (void)ebb_profile_start(1);
    void *p = ebb_malloc(1234);
    printf("sample %ju 1234\n", (uintmax_t)(uintptr_t)p);
    p = ebb_realloc(p, 1300);
    printf("sample %ju 1300\n", (uintmax_t)(uintptr_t)p);
    ebb_free(p);
    p = ebb_realloc(ebb_malloc(HUGE), HUGE * 2);
    printf("sample %ju %zu\n", (uintmax_t)(uintptr_t)p, HUGE * 2);
    ebb_profile_stop();
    ebb_free(p);
}

__attribute__((noinline)) void ready(void) { __asm__ volatile(""); }

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    ready();
    small();
    large(LARGE, LARGE + 4096);
    large(HUGE, HUGE * 2);
    regions();
    samples();
    ebb_retire(ebb_malloc(48));
    ebb_synchronize();
    printf("epoch - -\n");
    (void)ebb_trim();
    printf("purge - %zu\n", HUGE * 2);
    printf("message - -\n");
    void *p = ebb_malloc(48);
    ebb_free(p);
    ebb_free(p);
    return 1;
}
