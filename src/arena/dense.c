// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: huge pages where memory is dense (EBB_THP=auto).
//
// A unit is what one huge page covers. One that is free, clean and about to be filled is asked for as huge once
// LEAST_UNITS as much is in use: what the program never touches of it stays a small part. Half of that is enough for
// what has grown to a quarter of a unit, as it will likely fill one. Where a huge page comes
// slowly (a guest whose host has taken the memory back, a kernel that has to make room first), the next ones
// are left out, the more of them the more often that happens. It comes as a whole, so its granules that nobody
// has yet are dirty from then on, and fresh.
// Before pages of a unit are returned it is split, for good: no later fault and no daemon of the kernel makes it
// huge until it is free, clean and filled again. Chunks are asked not to be huge where the kernel needs no request.
#include "arena/internal.h"

#define LEAST_UNITS 4
#define LEAST_GROWN (EBBI_UNIT_GRANULES / 4)
#define SLOW_NS 1000000u // of a first touch; to clear 2 MiB takes a tenth to a fifth of that
#define LEAST_LEFT_OUT 8
#define MOST_LEFT_OUT 128

static size_t left_out; // units that will be, from now; under the lock, as is the next
static size_t next_left_out = LEAST_LEFT_OUT; // after the next slow one

static bool is_wanted(size_t grown)
{
    size_t least = grown >= LEAST_GROWN ? LEAST_UNITS / 2 : LEAST_UNITS;
    return ebbi_used_granules >= least * EBBI_UNIT_GRANULES && ebbi_chunk_is_automatic();
}

bool ebbi_dense_everywhere(void)
{
    enum ebbi_os_huge advice = ebbi_chunk_advice();
    return advice == EBBI_HUGE_ALWAYS || (advice != EBBI_HUGE_NEVER && ebbi_os_huge_by_default());
}

static void *dense_place(struct ebbi_chunk *chunk, size_t granule)
{
    return (void *)((uintptr_t)chunk + (granule << EBBI_GRANULE_SHIFT));
}

static bool is_dense(const struct ebbi_chunk *chunk, size_t unit)
{
    // relaxed: whoever looks without the lock has something in the unit, or what it finds is a hint
    return (ebbi_load_relaxed(&chunk->dense_map[unit / 64]) >> (unit % 64) & 1) != 0;
}

static void put_dense(struct ebbi_chunk *chunk, size_t unit, bool dense)
{
    uint64_t *word = &chunk->dense_map[unit / 64];
    uint64_t bit = (uint64_t)1 << (unit % 64);
    ebbi_assert_held(&ebbi_arena_mutex);
    // relaxed: written under the lock
    ebbi_store_relaxed(word, dense ? *word | bit : *word & ~bit);
}

// The granules [from, to) of a free span, which is in its lists before and after.
static void make_dirty(struct ebbi_free_span *span, size_t from, size_t to)
{
    if (from < to) {
        ebbi_span_remove(span);
        ebbi_bits_set(ebbi_span_chunk(&span->head)->dirty_map, from, to - from);
        ebbi_bits_set(ebbi_span_chunk(&span->head)->fresh_map, from, to - from);
        span->dirty += to - from;
        ebbi_span_restore(span, ebbi_os_now_ms());
    }
}

static bool is_left_out(size_t units)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    if (left_out == 0) {
        return false;
    }
    left_out -= ebbi_min(units, left_out);
    return true;
}

static void note_touch(uint64_t ns)
{
    ebbi_lock_take(&ebbi_arena_mutex);
    bool slow = ns > SLOW_NS;
    left_out = slow ? next_left_out : left_out;
    next_left_out = slow ? ebbi_min(next_left_out * 2, MOST_LEFT_OUT)
                         : ebbi_max(next_left_out / 2, LEAST_LEFT_OUT);
    ebbi_lock_drop(&ebbi_arena_mutex);
}

void ebbi_dense_touch(void *start)
{
    uint64_t before = ebbi_os_now_ns();
    *(volatile unsigned char *)start = 0; // as it is
    note_touch(ebbi_os_now_ns() - before);
}

bool ebbi_dense_fill(struct ebbi_free_span *span, size_t index, size_t granules, size_t grown)
{
    struct ebbi_chunk *chunk = ebbi_span_chunk(&span->head);
    size_t start = ebbi_span_index(&span->head);
    size_t end = start + span->head.granules;
    ebbi_assert_held(&ebbi_arena_mutex);
    EBBI_ASSERT(start <= index && index + granules <= end);
    size_t from = ebbi_align_down(index, EBBI_UNIT_GRANULES);
    size_t to = ebbi_align_up(index + granules, EBBI_UNIT_GRANULES);
    from += from < start ? EBBI_UNIT_GRANULES : 0;
    to -= to > end ? EBBI_UNIT_GRANULES : 0;
    if (from >= to || !is_wanted(grown) ||
        ebbi_bits_count(chunk->dirty_map, from, to - from) != 0 ||
        is_left_out((to - from) / EBBI_UNIT_GRANULES) ||
        !ebbi_chunk_commit(chunk, ebbi_min(to + 1, chunk->granules))) {
        return false;
    }
    for (size_t unit = from / EBBI_UNIT_GRANULES; unit < to / EBBI_UNIT_GRANULES; unit++) {
        EBBI_ASSERT(!is_dense(chunk, unit)); // P7
        put_dense(chunk, unit, true);
    }
    ebbi_os_advise_huge(dense_place(chunk, from), (to - from) << EBBI_GRANULE_SHIFT,
                        EBBI_HUGE_ALWAYS);
    make_dirty(span, from, to);
    return from <= index && index < to;
}

bool ebbi_dense_is(const void *start, size_t bytes)
{
    struct ebbi_chunk *chunk = ebbi_chunk_of(start);
    uintptr_t offset = (uintptr_t)start & (EBBI_CHUNK - 1);
    size_t unit_bytes = (size_t)EBBI_UNIT_GRANULES << EBBI_GRANULE_SHIFT;
    EBBI_ASSERT(chunk != NULL && bytes > 0);
    for (size_t unit = offset / unit_bytes; unit <= (offset + bytes - 1) / unit_bytes; unit++) {
        if (is_dense(chunk, unit)) {
            return true;
        }
    }
    return false;
}

// From the first to the last unit that is; what lies between is advised once more.
static void split_units(struct ebbi_chunk *chunk, size_t from, size_t to)
{
    size_t first = to, end = from;
    ebbi_lock_take(&ebbi_arena_mutex);
    for (size_t unit = from; unit < to; unit++) {
        if (is_dense(chunk, unit)) {
            put_dense(chunk, unit, false);
            first = ebbi_min(first, unit);
            end = unit + 1;
        }
    }
    ebbi_lock_drop(&ebbi_arena_mutex);
    if (first < end) {
        size_t granules = (end - first) * EBBI_UNIT_GRANULES;
        ebbi_os_advise_huge(dense_place(chunk, first * EBBI_UNIT_GRANULES),
                            granules << EBBI_GRANULE_SHIFT, EBBI_HUGE_NEVER);
    }
}

void ebbi_dense_split(const void *start, size_t bytes)
{
    if (ebbi_dense_is(start, bytes)) {
        uintptr_t offset = (uintptr_t)start & (EBBI_CHUNK - 1);
        size_t unit_bytes = (size_t)EBBI_UNIT_GRANULES << EBBI_GRANULE_SHIFT;
        split_units(ebbi_chunk_of(start), offset / unit_bytes,
                    (offset + bytes - 1) / unit_bytes + 1);
    }
}

size_t ebbi_dense_bytes(void)
{
    size_t units = 0;
    ebbi_assert_held(&ebbi_arena_mutex);
    for (struct ebbi_chunk *c = ebbi_chunk_next(NULL); c != NULL; c = ebbi_chunk_next(c)) {
        units += ebbi_bits_count(c->dense_map, 0, EBBI_CHUNK_UNITS);
    }
    return units * EBBI_UNIT_GRANULES << EBBI_GRANULE_SHIFT;
}
