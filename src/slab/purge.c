// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer slab: wholly free pages of a part-full slab go back to the OS. Under the heap's lock.
#include "slab/slab.h"

// The first block at or after `from` whose bit equals `wanted`; blocks when there is none.
static unsigned next_block(const struct ebbi_slab *slab, unsigned from, bool wanted)
{
    unsigned blocks = ebbi_slab_class(slab)->blocks;
    while (from < blocks) {
        uint64_t word = slab->local[from / 64];
        word = (wanted ? word : ~word) >> (from % 64);
        if (word != 0) {
            return (unsigned)ebbi_min(from + ebbi_lowest_bit(word), blocks);
        }
        from = (from / 64 + 1) * 64;
    }
    return blocks;
}

// Gives back the dirty pages within [from, to), both multiples of stride, run by run.
static size_t purge_range(struct ebbi_slab *slab, uintptr_t from, uintptr_t to, size_t stride)
{
    size_t page = ebbi_os_page_size();
    uintptr_t start = (uintptr_t)ebbi_span_start((struct ebbi_span *)slab);
    uint64_t *dirty = ebbi_slab_dirty_pages(slab);
    size_t total = 0;
    for (uintptr_t at = from; at < to;) {
        uintptr_t end = at;
        bool any = false;
        while (end < to) {
            size_t p = (end - start) / page;
            bool is_dirty = (dirty[p / 64] >> (p % 64) & 1) != 0;
            if (!is_dirty && stride == page) {
                break;
            }
            any |= is_dirty;
            end += page;
        }
        if (any && ebbi_os_purge((void *)at, end - at)) {
            total += end - at;
            for (size_t p = (at - start) / page; p < (end - start) / page; p++) {
                dirty[p / 64] &= ~((uint64_t)1 << (p % 64));
            }
        }
        at = end + page;
    }
    return total;
}

size_t ebbi_slab_purge(struct ebbi_slab *slab, size_t stride)
{
    const struct ebbi_class *c = ebbi_slab_class(slab);
    size_t bytes = (size_t)c->granules << EBBI_GRANULE_SHIFT;
    uintptr_t start = (uintptr_t)ebbi_span_start((struct ebbi_span *)slab);
    size_t total = 0;
    for (unsigned block = next_block(slab, 0, true); block < c->blocks;) {
        unsigned end = next_block(slab, block, false);
        // At the slab's ends nothing follows: its first and last pages belong to its outer blocks.
        uintptr_t from = block == 0 ? start : slab->first_block + (size_t)block * c->size;
        uintptr_t to = end == c->blocks ? start + bytes : slab->first_block + (size_t)end * c->size;
        from = ebbi_align_up(from, stride);
        to = ebbi_align_down(to, stride);
        if (from < to) {
            total += purge_range(slab, from, to, stride);
        }
        block = next_block(slab, end, true);
    }
    return total;
}
