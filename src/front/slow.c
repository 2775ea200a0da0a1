// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer front: the slow malloc, free and retire. What goes to magazines or bags asks for the thread's
// heap first.
#include <errno.h>

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
    return mine != NULL && ebbi_spares_rest(mine);
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

void *ebbi_large_zeroed(size_t bytes) { return large_object(bytes, 1, true); }

EBBI_NOINLINE void *ebbi_malloc_slow(size_t bytes)
{
    if (ebbi_source_now() == &ebbi_heap_scoped) {
        return from_region(1, bytes);
    }
    if (bytes > EBBI_CLASS_MAX) {
        return large_object(bytes, 1, false);
    }
    return take_class(ebbi_class_for(bytes), bytes);
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
