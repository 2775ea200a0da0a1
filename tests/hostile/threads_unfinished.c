// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads that end in the middle of something: inside a pin, a domain, a region that is current, with
// retired memory and regions of their own. What they had is not held back, nor does it pile up.
#include "hostile.h"
#include <ebbtide/reclaim.h>
#include <ebbtide/region.h>

static struct ebb_domain *domain;
static struct ebb_region *_Atomic left;
static atomic_int destroyed;

static void destroy(void *p, void *context)
{
    (void)context;
    atomic_fetch_add(&destroyed, 1);
    free(p);
}

static void *ends_in_pin(void *unused)
{
    ebb_pin();
    for (int i = 0; i < 50; i++)
        ebb_retire(malloc(200));
    MUST(ebb_retire_with(malloc(100), destroy, NULL) == 0, "no memory");
    return unused;
}

static void *ends_in_domain(void *unused)
{
    (void)ebb_domain_enter(domain);
    void *blocks[50];
    for (int i = 0; i < 50; i++)
        blocks[i] = malloc(100 + 10 * (size_t)i);
    for (int i = 0; i < 50; i++)
        free(blocks[i]);
    return unused;
}

static void *ends_in_region(void *unused)
{
    struct ebb_region_options options = {.label = "left", .closes = 1};
    struct ebb_region *region = ebb_region_open(&options);
    MUST(region != NULL, "no memory");
    (void)ebb_region_enter(region);
    free(malloc(100));
    atomic_store(&left, region);
    return unused;
}

static void *leaves_region(void *unused)
{
    struct ebb_region *region = ebb_region_open(NULL);
    MUST(region != NULL && ebb_region_alloc(region, 3000) != NULL, "no memory");
    atomic_store(&left, region);
    return unused;
}

// Cancelled where it waits, which is inside of everything.
static void *is_cancelled(void *unused)
{
    ebb_pin();
    (void)ebb_domain_enter(domain);
    ebb_retire(malloc(100));
    for (;;)
        pause();
    return unused;
}

static void in_a_row(long kind)
{
    void *(*const bodies[])(void *) = {ends_in_pin, ends_in_domain, ends_in_region, leaves_region,
                                       is_cancelled};
    long count = scaled(5000), before = 0;
    for (long i = 0; i < count; i++) {
        pthread_t thread = start(bodies[kind], NULL);
        if (kind == 4)
            pthread_cancel(thread);
        pthread_join(thread, NULL);
        if (kind == 2)
            ebb_region_close(atomic_exchange(&left, NULL));
        if (kind == 3)
            ebb_region_release(atomic_exchange(&left, NULL));
        if (i == 500)
            before = resident();
    }
    ebb_synchronize(); // returns, for nobody is pinned
    ebb_barrier();
    ebb_reclaim();
    struct ebb_reclaim_stats reclaim;
    ebb_reclaim_stats_get(NULL, &reclaim);
    MUST(reclaim.pinned == 0, "%zu pinned", reclaim.pinned);
    MUST(reclaim.participants < 100, "%zu participants", reclaim.participants);
    MUST(reclaim.retired_blocks < 1000, "%zu retired blocks wait", reclaim.retired_blocks);
    if (kind == 0)
        MUST(atomic_load(&destroyed) == count, "%d of %ld destructors ran", atomic_load(&destroyed),
             count);
    struct ebb_stats stats;
    ebb_stats_get(&stats);
    MUST(stats.heaps < 100, "%zu heaps", stats.heaps);
    struct ebb_lifetime_stats lines[4];
    size_t labels = ebb_lifetimes_get(lines, 4);
    for (size_t i = 0; i < labels && i < 4; i++)
        MUST(lines[i].open < 100, "%zu open of %s", lines[i].open, lines[i].label);
    long have = resident_within(4000, before + 4 * MIB);
    MUST(have <= before + 4 * MIB, "%ld KiB resident, %ld after 500", have / KIB, before / KIB);
}

int main(int argc, char **argv)
{
    static const struct topic topics[] = {{"in_a_row", in_a_row}, {NULL, NULL}};
    domain = ebb_domain_open("unfinished");
    MUST(domain != NULL, "no memory");
    run_topic(topics, argc, argv);
    return pass("%ld KiB resident", resident() / KIB);
}
