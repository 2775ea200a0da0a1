// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: which of the free spans one is cut out of. Under the lock.
#include "arena/internal.h"

#define SCAN_LIMIT 16
#define DIRTY_PART 4 // of what is to be clean, one such part may be dirty
#define GRANULES_LIMIT 1024

// The smallest of the first few in bin b that hold `granules`.
static struct ebbi_free_span *best_in_bin(unsigned b, size_t granules)
{
    struct ebbi_free_span *best = NULL;
    int seen = 0;
    for (struct ebbi_free_span *s = ebbi_bins[b]; s != NULL && seen < SCAN_LIMIT;
         s = s->next, seen++) {
        EBBI_ASSERT(s->head.state == EBBI_SPAN_FREE);
        EBBI_ASSERT(ebbi_bin_of(s->head.granules) == b);
        if (s->head.granules - ebbi_rest_of(s) >= granules &&
            (best == NULL || s->head.granules < best->head.granules)) {
            best = s;
        }
    }
    return best;
}

struct ebbi_free_span *ebbi_best_fit(size_t granules)
{
    unsigned b = ebbi_bin_of(granules);
    struct ebbi_free_span *best = best_in_bin(b, granules);
    for (b++; best == NULL && b < EBBI_BINS; b++) {
        uint64_t rest = ebbi_bins_used[b / 64] >> (b % 64);
        if (rest == 0) {
            b |= 63; // the loop steps into the next word
            continue;
        }
        b += ebbi_lowest_bit(rest);
        EBBI_ASSERT(b < EBBI_BINS && ebbi_bins[b] != NULL);
        best = best_in_bin(b, granules);
    }
    return best;
}

// How far its chunk must be committed so that `granules` can be taken: the header of what stays free among it.
static size_t reach(const struct ebbi_spot *spot, size_t granules)
{
    return ebbi_min(spot->index + granules + 1, ebbi_span_chunk(&spot->span->head)->granules);
}

bool ebbi_spot_commit(const struct ebbi_spot *spot, size_t granules)
{
    struct ebbi_span *span = &spot->span->head;
    struct ebbi_chunk *chunk = ebbi_span_chunk(span);
    size_t end = ebbi_span_index(span) + span->granules;
    bool done = ebbi_chunk_commit(chunk, reach(spot, granules));
    if (done && end <= chunk->committed) { // P5, should another spot be taken
        ebbi_chunk_header(chunk, end - 1)->granules = span->granules;
    }
    return done;
}

struct ebbi_spot ebbi_committed_fit(size_t granules, size_t align_granules)
{
    size_t needed = granules + align_granules - 1;
    (void)ebbi_rest_forget();
    for (unsigned b = ebbi_bin_of(needed); b < EBBI_BINS; b++) {
        for (struct ebbi_free_span *s = ebbi_bins[b]; s != NULL; s = s->next) {
            struct ebbi_spot spot = ebbi_spot_in(s, align_granules);
            if (s->head.granules >= needed &&
                reach(&spot, granules) <= ebbi_span_chunk(&s->head)->committed) {
                return spot;
            }
        }
    }
    return (struct ebbi_spot){NULL, 0};
}

// Where most of so many granules have pages already, at least half, of the dirty spans freed last; of several such the
// shortest. So a large object takes another's place, and what is kept is not passed by for a clean hole.
static struct ebbi_spot dirty_fit(size_t granules)
{
    struct ebbi_free_span *best = NULL;
    size_t best_dirty = (granules - 1) / 2;
    int looks = SCAN_LIMIT;
    for (struct ebbi_free_span *s = ebbi_dirty_last; s != NULL && looks > 0;
         s = s->dirty_previous, looks--) {
        size_t dirty = ebbi_min(s->dirty, granules);
        bool shorter = best != NULL && s->head.granules < best->head.granules;
        if (s->head.granules >= granules && ebbi_rest_of(s) == 0 &&
            (dirty > best_dirty || (dirty == best_dirty && shorter))) {
            best = s;
            best_dirty = dirty;
        }
    }
    if (best == NULL) {
        return (struct ebbi_spot){NULL, 0};
    }
    const uint64_t *map = ebbi_span_chunk(&best->head)->dirty_map;
    size_t first = ebbi_span_index(&best->head), clean_at_most = best->head.granules - granules;
    return (struct ebbi_spot){best, ebbi_bits_find(map, first, clean_at_most)};
}

// What best fit chooses is clean, or partly, beside others that are not: that would need pages while as many wait to be
// returned, and again where what is asked for next to it is a unit.
struct ebbi_spot ebbi_dirty_fit(size_t granules)
{
    if (ebbi_dirty_granules == 0) {
        return (struct ebbi_spot){NULL, 0};
    }
    struct ebbi_free_span *best = ebbi_best_fit(granules);
    bool is_dirty = best != NULL && best->dirty == best->head.granules;
    return is_dirty ? ebbi_spot_in(best, 1) : dirty_fit(granules);
}

// Of so many granules of a free span, the first that few of are dirty. False: there are none.
static bool find_clean(const struct ebbi_free_span *span, size_t granules, size_t *index)
{
    const uint64_t *map = ebbi_span_chunk(&span->head)->dirty_map;
    size_t at = ebbi_span_index(&span->head) + ebbi_rest_of(span);
    size_t end = ebbi_span_index(&span->head) + span->head.granules;
    size_t most = granules / DIRTY_PART;
    if (at + granules > end || span->dirty > end - at - granules + most) {
        return false;
    }
    size_t dirty = ebbi_bits_count(map, at, granules);
    for (int looks = GRANULES_LIMIT; dirty > most; at++, looks--) {
        if (at + granules == end || looks == 0) {
            return false;
        }
        dirty -= ebbi_bits_test(map, at);
        dirty += ebbi_bits_test(map, at + granules);
    }
    *index = at;
    return true;
}

// In one of the first spans that fit best. What is touched in part alone would keep the pages of the rest from
// whoever has a use for them.
struct ebbi_spot ebbi_clean_fit(size_t granules)
{
    int looks = SCAN_LIMIT;
    for (unsigned b = ebbi_bin_of(granules); b < EBBI_BINS; b++) {
        for (struct ebbi_free_span *s = ebbi_bins[b]; s != NULL && looks > 0;
             s = s->next, looks--) {
            struct ebbi_spot spot = {s, 0};
            if (find_clean(s, granules, &spot.index)) {
                return spot;
            }
        }
    }
    return (struct ebbi_spot){NULL, 0};
}
