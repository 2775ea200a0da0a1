// SPDX-License-Identifier: MIT OR Apache-2.0
// Regions by the thousand, opened here and ended there: nothing may be left of them.
#include "hostile.h"
#include <ebbtide/reclaim.h>
#include <ebbtide/region.h>

enum { RING = 64 };
static struct ebb_region *_Atomic ring[RING];
static long count_of_regions;

static void *releases(void *unused)
{
    for (long i = 0; i < count_of_regions; i++) {
        struct ebb_region *region;
        while ((region = atomic_exchange(&ring[i % RING], NULL)) == NULL)
            sched_yield();
        ebb_region_release(region);
    }
    return unused;
}

static void hand_over(long count, long empty)
{
    count_of_regions = count;
    pthread_t thread = start(releases, NULL);
    for (long i = 0; i < count; i++) {
        struct ebb_region *region = ebb_region_open(NULL);
        MUST(region != NULL, "ebb_region_open");
        if (!empty) {
            char *p = ebb_region_alloc(region, 100);
            MUST(p != NULL, "ebb_region_alloc");
            p[0] = 1;
        }
        while (atomic_load(&ring[i % RING]) != NULL)
            sched_yield();
        atomic_store(&ring[i % RING], region);
    }
    pthread_join(thread, NULL);
}

// 200,000 regions, opened in one thread and released in another. 1: nothing allocated in them.
static void handed_over(long empty)
{
    hand_over(2000, empty);
    long before = resident_within(3000, 0);
    hand_over(200000, empty);
    long have = resident_within(4000, before + 2 * MIB);
    MUST(have <= before + 2 * MIB, "%ld KiB resident, %ld before", have / KIB, before / KIB);
}

static atomic_int stop;

static void *idles(void *unused)
{
    while (!atomic_load(&stop))
        nap_ms(50);
    return unused;
}

// 5,000 regions of 60 KB, all there at once, all released, while a second thread does nothing.
static void idle_second(long unused)
{
    enum { COUNT = 5000 };
    static struct ebb_region *regions[COUNT];
    (void)unused;
    pthread_t thread = start(idles, NULL);
    long before = resident();
    for (int i = 0; i < COUNT; i++) {
        regions[i] = ebb_region_open(NULL);
        MUST(regions[i] != NULL, "ebb_region_open");
        for (int k = 0; k < 60; k++) {
            void *p = ebb_region_alloc(regions[i], 1000);
            MUST(p != NULL, "ebb_region_alloc");
            memset(p, 1, 1000);
        }
    }
    long most = resident();
    for (int i = 0; i < COUNT; i++)
        ebb_region_release(regions[i]);
    long have = resident_within(4000, before + 4 * MIB);
    MUST(have <= before + 4 * MIB, "%ld KiB resident, %ld before, %ld at most", have / KIB,
         before / KIB, most / KIB);
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
}

// A region is filled, one of `every` blocks retired, and reset, 20,000 times, while a second thread does
// nothing. 750 KB are in use at a time.
static void retire_and_reset(long every)
{
    enum { BLOCKS = 300, SIZE = 2500 };
    pthread_t thread = start(idles, NULL);
    struct ebb_region *region = ebb_region_open(NULL);
    MUST(region != NULL, "ebb_region_open");
    long most = 0, before = resident();
    for (int round = 0; round < 20000; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            char *p = ebb_region_alloc(region, SIZE);
            MUST(p != NULL, "ebb_region_alloc");
            p[0] = p[SIZE - 1] = 1;
            if (i % every == 0)
                ebb_retire(p);
        }
        ebb_region_reset(region);
        most = round % 50 == 0 && resident() > most ? resident() : most;
    }
    MUST(most <= before + 64 * MIB, "%ld KiB resident, %ld before", most / KIB, before / KIB);
    ebb_region_release(region);
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
}

// 3,000 regions of 60 KB are closed, one block of each lives on, and goes later.
static void closes(long unused)
{
    enum { COUNT = 3000 };
    static void *survivors[COUNT];
    (void)unused;
    pthread_t thread = start(idles, NULL);
    long before = resident();
    for (int round = 0; round < 2; round++) {
        struct ebb_region_options options = {.label = "closes", .closes = 1};
        for (int i = 0; i < COUNT; i++) {
            struct ebb_region *region = ebb_region_open(&options);
            MUST(region != NULL, "ebb_region_open");
            void *blocks[60];
            for (int k = 0; k < 60; k++) {
                blocks[k] = ebb_region_alloc(region, 1000);
                MUST(blocks[k] != NULL, "ebb_region_alloc");
                memset(blocks[k], k + 1, 1000);
            }
            for (int k = 0; k < 60; k++)
                if (k != i % 60)
                    ebb_free(blocks[k]);
            survivors[i] = blocks[i % 60];
            ebb_region_close(region);
        }
        long limit = before + COUNT * 16 * KIB;
        long have = resident_within(4000, limit);
        MUST(have <= limit, "with survivors %ld KiB are resident, %ld before", have / KIB,
             before / KIB);
        for (int i = 0; i < COUNT; i++) {
            const unsigned char *p = survivors[i];
            MUST(p[0] == i % 60 + 1 && p[999] == i % 60 + 1, "a survivor was written");
            ebb_free(survivors[i]);
        }
        have = resident_within(4000, before + 4 * MIB);
        MUST(have <= before + 4 * MIB, "at the end %ld KiB are resident, %ld before", have / KIB,
             before / KIB);
    }
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    static const struct topic topics[] = {{"handed_over", handed_over},
                                          {"idle_second", idle_second},
                                          {"closes", closes},
                                          {"retire_and_reset", retire_and_reset},
                                          {NULL, NULL}};
    run_topic(topics, argc, argv);
    return pass("%ld KiB resident", resident() / KIB);
}
