// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads that are created while a region is current. What libc allocates for a thread stays with its stack,
// for the next thread: none of it may lie in the region, which is released before that one is created.
#include "hostile.h"

#include <ebbtide/region.h>
#include <threads.h>

static void *returns(void *argument) { return argument; }
static int returns_c11(void *unused) { return unused != NULL; }

static void create(int c11)
{
    pthread_t thread;
    thrd_t other;
    int created = c11 ? thrd_create(&other, returns_c11, NULL) == thrd_success
                      : pthread_create(&thread, NULL, returns, NULL) == 0;
    MUST(created, "no thread");
    MUST(c11 ? thrd_join(other, NULL) == thrd_success : pthread_join(thread, NULL) == 0, "no join");
}

static void scribble(void)
{
    struct ebb_region *region = ebb_region_open(NULL);
    for (int i = 0; i < 1000; i++) {
        void *p = ebb_region_alloc(region, 100);
        MUST(p != NULL, "no memory");
        memset(p, 0x55, 100);
    }
    ebb_region_release(region);
}

// The control: what the program itself allocates there is seen.
static size_t blocks_in(struct ebb_region *region)
{
    struct ebb_region_stats stats;
    ebb_region_stats_get(region, &stats);
    return stats.live_blocks;
}

int main(int argc, char **argv)
{
    int c11 = argc > 1 && strcmp(argv[1], "c11") == 0;
    for (int round = 0; round < 20; round++) {
        struct ebb_region *region = ebb_region_open(NULL);
        MUST(region != NULL, "no region");
        struct ebb_scope before = ebb_region_enter(region);
        create(c11);
        size_t by_libc = blocks_in(region);
        void *mine = malloc(10);
        MUST(blocks_in(region) == by_libc + 1 && ebb_region_of(mine) == region,
             "the region is not current any more");
        ebb_leave(before);
        MUST(by_libc == 0, "%zu blocks of a thread lie in the region", by_libc);
        ebb_region_release(region);
        scribble();
        create(c11);
    }
    return pass("threads outlive the region");
}
