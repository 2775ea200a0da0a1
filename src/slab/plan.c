// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer slab: wholly free pages of a part-full slab go back to the OS. What is planned and noted under
// the heap's lock is carried out without it.
#include "base/probe.h"
#include "slab/slab.h"

#define LEAST_SHARE 8 // of a slab among huge pages, to be returned at all

// The first block at or after `from` whose bit equals `wanted`; blocks when there is none.
static unsigned next_block(const struct ebbi_slab *slab, unsigned from, bool wanted)
{
    unsigned blocks = ebbi_slab_class(slab)->blocks;
    EBBI_ASSERT(from <= blocks);
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

// The dirty pages within [from, to), both multiples of stride, as runs.
static void plan_range(struct ebbi_slab *slab, struct ebbi_slab_plan *plan, uintptr_t from,
                       uintptr_t to)
{
    size_t page = ebbi_os_page_size();
    const uint64_t *dirty = ebbi_slab_dirty_pages(slab);
    EBBI_ASSERT(from >= plan->start && from % page == 0 && to % page == 0);
    EBBI_ASSERT(ebbi_slab_covers_free(slab, from, to));
    for (size_t at = (from - plan->start) / page; at < (to - plan->start) / page; at++) {
        bool is_dirty = (dirty[at / 64] >> (at % 64) & 1) != 0;
        struct ebbi_slab_run *last = &plan->runs[plan->count == 0 ? 0 : plan->count - 1];
        bool goes_on = plan->count > 0 && last->to == at && (is_dirty || plan->whole);
        EBBI_ASSERT(plan->count == 0 || last->to <= at);
        if (goes_on) {
            last->to = (uint16_t)(at + 1);
            last->dirty |= is_dirty;
        } else if (is_dirty || plan->whole) {
            EBBI_ASSERT(plan->count < EBBI_SLAB_RUNS);
            plan->runs[plan->count++] =
                (struct ebbi_slab_run){(uint16_t)at, (uint16_t)(at + 1), is_dirty, false};
        }
    }
}

// A huge page is not split for a few small ones.
static bool is_worth_little(const struct ebbi_slab *slab, const struct ebbi_slab_plan *plan)
{
    size_t bytes = (size_t)ebbi_slab_class(slab)->granules << EBBI_GRANULE_SHIFT;
    size_t pages = 0;
    for (unsigned i = 0; i < plan->count; i++) {
        pages += (size_t)(plan->runs[i].to - plan->runs[i].from);
    }
    return pages * ebbi_os_page_size() < bytes / LEAST_SHARE &&
           ebbi_dense_is((void *)plan->start, bytes);
}

void ebbi_slab_plan(struct ebbi_slab *slab, size_t stride, struct ebbi_slab_plan *plan)
{
    const struct ebbi_class *c = ebbi_slab_class(slab);
    size_t bytes = (size_t)c->granules << EBBI_GRANULE_SHIFT;
    EBBI_ASSERT(ebbi_is_power_of_two(stride) && stride >= ebbi_os_page_size());
    EBBI_ASSERT(!slab->purging);
    plan->start = (uintptr_t)ebbi_span_start(&slab->head);
    plan->count = 0;
    plan->whole = stride > ebbi_os_page_size();
    for (unsigned block = next_block(slab, 0, true); block < c->blocks;) {
        unsigned end = next_block(slab, block, false);
        // At the slab's ends nothing follows: its first and last pages belong to its outer blocks.
        uintptr_t from = block == 0 ? plan->start : slab->first_block + (size_t)block * c->size;
        uintptr_t to =
            end == c->blocks ? plan->start + bytes : slab->first_block + (size_t)end * c->size;
        from = ebbi_align_up(from, stride);
        to = ebbi_align_down(to, stride);
        if (from < to) {
            plan_range(slab, plan, from, to);
        }
        block = next_block(slab, end, true);
    }
    if (is_worth_little(slab, plan)) {
        plan->count = 0;
    }
}

size_t ebbi_slab_carry_out(struct ebbi_slab_plan *plan)
{
    size_t page = ebbi_os_page_size();
    size_t total = 0;
    ebbi_lock_expect_none();
    for (unsigned i = 0; i < plan->count; i++) {
        struct ebbi_slab_run *run = &plan->runs[i];
        EBBI_ASSERT(run->from < run->to && !run->done);
        EBBI_ASSERT(i == 0 || run[-1].to <= run->from);
        size_t bytes = (size_t)(run->to - run->from) * page;
        void *start = (void *)(plan->start + run->from * page);
        ebbi_dense_split(start, bytes);
        run->done = run->dirty && ebbi_os_purge(start, bytes);
        if (run->done) {
            EBBI_PROBE2(purge, start, bytes);
            total += bytes;
        }
    }
    return total;
}

static size_t overlap(uintptr_t start, size_t bytes, uintptr_t page, size_t page_bytes)
{
    uintptr_t from = ebbi_max(start, page);
    uintptr_t to = ebbi_min(start + bytes, page + page_bytes);
    return from < to ? to - from : 0;
}

// Of a page, bytes of blocks that are in use.
static size_t used_in(const struct ebbi_slab *slab, uintptr_t page, size_t page_bytes)
{
    const struct ebbi_class *c = ebbi_slab_class(slab);
    uintptr_t first = slab->first_block;
    const uint64_t *remote = ebbi_slab_remote(slab);
    size_t used = 0;
    size_t block = page > first ? (page - first) / c->size : 0;
    for (; block < c->blocks && first + block * c->size < page + page_bytes; block++) {
        // relaxed: bits come and go; they are a hint
        uint64_t free = slab->local[block / 64] | ebbi_load_relaxed(&remote[block / 64]);
        if ((free >> (block % 64) & 1) == 0) {
            used += overlap(first + block * c->size, c->size, page, page_bytes);
        }
    }
    return used;
}

size_t ebbi_slab_kept_by(const struct ebbi_slab *slab, const void *block)
{
    size_t size = ebbi_slab_class(slab)->size;
    size_t page_bytes = ebbi_os_page_size();
    uintptr_t start = (uintptr_t)block;
    size_t keeps = 0;
    for (uintptr_t page = ebbi_align_down(start, page_bytes); page < start + size;
         page += page_bytes) {
        size_t own = overlap(start, size, page, page_bytes);
        size_t used = ebbi_max(used_in(slab, page, page_bytes), 1); // its own, at least
        keeps += (page_bytes - ebbi_min(used, page_bytes)) * own / used;
    }
    return keeps;
}

size_t ebbi_slab_pinned(struct ebbi_slab *slab)
{
    const struct ebbi_class *c = ebbi_slab_class(slab);
    size_t page = ebbi_os_page_size();
    size_t pages = ((size_t)c->granules << EBBI_GRANULE_SHIFT) / page;
    size_t held = ebbi_bits_count(ebbi_slab_dirty_pages(slab), 0, pages) * page;
    size_t known = (size_t)(c->blocks - slab->free_count + slab->dirty_blocks) * c->size;
    bool may = held > known && slab->class_number != EBBI_CLASS_EMPTY;
    size_t others = (size_t)(slab->free_count - slab->dirty_blocks) * c->size;
    return ebbi_min(may ? held - known : 0, others);
}

bool ebbi_slab_carried_out(struct ebbi_slab *slab, const struct ebbi_slab_plan *plan)
{
    uint64_t *dirty = ebbi_slab_dirty_pages(slab);
    bool all = true;
    EBBI_ASSERT(plan->start == (uintptr_t)ebbi_span_start(&slab->head));
    for (unsigned i = 0; i < plan->count; i++) {
        const struct ebbi_slab_run *run = &plan->runs[i];
        all &= run->done || !run->dirty;
        if (run->done) {
            EBBI_ASSERT(ebbi_slab_covers_free(slab, plan->start + run->from * ebbi_os_page_size(),
                                              plan->start + run->to * ebbi_os_page_size()));
            ebbi_bits_clear(dirty, run->from, (size_t)(run->to - run->from));
        }
    }
    EBBI_SLAB_AUDIT(slab);
    return all;
}
