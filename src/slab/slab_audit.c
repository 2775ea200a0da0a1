// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer slab: whether a slab's bitmaps, counts, headers and tags agree. For debug builds and tests.
#include "slab/slab.h"

#if EBBI_HAVE_ASSERT || defined(EBB_NO_OVERRIDE) // not in the library that is installed

#define SLAB_AUDIT_EVERY 32u // refills, collections and purges, of all heaps

static uint32_t slab_operations; // atomic

static EBBI_COLD EBBI_NORETURN void slab_broken(const struct ebbi_slab *slab, int property,
                                                const char *what, size_t where)
{
    ebbi_fatal("slab P%d: %s: %zu (slab at %p of blocks of %u bytes)", property, what, where,
               (const void *)slab, ebbi_slab_class(slab)->size);
}

// Of word w, the bits that stand for no block.
static uint64_t no_block(const struct ebbi_slab *slab, unsigned w)
{
    unsigned blocks = ebbi_slab_class(slab)->blocks;
    return blocks >= (w + 1) * 64 ? 0 : ~(uint64_t)0 << (blocks % 64);
}

static void slab_audit_word(const struct ebbi_slab *slab, unsigned w, bool whole)
{
    // relaxed: what others set meanwhile is not in need of a look
    uint64_t remote = ebbi_load_relaxed(&ebbi_slab_remote(slab)[w]);
    uint64_t summary = ebbi_load_relaxed(&slab->summary); // relaxed: compared where nobody sets it
    if (whole && (slab->local[w] & remote) != 0) { // else ebbi_slab_collect says whose fault it is
        slab_broken(slab, 1, "a block is free twice, word", w);
    }
    if (((slab->local[w] | remote) & no_block(slab, w)) != 0) {
        slab_broken(slab, 1, "what is no block is free, word", w);
    }
    if ((whole || !ebbi_os_is_threaded()) && ((summary >> w & 1) != 0) != (remote != 0)) {
        slab_broken(slab, 3, "the summary is wrong about word", w);
    }
    if (w < slab->first_word && slab->local[w] != 0) {
        slab_broken(slab, 5, "a free block lies below first_word, word", w);
    }
}

static void slab_audit_counts(const struct ebbi_slab *slab)
{
    size_t bits = slab->words * (size_t)64;
    if (ebbi_bits_count(slab->local, 0, bits) != slab->free_count) {
        slab_broken(slab, 2, "free_count is wrong", slab->free_count);
    }
    if (slab->dirty_blocks > slab->free_count) {
        slab_broken(slab, 6, "more dirty blocks than free ones", slab->dirty_blocks);
    }
    size_t others = (size_t)(slab->free_count - slab->dirty_blocks);
    if (slab->early_blocks > others) {
        slab_broken(slab, 6, "more early blocks than clean ones", slab->early_blocks);
    }
    if (slab->pinned_bytes > others * ebbi_slab_class(slab)->size) {
        slab_broken(slab, 6, "more pinned than free", slab->pinned_bytes);
    }
}

static void slab_audit_headers(const struct ebbi_slab *slab)
{
    const struct ebbi_class *c = ebbi_slab_class(slab);
    const char *start = ebbi_span_start(&slab->head);
    for (size_t g = 0; g < c->granules; g++) {
        const char *granule = start + (g << EBBI_GRANULE_SHIFT);
        if (ebbi_span_of(granule) != &slab->head) {
            slab_broken(slab, 7, "a header does not lead to the slab, granule", g);
        }
        const struct ebbi_tag *tag = ebbi_tag_at(granule);
        if (granule - (const char *)slab->first_block != tag->ahead * (ptrdiff_t)EBBI_AHEAD_UNIT) {
            slab_broken(slab, 7, "a tag leads to another first block, granule", g);
        }
        if (ebbi_tag_of(granule) != ebbi_tag_of(start) ||
            ebbi_tag_class(ebbi_tag_of(granule)) != slab->class_number) {
            slab_broken(slab, 7, "a tag is not that of the slab's class, granule", g);
        }
    }
}

bool ebbi_slab_covers_free(const struct ebbi_slab *slab, uintptr_t from, uintptr_t to)
{
    const struct ebbi_class *c = ebbi_slab_class(slab);
    uintptr_t end = slab->first_block + (size_t)c->blocks * c->size;
    if (to <= slab->first_block || from >= end) {
        return true;
    }
    size_t low = (ebbi_max(from, slab->first_block) - slab->first_block) / c->size;
    size_t high = (ebbi_min(to, end) - 1 - slab->first_block) / c->size;
    return ebbi_bits_count(slab->local, low, high + 1 - low) == high + 1 - low;
}

static void slab_audit_pages(const struct ebbi_slab *slab)
{
    if (slab->class_number == EBBI_CLASS_EMPTY) {
        return; // nobody may look
    }
    size_t page = ebbi_os_page_size();
    size_t pages = ((size_t)ebbi_slab_class(slab)->granules << EBBI_GRANULE_SHIFT) / page;
    uintptr_t start = (uintptr_t)ebbi_span_start(&slab->head);
    const uint64_t *dirty = ebbi_slab_dirty_pages((struct ebbi_slab *)(uintptr_t)slab);
    for (size_t i = 0; i < pages; i++) {
        const uint64_t *contents = (const uint64_t *)(start + i * page);
        bool is_clean = !ebbi_bits_test(dirty, i) &&
                        ebbi_slab_covers_free(slab, start + i * page, start + (i + 1) * page);
        for (size_t k = 0; is_clean && k < page / sizeof *contents; k += 8) {
            if (contents[k] != 0) {
                slab_broken(slab, 4, "a clean page holds something, page", i);
            }
        }
    }
}

void ebbi_slab_audit(const struct ebbi_slab *slab, bool whole)
{
    for (unsigned w = 0; w < slab->words; w++) {
        slab_audit_word(slab, w, whole);
    }
    slab_audit_counts(slab);
    slab_audit_headers(slab);
    if (whole) {
        slab_audit_pages(slab);
    }
}

void ebbi_slab_audit_sometimes(const struct ebbi_slab *slab)
{
    // relaxed: a count
    if (ebbi_fetch_add_relaxed(&slab_operations, 1u) % SLAB_AUDIT_EVERY == 0) {
        ebbi_slab_audit(slab, false);
    }
}

#endif
