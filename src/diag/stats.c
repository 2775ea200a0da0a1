// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer diag: a snapshot is taken by walking every chunk's granules. The heaps' locks keep the
// slabs still: all of them are held while the walk reads bitmaps, so a running thread waits at its
// next refill. Residency is the kernel's word, page by page.
#include "diag/stats.h"
#include "diag/load.h"

#include <string.h>

#include "diag/parts.h"
#include "heap/registry.h"
#include "heap/slabs.h"
#include "process/process.h"

struct snapshot {
    struct ebb_stats *stats;
    struct ebbi_os_pages pages;
    struct ebbi_cached cached;
    size_t rounding; // resident bytes that rounding added to blocks in use
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

static void add_parts(struct ebb_stats *s, const struct ebbi_parts *parts, size_t bytes)
{
    s->slabs++;
    s->slab_bytes += bytes;
    s->live_blocks += parts->live_blocks;
    s->live_bytes += parts->live_bytes;
    s->resident_live += parts->live;
    s->resident_cached += parts->cached;
    s->resident_pinned += parts->pinned;
    s->resident_free += parts->free;
}

static void add_slab(struct snapshot *snapshot, const struct ebbi_slab *slab)
{
    struct ebbi_parts parts;
    ebbi_slab_parts(&snapshot->pages, slab, &snapshot->cached, &parts);
    add_parts(snapshot->stats, &parts,
              (size_t)ebbi_slab_class(slab)->granules << EBBI_GRANULE_SHIFT);
    snapshot->stats->cached_bytes += parts.cached_blocks * ebbi_class_bytes(slab->class_number);
    snapshot->rounding += rounding_in(snapshot, slab->class_number, parts.live);
}

static void add_sheet(struct snapshot *snapshot, const struct ebbi_sheet *sheet)
{
    struct ebbi_parts parts;
    ebbi_sheet_parts(&snapshot->pages, sheet, &parts);
    add_parts(snapshot->stats, &parts, ebbi_sheet_bytes(sheet));
}

// What lies around the object in its span has come with it, by huge pages or a guarded block's. Its thread may not have said
// yet what it is.
static void add_large(struct snapshot *snapshot, const struct ebbi_large *large, size_t bytes)
{
    struct ebb_stats *s = snapshot->stats;
    uintptr_t start = (uintptr_t)ebbi_span_start(&large->head);
    size_t resident = ebbi_resident_in(&snapshot->pages, start, bytes);
    size_t shift = ebbi_min(large->shift, bytes);
    size_t asked = ebbi_min(large->bytes, bytes - shift);
    size_t of_object = ebbi_resident_in(&snapshot->pages, start + shift, asked);
    s->live_blocks++;
    s->live_bytes += ebbi_large_room(large);
    s->resident_live += resident;
    snapshot->rounding += resident - ebbi_min(ebbi_min(of_object, asked), resident);
}

static void add_granules(struct ebbi_chunk *chunk, void *context)
{
    struct snapshot *snapshot = context;
    struct ebb_stats *s = snapshot->stats;
    uintptr_t base = (uintptr_t)chunk;
    s->resident_metadata +=
        ebbi_resident_in(&snapshot->pages, base, ebbi_chunk_metadata_bytes(chunk));
    for (size_t g = chunk->first; g < chunk->committed;) {
        struct ebbi_span *span = ebbi_span_at(base, g);
        size_t end = ebbi_min(g + ebbi_max(span->granules, 1), chunk->committed);
        uintptr_t start = base + (g << EBBI_GRANULE_SHIFT);
        size_t bytes = (end - g) << EBBI_GRANULE_SHIFT;
        switch (span->state) {
        case EBBI_SPAN_SLAB:
            add_slab(snapshot, ebbi_slab_in(span));
            break;
        case EBBI_SPAN_LARGE:
            s->large_bytes += bytes;
            add_large(snapshot, ebbi_large_in(span), bytes);
            break;
        case EBBI_SPAN_SHEET:
            add_sheet(snapshot, ebbi_sheet_in(span));
            break;
        case EBBI_SPAN_OWN:
            s->resident_metadata += ebbi_resident_in(&snapshot->pages, start, bytes);
            break;
        default:
            s->resident_free += ebbi_resident_in(&snapshot->pages, start, bytes);
        }
        g = end;
    }
}

static void add_heap(struct ebbi_heap *heap, void *context)
{
    struct snapshot *snapshot = context;
    snapshot->stats->heaps++;
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        snapshot->asked[c].bytes += heap->magazines[c].asked_bytes;
        snapshot->asked[c].count += heap->magazines[c].asked_count;
    }
}

static void add_huge(struct snapshot *snapshot)
{
    struct ebb_stats *stats = snapshot->stats;
    struct ebbi_arena_totals totals;
    ebbi_arena_totals(&totals);
    stats->huge_bytes = totals.huge_bytes;
    stats->live_blocks += totals.huge_count;
    stats->live_bytes += totals.huge_bytes;
    stats->resident_live += ebbi_huge_resident(ebbi_resident_in, &snapshot->pages);
    stats->asked_huge_bytes = totals.dense_bytes;
    stats->resident_free += ebbi_kept_resident(ebbi_resident_in, &snapshot->pages);
    stats->committed_bytes = totals.committed_bytes;
    stats->reserved_bytes = totals.reserved_bytes;
    stats->purged_bytes = ebbi_arena_purged_bytes();
}

static size_t take_off(size_t *item, size_t most)
{
    size_t part = ebbi_min(*item, most);
    *item -= part;
    return part;
}

// Without memory for the addresses: the cached blocks look live to their slabs.
static void estimate_heap(struct ebbi_heap *heap, void *context)
{
    struct ebb_stats *s = context;
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        size_t blocks = ebbi_magazine_count(heap, c);
        size_t bytes = take_off(&s->live_bytes, blocks * ebbi_class_bytes(c));
        (void)take_off(&s->live_blocks, blocks);
        s->cached_bytes += bytes;
        s->resident_cached += take_off(&s->resident_live, bytes);
    }
}

// The kernel's count of pages lags behind by some, and has no page that was only read, though mincore reports those.
static void balance(struct ebb_stats *s)
{
    size_t *const items[] = {&s->resident_live,     &s->resident_pinned, &s->resident_free,
                             &s->resident_rounding, &s->resident_cached, &s->resident_metadata};
    size_t ours = 0;
    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) {
        ours += *items[i];
    }
    if (s->resident == 0) { // unknown
        s->resident = ours;
    }
    size_t excess = ours - ebbi_min(ours, s->resident);
    s->resident_other = s->resident - ebbi_min(ours, s->resident);
    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) {
        excess -= take_off(items[i], excess);
    }
}

static void take_frozen(struct snapshot *snapshot)
{
    ebbi_os_pages_open(&snapshot->pages);
    ebbi_heaps_visit(add_heap, snapshot);
    bool known = ebbi_cached_collect(&snapshot->cached);
    ebbi_regions_lock();
    ebbi_arena_each_chunk(add_granules, snapshot);
    ebbi_regions_unlock();
    ebbi_cached_drop(&snapshot->cached);
    add_huge(snapshot);
    if (!known) {
        ebbi_heaps_visit(estimate_heap, snapshot->stats);
    }
    ebbi_os_pages_close(&snapshot->pages);
    snapshot->stats->resident = ebbi_os_resident_bytes(); // which may want the descriptor
}

void ebb_snapshot_get(struct ebb_snapshot *snapshot) { ebbi_snapshot_take(snapshot); }

size_t ebb_threads_get(struct ebb_thread_stats *lines, size_t count)
{
    return ebbi_threads_account(lines, count);
}

void ebb_stats_get(struct ebb_stats *stats)
{
    struct snapshot snapshot;
    memset(stats, 0, sizeof *stats);
    memset(&snapshot, 0, sizeof snapshot);
    snapshot.stats = stats;
    ebbi_owners_freeze();
    take_frozen(&snapshot);
    ebbi_owners_thaw();
    stats->resident_rounding = take_off(&stats->resident_live, snapshot.rounding);
    balance(stats);
}
