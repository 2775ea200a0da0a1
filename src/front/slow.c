// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer front: the slow malloc, free and retire. What goes to magazines or bags asks for the thread's
// heap first.
#include <errno.h>

#include "debug/guard.h"
#include "front/fast.h"
#include "reclaim/reclaim.h"

static void *from_region(size_t align, size_t bytes)
{
    return ebbi_region_aligned(ebbi_heap_mine()->region, align, bytes);
}

// Memory was refused. True: there is some more now.
static bool give_spares(void)
{
    struct ebbi_heap *mine = ebbi_heap_mine();
    return (mine != NULL && ebbi_spares_rest(mine)) || ebbi_guard_rest();
}

static void *take_class(unsigned class_number, size_t bytes)
{
    EBBI_ASSERT(ebbi_is_class(class_number) && bytes <= ebbi_classes[class_number].size);
    struct ebbi_heap *heap =
        ebbi_source_get(); // a thread's first call is inside only with its heap
    void *block = NULL;
    if (heap != NULL) {
        struct ebbi_heap *inside = ebbi_inside();
        if (ebbi_magazine_is_empty(heap, class_number)) {
            (void)ebbi_limbo_refill(heap, class_number);
        }
        block = ebbi_heap_pop(heap, class_number, bytes);
        if (EBBI_UNLIKELY(block == NULL) && give_spares()) {
            block = ebbi_heap_pop(heap, class_number, bytes);
        }
        ebbi_outside(inside);
        ebbi_purge_tick(NULL);
        ebbi_serve();
    } else if (ebbi_start() == 0) {
        block = ebbi_heap_take_one(NULL, class_number);
    }
    if (EBBI_UNLIKELY(block == NULL)) {
        errno = ENOMEM;
    }
    return block;
}

static EBBI_NOINLINE void *take_any(size_t bytes)
{
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
    return ebbi_large_alloc(bytes, align, zero, heap != NULL ? heap->own.label : NULL);
}

// A guarded one, if it is time for that; else NULL. Of threads in a domain none is.
static EBBI_NOINLINE void *guarded_in_time(size_t bytes, size_t align, bool zero)
{
    const struct ebbi_heap *source = ebbi_source_get();
    bool may = source != NULL && source->own.label == NULL && ebbi_guard_is_due();
    return may ? ebbi_guard_make(bytes, align, zero) : NULL;
}

static void *guarded(size_t bytes, size_t align, bool zero)
{
    return ebbi_guard_is_on() ? guarded_in_time(bytes, align, zero) : NULL;
}

// ---- while a profile is on ----------------------------------------------------------------------------

EBBI_NOINLINE void *ebbi_sample_make(struct ebbi_heap *mine, size_t bytes, size_t align, bool zero)
{
    int saved = errno;
    struct ebbi_sampler before = ebbi_sampler_rest(&mine->fast.sampler);
    void *p = guarded(bytes, align, zero);
    p = p != NULL ? p : large_object(bytes, align, zero);
    if (p != NULL) {
        ebbi_profile_add(ebbi_large_note(p), bytes, before.mean);
    } else {
        errno = saved;
    }
    ebbi_sampler_go_on(&mine->fast.sampler, &before);
    ebbi_profile_lapse();
    return p;
}

static EBBI_NOINLINE void *sample_in(uint32_t round, size_t bytes, size_t align, bool zero)
{
    struct ebbi_heap *mine = ebbi_heap_get();
    return mine != NULL && ebbi_sampler_count(&mine->fast.sampler, round, bytes)
               ? ebbi_sample_make(mine, bytes, align, zero)
               : NULL;
}

// A sample, or a guarded one, if the allocation is one; else NULL. Of a thread that has no heap for good none is.
static void *sample_of(size_t bytes, size_t align, bool zero)
{
    uint32_t round = ebbi_profile_round();
    void *p = EBBI_LIKELY(round == 0) ? NULL : sample_in(round, bytes, align, zero);
    return p != NULL ? p : guarded(bytes, align, zero);
}

static EBBI_NOINLINE void *take_parked(size_t bytes)
{
    ebbi_unpop(bytes);
    return take_any(bytes);
}

// ------------------------------------------------------------------------------------------------------

void *ebbi_large_zeroed(size_t bytes)
{
    void *p = sample_of(bytes, 1, true);
    return p != NULL ? p : large_object(bytes, 1, true);
}

static EBBI_NOINLINE void *malloc_any(size_t bytes)
{
    if (ebbi_source_now() == &ebbi_heap_scoped) {
        return from_region(1, bytes);
    }
    void *p = sample_of(bytes, 1, false);
    if (EBBI_UNLIKELY(p != NULL)) {
        return p;
    }
    return bytes > EBBI_CLASS_MAX ? large_object(bytes, 1, false) : take_any(bytes);
}

// While a profile is on every malloc comes here. Only a thread's own heap has a sampler of this round.
EBBI_NOINLINE void *ebbi_malloc_slow(size_t bytes)
{
    uint32_t round = ebbi_profile_round();
    struct ebbi_fast *source = ebbi_source_now();
    if (EBBI_LIKELY(round == 0) || bytes > EBBI_SMALL_MAX ||
        !ebbi_sampler_skips(&source->sampler, round, bytes)) {
        return malloc_any(bytes);
    }
    unsigned lane = ((struct ebbi_heap *)source)->lane;
    return ebbi_pop(source, ebbi_lookup_bin(bytes, lane), bytes, take_any, take_parked);
}

EBBI_NOINLINE void *ebbi_malloc_parked(size_t bytes)
{
    ebbi_unpop(bytes);
    return ebbi_malloc_slow(bytes);
}

void *ebbi_aligned(size_t align, size_t bytes)
{
    if (ebbi_source_now() == &ebbi_heap_scoped) {
        return from_region(align, bytes);
    }
    void *p = sample_of(bytes, align, false);
    if (EBBI_UNLIKELY(p != NULL)) {
        return p;
    }
    if (bytes <= EBBI_CLASS_MAX && align <= EBBI_CLASS_MAX) {
        unsigned class_number = ebbi_class_for_aligned(bytes, align);
        if (class_number != 0) {
            return take_class(class_number, bytes);
        }
    }
    return large_object(bytes, align, false);
}

static EBBI_NOINLINE void free_class(void *p)
{
    struct ebbi_heap *heap = ebbi_source_for_free();
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

EBBI_NOINLINE void ebbi_free_slow(void *p)
{
    unsigned tag = ebbi_tag_of(p);
    if (tag == EBBI_TAG_REGION) {
        ebbi_sheet_free(p);
    } else if (ebbi_tag_class(tag) != 0) {
        free_class(p);
    } else if (p != NULL) {
        ebbi_large_free(p);
    }
    ebbi_serve();
}

EBBI_NOINLINE void ebbi_retire_slow(void *p)
{
    ebbi_retire_to(ebbi_heap_get(), p);
    ebbi_serve();
}

EBBI_NOINLINE void *ebbi_region_slow(struct ebb_region *region, size_t align, size_t bytes)
{
    return ebbi_region_alloc(ebbi_heap_get(), region, align, bytes, __builtin_return_address(0));
}
