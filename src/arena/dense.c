// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: huge pages where memory is dense (EBB_THP=auto).
//
// A unit is what one huge page covers. It is asked for as huge when it is free, clean and about to be filled: by a
// large object, or by slabs of classes that grow, once LEAST_GROWN granules of such slabs are there: what the
// program never touches of the last unit stays a part of what they hold. (Whether it fills them: filled.c.) They are cut
// one after the other from the unit that was opened last, and what will likely be filled takes part in it, across its
// end where it is longer; all else is put elsewhere. Where a huge page comes slowly (a guest whose host has taken the memory back, a kernel that
// has to make room first), the next units are left out, the more of them the more often that happens. A huge page
// comes as a whole, so granules of a unit that nobody has yet are dirty from then on, and fresh.
// Before pages of a unit are returned it is split, for good: no later fault and no daemon of the kernel makes it
// huge until it is free, clean and filled again. A mapping of its own is asked for as a whole, unless it is to read
// as zero: who wants it so may touch little of it. Chunks are asked not to be huge where the kernel needs no
// request.
#include "arena/internal.h"

#define LEAST_GROWN (EBBI_UNIT_GRANULES / 2)
#define LEAST_OBJECT (EBBI_UNIT_GRANULES / 4)
#define LEAST_UNITS 4    // in use, for an object; half of that for one of LEAST_OBJECT
#define SLOW_NS 1000000u // that a first touch runs; to clear 2 MiB takes a tenth to a fifth of it
#define MOST_LOOKS 16    // for a unit
#define LEAST_LEFT_OUT (8 * EBBI_UNIT_GRANULES)
#define MOST_LEFT_OUT (128 * EBBI_UNIT_GRANULES)

// Under the lock, as all that follow.
size_t ebbi_grown_granules;
static size_t granules_left_out;              // granules that will be, from now
static size_t next_left_out = LEAST_LEFT_OUT; // after the next slow one

bool ebbi_dense_everywhere(void)
{
    enum ebbi_os_huge advice = ebbi_chunk_advice();
    return advice == EBBI_HUGE_ALWAYS || (advice != EBBI_HUGE_NEVER && ebbi_os_huge_by_default());
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

// As far as is known; false: so many are left out.
static bool comes_quickly(size_t granules)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    bool quickly = granules_left_out == 0;
    granules_left_out -= ebbi_min(granules, granules_left_out);
    return quickly;
}

static bool is_wanted(size_t granules, enum ebbi_fill fill)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    size_t units = granules >= LEAST_OBJECT ? LEAST_UNITS / 2 : LEAST_UNITS;
    bool grows = fill == EBBI_FILL_GROWS && ebbi_grown_granules >= LEAST_GROWN;
    bool covers =
        fill == EBBI_FILL_OBJECT && ebbi_used_granules + granules >= units * EBBI_UNIT_GRANULES;
    return (grows || covers || fill == EBBI_FILL_MUCH) && ebbi_chunk_is_automatic() &&
           (!covers || ebbi_filled_likely(EBBI_KIND_LARGE, granules)) && comes_quickly(granules);
}

// One that is free and clean, in one of the first free spans that may hold one.
static bool find_unit(struct ebbi_spot *unit)
{
    int looks = MOST_LOOKS;
    for (unsigned b = ebbi_bin_of(EBBI_UNIT_GRANULES); b < EBBI_BINS; b++) {
        for (struct ebbi_free_span *s = ebbi_bins[b]; s != NULL && looks > 0; s = s->next) {
            size_t end = ebbi_span_index(&s->head) + s->head.granules;
            *unit = ebbi_spot_in(s, EBBI_UNIT_GRANULES);
            for (; looks-- > 0 && unit->index + EBBI_UNIT_GRANULES <= end;
                 unit->index += EBBI_UNIT_GRANULES) {
                if (ebbi_bits_count(ebbi_span_chunk(&s->head)->dirty_map, unit->index,
                                    EBBI_UNIT_GRANULES) == 0) {
                    return ebbi_spot_commit(unit, EBBI_UNIT_GRANULES);
                }
            }
        }
    }
    return false;
}

// Some: there will be fewer faults than elsewhere.
static bool has_pages(const struct ebbi_spot *spot, size_t granules)
{
    return ebbi_bits_count(ebbi_span_chunk(&spot->span->head)->dirty_map, spot->index, granules) !=
           0;
}

bool ebbi_dense_choose(struct ebbi_spot *spot, size_t granules, enum ebbi_fill fill)
{
    bool object = fill == EBBI_FILL_OBJECT;
    if (fill <= EBBI_FILL_FEW || has_pages(spot, granules)) {
        return object && is_wanted(granules, fill);
    }
    struct ebbi_free_span *rest = ebbi_rest_take(granules, fill != EBBI_FILL_LIKELY);
    if (rest != NULL) {
        struct ebbi_spot there = {rest, ebbi_span_index(&rest->head)};
        bool crosses = there.index % EBBI_UNIT_GRANULES + granules > EBBI_UNIT_GRANULES;
        *spot = ebbi_spot_commit(&there, granules) ? there : *spot;
        return crosses && is_wanted(granules, fill);
    }
    struct ebbi_spot unit;
    bool wanted = is_wanted(granules, fill);
    *spot = wanted && !object && find_unit(&unit) ? unit : *spot;
    return wanted;
}

static void note_touch(bool slow)
{
    ebbi_lock_take(&ebbi_arena_mutex);
    granules_left_out = slow ? next_left_out : granules_left_out;
    next_left_out = slow ? ebbi_min(next_left_out * 2, MOST_LEFT_OUT)
                         : ebbi_max(next_left_out / 2, LEAST_LEFT_OUT);
    ebbi_lock_drop(&ebbi_arena_mutex);
}

// What nobody has written yet. False: it comes slowly.
static bool touch(void *start)
{
    uint64_t before = ebbi_os_thread_ns();
    *(volatile unsigned char *)start = 0; // as it is
    bool slow = ebbi_os_thread_ns() - before > SLOW_NS;
    note_touch(slow);
    return !slow;
}

static uintptr_t next_unit(uintptr_t at)
{
    return ebbi_align_up(at + 1, (size_t)EBBI_UNIT_GRANULES << EBBI_GRANULE_SHIFT);
}

void ebbi_dense_touch(void *start, const void *end)
{
    uintptr_t next = next_unit((uintptr_t)start);
    if (!touch(start) && next < (uintptr_t)end) {
        ebbi_dense_split((void *)next, (uintptr_t)end - next);
    }
}

// False: it comes slowly, and has small pages.
static bool ask_mapping(void *start, size_t bytes)
{
    ebbi_os_advise_huge(start, bytes, EBBI_HUGE_ALWAYS);
    bool quickly = touch(start);
    if (!quickly) {
        ebbi_os_advise_huge(start, bytes, EBBI_HUGE_NEVER);
    }
    return quickly;
}

bool ebbi_dense_ask(void *start, size_t bytes)
{
    size_t granules = bytes >> EBBI_GRANULE_SHIFT;
    if (!ebbi_chunk_is_automatic() || ebbi_os_huge_by_default()) {
        return false;
    }
    ebbi_lock_take(&ebbi_arena_mutex);
    bool asks = ebbi_filled_likely(EBBI_KIND_HUGE, granules) && comes_quickly(granules);
    ebbi_lock_drop(&ebbi_arena_mutex);
    bool dense = asks && ask_mapping(start, bytes);
    ebbi_lock_take(&ebbi_arena_mutex);
    ebbi_filled_show(EBBI_KIND_HUGE, start, granules, asks);
    ebbi_lock_drop(&ebbi_arena_mutex);
    return dense;
}

bool ebbi_dense_goes_on(void *start, size_t bytes, size_t more)
{
    uintptr_t end = (uintptr_t)start + bytes + more;
    uintptr_t next = next_unit((uintptr_t)start + bytes - 1);
    if (next_unit(next) > end) {
        return true;
    }
    ebbi_lock_take(&ebbi_arena_mutex);
    bool quickly = comes_quickly((end - next) >> EBBI_GRANULE_SHIFT);
    ebbi_lock_drop(&ebbi_arena_mutex);
    bool goes_on = quickly && touch((void *)next);
    if (!goes_on) {
        ebbi_os_advise_huge(start, bytes + more, EBBI_HUGE_NEVER);
    }
    return goes_on;
}

void *ebbi_dense_fill(struct ebbi_free_span *span, size_t index, size_t granules)
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
    if (from >= to || ebbi_bits_count(chunk->dirty_map, from, to - from) != 0 ||
        !ebbi_chunk_commit(chunk, ebbi_min(to + 1, chunk->granules))) {
        return NULL;
    }
    for (size_t unit = from / EBBI_UNIT_GRANULES; unit < to / EBBI_UNIT_GRANULES; unit++) {
        EBBI_ASSERT(!is_dense(chunk, unit)); // P7
        put_dense(chunk, unit, true);
    }
    ebbi_os_advise_huge(ebbi_granule_start(chunk, from), (to - from) << EBBI_GRANULE_SHIFT,
                        EBBI_HUGE_ALWAYS);
    make_dirty(span, from, to);
    ebbi_count_clean(to - from);
    if (index + granules < to) {
        ebbi_rest_open(chunk, index + granules, to);
    }
    size_t first = ebbi_max(from, index);
    return first < ebbi_min(to, index + granules) ? ebbi_granule_start(chunk, first) : NULL;
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
        ebbi_os_advise_huge(ebbi_granule_start(chunk, first * EBBI_UNIT_GRANULES),
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
        units += ebbi_bits_count(c->dense_map, 0, ebbi_chunk_units(c->granules));
    }
    return units * EBBI_UNIT_GRANULES << EBBI_GRANULE_SHIFT;
}
