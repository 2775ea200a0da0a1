// SPDX-License-Identifier: MIT OR Apache-2.0
// The no-op floor: an allocator that hands out from a fixed warm ring and frees
// nothing. Its time on a workload is what the harness itself costs. For the
// single-threaded workloads only: their blocks overlap once the ring wraps, so
// the workload may write marks but not rely on them.
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    // 33 cache lines: an odd number, so the ring visits every cache set; a stride
    // of 4096 would put every block into the same one.
    STRIDE_BYTES = 33 * 64,
    RING_BLOCKS = 64,
    REQUEST_MAX_BYTES = 32768,
    // calloc and aligned requests come from libc (thread descriptors, stdio) and
    // must not be overwritten: they are handed out once, in order.
    KEPT_BYTES = 1 << 20,
};

#define EXPORT __attribute__((visibility("default")))

EXPORT void *malloc(size_t size_bytes);
EXPORT void free(void *block);
EXPORT void *calloc(size_t count, size_t size_bytes);
EXPORT void *realloc(void *block, size_t size_bytes);
EXPORT void *aligned_alloc(size_t alignment, size_t size_bytes);
EXPORT void *memalign(size_t alignment, size_t size_bytes);
EXPORT int posix_memalign(void **block, size_t alignment, size_t size_bytes);

static _Alignas(64) unsigned char ring[RING_BLOCKS * STRIDE_BYTES + REQUEST_MAX_BYTES];
static _Alignas(64) unsigned char kept[KEPT_BYTES];
static uint32_t next_block;
static size_t kept_used;

void *malloc(size_t size_bytes)
{
    if (size_bytes > REQUEST_MAX_BYTES) {
        errno = ENOMEM;
        return NULL;
    }
    next_block = (next_block + 1) % RING_BLOCKS;
    return ring + (size_t)next_block * STRIDE_BYTES;
}

void free(void *block) { (void)block; }

void *memalign(size_t alignment, size_t size_bytes)
{
    size_t start = (kept_used + alignment - 1) & ~(alignment - 1);
    if (alignment > 64 || start > KEPT_BYTES || size_bytes > KEPT_BYTES - start) {
        errno = ENOMEM;
        return NULL;
    }
    kept_used = start + size_bytes;
    return kept + start;
}

void *aligned_alloc(size_t alignment, size_t size_bytes) { return memalign(alignment, size_bytes); }

int posix_memalign(void **block, size_t alignment, size_t size_bytes)
{
    void *memory = memalign(alignment, size_bytes);
    if (memory == NULL)
        return ENOMEM;
    *block = memory;
    return 0;
}

// Kept memory is handed out once, so it is still zero.
void *calloc(size_t count, size_t size_bytes)
{
    size_t total_bytes = 0;
    if (__builtin_mul_overflow(count, size_bytes, &total_bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return memalign(16, total_bytes);
}

// The old size is unknown. Reading past it stays inside its static area: the ring
// has a tail of the largest request, and a kept block lies below its copy.
void *realloc(void *block, size_t size_bytes)
{
    if (size_bytes > REQUEST_MAX_BYTES) {
        errno = ENOMEM;
        return NULL;
    }
    void *grown = memalign(16, size_bytes);
    if (grown != NULL && block != NULL)
        memmove(grown, block, size_bytes);
    return grown;
}
