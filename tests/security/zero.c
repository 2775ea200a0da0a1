// SPDX-License-Identifier: MIT OR Apache-2.0
// Blocks of no bytes, read and written.
#include "security.h"

typedef byte *source_fn(void);

static byte *from_malloc(void) { return hide(malloc(hide_size(0))); }
static byte *from_calloc(void) { return hide(calloc(hide_size(0), 8)); }
static byte *from_realloc(void) { return hide(realloc(NULL, hide_size(0))); }
static byte *from_aligned(void)
{
    void *p = NULL;
    if (posix_memalign(&p, 64, hide_size(0)) != 0)
        broken("posix_memalign failed");
    return hide(p);
}

static void touch(struct run *run, source_fn *source, bool writes, size_t count)
{
    only_small(run);
    byte *blocks[16];
    for (int i = 0; i < 16; i++)
        blocks[i] = source();
    volatile byte *p = hide(blocks[8]);
    mark('F');
    for (size_t i = 0; run->fault && i < count; i++) {
        if (writes)
            p[i] = 0x41;
        else
            (void)p[i];
    }
    mark('A');
    for (int i = 0; i < 16; i++)
        free(blocks[i]);
}

static void zero_write_1(struct run *run) { touch(run, from_malloc, true, 1); }
static void zero_write_16(struct run *run) { touch(run, from_malloc, true, 16); }
static void zero_write_64(struct run *run) { touch(run, from_malloc, true, 64); }
static void zero_read_1(struct run *run) { touch(run, from_malloc, false, 1); }
static void zero_read_64(struct run *run) { touch(run, from_malloc, false, 64); }
static void zero_calloc_write(struct run *run) { touch(run, from_calloc, true, 1); }
static void zero_realloc_write(struct run *run) { touch(run, from_realloc, true, 1); }
static void zero_aligned_write(struct run *run) { touch(run, from_aligned, true, 1); }

static void zero_double(struct run *run)
{
    only_small(run);
    byte *p = from_malloc();
    free(p);
    FAULT(run, free(hide(p)));
}

const struct test_case zero_cases[] = {
    CASE("zero size", zero_write_1, "malloc(0), 1 byte written"),
    CASE("zero size", zero_write_16, "malloc(0), 16 bytes written"),
    CASE("zero size", zero_write_64, "malloc(0), 64 bytes written"),
    CASE("zero size", zero_read_1, "malloc(0), 1 byte read"),
    CASE("zero size", zero_read_64, "malloc(0), 64 bytes read"),
    CASE("zero size", zero_calloc_write, "calloc(0, 8), 1 byte written"),
    CASE("zero size", zero_realloc_write, "realloc(NULL, 0), 1 byte written"),
    CASE("zero size", zero_aligned_write, "posix_memalign of 0 bytes, 1 byte written"),
    CASE("zero size", zero_double, "malloc(0) freed twice"),
    CASES_END,
};
