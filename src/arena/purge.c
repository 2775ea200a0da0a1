// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: free spans and kept mappings go back to the OS, oldest first; start-up, totals and fork.
#include "arena/internal.h"
#include "base/list.h"
#include "base/probe.h"

#define MOST_REFUSALS 16u // in a pass; of who only makes room one

static size_t purged_bytes; // atomic
static bool was_refused;    // the last one; atomic
// Under the lock.
static size_t purge_calls;
static struct ebbi_free_span *purging; // in no list, while the kernel takes their pages

// The next run of dirty granules at or after `from`; its length is 0 when there is none.
static size_t next_dirty_run(const struct ebbi_chunk *chunk, size_t *from, size_t end)
{
    EBBI_ASSERT(*from <= end && end <= chunk->granules);
    size_t start = ebbi_bits_find(chunk->dirty_map, *from, end - *from);
    size_t stop = start;
    while (stop < end && ebbi_bits_test(chunk->dirty_map, stop)) {
        stop++;
    }
    *from = start;
    return stop - start;
}

// The bitmap rooms of a free span are nobody's: their whole pages. The caller has let the lock go.
static void purge_rooms(const struct ebbi_chunk *chunk, size_t index, size_t granules)
{
    size_t page = ebbi_os_page_size();
    uintptr_t rooms = (uintptr_t)chunk + chunk->granules * (size_t)EBBI_HEADER;
    uintptr_t from = ebbi_align_up(rooms + index * EBBI_BITMAP_ROOM, page);
    uintptr_t end = ebbi_align_down(rooms + (index + granules) * EBBI_BITMAP_ROOM, page);
    if (from < end) {
        (void)ebbi_os_purge((void *)from, end - from);
    }
}

// Where huge pages come by themselves a touch of one granule has brought its unit, whose others count as clean.
static void widen_to_units(size_t *at, size_t *run, size_t start, size_t end)
{
    if (ebbi_dense_everywhere()) {
        size_t stop = ebbi_min(ebbi_align_up(*at + *run, EBBI_UNIT_GRANULES), end);
        *at = ebbi_max(ebbi_align_down(*at, EBBI_UNIT_GRANULES), start);
        *run = stop - *at;
    }
}

// The span is in no list: nobody else can reach it, so the lock is not needed for madvise. Memory
// that the kernel will not take (locked pages) stays dirty. Ends with the unit in which `most` granules have been
// given back. Returns the number of those that were dirty.
static size_t purge_span(struct ebbi_free_span *span, size_t most, size_t *calls)
{
    struct ebbi_chunk *chunk = ebbi_span_chunk(&span->head);
    size_t first = ebbi_span_index(&span->head), end = first + span->head.granules;
    size_t total = 0;
    ebbi_assert_held(&ebbi_arena_mutex);
    EBBI_ASSERT(span->head.state == EBBI_SPAN_NONE);
    for (size_t at = first;;) {
        size_t run = next_dirty_run(chunk, &at, end);
        if (run == 0 || total >= most) {
            return total;
        }
        run = ebbi_min(run, ebbi_align_up(at + most - total, EBBI_UNIT_GRANULES) - at);
        widen_to_units(&at, &run, first, end);
        size_t dirty = ebbi_bits_count(chunk->dirty_map, at, run);
        void *start = ebbi_granule_start(chunk, at);
        ebbi_lock_drop(&ebbi_arena_mutex);
        ebbi_dense_split(start, run << EBBI_GRANULE_SHIFT);
        bool done = ebbi_os_purge(start, run << EBBI_GRANULE_SHIFT);
        if (done) {
            EBBI_PROBE2(purge, start, run << EBBI_GRANULE_SHIFT);
            purge_rooms(chunk, at, run);
        }
        ebbi_lock_take(&ebbi_arena_mutex);
        EBBI_ASSERT(span->head.state == EBBI_SPAN_NONE && span->dirty >= dirty);
        EBBI_ASSERT(ebbi_bits_count(chunk->dirty_map, at, run) == dirty);
        if (done) {
            ebbi_bits_clear(chunk->dirty_map, at, run);
            ebbi_bits_clear(chunk->fresh_map, at, run);
            span->dirty -= dirty;
            total += dirty;
        }
        *calls += 1;
        at += run;
    }
}

static void purging_add(struct ebbi_free_span *span)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    EBBI_LIST_PUSH(purging, span, next, previous);
}

static void purging_remove(struct ebbi_free_span *span)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    EBBI_LIST_REMOVE(purging, span, next, previous);
}

void ebbi_arena_forked(void)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    while (purging != NULL) {
        struct ebbi_free_span *span = purging;
        EBBI_ASSERT(span->head.state == EBBI_SPAN_NONE);
        purging = span->next;
        ebbi_span_restore(span, span->freed_ms);
    }
    EBBI_ARENA_AUDIT();
}

static size_t purge_dirty_first(uint64_t now_ms, size_t limit_bytes)
{
    struct ebbi_free_span *span = ebbi_dirty_first;
    EBBI_ASSERT(span->dirty > 0);
    ebbi_span_remove(span);
    span->head.state = EBBI_SPAN_NONE;
    purging_add(span);
    size_t most = limit_bytes >> EBBI_GRANULE_SHIFT;
    size_t granules = purge_span(span, most, &purge_calls);
    purging_remove(span);
    ebbi_span_restore(span, granules >= most ? span->freed_ms : now_ms);
    return granules << EBBI_GRANULE_SHIFT;
}

size_t ebbi_arena_purged_bytes(void)
{
    return ebbi_load_relaxed(&purged_bytes); // relaxed: a count
}

void ebbi_arena_count_purged(size_t bytes)
{
    (void)ebbi_fetch_add_relaxed(&purged_bytes, bytes); // relaxed: a count
}

bool ebbi_arena_purge(uint64_t now_ms, uint64_t delay_ms, size_t limit_bytes)
{
    uint64_t freed_by_ms = now_ms - ebbi_min(delay_ms, now_ms);
    unsigned refusals = 0, most = limit_bytes == SIZE_MAX ? MOST_REFUSALS : 1;
    ebbi_lock_take(&ebbi_arena_mutex);
    while (limit_bytes >= EBBI_GRANULE && refusals < most) {
        bool is_due = ebbi_dirty_first != NULL && ebbi_dirty_first->freed_ms <= freed_by_ms;
        size_t bytes = ebbi_kept_release_oldest(is_due ? ebbi_dirty_first->freed_ms : freed_by_ms);
        if (bytes == 0 && !is_due) {
            break;
        }
        if (bytes == 0) {
            bytes = purge_dirty_first(now_ms, limit_bytes);
            refusals += bytes == 0; // locked memory: what is behind it may be not
        }
        ebbi_arena_count_purged(bytes);
        limit_bytes -= ebbi_min(limit_bytes, bytes);
    }
    ebbi_store_relaxed(&was_refused, refusals > 0); // relaxed: a hint
    EBBI_ARENA_AUDIT();
    bool more = (ebbi_dirty_first != NULL && refusals == 0) || ebbi_kept_bytes > 0;
    ebbi_lock_drop(&ebbi_arena_mutex);
    return more;
}

bool ebbi_arena_was_refused(void) { return ebbi_load_relaxed(&was_refused); } // relaxed: a hint

int ebbi_arena_init(enum ebbi_os_huge advice)
{
    ebbi_arena_advice = advice;
    return ebbi_window_open();
}

size_t ebbi_arena_dirty_bytes(void)
{
    // relaxed: a hint
    size_t of_spans = ebbi_load_relaxed(&ebbi_dirty_granules) << EBBI_GRANULE_SHIFT;
    return of_spans + ebbi_load_relaxed(&ebbi_kept_bytes); // relaxed: as above
}

size_t ebbi_arena_used_bytes(void) { return ebbi_used_total(); }

size_t ebbi_arena_peak_bytes(void) { return ebbi_peak_bytes(&ebbi_arena_peak); }

size_t ebbi_arena_given_bytes(void)
{
    return ebbi_load_relaxed(&ebbi_given_granules) << EBBI_GRANULE_SHIFT; // relaxed: a hint
}

size_t ebbi_arena_clean_bytes(void)
{
    return ebbi_load_relaxed(&ebbi_clean_granules) << EBBI_GRANULE_SHIFT; // relaxed: a hint
}

void ebbi_arena_turn_peak(void)
{
    ebbi_lock_take(&ebbi_arena_mutex);
    ebbi_peak_turn(&ebbi_arena_peak, ebbi_used_total());
    ebbi_lock_drop(&ebbi_arena_mutex);
}

void ebbi_arena_totals(struct ebbi_arena_totals *totals)
{
    ebbi_lock_take(&ebbi_arena_mutex);
    EBBI_ASSERT(ebbi_used_granules + ebbi_dirty_granules <= ebbi_committed_granules);
    EBBI_ASSERT(ebbi_committed_granules <= ebbi_reserved_bytes >> EBBI_GRANULE_SHIFT);
    EBBI_ASSERT((ebbi_huge_total_bytes == 0) == (ebbi_huge_total_count == 0));
    totals->reserved_bytes = ebbi_reserved_bytes;
    totals->committed_bytes = ebbi_committed_granules << EBBI_GRANULE_SHIFT;
    totals->used_bytes = ebbi_used_granules << EBBI_GRANULE_SHIFT;
    totals->dirty_bytes = ebbi_arena_dirty_bytes();
    totals->huge_bytes = ebbi_huge_total_bytes;
    totals->huge_count = ebbi_huge_total_count;
    totals->dense_bytes = ebbi_dense_bytes() + ebbi_huge_dense_bytes();
    totals->purges = purge_calls;
    ebbi_lock_drop(&ebbi_arena_mutex);
}

void ebbi_arena_lock(void) { ebbi_lock_take(&ebbi_arena_mutex); }
bool ebbi_arena_is_mine(void) { return ebbi_lock_is_mine(&ebbi_arena_mutex); }
void ebbi_arena_unlock(void) { ebbi_lock_drop(&ebbi_arena_mutex); }
