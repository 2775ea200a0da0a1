// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: which slab the next refill takes from. Under the heap's lock.
//
// A slab is current (its class's refills come from it), full (no free block: in no list), part-full
// (in the bucket of its share of free blocks), or away (its pages are being returned). A slab whose
// blocks are all free and that is neither current nor away is destroyed.
//
// Between two refills a slab only gains free blocks, so it keeps the count at which it next moves:
// settling it takes one comparison until then.
#include "heap/slabs.h"

#define NEVER UINT16_MAX // the current slab stays, and one that is away

// The least free blocks for bucket b of these shares, rounded up: 0, 1/8, 1/4, 1/2, and all.
static unsigned least_free(const struct ebbi_slab *slab, unsigned bucket)
{
    static const unsigned char eighths[EBBI_BUCKETS + 1] = {0, 1, 2, 4, 8};
    return (ebbi_slab_class(slab)->blocks * eighths[bucket] + 7u) / 8u;
}

static unsigned bucket_for(const struct ebbi_slab *slab)
{
    unsigned bucket = 0;
    while (slab->free_count >= least_free(slab, bucket + 1)) {
        bucket++;
    }
    return bucket;
}

static void push(struct ebbi_shelf *shelf, struct ebbi_slab *slab, unsigned bucket)
{
    EBBI_ASSERT(slab->bucket == EBBI_NO_BUCKET && !slab->away && slab != shelf->current);
    EBBI_ASSERT(bucket < EBBI_BUCKETS && slab->free_count < ebbi_slab_class(slab)->blocks);
    struct ebbi_slab *first = shelf->bucket[bucket];
    slab->bucket = (uint8_t)bucket;
    slab->moves_at = (uint16_t)least_free(slab, bucket + 1);
    slab->previous = NULL;
    slab->next = first;
    if (first != NULL) {
        first->previous = slab;
    }
    shelf->bucket[bucket] = slab;
}

static void shelf_remove(struct ebbi_heap *heap, struct ebbi_slab *slab)
{
    ebbi_assert_held(&heap->lock);
    EBBI_ASSERT(slab->heap == heap);
    if (slab->bucket == EBBI_NO_BUCKET) {
        return;
    }
    if (slab->previous != NULL) {
        slab->previous->next = slab->next;
    } else {
        heap->shelves[slab->class_number].bucket[slab->bucket] = slab->next;
    }
    if (slab->next != NULL) {
        slab->next->previous = slab->previous;
    }
    slab->bucket = EBBI_NO_BUCKET;
}

void ebbi_shelf_send_away(struct ebbi_heap *heap, struct ebbi_slab *slab)
{
    struct ebbi_shelf *shelf = &heap->shelves[slab->class_number];
    ebbi_assert_held(&heap->lock);
    EBBI_ASSERT(!slab->away && slab->heap == heap);
    shelf_remove(heap, slab);
    if (shelf->current == slab) {
        shelf->current = NULL;
    }
    slab->away = true;
    slab->moves_at = NEVER;
    slab->previous = NULL;
    slab->next = heap->away;
    if (heap->away != NULL) {
        heap->away->previous = slab;
    }
    heap->away = slab;
}

void ebbi_shelf_return(struct ebbi_heap *heap, struct ebbi_slab *slab)
{
    ebbi_assert_held(&heap->lock);
    EBBI_ASSERT(slab->away && slab->heap == heap && slab->bucket == EBBI_NO_BUCKET);
    *(slab->previous != NULL ? &slab->previous->next : &heap->away) = slab->next;
    if (slab->next != NULL) {
        slab->next->previous = slab->previous;
    }
    slab->away = false;
    slab->moves_at = 1;
    ebbi_shelf_settle(heap, slab);
}

static void destroy(struct ebbi_heap *heap, struct ebbi_slab *slab)
{
    const struct ebbi_class *c = ebbi_slab_class(slab);
    shelf_remove(heap, slab);
    ebbi_purge_unnote(heap, slab);
    heap->slab_count--;
    heap->idle_bytes -= (size_t)slab->idle * c->size;
    heap->held_bytes -= (size_t)c->granules << EBBI_GRANULE_SHIFT;
    if (heap->label != NULL) {
        ebbi_label_drop(heap->label, (size_t)c->granules << EBBI_GRANULE_SHIFT);
        ebbi_count(&heap->label->slabs, (uint64_t)-1);
    }
    EBBI_ASSERT(!slab->away && heap->shelves[slab->class_number].current != slab);
    EBBI_ASSERT(heap->slab_count < SIZE_MAX / 2 && heap->held_bytes < SIZE_MAX / 2 &&
                heap->idle_bytes <= heap->held_bytes);
    ebbi_slab_destroy(slab);
}

void ebbi_shelf_move(struct ebbi_heap *heap, struct ebbi_slab *slab)
{
    ebbi_assert_held(&heap->lock);
    EBBI_ASSERT(!slab->away && slab->moves_at != NEVER);
    if (slab->free_count == ebbi_slab_class(slab)->blocks) {
        destroy(heap, slab);
        return;
    }
    shelf_remove(heap, slab);
    push(&heap->shelves[slab->class_number], slab, bucket_for(slab));
}

void ebbi_shelf_set_current(struct ebbi_heap *heap, unsigned class_number, struct ebbi_slab *slab)
{
    ebbi_assert_held(&heap->lock);
    EBBI_ASSERT(slab == NULL || (slab->bucket == EBBI_NO_BUCKET && !slab->away &&
                                 slab->class_number == class_number));
    struct ebbi_slab *before = heap->shelves[class_number].current;
    heap->shelves[class_number].current = slab;
    if (slab != NULL) {
        slab->moves_at = NEVER;
    }
    if (before != NULL) {
        before->moves_at = 1;
        ebbi_shelf_settle(heap, before);
    }
}

// Slabs with few free blocks come last: a refill should not have to visit many.
static struct ebbi_slab *part_full(const struct ebbi_shelf *shelf)
{
    for (unsigned b = 1; b < EBBI_BUCKETS; b++) {
        if (shelf->bucket[b] != NULL) {
            return shelf->bucket[b];
        }
    }
    return shelf->bucket[0];
}

struct ebbi_slab *ebbi_shelf_next(struct ebbi_heap *heap, unsigned class_number)
{
    ebbi_assert_held(&heap->lock);
    struct ebbi_shelf *shelf = &heap->shelves[class_number];
    struct ebbi_slab *slab = part_full(shelf);
    if (slab != NULL) {
        EBBI_ASSERT(slab->class_number == class_number && slab->free_count > 0);
        shelf_remove(heap, slab);
        ebbi_shelf_set_current(heap, class_number, slab);
    }
    return slab;
}
