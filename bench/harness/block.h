// SPDX-License-Identifier: MIT OR Apache-2.0
// A block that knows its size and its mark, for workloads that prove that nobody
// else wrote to it. Every page of it is touched, so what is live is also resident.
#ifndef EBB_BENCH_BLOCK_H
#define EBB_BENCH_BLOCK_H

#include "common.h"

enum { BLOCK_PAGE_BYTES = 4096, PROBE_BLOCKS = 64 };

struct block {
    unsigned char *start; // NULL: an empty slot
    uint32_t size_bytes;
    unsigned char mark;
};

static inline struct block block_make(uint32_t size_bytes, unsigned char mark)
{
    unsigned char *start = bench_alloc(size_bytes);
    for (uint32_t at = BLOCK_PAGE_BYTES; at < size_bytes; at += BLOCK_PAGE_BYTES)
        start[at] = mark;
    bench_touch(start, size_bytes, mark);
    return (struct block){start, size_bytes, mark};
}

static inline bool block_is_intact(const struct block *block)
{
    return block->start[0] == block->mark && block->start[block->size_bytes - 1] == block->mark;
}

// Uniform between the two sizes; the lowest bits of the generator have short periods.
static inline uint32_t block_size(uint32_t r, uint64_t size_min, uint64_t size_max)
{
    return (uint32_t)size_min + (r >> 4) % (uint32_t)(size_max - size_min + 1);
}

// For workloads that only write while the clock runs: after it, a few more blocks,
// all live at once with different marks, show whether the allocator that was
// measured still gives each of them memory of its own. Fewer and no more touched
// than the workload's own, so that they do not make the peak.
static inline bool block_probe(uint64_t size_min, uint64_t size_max)
{
    struct block blocks[PROBE_BLOCKS];
    uint32_t intact = 0;
    uint32_t r = 1;
    for (uint32_t i = 0; i < PROBE_BLOCKS; i++) {
        r = bench_lcg(r);
        uint32_t size_bytes = block_size(r, size_min, size_max);
        blocks[i] = (struct block){bench_alloc(size_bytes), size_bytes, (unsigned char)i};
        bench_touch(blocks[i].start, size_bytes, blocks[i].mark);
    }
    for (uint32_t i = 0; i < PROBE_BLOCKS; i++)
        intact += block_is_intact(&blocks[i]);
    for (uint32_t i = 0; i < PROBE_BLOCKS; i++)
        free(blocks[i].start);
    return intact == PROBE_BLOCKS;
}

static inline void block_verify_probe(struct bench_result *result, uint64_t size_min,
                                      uint64_t size_max)
{
    if (!bench_is_floor())
        bench_verify(result, "blocks_apart", block_probe(size_min, size_max));
}

#endif
