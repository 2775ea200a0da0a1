// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: half a magazine at a time from the slabs that serve it, and single blocks for the layers
// above.
#include "heap/blocks.h"

#include <errno.h>

#include "base/probe.h"
#include "debug/check.h"
#include "debug/guard.h"
#include "heap/registry.h"
#include "os/wake.h"

// Half a magazine, or without an array one block. False: memory is refused.
static bool refill(struct ebbi_heap *heap, unsigned class_number, size_t bytes, void **one)
{
    struct ebbi_magazine *m = &heap->magazines[class_number];
    unsigned bin = ebbi_class_bin(class_number, heap->lane);
    if (ebbi_magazines_owe(heap)) {
        ebbi_flush_turn(heap);
    }
    struct ebbi_owner *owner = ebbi_lock_owner(heap, class_number);
    ebbi_assert_held(&owner->lock);
    EBBI_ASSERT(m->stolen == 0);
    ebbi_owner_tell_time(owner);
    ebbi_magazines_tell_time(heap, owner->clock_ms);
    bool has_array = ebbi_magazine_ensure(heap, class_number);
    if (has_array) {
        ebbi_magazine_adapt(heap, class_number, false);
    }
    m->asked_bytes += bytes;
    m->asked_count++;
    void **slots = has_array ? m->base + 1 : one;
    size_t got = ebbi_depot_take(owner, class_number, slots, has_array ? m->slots / 2u : 1);
    ebbi_heap_count_event(heap, got);
    // relaxed: others only count
    ebbi_store_relaxed(&heap->taken_bytes,
                       heap->taken_bytes + got * ebbi_classes[class_number].size);
    if (has_array) {
        EBBI_ASSERT(got < m->slots && m->base[0] == NULL);
        ebbi_store_relaxed(&heap->fast.top[bin], slots + got); // relaxed: others only count
    }
    EBBI_OWNER_AUDIT(owner, heap->events);
    ebbi_unlock_owner(heap, owner);
    EBBI_PROBE2(refill, ebbi_classes[class_number].size, got);
    if (!has_array) {
        ebbi_flush_turn(heap); // for the next time
    }
    if (EBBI_UNLIKELY(heap->lacks_slots)) {
        ebbi_magazines_extend(heap);
    }
    EBBI_MAGAZINES_AUDIT(heap, heap->events);
    ebbi_helper_kick(); // there is something in a magazine
    return got > 0;
}

void *ebbi_take_one(unsigned class_number)
{
    void *block = NULL;
    struct ebbi_owner *owner = ebbi_lock_owner(NULL, class_number);
    (void)ebbi_owner_take(owner, class_number, &block, 1, true);
    ebbi_unlock_owner(NULL, owner);
    return block;
}

bool ebbi_magazine_is_empty(const struct ebbi_heap *heap, unsigned class_number)
{
    return heap->fast.top[ebbi_class_bin(class_number, heap->lane)][-1] == NULL;
}

void *ebbi_heap_pop(struct ebbi_heap *heap, unsigned class_number, size_t bytes)
{
    unsigned bin = ebbi_class_bin(class_number, heap->lane);
    void *one = NULL;
    if (ebbi_magazine_is_empty(heap, class_number) &&
        (!refill(heap, class_number, bytes, &one) || one != NULL)) {
        return one;
    }
    void **top = heap->fast.top[bin];
    if (ebbi_check_is_on()) { // in no order
        void **base = heap->magazines[class_number].base;
        void **other = base + 1 + ebbi_check_random((size_t)(top - (base + 1)));
        void *swapped = *other;
        *other = top[-1];
        top[-1] = swapped;
    }
    void *block = top[-1];
    EBBI_ASSERT(ebbi_slab_class(ebbi_slab_of(block)) == &ebbi_classes[class_number]);
    ebbi_store_relaxed(&heap->fast.top[bin], top - 1); // relaxed: others only count
    return block;
}

static unsigned class_of(size_t align, size_t bytes)
{
    bool may = bytes <= EBBI_CLASS_MAX && align <= EBBI_CLASS_MAX;
    return may ? ebbi_class_for_aligned(bytes, align) : 0;
}

static void *alloc_class(struct ebbi_heap *heap, unsigned class_number, size_t bytes)
{
    EBBI_ASSERT(ebbi_is_class(class_number) && bytes <= ebbi_classes[class_number].size);
    struct ebbi_heap *inside = ebbi_inside();
    void *block =
        heap != NULL ? ebbi_heap_pop(heap, class_number, bytes) : ebbi_take_one(class_number);
    ebbi_outside(inside);
    if (EBBI_UNLIKELY(block == NULL)) {
        errno = ENOMEM;
    }
    return block;
}

static void *alloc_checked(struct ebbi_heap *heap, unsigned class_number, size_t align,
                           size_t bytes, ebbi_site site)
{
    size_t room = ebbi_check_room(align, bytes);
    void *block = alloc_class(heap, class_number, room);
    while (block != NULL && !ebbi_check_claim(block)) {
        block = alloc_class(heap, class_number, room);
    }
    return ebbi_check_make(block, align, bytes, site);
}

void *ebbi_heap_alloc(struct ebbi_heap *heap, size_t align, size_t bytes, ebbi_site site)
{
    bool checks = ebbi_check_is_on();
    void *guarded = checks && ebbi_check_guards(align, bytes)
                        ? ebbi_guard_make(bytes, align, false, site, false)
                        : NULL;
    if (guarded != NULL) {
        return guarded;
    }
    checks = checks && bytes <= EBBI_CLASS_MAX && align <= EBBI_CLASS_MAX;
    size_t room = checks ? ebbi_check_room(align, bytes) : bytes;
    unsigned class_number = class_of(align, room);
    if (class_number == 0) {
        return ebbi_large_alloc(bytes, align, false, heap != NULL ? heap->own.label : NULL);
    }
    return checks ? alloc_checked(heap, class_number, align, bytes, site)
                  : alloc_class(heap, class_number, bytes);
}

void *ebbi_own_alloc(size_t bytes)
{
    struct ebbi_heap *heap = ebbi_heap_mine();
    if (ebbi_check_is_on()) {
        unsigned class_number = class_of(EBBI_CACHE_LINE, ebbi_check_room(EBBI_CACHE_LINE, bytes));
        return alloc_checked(heap, class_number, EBBI_CACHE_LINE, bytes, 0);
    }
    return alloc_class(heap, class_of(EBBI_CACHE_LINE, bytes), bytes);
}
