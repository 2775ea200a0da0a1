// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer front: the slow malloc, free and retire. What goes to magazines or bags asks for the thread's
// heap first.
#include <errno.h>

#include "base/probe.h"
#include "debug/check.h"
#include "debug/guard.h"
#include "front/fast.h"
#include "os/options.h"
#include "reclaim/reclaim.h"

// Where the region gives way, the block is as one of the heap's of that family.
static void *from_region(size_t align, size_t bytes, ebbi_site site)
{
    struct ebb_region *region = ebbi_heap_mine()->region;
    if (align <= EBBI_UNIT && ebbi_region_is_easy(region, bytes)) {
        return (void *)ebbi_cursor_take(&region->front.cursor, bytes);
    }
    return ebbi_region_alloc(ebbi_heap_mine(), region, align, bytes, site);
}

// The first malloc of the process comes here before it is known.
static bool checks_all(void)
{
    (void)ebbi_start();
    return ebbi_check_is_on();
}

// Memory was refused: what is held, and all that is free anywhere, goes home, so that address space comes together.
// Not while the thread ends the process, and may hold any lock.
void ebbi_give_all(void)
{
    struct ebbi_heap *mine = ebbi_heap_mine();
    if (!ebbi_load_relaxed(&ebbi_dying)) { // relaxed: set by this thread, or of no matter
        (void)ebbi_guard_rest();
        (void)ebbi_trim(mine, ebbi_threads_any());
    }
    if (mine != NULL) {
        (void)ebbi_spares_rest(mine); // what was held may have become spare
    }
}

static void *take_class(unsigned class_number, size_t bytes)
{
    EBBI_ASSERT(ebbi_is_class(class_number) && bytes <= ebbi_classes[class_number].size);
    struct ebbi_heap *heap =
        ebbi_source_get(); // a thread's first call is inside only with its heap
    void *block = NULL;
    if (heap != NULL) {
        struct ebbi_heap *inside = ebbi_inside();
        bool refills = ebbi_magazine_is_empty(heap, class_number);
        if (refills) {
            (void)ebbi_limbo_refill(heap, class_number);
        }
        block = ebbi_heap_pop(heap, class_number, bytes);
        if (EBBI_UNLIKELY(block == NULL)) {
            ebbi_give_all();
            block = ebbi_heap_pop(heap, class_number, bytes);
        }
        ebbi_outside(inside);
        if (refills) {
            ebbi_purge_tick(heap);
        }
        ebbi_serve();
    } else if (ebbi_start() == 0) {
        block = ebbi_take_one(class_number);
    }
    if (EBBI_UNLIKELY(block == NULL)) {
        errno = ENOMEM;
    }
    return block;
}

static EBBI_NOINLINE void *take_any(size_t bytes, ebbi_site site)
{
    (void)site;
    return take_class(ebbi_class_for(bytes), bytes);
}

static void *large_object(size_t bytes, size_t align, bool zero)
{
    // A thread's first heap sets up what fork() needs.
    struct ebbi_heap *heap = ebbi_source_get();
    if (heap == NULL && ebbi_start() != 0) {
        errno = ENOMEM;
        return NULL;
    }
    struct ebbi_label *label = heap != NULL ? heap->own.label : NULL;
    void *p = ebbi_large_alloc(bytes, align, zero, label);
    bool possible = bytes >> EBBI_ADDRESS_BITS == 0; // else nothing would help
    if (p == NULL && possible) {
        ebbi_give_all();
        p = ebbi_large_alloc(bytes, align, zero, label);
    }
    return p;
}

// A guarded one, if it is time for that; else NULL. Of threads in a domain none is.
static EBBI_NOINLINE void *guarded_in_time(size_t bytes, size_t align, bool zero, ebbi_site site)
{
    const struct ebbi_heap *source = ebbi_source_get();
    bool may = source != NULL && source->own.label == NULL && ebbi_guard_is_due();
    return may ? ebbi_guard_make(bytes, align, zero, site, true) : NULL;
}

static void *guarded(size_t bytes, size_t align, bool zero, ebbi_site site)
{
    bool may = ebbi_guard_is_on() && ebbi_guard_may_be_due();
    return may ? guarded_in_time(bytes, align, zero, site) : NULL;
}

// ---- while a profile is on ----------------------------------------------------------------------------

// What lies where a sample would have lain (profile/profile.h, P5); NULL: it would lie alone, or nobody may look.
static void *hold_beside(size_t bytes, size_t align)
{
    const struct ebbi_heap *source = ebbi_source_get();
    bool may = source != NULL && source->own.label == NULL && bytes > 0 &&
               bytes <= EBBI_HELD_MOST && align <= EBBI_CLASS_MAX && !ebbi_check_is_on();
    unsigned class_number = may ? ebbi_class_for_aligned(bytes, align) : 0;
    void *block = class_number != 0 ? take_class(class_number, bytes) : NULL;
    if (block != NULL) {
        ebbi_sample_hold(block);
    }
    return block;
}

EBBI_NOINLINE void *ebbi_sample_make(struct ebbi_heap *mine, size_t bytes, size_t align, bool zero,
                                     ebbi_site site)
{
    int saved = errno;
    struct ebbi_sampler before = ebbi_sampler_rest(&mine->fast.sampler);
    bool checks = checks_all();
    void *p = checks ? ebbi_guard_make(bytes, align, zero, site, false)
                     : guarded(bytes, align, zero, site);
    if (p == NULL && (!checks || bytes > EBBI_CLASS_MAX)) {
        p = large_object(bytes, align, zero);
    }
    if (p != NULL) {
        ebbi_large_sampled(p);
        void *held = hold_beside(bytes, align);
        if (!ebbi_profile_add(ebbi_large_note(p), bytes, before.mean, mine->fast.pin.thread, held,
                              ebbi_caller_of(site))) {
            ebbi_own_free(held);
        }
        EBBI_PROBE2(sample, p, bytes);
    }
    errno = saved;
    ebbi_sampler_go_on(&mine->fast.sampler, &before);
    ebbi_profile_lapse();
    return p;
}

static EBBI_NOINLINE void *sample_in(uint32_t round, size_t bytes, size_t align, bool zero,
                                     ebbi_site site)
{
    struct ebbi_heap *mine = ebbi_heap_get();
    if (mine == NULL) {
        return NULL;
    }
    if (mine->fast.sampler.round != round && !mine->alone) {
        ebbi_heap_count(mine, round);
    }
    return ebbi_sampler_count(&mine->fast.sampler, round, bytes)
               ? ebbi_sample_make(mine, bytes, align, zero, site)
               : NULL;
}

// A sample, or a guarded one, if the allocation is one; else NULL. Of a thread that has no heap for good none is.
static void *sample_of(size_t bytes, size_t align, bool zero, ebbi_site site)
{
    uint32_t round = ebbi_profile_round();
    void *p = EBBI_LIKELY(round == 0) ? NULL : sample_in(round, bytes, align, zero, site);
    return p != NULL ? p : guarded(bytes, align, zero, site);
}

static EBBI_NOINLINE void *take_parked(size_t bytes, ebbi_site site)
{
    ebbi_unpop(bytes);
    return take_any(bytes, site);
}

// ------------------------------------------------------------------------------------------------------

void *ebbi_large_zeroed(size_t bytes, ebbi_site site)
{
    void *p = sample_of(bytes, 1, true, site);
    if (p == NULL && checks_all()) {
        p = ebbi_guard_make(bytes, 1, true, site, false);
    }
    return p != NULL ? p : large_object(bytes, 1, true);
}

// With EBB_CHECK=1. Large and empty ones are guarded, as long as there is room for that.
static EBBI_NOINLINE void *checked(size_t bytes, size_t align, bool zero, ebbi_site site)
{
    void *p =
        ebbi_check_guards(align, bytes) ? ebbi_guard_make(bytes, align, zero, site, false) : NULL;
    if (p != NULL || bytes > EBBI_CLASS_MAX || align > EBBI_CLASS_MAX) {
        return p != NULL ? p : large_object(bytes, align, zero);
    }
    size_t room = ebbi_check_room(align, bytes);
    unsigned class_number = room <= EBBI_CLASS_MAX ? ebbi_class_for_aligned(room, align) : 0;
    if (class_number == 0) {
        return large_object(bytes, align, zero);
    }
    void *block = take_class(class_number, room);
    while (block != NULL && !ebbi_check_claim(block)) {
        block = take_class(class_number, room);
    }
    return ebbi_check_make(block, align, bytes, site);
}

// Of no sample and no region.
static void *plain(size_t bytes, size_t align, ebbi_site site)
{
    if (checks_all()) {
        return checked(bytes, align, false, site);
    }
    if (bytes <= EBBI_CLASS_MAX && align <= EBBI_CLASS_MAX) {
        unsigned class_number = ebbi_class_for_aligned(bytes, align);
        if (class_number != 0) {
            return take_class(class_number, bytes);
        }
    }
    return large_object(bytes, align, false);
}

static EBBI_NOINLINE void *malloc_any(size_t bytes, ebbi_site site)
{
    if (ebbi_source_now() == &ebbi_heap_scoped) {
        return from_region(1, bytes, site);
    }
    void *p = sample_of(bytes, 1, false, site);
    return EBBI_UNLIKELY(p != NULL) ? p : plain(bytes, 1, site);
}

// The thread's own, where nothing else is current, and nothing asked of each malloc; else NULL.
static struct ebbi_heap *plain_heap(void)
{
    const struct ebbi_fast *source = ebbi_source_now();
    struct ebbi_heap *mine = ebbi_heap_mine();
    uint32_t asked =
        (uint32_t)ebbi_guard_is_on() | (uint32_t)ebbi_check_is_on() | ebbi_profile_round();
    return mine != NULL && source == &mine->fast && asked == 0 ? mine : NULL;
}

// Where the thread has freed an object like it, it is that one.
static EBBI_NOINLINE void *malloc_large(size_t bytes, ebbi_site site)
{
    struct ebbi_heap *mine = plain_heap();
    void *again = mine != NULL ? ebbi_large_again(mine, bytes) : NULL;
    return again != NULL ? again : malloc_any(bytes, site);
}

// Of a class beyond the fast path's table.
static EBBI_NOINLINE void *malloc_medium(size_t bytes, ebbi_site site)
{
    struct ebbi_heap *mine = plain_heap();
    if (mine == NULL) {
        return malloc_any(bytes, site);
    }
    unsigned bin = ebbi_class_bin(ebbi_class_for(bytes), mine->lane);
    return ebbi_pop(&mine->fast, bin, bytes, EBBI_BY_MALLOC, site, malloc_any, ebbi_malloc_parked);
}

EBBI_NOINLINE void *ebbi_malloc_slow(size_t bytes, ebbi_site site)
{
    return bytes > EBBI_CLASS_MAX ? malloc_large(bytes, site) : malloc_medium(bytes, site);
}

// While a profile is on: the magazine is empty, or another round has begun, or nothing is asked for.
static EBBI_NOINLINE void *take_passed(size_t bytes, ebbi_site site)
{
    bool counted = ebbi_current()->sampler.round == ebbi_profile_round() && bytes != 0;
    return counted ? plain(bytes, 1, site) : malloc_any(bytes, site);
}

// While a profile is on every malloc comes here, and is to lose little: what is no sample is taken as by the fast one.
EBBI_NOINLINE void *ebbi_malloc_empty(size_t bytes, ebbi_site site)
{
    struct ebbi_fast *source = ebbi_source_now();
    if (!ebbi_sampler_passes(&source->sampler, bytes)) {
        return malloc_any(bytes, site);
    }
    size_t bin = ebbi_counted_bin_for(source, bytes);
    return ebbi_pop(source, bin, bytes, EBBI_BY_MALLOC, site, take_passed, take_parked);
}

EBBI_NOINLINE void *ebbi_malloc_parked(size_t bytes, ebbi_site site)
{
    ebbi_unpop(bytes);
    return bytes > EBBI_SMALL_MAX ? ebbi_malloc_slow(bytes, site) : ebbi_malloc_empty(bytes, site);
}

static void *none(size_t bytes, ebbi_site site)
{
    (void)bytes, (void)site;
    return NULL;
}

static EBBI_NOINLINE void *none_parked(size_t bytes, ebbi_site site)
{
    ebbi_unpop(bytes);
    return none(bytes, site);
}

void *ebbi_aligned_fast(size_t align, size_t bytes)
{
    unsigned class_number = bytes <= EBBI_SMALL_MAX && align <= EBBI_SMALL_MAX
                                ? ebbi_class_for_aligned(bytes, align)
                                : 0;
    size_t size = ebbi_classes[class_number].size;
    if (class_number == 0 || class_number == EBBI_CLASS_EMPTY || size > EBBI_SMALL_MAX) {
        return NULL;
    }
    struct ebbi_fast *source = ebbi_source_now();
    return ebbi_pop(source, ebbi_bin_for(source, size), size, EBBI_BY_ALIGNED, 0, none,
                    none_parked);
}

void *ebbi_aligned(size_t align, size_t bytes, ebbi_site site)
{
    void *p = ebbi_aligned_fast(align, bytes);
    if (EBBI_LIKELY(p != NULL)) {
        return p;
    }
    if (ebbi_source_now() == &ebbi_heap_scoped) {
        return from_region(align, bytes, site);
    }
    p = sample_of(bytes, align, false, site);
    return EBBI_UNLIKELY(p != NULL) ? p : plain(bytes, align, site);
}

static EBBI_NOINLINE void free_class(void *p, ebbi_site site)
{
    struct ebbi_heap *heap = ebbi_source_for_free();
    if (ebbi_check_is_on()) {
        ebbi_class_free(p, site);
        return;
    }
    struct ebbi_heap *inside = ebbi_inside();
    if (heap == NULL) {
        ebbi_give_one(p);
    } else {
        ebbi_heap_free(heap, p);
    }
    ebbi_outside(inside);
}

EBBI_NOINLINE void ebbi_stay_slow(void *p)
{
    struct ebbi_heap *heap = ebbi_source_for_free();
    struct ebbi_heap *inside = ebbi_inside();
    if (heap != NULL) {
        ebbi_heap_check(heap, p);
    }
    ebbi_outside(inside);
}

EBBI_NOINLINE void ebbi_free_slow(void *p, ebbi_site site)
{
    unsigned tag = ebbi_tag_of(p);
    bool is_object = tag == EBBI_TAG_LARGE || (tag == EBBI_TAG_NONE && p != NULL);
    if (EBBI_UNLIKELY(ebbi_check_is_on()) && is_object) {
        ebbi_guard_match(p, EBBI_UNSAID, 0, site);
    }
    if (tag == EBBI_TAG_LARGE) {
        ebbi_large_free_tagged(p);
    } else if (is_object) {
        ebbi_large_free(p);
    } else if (tag == EBBI_TAG_REGION) {
        if (ebbi_sheet_free(p)) {
            ebbi_purge_tick(NULL);
        }
    } else if (p != NULL) {
        free_class(p, site);
    }
    ebbi_serve();
}

// Of a large or huge object: by whole pages, but a guarded one.
static bool large_fits(const void *p, const struct ebbi_given *given)
{
    const struct ebbi_note *note = ebbi_large_note((void *)(uintptr_t)p);
    size_t has = ebbi_large_bytes(p);
    size_t said = !ebbi_large_is_guarded(p) && given->bytes <= has
                      ? ebbi_align_up(ebbi_max(given->bytes, 1), ebbi_os_page_size())
                      : given->bytes;
    bool exact = given->is_exact && given->align == 0 && note->label == NULL;
    return exact ? said == has : said <= has;
}

// Of a class. Where another C++ runtime's operator new is at work, as well, one byte is asked for instead of none.
static bool class_fits(unsigned class_number, const struct ebbi_given *given)
{
    if (!given->is_exact || given->align != 0) {
        return given->bytes <= ebbi_class_bytes(class_number);
    }
    size_t bytes = given->bytes;
    return (bytes <= EBBI_CLASS_MAX && ebbi_class_for(bytes) == class_number) ||
           (bytes == 0 && ebbi_class_for(1) == class_number);
}

static bool any_fits(const void *p, const struct ebbi_given *given)
{
    unsigned class_number = ebbi_tag_class(ebbi_tag_of(p));
    if (given->align != 0 &&
        (!ebbi_is_power_of_two(given->align) || ((uintptr_t)p & (given->align - 1)) != 0)) {
        return false;
    }
    if (given->bytes == EBBI_UNSAID) {
        return true;
    }
    return class_number != 0 ? class_fits(class_number, given) : large_fits(p, given);
}

EBBI_NOINLINE void ebbi_free_given_slow(void *p, struct ebbi_given given, ebbi_site site)
{
    unsigned tag = ebbi_tag_of(p);
    if (p == NULL || tag == EBBI_TAG_REGION) {
        ebbi_free_slow(p, site);
        return;
    }
    if (EBBI_UNLIKELY(ebbi_check_is_on()) && ebbi_tag_class(tag) != 0) {
        if (!ebbi_check_match(p, given.bytes, given.align, site)) {
            return;
        }
    } else if (EBBI_UNLIKELY(ebbi_check_is_on()) && ebbi_large_is_guarded(p)) {
        ebbi_guard_match(p, given.bytes, given.align, site);
    } else if (!any_fits(p, &given) && ebbi_option(EBBI_OPTION_CHECK_FAMILY) != 0) {
        ebbi_report_mismatch(p, given.bytes, given.align);
    }
    ebbi_free_at(p, site);
}

EBBI_NOINLINE void ebbi_retire_slow(void *p)
{
    ebbi_retire_to(ebbi_heap_get(), p);
    ebbi_serve();
}

EBBI_NOINLINE void *ebbi_region_slow(struct ebb_region *region, size_t align, size_t bytes)
{
    return ebbi_region_alloc(ebbi_heap_get(), region, align, bytes, EBBI_SITE(EBBI_BY_MALLOC));
}
