// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer diag: a snapshot is taken by walking every chunk's granules. The heaps' locks keep the
// slabs still: all of them are held while the walk reads bitmaps, so a running thread waits at its
// next refill. Residency is the kernel's word (mincore), page by page.
#include "diag/stats.h"

#include <string.h>

#include "heap/heap.h"

#define PAGES_AT_ONCE 256

struct snapshot {
    struct ebb_stats *stats;
    size_t rounding; // resident bytes that rounding added to blocks in use or cached
    struct {
        uint64_t bytes;
        uint64_t count;
    } asked[EBBI_CLASS_COUNT]; // what the requests that met an empty magazine asked for
};

// The part of `bytes` of blocks of a class that nobody asked for, by the sample.
static size_t rounding_in(const struct snapshot *snapshot, unsigned class_number, size_t bytes)
{
    double size = ebbi_classes[class_number].size;
    double count = (double)snapshot->asked[class_number].count;
    double asked = (double)snapshot->asked[class_number].bytes;
    return count > 0 ? (size_t)((double)bytes * (1.0 - asked / (count * size))) : 0;
}

// Bytes of [start, start + bytes) in resident pages.
size_t ebbi_resident_in(uintptr_t start, size_t bytes)
{
    unsigned char vector[PAGES_AT_ONCE];
    size_t page = ebbi_os_page_size();
    size_t total = 0;
    uintptr_t end = ebbi_align_up(start + bytes, page);
    for (uintptr_t at = ebbi_align_down(start, page); at < end;) {
        size_t part = ebbi_min(end - at, PAGES_AT_ONCE * page);
        if (ebbi_os_resident((void *)at, part, vector)) {
            for (size_t i = 0; i < part / page; i++) {
                total += (vector[i] & 1) != 0 ? page : 0;
            }
        }
        at += part;
    }
    return total;
}

size_t ebbi_slab_blocks_in_use(const struct ebbi_slab *slab)
{
    size_t free_blocks = slab->free_count;
    for (unsigned w = 0; w < slab->words; w++) {
        // relaxed: a count, out of date at once
        free_blocks += ebbi_count_bits(ebbi_load_relaxed(&ebbi_slab_remote(slab)[w]));
    }
    size_t blocks = ebbi_slab_class(slab)->blocks;
    return blocks - ebbi_min(free_blocks, blocks);
}

// Bytes of the page at `at` that lie under blocks in use.
static size_t live_in_page(const struct ebbi_slab *slab, uintptr_t at, size_t page)
{
    const struct ebbi_class *c = ebbi_slab_class(slab);
    uintptr_t first = slab->first_block;
    size_t live = 0;
    size_t block = at > first ? (at - first) / c->size : 0;
    for (; block < c->blocks && first + block * c->size < at + page; block++) {
        // relaxed: a count, out of date at once
        uint64_t remote = ebbi_load_relaxed(&ebbi_slab_remote(slab)[block / 64]);
        uint64_t free_bits = slab->local[block / 64] | remote;
        if ((free_bits >> (block % 64) & 1) == 0) {
            uintptr_t from = ebbi_max(first + block * c->size, at);
            uintptr_t to = ebbi_min(first + (block + 1) * c->size, at + page);
            live += to - from;
        }
    }
    return live;
}

static void add_slab(struct snapshot *snapshot, const struct ebbi_slab *slab)
{
    struct ebb_stats *s = snapshot->stats;
    const struct ebbi_class *c = ebbi_slab_class(slab);
    unsigned char vector[PAGES_AT_ONCE];
    size_t page = ebbi_os_page_size();
    uintptr_t start = (uintptr_t)ebbi_span_start((const struct ebbi_span *)slab);
    size_t bytes = (size_t)c->granules << EBBI_GRANULE_SHIFT;
    size_t blocks = ebbi_slab_blocks_in_use(slab);
    s->slabs++;
    s->slab_bytes += bytes;
    s->live_blocks += blocks;
    s->live_bytes += blocks * c->size;
    if (!ebbi_os_resident((void *)start, bytes, vector)) {
        return;
    }
    for (size_t i = 0; i < bytes / page; i++) {
        if ((vector[i] & 1) != 0) {
            size_t live = live_in_page(slab, start + i * page, page);
            s->resident_live += live;
            s->resident_pinned += page - live;
            snapshot->rounding += rounding_in(snapshot, slab->class_number, live);
        }
    }
}

static void add_sheet(struct snapshot *snapshot, const struct ebbi_sheet *sheet)
{
    struct ebb_stats *s = snapshot->stats;
    struct ebbi_sheet_use use = {0, 0};
    size_t resident = ebbi_resident_in(ebbi_sheet_start(sheet), ebbi_sheet_bytes(sheet));
    ebbi_sheet_measure(sheet, &use);
    s->slabs++;
    s->slab_bytes += ebbi_sheet_bytes(sheet);
    s->live_blocks += use.blocks;
    s->live_bytes += use.bytes;
    s->resident_live += ebbi_min(use.bytes, resident);
    s->resident_pinned += resident - ebbi_min(use.bytes, resident);
}

static void add_granules(struct ebbi_chunk *chunk, void *context)
{
    struct snapshot *snapshot = context;
    struct ebb_stats *s = snapshot->stats;
    uintptr_t base = (uintptr_t)chunk;
    s->resident_metadata += ebbi_resident_in(base, (size_t)chunk->first << EBBI_GRANULE_SHIFT);
    for (size_t g = chunk->first; g < chunk->committed;) {
        const struct ebbi_span *span = (const struct ebbi_span *)(base + g * EBBI_HEADER);
        size_t end = ebbi_min(g + ebbi_max(span->granules, 1), chunk->committed);
        uintptr_t start = base + (g << EBBI_GRANULE_SHIFT);
        size_t bytes = (end - g) << EBBI_GRANULE_SHIFT;
        switch (span->state) {
        case EBBI_SPAN_SLAB:
            add_slab(snapshot, (const struct ebbi_slab *)span);
            break;
        case EBBI_SPAN_LARGE:
            s->large_bytes += bytes;
            s->live_blocks++;
            s->live_bytes += span->bytes;
            s->resident_live += ebbi_resident_in(start, bytes);
            break;
        case EBBI_SPAN_SHEET:
            add_sheet(snapshot, (const struct ebbi_sheet *)span);
            break;
        case EBBI_SPAN_HEAP:
            s->resident_metadata += ebbi_resident_in(start, bytes);
            break;
        default:
            s->resident_free += ebbi_resident_in(start, bytes);
        }
        g = end;
    }
}

static void add_heap(struct ebbi_heap *heap, void *context)
{
    struct snapshot *snapshot = context;
    struct ebb_stats *s = snapshot->stats;
    s->heaps++;
    s->purged_bytes += heap->purged_bytes;
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        const struct ebbi_magazine *m = &heap->magazines[c];
        snapshot->asked[c].bytes += m->asked_bytes;
        snapshot->asked[c].count += m->asked_count;
        if (m->slots != 0) {
            // relaxed: the owner goes on meanwhile
            void **top = ebbi_load_relaxed(&heap->fast.top[ebbi_class_bin(c, heap->lane)]);
            s->cached_bytes += (size_t)(top - m->base - 1) * ebbi_classes[c].size;
        }
    }
}

void ebb_stats_get(struct ebb_stats *stats)
{
    struct ebbi_arena_totals totals;
    struct snapshot snapshot;
    memset(stats, 0, sizeof *stats);
    memset(&snapshot, 0, sizeof snapshot);
    snapshot.stats = stats;
    ebbi_heaps_freeze(add_heap, &snapshot);
    ebbi_regions_lock();
    ebbi_arena_each_chunk(add_granules, &snapshot);
    ebbi_regions_unlock();
    ebbi_heaps_thaw();
    ebbi_arena_totals(&totals);
    stats->resident = ebbi_os_resident_bytes();
    stats->huge_bytes = totals.huge_bytes;
    stats->live_blocks += totals.huge_count;
    stats->live_bytes += totals.huge_bytes;
    stats->resident_live += ebbi_huge_resident(ebbi_resident_in);
    stats->committed_bytes = totals.committed_bytes;
    stats->reserved_bytes = totals.reserved_bytes;
    stats->purged_bytes += totals.purged_bytes;
    // Blocks in magazines look like live ones to their slabs.
    stats->cached_bytes = ebbi_min(stats->cached_bytes, stats->live_bytes);
    stats->live_bytes -= stats->cached_bytes;
    stats->resident_cached = ebbi_min(stats->cached_bytes, stats->resident_live);
    stats->resident_live -= stats->resident_cached;
    stats->resident_rounding = ebbi_min(snapshot.rounding, stats->resident_live);
    stats->resident_live -= stats->resident_rounding;
    size_t ours = stats->resident_live + stats->resident_rounding + stats->resident_cached +
                  stats->resident_pinned + stats->resident_free + stats->resident_metadata;
    stats->resident_other = stats->resident - ebbi_min(ours, stats->resident);
}
