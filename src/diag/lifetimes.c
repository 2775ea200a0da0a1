// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer diag: who holds memory, label by label. One walk over every chunk's granules finds the slabs of
// domains' heaps, the sheets of regions and their large objects; all heaps and regions stand still
// meanwhile. Residency is the kernel's word.
#include <ebbtide/region.h>

#include <string.h>

#include "diag/load.h"
#include "diag/parts.h"
#include "heap/registry.h"
#include "lifetime/domain.h"
#include "region/label.h"

// Of the labels from number `first` on, as many as there are lines.
struct label_walk {
    size_t first, count;
    struct ebb_lifetime_stats *lines;
    struct ebbi_cached cached;
    struct ebbi_os_pages pages;
};

// NULL: of no label, or not one of these.
static struct ebb_lifetime_stats *line_of(const struct label_walk *walk,
                                          const struct ebbi_label *label)
{
    size_t number = label != NULL ? ebbi_label_number(label) - walk->first : walk->count;
    return number < walk->count ? &walk->lines[number] : NULL;
}

static void count_parts(struct ebb_lifetime_stats *line, const struct ebbi_parts *parts)
{
    line->live_bytes += parts->live_bytes;
    line->live_blocks += parts->live_blocks;
    line->resident_bytes += ebbi_parts_resident(parts);
    line->pinned_bytes += ebbi_parts_resident(parts) - parts->live;
}

// Slabs keep the low half of the time.
static void add_age(struct ebb_lifetime_stats *line, uint64_t since_ms)
{
    uint32_t age_ms = (uint32_t)ebbi_os_now_ms() - (uint32_t)since_ms;
    line->oldest_ms = ebbi_max(line->oldest_ms, age_ms);
}

static void count_slab(struct label_walk *walk, const struct ebbi_slab *slab)
{
    struct ebb_lifetime_stats *line = line_of(walk, slab->owner->label);
    if (line != NULL) {
        struct ebbi_parts parts;
        ebbi_slab_parts(&walk->pages, slab, &walk->cached, &parts);
        count_parts(line, &parts);
        add_age(line, slab->since_ms);
    }
}

static void count_sheet(struct label_walk *walk, const struct ebbi_sheet *sheet)
{
    struct ebb_lifetime_stats *line = line_of(walk, sheet->label);
    if (line != NULL) {
        struct ebbi_parts parts;
        ebbi_sheet_parts(&walk->pages, sheet, &parts);
        count_parts(line, &parts);
        if (parts.live_blocks != 0) {
            add_age(line, sheet->since_ms);
        }
    }
}

static void count_object(uintptr_t start, size_t bytes, const struct ebbi_note *note, void *context)
{
    struct label_walk *walk = context;
    struct ebb_lifetime_stats *line = line_of(walk, note->label);
    if (line != NULL) {
        line->live_bytes += bytes;
        line->live_blocks++;
        line->resident_bytes += ebbi_resident_in(&walk->pages, start, bytes);
    }
}

static void count_span(struct label_walk *walk, struct ebbi_span *span)
{
    if (span->state == EBBI_SPAN_SLAB) {
        count_slab(walk, ebbi_slab_in(span));
    } else if (span->state == EBBI_SPAN_SHEET) {
        count_sheet(walk, ebbi_sheet_in(span));
    } else if (span->state == EBBI_SPAN_LARGE) {
        const struct ebbi_large *large = ebbi_large_in(span);
        count_object((uintptr_t)ebbi_span_start(span), ebbi_large_room(large), &large->note, walk);
    }
}

static void count_chunk(struct ebbi_chunk *chunk, void *context)
{
    for (size_t g = chunk->first; g < chunk->committed;) {
        struct ebbi_span *span = ebbi_span_at((uintptr_t)chunk, g);
        count_span(context, span);
        g += ebbi_max(span->granules, 1);
    }
}

// Without memory for the addresses: blocks in magazines look live to their slabs.
static void estimate_label(struct ebbi_heap *heap, void *context)
{
    struct ebb_lifetime_stats *line = line_of(context, heap->own.label);
    for (unsigned c = 1; c < EBBI_CLASS_COUNT && line != NULL; c++) {
        size_t blocks = ebbi_magazine_count(heap, c);
        size_t bytes = ebbi_min(blocks * ebbi_class_bytes(c), line->live_bytes);
        line->live_blocks -= ebbi_min(blocks, line->live_blocks);
        line->live_bytes -= bytes;
        line->pinned_bytes += ebbi_min(bytes, line->resident_bytes - line->pinned_bytes);
    }
}

// Seats tell their label now and then. One that does so meanwhile is counted short, never twice: the
// label was read before.
static void add_seat(struct ebbi_heap *heap, void *context)
{
    struct ebb_lifetime_stats *line = line_of(context, heap->own.label);
    if (line != NULL) {
        const struct ebbi_seat *seat = &heap->seat;
        uint64_t told = ebbi_load_relaxed(&seat->scopes_told);   // relaxed: a count
        line->opened += ebbi_load_relaxed(&seat->scopes) - told; // relaxed: a count
        line->closed += ebbi_load_relaxed(&seat->closed);        // relaxed: a count
        line->drained += ebbi_load_relaxed(&seat->drained);      // relaxed: a count
    }
}

static void copy_counts(struct ebb_lifetime_stats *line, const struct ebbi_label *label)
{
    memcpy(line->label, label->name, sizeof line->label);
    line->is_domain = label->is_domain != 0;
    line->open = ebbi_load_relaxed(&label->open);             // relaxed: counts, as are all these
    line->opened = ebbi_load_relaxed(&label->opened);         // relaxed: a count
    line->closed = ebbi_load_relaxed(&label->closed);         // relaxed: a count
    line->drained = ebbi_load_relaxed(&label->drained);       // relaxed: a count
    line->released = ebbi_load_relaxed(&label->released);     // relaxed: a count
    line->held_bytes = ebbi_load_relaxed(&label->held_bytes); // relaxed: a count
    line->peak_bytes = ebbi_load_relaxed(&label->peak_bytes); // relaxed: a count
    line->slabs = ebbi_load_relaxed(&label->slabs);           // relaxed: a count
    line->demoted = ebbi_load_relaxed(&label->demoted);       // relaxed: a count
    line->late = ebbi_load_relaxed(&label->late);             // relaxed: a count
    line->refused = ebbi_load_relaxed(&label->refused);       // relaxed: a count
}

static void copy_all(const struct label_walk *walk, const struct ebbi_label *first)
{
    const struct ebbi_label *label = first;
    for (size_t i = 0; i < walk->count; i++, label = ebbi_label_next(label)) {
        copy_counts(&walk->lines[i], label);
    }
}

static void measure_frozen(struct label_walk *walk, const struct ebbi_label *first)
{
    bool known = ebbi_cached_collect(&walk->cached);
    ebbi_regions_lock();
    copy_all(walk, first);
    ebbi_arena_each_chunk(count_chunk, walk);
    ebbi_huge_each(count_object, walk);
    ebbi_regions_unlock();
    ebbi_heaps_visit(add_seat, walk);
    if (!known) {
        ebbi_heaps_visit(estimate_label, walk);
    }
    ebbi_cached_drop(&walk->cached);
}

// The label `first`, and those behind it.
static void measure(const struct ebbi_label *first, struct ebb_lifetime_stats *lines, size_t count)
{
    struct label_walk walk = {.first = ebbi_label_number(first), .count = count, .lines = lines};
    memset(lines, 0, count * sizeof *lines);
    ebbi_owners_freeze();
    ebbi_os_pages_open(&walk.pages);
    measure_frozen(&walk, first);
    ebbi_os_pages_close(&walk.pages);
    ebbi_owners_thaw();
}

void ebb_domain_stats_get(struct ebb_domain *domain, struct ebb_lifetime_stats *stats)
{
    measure(ebbi_domain_label(domain), stats, 1);
}

size_t ebb_lifetimes_get(struct ebb_lifetime_stats *lines, size_t count)
{
    size_t known = ebbi_label_count();
    if (ebbi_min(known, count) > 0) {
        measure(ebbi_label_next(NULL), lines, ebbi_min(known, count));
    }
    return known;
}

void ebb_region_stats_get(struct ebb_region *region, struct ebb_region_stats *stats)
{
    size_t blocks = 0;
    struct ebbi_os_pages pages;
    memset(stats, 0, sizeof *stats);
    ebbi_region_check(region, "statistics of");
    ebbi_lock_take(&region->lock);
    ebbi_os_pages_open(&pages);
    for (const struct ebbi_sheet *s = region->sheets; s != NULL; s = s->next) {
        struct ebbi_parts parts;
        ebbi_sheet_parts(&pages, s, &parts);
        blocks += parts.live_blocks;
        stats->resident_bytes += ebbi_parts_resident(&parts);
    }
    for (void *p = region->larges; p != NULL; p = ebbi_large_note(p)->after) {
        stats->resident_bytes += ebbi_resident_in(&pages, (uintptr_t)p, ebbi_large_note(p)->bytes);
    }
    ebbi_os_pages_close(&pages);
    stats->id = region->id;
    stats->live_blocks = blocks + region->large_count;
    stats->held_bytes = region->held_bytes;
    stats->peak_bytes = region->peak_bytes;
    stats->slabs = region->sheet_count;
    stats->large_blocks = region->large_count;
    stats->late = region->late;
    stats->refused = region->refused;
    stats->pressed = region->pressed;
    stats->open_ms = ebbi_os_now_ms() - region->opened_ms;
    ebbi_lock_drop(&region->lock);
}
