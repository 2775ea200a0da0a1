// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: whether spans, maps, lists and counts agree. For debug builds and tests.
#include "arena/internal.h"

#if EBBI_HAVE_ASSERT || defined(EBB_NO_OVERRIDE) // not in the library that is installed

#define LEAST_OPERATIONS 64 // between two audits of a small arena
#define LOOK_STEP 512       // bytes, between two looks at what should be zero

struct arena_audit {
    bool contents;
    size_t spans, free_spans, dirty_spans, rests;
    size_t used, dirty, committed, grown; // granules
};

static size_t operations_left = LEAST_OPERATIONS; // under the lock

static EBBI_COLD EBBI_NORETURN void arena_broken(int property, const char *what,
                                                 const struct ebbi_span *span)
{
    ebbi_fatal("arena P%d: %s (span at %p, granule %zu)", property, what, (const void *)span,
               span != NULL ? ebbi_span_index(span) : 0);
}

static void arena_audit_zero(const struct ebbi_chunk *chunk, const struct ebbi_span *span)
{
    size_t from = ebbi_span_index(span);
    size_t end = ebbi_min(from + span->granules, chunk->committed);
    for (size_t g = from; g < end; g++) {
        const char *start = (const char *)((uintptr_t)chunk + (g << EBBI_GRANULE_SHIFT));
        bool dirty = ebbi_bits_test(chunk->dirty_map, g);
        bool fresh = ebbi_bits_test(chunk->fresh_map, g);
        if (fresh && !dirty) {
            arena_broken(8, "a fresh granule is not dirty", span);
        }
        for (size_t i = 0; i < EBBI_GRANULE && (!dirty || fresh); i += LOOK_STEP) {
            if (start[i] != 0) {
                arena_broken(fresh ? 8 : 3, "a clean granule does not read as zero", span);
            }
        }
    }
}

static void arena_audit_free_links(const struct ebbi_free_span *span)
{
    const struct ebbi_free_span *in_bin =
        span->previous != NULL ? span->previous->next : ebbi_bins[ebbi_bin_of(span->head.granules)];
    if (in_bin != span) {
        arena_broken(5, "a free span is not in the bin of its length", &span->head);
    }
    if (span->dirty > 0 && span != (span->dirty_previous != NULL ? span->dirty_previous->dirty_next
                                                                 : ebbi_dirty_first)) {
        arena_broken(4, "a free span with dirty granules is not on the dirty list", &span->head);
    }
}

static void arena_audit_dense(const struct ebbi_chunk *chunk, const struct ebbi_free_span *span)
{
    size_t from = ebbi_span_index(&span->head);
    for (size_t g = from; g < from + span->head.granules; g++) {
        if (ebbi_bits_test(chunk->dense_map, g / EBBI_UNIT_GRANULES) &&
            !ebbi_bits_test(chunk->dirty_map, g)) {
            arena_broken(7, "a unit of huge pages has a clean granule", &span->head);
        }
    }
}

static void arena_audit_free_span(struct arena_audit *audit, struct ebbi_chunk *chunk,
                                  struct ebbi_free_span *span)
{
    size_t start = ebbi_span_index(&span->head);
    size_t last = start + span->head.granules - 1;
    size_t ends = span->head.granules == 1 ? 1 : 2;
    // relaxed: as in arena_audit_used_span
    if (ebbi_load_relaxed(&span->head.state) != EBBI_SPAN_FREE) {
        arena_broken(2, "free_map has the bit of a span that is not free", &span->head);
    }
    if (!ebbi_bits_test(chunk->free_map, last) ||
        ebbi_bits_count(chunk->free_map, start, span->head.granules) != ends) {
        arena_broken(2, "free_map is wrong about the ends of a free span", &span->head);
    }
    if (last < chunk->committed &&
        ebbi_chunk_header(chunk, last)->granules != span->head.granules) {
        arena_broken(5, "the last header of a free span has another length", &span->head);
    }
    if (ebbi_bits_count(chunk->dirty_map, start, span->head.granules) != span->dirty) {
        arena_broken(4, "a free span counts its dirty granules wrong", &span->head);
    }
    arena_audit_free_links(span);
    if (audit->contents) {
        arena_audit_zero(chunk, &span->head);
    }
    arena_audit_dense(chunk, span);
    audit->rests += ebbi_rest_of(span) > 0;
    audit->free_spans++;
    audit->dirty_spans += span->dirty > 0;
    audit->dirty += span->dirty;
}

static void arena_audit_used_span(struct arena_audit *audit, const struct ebbi_chunk *chunk,
                                  const struct ebbi_span *span)
{
    // relaxed: the layer above may give it another state, but none of these two
    uint8_t state = ebbi_load_relaxed(&span->state);
    if (state == EBBI_SPAN_FREE) {
        arena_broken(2, "free_map lacks the bit of a free span", span);
    }
    if (ebbi_bits_count(chunk->free_map, ebbi_span_index(span), span->granules) != 0) {
        arena_broken(2, "free_map has a bit of a span in use", span);
    }
    audit->used += state != EBBI_SPAN_NONE ? span->granules : 0; // none: being purged
    audit->grown += state != EBBI_SPAN_NONE && span->grown ? span->granules : 0;
}

static void arena_audit_chunk(struct arena_audit *audit, struct ebbi_chunk *chunk)
{
    bool after_free = false;
    struct ebbi_span *span;
    for (size_t g = chunk->first; g < chunk->granules; g += span->granules) {
        span = ebbi_chunk_header(chunk, g);
        bool is_free = ebbi_bits_test(chunk->free_map, g);
        if (span->granules == 0 || g + span->granules > chunk->granules) {
            arena_broken(1, "a span does not end within its chunk", span);
        }
        if (is_free && after_free) {
            arena_broken(1, "two free spans touch", span);
        }
        if (is_free) {
            arena_audit_free_span(audit, chunk, ebbi_free_span_at(chunk, g));
        } else {
            arena_audit_used_span(audit, chunk, span);
        }
        after_free = is_free;
        audit->spans++;
    }
    if (ebbi_bits_count(chunk->dirty_map, chunk->committed, chunk->granules - chunk->committed) !=
        0) {
        arena_broken(3, "a granule that nobody could write to is dirty", NULL);
    }
    audit->committed += chunk->committed - chunk->first;
}

static void arena_audit_bins(const struct arena_audit *audit)
{
    size_t found = 0;
    for (unsigned b = 0; b < EBBI_BINS; b++) {
        if (ebbi_bits_test(ebbi_bins_used, b) != (ebbi_bins[b] != NULL)) {
            arena_broken(5, "ebbi_bins_used is wrong about a bin",
                         ebbi_bins[b] != NULL ? &ebbi_bins[b]->head : NULL);
        }
        for (const struct ebbi_free_span *s = ebbi_bins[b]; s != NULL; s = s->next) {
            if (++found > audit->free_spans) {
                arena_broken(5, "the bins hold more than the free spans", &s->head);
            }
        }
    }
}

static void arena_audit_dirty_list(const struct arena_audit *audit)
{
    size_t found = 0;
    uint64_t freed_ms = 0;
    for (const struct ebbi_free_span *s = ebbi_dirty_first; s != NULL; s = s->dirty_next) {
        if (++found > audit->dirty_spans) {
            arena_broken(4, "the dirty list holds more than the dirty spans", &s->head);
        }
        if (s->freed_ms < freed_ms) {
            arena_broken(4, "the dirty list is not in order of freeing", &s->head);
        }
        if ((s->dirty_next == NULL) != (s == ebbi_dirty_last)) {
            arena_broken(4, "the dirty list does not end with its last span", &s->head);
        }
        freed_ms = s->freed_ms;
    }
}

static void arena_audit_totals(const struct arena_audit *audit)
{
    if (audit->used != ebbi_used_granules) {
        arena_broken(6, "the count of granules in use", NULL);
    }
    if (ebbi_used_total() > ebbi_peak_bytes(&ebbi_arena_peak)) {
        arena_broken(6, "the peak", NULL);
    }
    if (audit->rests != (ebbi_rest_is_there() ? 1 : 0)) {
        arena_broken(10, "what is left of the last unit", NULL);
    }
    if (audit->grown != ebbi_grown_granules) {
        arena_broken(9, "the count of granules of what grows", NULL);
    }
    if (audit->dirty != ebbi_dirty_granules) {
        arena_broken(6, "the count of dirty granules", NULL);
    }
    if (audit->committed != ebbi_committed_granules) {
        arena_broken(6, "the count of committed granules", NULL);
    }
}

void ebbi_arena_audit(bool contents)
{
    struct arena_audit audit = {.contents = contents};
    ebbi_assert_held(&ebbi_arena_mutex);
    struct ebbi_chunk *chunk = ebbi_chunk_next(NULL);
    for (; chunk != NULL; chunk = ebbi_chunk_next(chunk)) {
        arena_audit_chunk(&audit, chunk);
    }
    arena_audit_bins(&audit);
    arena_audit_dirty_list(&audit);
    arena_audit_totals(&audit);
    operations_left = ebbi_max(audit.spans, LEAST_OPERATIONS);
}

void ebbi_arena_audit_sometimes(void)
{
    if (--operations_left == 0) {
        ebbi_arena_audit(false);
    }
}

#endif
