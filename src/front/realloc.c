// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer front: what is put together from allocations and frees: zeroed, grown, moved blocks.
#include <errno.h>
#include <string.h>

#include "base/probe.h"
#include "debug/check.h"
#include "debug/guard.h"
#include "front/fast.h"

static void *refuse_size(void)
{
    errno = ENOMEM;
    return NULL;
}

// As has been reported.
static void *refuse_pointer(void)
{
    errno = EINVAL;
    return NULL;
}

void *ebbi_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        return refuse_size();
    }
    if (bytes > EBBI_CLASS_MAX && ebbi_source_now() != &ebbi_heap_scoped) {
        return ebbi_large_zeroed(bytes, EBBI_SITE(EBBI_BY_MALLOC));
    }
    void *p = ebbi_malloc(bytes, EBBI_BY_MALLOC);
    return p != NULL ? memset(p, 0, bytes) : NULL;
}

// What a block that has to move is given: a large one that grows once tends to grow again, and room
// behind it is only address space.
static size_t room_to_grow(const struct ebb_region *region, size_t old_bytes, size_t bytes)
{
    bool limited = region != NULL && region->hard_limit != 0;
    return bytes > EBBI_CLASS_MAX && bytes > old_bytes && !limited ? bytes + bytes / 8 : bytes;
}

// Nothing is current: what is allocated is the process's.
static bool is_plain(void)
{
    const struct ebbi_heap *source = ebbi_source_get();
    return source == NULL || (source->region == NULL && source->own.label == NULL);
}

// A block that was free already may have made way for the new one, with all of its slab, or another thread free it meanwhile:
// its free would take what is another's. False, with a report: it has.
static bool is_still_there(const void *p, unsigned tag, void *to, ebbi_site site)
{
    bool is = EBBI_LIKELY(ebbi_tag_of(p) == tag);
    if (!is) {
        ebbi_free_at(to, site);
        ebbi_slab_misuse_gone(p);
    }
    return is;
}

static void *move_block(void *p, size_t old_bytes, size_t bytes, ebbi_site site)
{
    unsigned tag = ebbi_tag_of(p);
    const struct ebbi_heap *source = ebbi_source_get();
    const struct ebb_region *region = source != NULL ? source->region : NULL;
    size_t room = ebbi_check_is_on() ? bytes : room_to_grow(region, old_bytes, bytes);
    if (room >= EBBI_HUGE_MIN && is_plain()) {
        room = bytes; // its pages can be moved
    }
    void *to = ebbi_malloc_at(room, EBBI_BY_MALLOC, site);
    to = to == NULL && room > bytes ? ebbi_malloc_at(bytes, EBBI_BY_MALLOC, site) : to;
    if (to == NULL) {
        return NULL;
    }
    if (!is_still_there(p, tag, to, site)) {
        return refuse_pointer();
    }
    ebbi_large_copy(to, p, ebbi_min(old_bytes, bytes));
    ebbi_free_at(p, site);
    return to;
}

// Of a block that stays in its place. One of its own may have been retired; for a profile it was freed and allocated.
static void *stays_here(void *p)
{
    struct ebbi_note *note = ebbi_tag_of(p) != EBBI_TAG_REGION ? ebbi_large_note(p) : NULL;
    if (note != NULL) {
        if (!ebbi_large_check_retired(p, note, "realloc")) {
            return refuse_pointer();
        }
        ebbi_sample_freed(note);
    }
    return p;
}

// Resized in place: it is in use, as far as a free would see. (What is of no class has been looked at.)
static void *stay(void *p)
{
    unsigned bin = ebbi_tag_of(p);
    if (ebbi_tag_class(bin) == 0) {
        return stays_here(p);
    }
    const struct ebbi_fast *heap = ebbi_source_now();
    ebbi_slot *top = heap->top[bin];
    if (EBBI_UNLIKELY(top == heap->limit[bin] || ebbi_was_freed_lately(top, p))) {
        ebbi_stay_slow(p);
    }
    return p;
}

// What checks know of it is of its new size.
static void *shrinks_here(void *p, size_t bytes, ebbi_site site)
{
    bool checks = ebbi_check_is_on();
    if (checks && ebbi_tag_class(ebbi_tag_of(p)) != 0) {
        ebbi_check_shrink(p, bytes, site);
    } else if (checks && ebbi_large_is_guarded(p)) {
        ebbi_guard_shrink(ebbi_large_of(p), bytes, site);
    }
    return stays_here(p);
}

static void *move_or_stay(void *p, size_t old_bytes, size_t bytes, ebbi_site site)
{
    int saved = errno;
    void *to = move_block(p, old_bytes, bytes, site);
    if (to == NULL && errno == ENOMEM && bytes <= old_bytes) { // to shrink in place is no failure
        errno = saved;
        return shrinks_here(p, bytes, site);
    }
    return to;
}

// In place or by moving pages. A mapping that a limit lets not grow does so once what is free has gone: elsewhere it would
// take twice as much of it.
static void *grow_large(void *p, unsigned tag, size_t old_bytes, size_t bytes)
{
    void *same = ebbi_large_resize(p, bytes);
    if (same == NULL && tag == EBBI_TAG_NONE && bytes > old_bytes && ebbi_large_is_limited()) {
        ebbi_give_all();
        same = ebbi_large_resize(p, bytes);
    }
    return same;
}

// Where the block lies, or elsewhere.
static EBBI_NOINLINE void *resize_block(void *p, size_t old_bytes, size_t bytes, ebbi_site site)
{
    unsigned tag = ebbi_tag_of(p);
    if (tag == EBBI_TAG_REGION || (ebbi_tag_class(tag) == 0 && bytes > EBBI_CLASS_MAX)) {
        void *same = tag == EBBI_TAG_REGION ? ebbi_region_resize(p, bytes)
                                            : grow_large(p, tag, old_bytes, bytes);
        if (same != NULL) {
            return stays_here(same);
        }
    }
    bool may = tag != EBBI_TAG_REGION && tag != EBBI_TAG_NONE && is_plain() &&
               !ebbi_check_is_on(); // a mapping may be longer than what is asked for
    void *to = may ? ebbi_large_grow_out(p, old_bytes, bytes) : NULL;
    if (to != NULL) {
        ebbi_free_at(p, site);
        return to;
    }
    return move_or_stay(p, old_bytes, bytes, site);
}

// Checks know something of it, or will.
static bool checks_know(const void *p, size_t bytes)
{
    unsigned tag = ebbi_tag_of(p);
    return ebbi_tag_class(tag) != 0 || ebbi_large_is_guarded(p) ||
           (tag != EBBI_TAG_REGION && bytes <= EBBI_HUGE_MIN);
}

static void *resize_any(void *p, size_t old_bytes, size_t bytes, ebbi_site site)
{
    if (ebbi_check_is_on() && checks_know(p, bytes)) {
        return move_or_stay(p, old_bytes, bytes, site); // what points to the old place is found
    }
    bool fits = bytes <= old_bytes && (bytes > old_bytes / 2 || old_bytes == EBBI_QUANTUM) &&
                old_bytes <= EBBI_CLASS_MAX;
    return fits ? stay(p) : resize_block(p, old_bytes, bytes, site);
}

// While a profile is on: an allocation of the new size, wherever the block lies then.
static EBBI_NOINLINE void *resize_counted(void *p, size_t old_bytes, size_t bytes, ebbi_site site)
{
    uint32_t round = ebbi_profile_round();
    struct ebbi_heap *mine = ebbi_heap_get();
    if (mine == NULL || ebbi_source_now() == &ebbi_heap_scoped ||
        ebbi_tag_of(p) == EBBI_TAG_REGION) {
        return resize_any(p, old_bytes, bytes, site);
    }
    bool is_sample = ebbi_sampler_count(&mine->fast.sampler, round, bytes);
    if (is_sample && bytes <= EBBI_CLASS_MAX) {
        if (ebbi_tag_class(ebbi_tag_of(p)) != 0 && !ebbi_check_is_on()) {
            ebbi_stay_slow(p); // had it been freed, it would be held in its sample's stead
        }
        void *to = ebbi_sample_make(mine, bytes, 1, false, site);
        if (to != NULL) {
            memcpy(to, p, ebbi_min(old_bytes, bytes));
            ebbi_free_at(p, site);
            return to;
        }
    }
    // What it takes to move the block is not counted once more.
    struct ebbi_sampler before = ebbi_sampler_rest(&mine->fast.sampler);
    void *to = resize_any(p, old_bytes, bytes, site);
    ebbi_sampler_go_on(&mine->fast.sampler, &before);
    struct ebbi_note *note = is_sample && to != NULL ? ebbi_large_note(to) : NULL;
    if (note != NULL) {
        (void)ebbi_profile_add(note, bytes, before.mean, mine->fast.pin.thread, NULL,
                               ebbi_caller_of(site));
        EBBI_PROBE2(sample, to, bytes);
    }
    return to;
}

static EBBI_NOINLINE void *resize_slow(void *p, size_t bytes, ebbi_site site)
{
    if (p == NULL) {
        return ebbi_malloc_at(bytes, EBBI_BY_MALLOC, site);
    }
    if (bytes == 0) {
        ebbi_free_at(p, site);
        return NULL;
    }
    if (bytes > PTRDIFF_MAX) {
        return refuse_size();
    }
    size_t old_bytes = ebbi_usable_size(p);
    if (EBBI_UNLIKELY(old_bytes == EBBI_NO_BLOCK)) {
        return refuse_pointer();
    }
    void *to = EBBI_LIKELY(ebbi_profile_round() == 0) ? resize_any(p, old_bytes, bytes, site)
                                                      : resize_counted(p, old_bytes, bytes, site);
    ebbi_serve(); // what is resized in its place, again and again, meets no other slow call
    return to;
}

// While a profile is on: the bin of what is certainly no sample, as which it has been counted then; or 0.
static EBBI_NOINLINE size_t counted_bin(struct ebbi_fast *heap, size_t bytes)
{
    struct ebbi_sampler *sampler = &heap->sampler;
    if (sampler->until <= (int64_t)bytes) {
        return 0;
    }
    size_t bin = ebbi_counted_bin_for(heap, bytes);
    sampler->until -= bin != 0 ? (int64_t)bytes : 0;
    return bin;
}

// A block of a class that stays where it is, or moves by the fast paths of malloc and free, which look at it as free
// does. While a profile or checks are on, there is no bin for its size; with checks there is no room for it: all is done
// the slow way.
void *ebbi_realloc(void *p, size_t bytes)
{
    size_t granule = ebbi_granule_of(p);
    if (EBBI_UNLIKELY(granule >= ebbi_window.fast_granules || bytes - 1 >= EBBI_SMALL_MAX)) {
        return resize_slow(p, bytes, EBBI_SITE(EBBI_BY_MALLOC));
    }
    int64_t tag = ebbi_tag_load(&ebbi_window.tags[granule]); // as in ebbi_free
    size_t bin = ebbi_tag_bin(tag);
    struct ebbi_fast *heap = ebbi_source_now();
    ebbi_slot *top = heap->top[bin];
    size_t to_bin = ebbi_bin_for(heap, bytes);
    if (EBBI_UNLIKELY(top == heap->limit[bin] || !ebbi_slab_has_place(p, tag) ||
                      ebbi_was_freed_lately(top, p))) {
        return resize_slow(p, bytes, EBBI_SITE(EBBI_BY_MALLOC));
    }
    size_t counted = 0; // bytes
    if (EBBI_UNLIKELY(to_bin == 0)) {
        to_bin = counted_bin(heap, bytes);
        counted = bytes;
        if (to_bin == 0) {
            return resize_slow(p, bytes, EBBI_SITE(EBBI_BY_MALLOC));
        }
    }
    size_t old_bytes = ebbi_class_bytes(ebbi_tag_class((unsigned)bin));
    if (to_bin == bin || (bytes <= old_bytes && bytes > old_bytes / 2)) {
        return p;
    }
    // Where memory is refused errno is to be as it was, if the block gets smaller.
    if (EBBI_UNLIKELY(heap->top[to_bin][-1] == NULL)) {
        heap->sampler.until += (int64_t)counted; // which that does
        return resize_slow(p, bytes, EBBI_SITE(EBBI_BY_MALLOC));
    }
    void *to =
        ebbi_pop(heap, to_bin, bytes, EBBI_BY_MALLOC, 0, ebbi_malloc_empty, ebbi_malloc_parked);
    if (EBBI_UNLIKELY(to == NULL)) {
        return resize_slow(p, bytes, EBBI_SITE(EBBI_BY_MALLOC));
    }
    memcpy(to, p, ebbi_min(old_bytes, bytes));
    ebbi_free(p, EBBI_BY_MALLOC);
    return to;
}

void *ebbi_region_aligned(struct ebb_region *region, size_t align, size_t bytes)
{
    return align <= EBBI_UNIT ? ebbi_region_malloc(region, bytes)
                              : ebbi_region_slow(region, align, bytes);
}

void *ebbi_region_realloc(struct ebb_region *region, void *p, size_t bytes)
{
    if (p == NULL) {
        return ebbi_region_malloc(region, bytes);
    }
    if (bytes == 0) {
        ebbi_free(p, EBBI_BY_ANY);
        return NULL;
    }
    size_t old_bytes = ebbi_usable_size(p);
    if (old_bytes == EBBI_NO_BLOCK) {
        return refuse_pointer();
    }
    const struct ebb_region *in = ebbi_region_of(p);
    bool same = in != NULL && in == region;
    if (same && ((bytes <= old_bytes && bytes > old_bytes / 2) ||
                 (ebbi_tag_of(p) == EBBI_TAG_REGION && ebbi_region_extend(region, p, bytes)))) {
        return p;
    }
    int saved = errno;
    unsigned tag = ebbi_tag_of(p);
    size_t room = room_to_grow(region, old_bytes, bytes);
    void *to = ebbi_region_malloc(region, room);
    to = to == NULL && room > bytes ? ebbi_region_malloc(region, bytes) : to;
    if (to != NULL && !is_still_there(p, tag, to, EBBI_SITE(EBBI_BY_ANY))) {
        return refuse_pointer();
    }
    if (to != NULL) {
        memcpy(to, p, ebbi_min(old_bytes, bytes));
        ebbi_free(p, EBBI_BY_ANY);
    } else if (bytes <= old_bytes && same) { // to shrink in place is no failure
        errno = saved;
        return p;
    }
    return to;
}

void *ebbi_promote(const void *p, struct ebb_region *to)
{
    size_t bytes = ebbi_usable_size(p);
    if (p == NULL) {
        ebbi_report_invalid(p, "promote");
        bytes = EBBI_NO_BLOCK;
    }
    if (bytes == EBBI_NO_BLOCK) {
        return refuse_pointer();
    }
    if (to != NULL) {
        void *copy = ebbi_region_malloc(to, bytes);
        return copy != NULL ? memcpy(copy, p, bytes) : NULL;
    }
    void *copy = ebbi_heap_alloc(ebbi_heap_get(), 1, bytes, EBBI_SITE(EBBI_BY_MALLOC));
    return copy != NULL ? memcpy(copy, p, bytes) : NULL;
}
