// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: the slow malloc. A bag whose grace period is over refills a magazine at once
// (retire.c); else half a magazine comes from the current slab, from what other
// threads freed, from a part-full slab, from a new one, in this order.
#include "heap/fast.h"

#include <errno.h>

void ebbi_heap_collect(struct ebbi_heap *heap)
{
    ebbi_assert_held(&heap->lock);
    // relaxed: an early look, the exchange decides
    if (ebbi_load_relaxed(&heap->pending) == NULL) {
        return;
    }
    // acquire[pending-take <- pending-push]: pending_next of every slab on the list
    struct ebbi_slab *slab = ebbi_exchange_acquire(&heap->pending, (struct ebbi_slab *)NULL);
    while (slab != NULL) {
        struct ebbi_slab *next = slab->pending_next; // before collect, which ends our hold on it
        size_t count = ebbi_slab_lives(slab) && slab->heap == heap ? ebbi_slab_collect(slab) : 0;
        if (EBBI_UNLIKELY(count == 0)) {
            ebbi_slab_report_late_free(slab); // it ended, and may have begun again, on the list
        }
        size_t bytes = count * ebbi_slab_class(slab)->size;
        heap->idle_bytes += bytes;
        ebbi_heap_count_out(heap, -(int64_t)(bytes));
        slab->touched = heap->clock_ms;
        ebbi_purge_note(heap, slab);
        ebbi_shelf_settle(heap, slab);
        slab = next;
    }
}

static struct ebbi_slab *new_slab(struct ebbi_heap *heap, unsigned class_number)
{
    unsigned bin = ebbi_class_bin(class_number, heap->lane);
    struct ebbi_slab *slab = ebbi_slab_create(class_number, bin, heap);
    if (slab != NULL) {
        const struct ebbi_class *c = &ebbi_classes[class_number];
        EBBI_ASSERT(slab->heap == heap && slab->bucket == EBBI_NO_BUCKET && !slab->away);
        heap->slab_count++;
        heap->held_bytes += (size_t)c->granules << EBBI_GRANULE_SHIFT;
        if (heap->label != NULL) {
            ebbi_label_hold(heap->label, (size_t)c->granules << EBBI_GRANULE_SHIFT);
            ebbi_count(&heap->label->slabs, 1);
        }
        ebbi_shelf_set_current(heap, class_number, slab);
    }
    return slab;
}

// The slab to take from next; a new one only when `may_grow`.
static struct ebbi_slab *next_slab(struct ebbi_heap *heap, unsigned class_number, bool may_grow)
{
    ebbi_assert_held(&heap->lock);
    struct ebbi_slab *current = heap->shelves[class_number].current;
    if (current != NULL && current->free_count > 0) {
        return current;
    }
    ebbi_heap_collect(heap);
    if (current != NULL && current->free_count > 0) {
        return current;
    }
    struct ebbi_slab *slab = ebbi_shelf_next(heap, class_number);
    return slab != NULL || !may_grow ? slab : new_slab(heap, class_number);
}

// Fills slots[0..got) so that the lowest addresses of each slab are taken first from the end.
size_t ebbi_heap_take(struct ebbi_heap *heap, unsigned class_number, void **slots, size_t wanted,
                      bool may_grow)
{
    ebbi_assert_held(&heap->lock);
    EBBI_ASSERT(ebbi_is_class(class_number) && wanted > 0);
    size_t got = 0;
    while (got < wanted) {
        struct ebbi_slab *slab = next_slab(heap, class_number, may_grow && got == 0);
        if (slab == NULL) {
            break;
        }
        size_t part = ebbi_min(wanted - got, slab->free_count);
        EBBI_ASSERT(part > 0 && slab->class_number == class_number && !slab->away);
        slab->touched = heap->clock_ms;
        size_t idle = slab->idle;
        part = ebbi_slab_take(slab, slots + got, part);
        EBBI_ASSERT(slab->idle <= idle &&
                    heap->idle_bytes >= (idle - slab->idle) * ebbi_classes[class_number].size);
        heap->idle_bytes -= (idle - slab->idle) * ebbi_classes[class_number].size;
        ebbi_heap_count_out(heap, (int64_t)(part * ebbi_classes[class_number].size));
        EBBI_ASSERT(heap->out_bytes >= part * ebbi_classes[class_number].size);
        got += part;
    }
    return got;
}

bool ebbi_refill(struct ebbi_heap *heap, unsigned class_number, size_t bytes)
{
    struct ebbi_magazine *m = &heap->magazines[class_number];
    unsigned bin = ebbi_class_bin(class_number, heap->lane);
    struct ebbi_heap *owner = ebbi_lock_owner(heap, class_number);
    ebbi_assert_held(&owner->lock);
    EBBI_ASSERT(m->stolen == 0);
    size_t got = 0;
    bool has_array = ebbi_magazine_ensure(heap, class_number);
    if (has_array) {
        ebbi_magazine_adapt(heap, class_number, false);
        heap->events++;
        ebbi_heap_tell_time(owner);
        m->asked_bytes += bytes;
        m->asked_count++;
        got = ebbi_depot_take(owner, class_number, m->base + 1, m->slots / 2u);
        EBBI_ASSERT(got < m->slots && m->base[0] == NULL);
        heap->taken_bytes += got * ebbi_classes[class_number].size;
        heap->fast.top[bin] = m->base + 1 + got;
    }
    EBBI_HEAP_AUDIT(owner, heap->events);
    ebbi_lock_drop(&owner->lock);
    EBBI_MAGAZINES_AUDIT(heap, heap->events);
    ebbi_helper_kick(); // there is something in a magazine
    if (!has_array) {
        ebbi_flush_largest(heap); // for the next refill
    }
    return got > 0;
}

// One block past the magazines, from a heap that is locked, or NULL.
static void *take_one(struct ebbi_heap *locked, unsigned class_number)
{
    void *block = NULL;
    if (locked != NULL) {
        (void)ebbi_heap_take(locked, class_number, &block, 1, true);
        ebbi_lock_drop(&locked->lock);
    }
    return block;
}

static void *pop(struct ebbi_heap *heap, unsigned class_number, size_t bytes)
{
    unsigned bin = ebbi_class_bin(class_number, heap->lane);
    void **top = heap->fast.top[bin];
    void *block = top[-1];
    if (block == NULL) {
        if (!ebbi_limbo_refill(heap, class_number) && !ebbi_refill(heap, class_number, bytes)) {
            return take_one(ebbi_lock_owner(heap, class_number), class_number);
        }
        top = heap->fast.top[bin];
        block = top[-1];
    }
    EBBI_ASSERT(ebbi_slab_class(ebbi_slab_of(block)) == &ebbi_classes[class_number]);
    ebbi_store_relaxed(&heap->fast.top[bin], top - 1); // relaxed: others only count
    return block;
}

static void *take_class(unsigned class_number, size_t bytes)
{
    EBBI_ASSERT(ebbi_is_class(class_number) && bytes <= ebbi_classes[class_number].size);
    struct ebbi_heap *heap =
        ebbi_source_get(); // a thread's first call is inside only with its heap
    struct ebbi_heap *inside = ebbi_inside();
    void *block = heap != NULL ? pop(heap, class_number, bytes)
                               : take_one(ebbi_heap_lock_public(), class_number);
    ebbi_outside(inside);
    if (EBBI_UNLIKELY(block == NULL)) {
        errno = ENOMEM;
    }
    return block;
}

EBBI_NOINLINE void *ebbi_malloc_slow(size_t bytes)
{
    if (ebbi_source_now() == &ebbi_heap_scoped) {
        return ebbi_scoped_malloc(bytes);
    }
    if (bytes > EBBI_CLASS_MAX) {
        return ebbi_large_alloc(bytes, 1, false);
    }
    return take_class(ebbi_class_for(bytes), bytes);
}

void *ebbi_aligned(size_t align, size_t bytes)
{
    if (ebbi_source_now() == &ebbi_heap_scoped) {
        return ebbi_scoped_aligned(align, bytes);
    }
    if (bytes <= EBBI_CLASS_MAX && align <= EBBI_CLASS_MAX) {
        unsigned class_number = ebbi_class_for_aligned(bytes, align);
        if (class_number != 0) {
            return take_class(class_number, bytes);
        }
    }
    return ebbi_large_alloc(bytes, align, false);
}

void *ebbi_heap_alloc(size_t align, size_t bytes)
{
    (void)ebbi_heap_get(); // a thread's first call sets its source
    struct ebbi_heap *inside = ebbi_inside();
    struct ebbi_fast *before = ebbi_source_swap(ebbi_current());
    void *p = align <= EBBI_QUANTUM ? ebbi_malloc(bytes) : ebbi_aligned(align, bytes);
    ebbi_source_set(before);
    ebbi_outside(inside);
    return p;
}

void *ebbi_alloc_own(size_t bytes) { return ebbi_heap_alloc(EBBI_CACHE_LINE, bytes); }
