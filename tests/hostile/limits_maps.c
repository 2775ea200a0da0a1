// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernel's limit of mappings (vm.max_map_count) is reached: munmap in the middle of a mapping,
// mprotect and mmap fail then. Blocks are had or refused with ENOMEM, frees keep errno, nothing is lost.
#include "hostile.h"
#include <malloc.h>

// Takes all mappings that there are: pages that differ from their neighbours.
static void exhaust(void)
{
    enum { PAGES = 1 << 20 };
    char *space = mmap(NULL, (size_t)PAGES * 4096, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST(space != MAP_FAILED, "mmap: %s", strerror(errno));
    for (int i = 1; i < PAGES; i += 2)
        if (mprotect(space + (size_t)i * 4096, 4096, PROT_READ) != 0)
            return;
    skip("there is no limit of mappings");
}

static void frees(void *p)
{
    errno = 4711;
    free(p);
    MUST(errno == 4711, "free changed errno to %d", errno);
}

// Every page of a block is the block's own, and it is clear when it should be.
static long take_and_free(size_t size, int count, unsigned *seed)
{
    static unsigned char *blocks[1000];
    long refused = 0;
    for (int i = 0; i < count; i++) {
        int clear = chance(seed) % 2 == 0;
        errno = 0;
        blocks[i] = clear ? calloc(1, size) : malloc(size);
        if (blocks[i] == NULL) {
            MUST(errno == ENOMEM, "%zu bytes: errno %d", size, errno);
            refused++;
            continue;
        }
        for (size_t k = 0; clear && k < size; k += 61)
            MUST(blocks[i][k] == 0, "calloc(%zu) is not clear", size);
        memset(blocks[i], i % 251 + 1, size);
    }
    for (int i = 0; i < count; i++) {
        int other = (int)(chance(seed) % (unsigned)count);
        unsigned char *p = blocks[other];
        if (p == NULL)
            continue;
        MUST(p[0] == other % 251 + 1 && p[size - 1] == other % 251 + 1, "a block was overwritten");
        if (chance(seed) % 4 == 0) {
            unsigned char *q = realloc(p, size * 2);
            if (q != NULL)
                p = q;
            MUST(p[0] == other % 251 + 1 && p[size - 1] == other % 251 + 1, "realloc lost it");
        }
        frees(p);
        blocks[other] = NULL;
    }
    for (int i = 0; i < count; i++)
        frees(blocks[i]);
    return refused;
}

static void *works(void *argument)
{
    static const struct {
        size_t size;
        int count;
    } kinds[] = {{32, 1000}, {700, 1000}, {9000, 500}, {90000, 100}, {3 << 20, 8}, {70 << 20, 2}};
    unsigned seed = (unsigned)(uintptr_t)argument;
    long refused = 0;
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            refused += take_and_free(kinds[i].size, kinds[i].count, &seed);
    malloc_trim(0);
    return (void *)refused;
}

int main(int argc, char **argv)
{
    int before = argc > 1 && strcmp(argv[1], "later") == 0;
    if (before)
        works((void *)1); // with memory at hand
    exhaust();
    long refused = (long)works((void *)2);
    if (before)
        nap_ms(600);
    refused += (long)works((void *)3);
    return pass("%ld allocations were refused", refused);
}
