// SPDX-License-Identifier: MIT OR Apache-2.0
// A program with the library linked in, which exports all that it has, as interpreters do: two copies in one
// process. Each keeps its own threads, blocks and regions.
#include "hostile.h"

#include <ebbtide.h>
#include <ebbtide/reclaim.h>
#include <ebbtide/region.h>

enum { BLOCKS = 2000 };

static void check(const unsigned char *block, size_t size, unsigned char mark)
{
    for (size_t i = 0; i < size; i++)
        MUST(block[i] == mark, "a block of one copy holds what another wrote");
}

static void blocks(void)
{
    static _Thread_local unsigned char *theirs[BLOCKS], *ours[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t size = 1 + i % 700;
        theirs[i] = malloc(size);
        ours[i] = ebb_malloc(size);
        MUST(theirs[i] != NULL && ours[i] != NULL, "no memory");
        memset(theirs[i], 1, size);
        memset(ours[i], 2, size);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        check(theirs[i], 1 + i % 700, 1);
        check(ours[i], 1 + i % 700, 2);
        free(theirs[i]);
        ebb_free(ours[i]);
    }
}

static void lifetimes(void)
{
    struct ebb_region *region = ebb_region_open(NULL);
    MUST(region != NULL, "no region");
    struct ebb_scope before = ebb_region_enter(region);
    MUST(ebb_region_of(ebb_malloc(100)) == region, "not in the region");
    void *elsewhere = malloc(100); // the other copy knows nothing of it
    MUST(elsewhere != NULL && ebb_region_of(elsewhere) == NULL, "two copies share a region");
    ebb_leave(before);
    for (int i = 0; i < 1000; i++)
        MUST(ebb_region_alloc(region, 100) != NULL, "no memory");
    ebb_pin();
    ebb_retire(ebb_malloc(100));
    ebb_unpin();
    ebb_region_release(region);
    free(elsewhere);
}

static void *all(void *unused)
{
    for (int round = 0; round < 5; round++) {
        blocks();
        lifetimes();
    }
    return unused;
}

int main(void)
{
    MUST(dlsym(RTLD_DEFAULT, "ebb_malloc") == (void *)ebb_malloc, "the program exports nothing");
    MUST(dlsym(RTLD_NEXT, "ebb_malloc") != NULL, "there is no second copy");
    all(NULL);
    for (int round = 0; round < 20; round++) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            threads[i] = start(all, NULL);
        pid_t child = fork();
        MUST(child >= 0, "fork: %s", strerror(errno));
        if (child == 0) {
            all(NULL);
            _exit(0);
        }
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        MUST(await_child(child, 30) == 0, "the child of a fork");
    }
    return pass("two copies");
}
