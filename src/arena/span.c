// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: free spans in bins, cut and immediately coalesced.
#include "arena/internal.h"
#include "base/list.h"
#include "os/options.h"

static bool is_marked_used(unsigned b) { return (ebbi_bins_used[b / 64] >> (b % 64) & 1) != 0; }

static void bin_push(struct ebbi_free_span *span)
{
    unsigned b = ebbi_bin_of(span->head.granules);
    EBBI_ASSERT(is_marked_used(b) == (ebbi_bins[b] != NULL));
    EBBI_LIST_PUSH(ebbi_bins[b], span, next, previous);
    ebbi_bins_used[b / 64] |= (uint64_t)1 << (b % 64);
}

static void bin_take(struct ebbi_free_span *span)
{
    unsigned b = ebbi_bin_of(span->head.granules);
    EBBI_ASSERT(is_marked_used(b));
    EBBI_LIST_REMOVE(ebbi_bins[b], span, next, previous);
    if (ebbi_bins[b] == NULL) {
        ebbi_bins_used[b / 64] &= ~((uint64_t)1 << (b % 64));
    }
}

static void dirty_push(struct ebbi_free_span *span, struct ebbi_free_span *before)
{
    struct ebbi_free_span *after = before != NULL ? before->dirty_previous : ebbi_dirty_last;
    EBBI_ASSERT(span->dirty <= span->head.granules);
    EBBI_ASSERT(after == NULL || after->freed_ms <= span->freed_ms);
    EBBI_ASSERT(before == NULL || span->freed_ms <= before->freed_ms);
    span->dirty_next = before;
    span->dirty_previous = after;
    *(after != NULL ? &after->dirty_next : &ebbi_dirty_first) = span;
    *(before != NULL ? &before->dirty_previous : &ebbi_dirty_last) = span;
}

static void dirty_take(struct ebbi_free_span *span)
{
    EBBI_QUEUE_REMOVE(ebbi_dirty_first, ebbi_dirty_last, span, dirty_next, dirty_previous);
}

static void mark_ends(const struct ebbi_span *span, bool is_free)
{
    uint64_t *map = ebbi_span_chunk(span)->free_map;
    size_t first = ebbi_span_index(span);
    EBBI_ASSERT(ebbi_bits_test(map, first) != is_free);
    EBBI_ASSERT(ebbi_bits_test(map, first + span->granules - 1) != is_free);
    ebbi_bits_put(map, first, is_free);
    ebbi_bits_put(map, first + span->granules - 1, is_free);
}

// Free, coalesced.
static void span_insert(struct ebbi_free_span *span, struct ebbi_free_span *dirty_before)
{
    struct ebbi_chunk *chunk = ebbi_span_chunk(&span->head);
    size_t index = ebbi_span_index(&span->head);
    size_t end = index + span->head.granules;
    ebbi_assert_held(&ebbi_arena_mutex);
    EBBI_ASSERT(span->head.granules > 0 && index >= chunk->first && end <= chunk->granules);
    EBBI_ASSERT(index < chunk->committed || index == chunk->first);
    EBBI_ASSERT(index == chunk->first || !ebbi_bits_test(chunk->free_map, index - 1));
    EBBI_ASSERT(end == chunk->granules || !ebbi_bits_test(chunk->free_map, end));
    span->head.state = EBBI_SPAN_FREE;
    if (end <= chunk->committed) { // the last header of the wilderness cannot be written yet
        ebbi_chunk_header(chunk, end - 1)->granules = span->head.granules;
    }
    mark_ends(&span->head, true);
    bin_push(span);
    ebbi_rest_see(span, true);
    if (span->dirty > 0) {
        dirty_push(span, dirty_before);
        // relaxed: written under the lock, read as a hint
        ebbi_store_relaxed(&ebbi_dirty_granules, ebbi_dirty_granules + span->dirty);
    }
}

void ebbi_span_remove(struct ebbi_free_span *span)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    EBBI_ASSERT(span->head.state == EBBI_SPAN_FREE);
    mark_ends(&span->head, false);
    bin_take(span);
    ebbi_rest_see(span, false);
    if (span->dirty > 0) {
        EBBI_ASSERT(ebbi_dirty_granules >= span->dirty);
        dirty_take(span);
        // relaxed: written under the lock, read as a hint
        ebbi_store_relaxed(&ebbi_dirty_granules, ebbi_dirty_granules - span->dirty);
    }
}

static void count_used(size_t granules_more, size_t granules_less)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    EBBI_ASSERT(ebbi_used_granules + granules_more >= granules_less);
    // relaxed: written under the lock, read as a hint
    ebbi_store_relaxed(&ebbi_used_granules, ebbi_used_granules + granules_more - granules_less);
    EBBI_ASSERT(ebbi_used_granules <= ebbi_committed_granules);
    ebbi_peak_see(&ebbi_arena_peak, ebbi_used_total());
}

// Cuts [index, index + granules) out of a free span and returns its header; the rest stays free, as
// old as it was.
static struct ebbi_span *carve(struct ebbi_free_span *span, size_t index, size_t granules)
{
    struct ebbi_chunk *chunk = ebbi_span_chunk(&span->head);
    size_t start = ebbi_span_index(&span->head);
    size_t end = start + span->head.granules;
    size_t dirty_rest = span->dirty;
    uint64_t freed_ms = span->freed_ms;
    struct ebbi_free_span *dirty_next = span->dirty > 0 ? span->dirty_next : NULL;
    EBBI_ASSERT(index >= start && index + granules <= end);
    EBBI_ASSERT(index + granules <= chunk->committed);
    ebbi_span_remove(span);
    struct ebbi_span *got = ebbi_chunk_header(chunk, index);
    size_t dirty = dirty_rest > 0 ? ebbi_bits_count(chunk->dirty_map, index, granules) : 0;
    EBBI_ASSERT(dirty <= dirty_rest);
    dirty_rest -= dirty;
    if (index > start) {
        span->head.granules = (uint32_t)(index - start);
        span->dirty = ebbi_bits_count(chunk->dirty_map, start, index - start);
        EBBI_ASSERT(span->dirty <= dirty_rest);
        dirty_rest -= span->dirty;
        span_insert(span, dirty_next);
    }
    EBBI_ASSERT(index + granules < end || dirty_rest == 0);
    if (index + granules < end) {
        struct ebbi_free_span *rest = ebbi_free_span_at(chunk, index + granules);
        rest->head.granules = (uint32_t)(end - index - granules);
        rest->freed_ms = freed_ms;
        rest->dirty = dirty_rest;
        span_insert(rest, dirty_next);
    }
    got->zeroed = dirty == 0;
    // relaxed: written under the lock, read as a hint
    ebbi_store_relaxed(&ebbi_given_granules, ebbi_given_granules + granules);
    ebbi_count_clean(granules - dirty);
    if (dirty > 0) {
        ebbi_bits_clear(chunk->fresh_map, index, granules);
    }
    return got;
}

// Chunks end that are wholly free: their address space can be had in one piece.
bool ebbi_release_free(void)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    bool any = ebbi_kept_release_all();
    (void)ebbi_rest_forget();
    struct ebbi_chunk *next;
    for (struct ebbi_chunk *c = ebbi_chunk_next(NULL); c != NULL; c = next) {
        struct ebbi_free_span *span = ebbi_free_span_at(c, c->first);
        next = ebbi_chunk_next(c);
        if (ebbi_bits_test(c->free_map, c->first) &&
            span->head.granules == c->granules - c->first) {
            ebbi_span_remove(span);
            ebbi_chunk_destroy(c);
            any = true;
        }
    }
    return any;
}

static struct ebbi_free_span *find_or_grow(size_t granules)
{
    struct ebbi_free_span *span = ebbi_best_fit(granules);
    if (span == NULL && ebbi_rest_forget()) {
        span = ebbi_best_fit(granules);
    }
    if (span != NULL) {
        return span;
    }
    struct ebbi_chunk *chunk = ebbi_chunk_create(granules);
    if (chunk == NULL && ebbi_release_free()) {
        chunk = ebbi_chunk_create(granules);
    }
    if (chunk != NULL) {
        EBBI_ASSERT(chunk->committed == chunk->first);
        EBBI_ASSERT(chunk->granules - chunk->first >= granules);
        span = ebbi_free_span_at(chunk, chunk->first);
        span->head.granules = chunk->granules - chunk->first;
        span->dirty = 0;
        span_insert(span, NULL);
    }
    return span;
}

// Committed as far as it will be used. Where the OS refuses more memory, what is free already does.
static struct ebbi_spot find_committed(size_t granules, size_t align_granules)
{
    struct ebbi_free_span *span = find_or_grow(granules + align_granules - 1);
    if (span != NULL) {
        struct ebbi_spot spot = ebbi_spot_in(span, align_granules);
        if (ebbi_spot_commit(&spot, granules)) {
            return spot;
        }
    }
    return ebbi_committed_fit(granules, align_granules);
}

// With a page that is touched, and what is free is not to stay.
static bool few_pages_come(void) { return !ebbi_dense_everywhere() && !ebbi_keeps_freed(); }

// On pages that are there, or are not, else where it fits best, else in a new chunk; committed as far as that.
static struct ebbi_spot find_spot(size_t granules, size_t align_granules, enum ebbi_fill fill)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    struct ebbi_spot spot = {NULL, 0};
    if (fill == EBBI_FILL_FEW && few_pages_come()) {
        spot = ebbi_clean_fit(granules);
    }
    if (spot.span == NULL && align_granules == 1) {
        spot = ebbi_dirty_fit(granules);
    }
    if (spot.span == NULL || !ebbi_spot_commit(&spot, granules)) {
        spot = find_committed(granules, align_granules);
    }
    if (spot.span == NULL && ebbi_release_free()) {
        spot = find_committed(granules, align_granules);
    }
    return spot;
}

// Who walks over all spans may come before its thread has said what it is.
static void begin_large(struct ebbi_large *large)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    large->bytes = 0;
    large->shift = large->guard = 0;
    large->note.label = NULL;
}

// Of the first 64, as dirty_map has them.
static uint64_t dirty_bits(const struct ebbi_chunk *chunk, size_t index, size_t granules)
{
    uint64_t bits = 0;
    for (size_t g = 0; g < ebbi_min(granules, 64); g++) {
        bits |= (uint64_t)ebbi_bits_test(chunk->dirty_map, index + g) << g;
    }
    return bits;
}

static struct ebbi_span *span_cut(size_t granules, size_t align_granules, uint8_t state,
                                  enum ebbi_fill fill, uint64_t *dirty)
{
    struct ebbi_span *got = NULL;
    void *huge = NULL; // where the first touch brings a whole unit
    EBBI_ASSERT(granules > 0 && ebbi_is_power_of_two(align_granules));
    EBBI_ASSERT(state > EBBI_SPAN_FREE && state != EBBI_SPAN_INSIDE);
    ebbi_lock_take(&ebbi_arena_mutex);
    struct ebbi_spot spot = find_spot(granules, align_granules, fill);
    if (spot.span != NULL) {
        bool ask = ebbi_dense_choose(&spot, granules, fill);
        struct ebbi_free_span *span = spot.span;
        size_t index = spot.index;
        struct ebbi_chunk *chunk = ebbi_span_chunk(&span->head);
        huge = ask ? ebbi_dense_fill(span, index, granules) : NULL;
        // To a slab, what has come with a unit is dirty: it may return its pages.
        bool zero = state == EBBI_SPAN_LARGE && span->dirty > 0 &&
                    ebbi_bits_count(chunk->dirty_map, index, granules) ==
                        ebbi_bits_count(chunk->fresh_map, index, granules);
        got = carve(span, index, granules);
        *dirty = got->zeroed ? 0 : dirty_bits(chunk, index, granules);
        bool shows = got->zeroed || (huge != NULL && granules >= EBBI_LEAST_SHOWING);
        if (fill == EBBI_FILL_OBJECT && shows) {
            ebbi_filled_show(EBBI_KIND_LARGE, ebbi_span_start(got), granules, !got->zeroed);
        }
        got->zeroed |= zero;
        EBBI_ASSERT(ebbi_span_index(got) % align_granules == 0);
        EBBI_ASSERT(ebbi_tag_of(ebbi_span_start(got)) == EBBI_TAG_NONE);
        if (state == EBBI_SPAN_LARGE) {
            begin_large(ebbi_large_in(got));
        }
        got->state = state;
        got->granules = (uint32_t)granules;
        got->grown = fill == EBBI_FILL_GROWS || fill == EBBI_FILL_MUCH;
        count_used(granules, 0);
        ebbi_grown_granules += got->grown ? granules : 0;
    }
    EBBI_ARENA_AUDIT();
    ebbi_lock_drop(&ebbi_arena_mutex);
    if (huge != NULL) {
        ebbi_dense_touch(huge, (char *)ebbi_span_start(got) + (granules << EBBI_GRANULE_SHIFT));
    }
    return got;
}

struct ebbi_span *ebbi_span_alloc(size_t granules, size_t align_granules, uint8_t state)
{
    uint64_t dirty;
    return span_cut(granules, align_granules, state, EBBI_FILL_UNKNOWN, &dirty);
}

struct ebbi_span *ebbi_span_alloc_dense(size_t granules, uint8_t state, enum ebbi_fill fill)
{
    uint64_t dirty;
    return span_cut(granules, 1, state, fill, &dirty);
}

struct ebbi_span *ebbi_span_alloc_part(size_t granules, uint8_t state, enum ebbi_fill fill,
                                       uint64_t *dirty)
{
    EBBI_ASSERT(granules <= 64);
    return span_cut(granules, 1, state, fill, dirty);
}

// Merges with free neighbours; the result is in no list yet and as old as its largest dirty part: what is
// used and freed beside much free memory does not keep that young for ever. *before: of the dirty list, the
// place of that part; NULL: at the end.
static struct ebbi_free_span *coalesce(struct ebbi_free_span *span, struct ebbi_free_span **before)
{
    struct ebbi_chunk *chunk = ebbi_span_chunk(&span->head);
    size_t start = ebbi_span_index(&span->head);
    size_t end = start + span->head.granules;
    size_t dirty = span->dirty;
    uint64_t freed_ms = span->freed_ms;
    *before = NULL;
    EBBI_ASSERT(ebbi_bits_count(chunk->free_map, start, span->head.granules) == 0);
    if (end < chunk->granules && ebbi_bits_test(chunk->free_map, end)) {
        struct ebbi_free_span *next = ebbi_free_span_at(chunk, end);
        EBBI_ASSERT(end + next->head.granules <= chunk->granules);
        if (next->dirty > dirty) {
            freed_ms = next->freed_ms;
            *before = next->dirty_next;
        }
        ebbi_span_remove(next);
        end += next->head.granules;
        dirty += next->dirty;
    }
    if (start > chunk->first && ebbi_bits_test(chunk->free_map, start - 1)) {
        EBBI_ASSERT(ebbi_chunk_header(chunk, start - 1)->granules <= start - chunk->first);
        start -= ebbi_chunk_header(chunk, start - 1)->granules;
        span = ebbi_free_span_at(chunk, start);
        EBBI_ASSERT(start + span->head.granules < end);
        if (span->dirty > dirty) {
            freed_ms = span->freed_ms;
            *before = span->dirty_next;
        } else if (*before == span) {
            *before = span->dirty_next;
        }
        ebbi_span_remove(span);
        dirty += span->dirty;
    }
    span->head.granules = (uint32_t)(end - start);
    span->dirty = dirty;
    span->freed_ms = freed_ms;
    return span;
}

// In the dirty list, which is in order, what is as old as the first goes before it, all else to the end, as young as
// the last.
void ebbi_span_restore(struct ebbi_free_span *span, uint64_t freed_ms)
{
    struct ebbi_free_span *before;
    ebbi_assert_held(&ebbi_arena_mutex);
    span->head.state = EBBI_SPAN_FREE;
    span->freed_ms = freed_ms;
    span = coalesce(span, &before);
    if (before == NULL && ebbi_dirty_first != NULL) {
        if (span->freed_ms <= ebbi_dirty_first->freed_ms) {
            before = ebbi_dirty_first;
        } else {
            span->freed_ms = ebbi_max(span->freed_ms, ebbi_dirty_last->freed_ms);
        }
    }
    span_insert(span, before);
}

// All of it is dirty, but what is clean.
static void give_back(struct ebbi_chunk *chunk, size_t index, uint64_t clean)
{
    struct ebbi_free_span *span = ebbi_free_span_at(chunk, index);
    EBBI_ASSERT(index + span->head.granules <= chunk->committed);
    ebbi_bits_set(chunk->dirty_map, index, span->head.granules);
    span->dirty = span->head.granules;
    for (; clean != 0; clean &= clean - 1) {
        size_t g = index + ebbi_lowest_bit(clean);
        if (!ebbi_dense_is(ebbi_granule_start(chunk, g), 1)) { // P7
            ebbi_bits_put(chunk->dirty_map, g, false);
            span->dirty--;
        }
    }
    ebbi_span_restore(span, ebbi_os_now_ms());
}

static void free_span(struct ebbi_span *span, uint64_t clean)
{
    EBBI_ASSERT(ebbi_chunk_of(span) != NULL);
    EBBI_ASSERT(span->state > EBBI_SPAN_FREE && span->state != EBBI_SPAN_INSIDE);
    EBBI_ASSERT(ebbi_tag_of(ebbi_span_start(span)) == EBBI_TAG_NONE);
    if (span->state == EBBI_SPAN_LARGE) {
        ebbi_filled_gone(EBBI_KIND_LARGE, ebbi_span_start(span));
    }
    count_used(0, span->granules);
    EBBI_ASSERT(!span->grown || ebbi_grown_granules >= span->granules);
    ebbi_grown_granules -= span->grown ? span->granules : 0;
    give_back(ebbi_span_chunk(span), ebbi_span_index(span), clean);
    EBBI_ARENA_AUDIT();
}

void ebbi_span_free_part(struct ebbi_span *span, uint64_t dirty)
{
    EBBI_ASSERT(span->granules <= 64);
    ebbi_lock_take(&ebbi_arena_mutex);
    free_span(span, ~dirty & ebbi_bits_mask(0, 0, span->granules));
    ebbi_lock_drop(&ebbi_arena_mutex);
}

void ebbi_span_free(struct ebbi_span *span)
{
    ebbi_lock_take(&ebbi_arena_mutex);
    free_span(span, 0);
    ebbi_lock_drop(&ebbi_arena_mutex);
}

void ebbi_larges_free(struct ebbi_large *first)
{
    ebbi_lock_take(&ebbi_arena_mutex);
    for (struct ebbi_large *next; first != NULL; first = next) {
        next = first->next;
        free_span(&first->head, 0);
    }
    ebbi_lock_drop(&ebbi_arena_mutex);
}

static bool grow_into(struct ebbi_span *span, size_t more)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    struct ebbi_chunk *chunk = ebbi_span_chunk(span);
    size_t end = ebbi_span_index(span) + span->granules;
    if (end >= chunk->granules || !ebbi_bits_test(chunk->free_map, end)) {
        return false;
    }
    struct ebbi_free_span *next = ebbi_free_span_at(chunk, end);
    if (next->head.granules < more ||
        !ebbi_chunk_commit(chunk, ebbi_min(end + more + 1, chunk->granules))) {
        return false;
    }
    (void)carve(next, end, more);
    count_used(more, 0);
    return true;
}

bool ebbi_span_resize(struct ebbi_span *span, size_t granules)
{
    bool done = true;
    EBBI_ASSERT(granules > 0);
    EBBI_ASSERT(span->state == EBBI_SPAN_LARGE);
    ebbi_lock_take(&ebbi_arena_mutex);
    if (granules > span->granules) {
        done = grow_into(span, granules - span->granules);
    } else if (granules < span->granules) {
        struct ebbi_chunk *chunk = ebbi_span_chunk(span);
        size_t index = ebbi_span_index(span) + granules;
        ebbi_chunk_header(chunk, index)->granules = (uint32_t)(span->granules - granules);
        count_used(0, span->granules - granules);
        give_back(chunk, index, 0);
    }
    if (done) {
        span->granules = (uint32_t)granules;
    }
    EBBI_ARENA_AUDIT();
    ebbi_lock_drop(&ebbi_arena_mutex);
    return done;
}
