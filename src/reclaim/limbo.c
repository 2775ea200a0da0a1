// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: the bags of a thread, and the malloc that takes what has been retired. By the heap's thread.
#include <errno.h>
#include <string.h>

#include "base/probe.h"
#include "heap/blocks.h"
#include "heap/registry.h"
#include "reclaim/queues.h"

struct ebbi_bag *ebbi_bag_get(struct ebbi_heap *heap, unsigned queue)
{
    EBBI_ASSERT(queue < EBBI_CLASS_COUNT);
    struct ebbi_bag *bag = heap->limbo.spare;
    heap->limbo.spare = NULL;
    if (bag == NULL) {
        int saved = errno;
        bag = ebbi_own_alloc(sizeof *bag);
        errno = saved;
    }
    if (bag != NULL) {
        bag->queue = (uint16_t)queue;
        bag->count = 0;
    }
    return bag;
}

void ebbi_bag_recycle(struct ebbi_heap *heap, struct ebbi_bag *bag)
{
    EBBI_ASSERT(bag->count == 0 || bag != heap->limbo.spare);
    if (heap->limbo.spare == NULL) {
        heap->limbo.spare = bag;
    } else {
        ebbi_own_free(bag);
    }
}

// A full bag, or one whose thread ends, joins its queue.
struct ebbi_sealed ebbi_bag_seal(struct ebbi_heap *heap, struct ebbi_bag *bag)
{
    EBBI_ASSERT(bag->count > 0 && heap->limbo.filling[bag->queue] == bag);
    struct ebbi_limbo *limbo = &heap->limbo;
    size_t bytes = ebbi_bag_bytes(bag);
    if (bag->queue != EBBI_MIXED) {
        ebbi_bag_check(limbo, bag);
    }
    ebbi_lock_take(&heap->own.lock);
    limbo->filling[bag->queue] = NULL;
    limbo->filling_count--; // under the lock, which fork() takes
    if (bag->queue == EBBI_MIXED) {
        ebbi_limbo_set_mixed(limbo, 0, 0);
    }
    ebbi_bag_enqueue(heap, bag);
    size_t bags = ++limbo->bags;
    bool passed = ebbi_clock_passed(&ebbi_clock, limbo->queues[bag->queue].first->stamp);
    bool surplus = ebbi_bag_has_surplus(heap, bag->queue);
    limbo->blocks += bag->count;
    limbo->bytes += bytes;
    ebbi_lock_drop(&heap->own.lock);
    ebbi_limbo_count(bytes, 0);
    return (struct ebbi_sealed){bags, passed, surplus};
}

struct ebbi_sealed ebbi_bag_close(struct ebbi_heap *heap, unsigned class_number)
{
    struct ebbi_bag *bag = heap->limbo.filling[class_number];
    struct ebbi_bag_top *room = &heap->fast.limbo[ebbi_class_bin(class_number, heap->lane)];
    EBBI_ASSERT(bag->queue == class_number && room->top > bag->blocks &&
                room->top <= bag->blocks + EBBI_BAG_BLOCKS);
    bag->count = (uint32_t)(room->top - bag->blocks);
    ebbi_store_relaxed(&room->top, NULL);   // relaxed: others only count
    ebbi_store_relaxed(&room->limit, NULL); // relaxed: as above
    return ebbi_bag_seal(heap, bag);
}

size_t ebbi_limbo_filling(const struct ebbi_heap *heap, size_t *blocks)
{
    size_t bytes = ebbi_load_relaxed(&heap->limbo.mixed_bytes); // relaxed: a hint, as all here
    *blocks = ebbi_load_relaxed(&heap->limbo.mixed_blocks);     // relaxed: as above
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        const struct ebbi_bag_top *at = &heap->fast.limbo[ebbi_class_bin(c, heap->lane)];
        uintptr_t limit = (uintptr_t)ebbi_load_relaxed(&at->limit); // relaxed: as above
        uintptr_t top = (uintptr_t)ebbi_load_relaxed(&at->top);     // relaxed: as above
        size_t room = ebbi_bag_room(ebbi_classes[c].size);
        size_t left = (limit - top) / sizeof(void *);
        if (top != 0 && left < room) { // else none, or of two bags
            *blocks += room - left;
            bytes += (room - left) * ebbi_classes[c].size;
        }
    }
    return bytes;
}

static void add_filling(struct ebbi_heap *heap, void *context)
{
    size_t blocks;
    *(size_t *)context += ebbi_limbo_filling(heap, &blocks);
}

size_t ebbi_limbo_unsealed(void)
{
    size_t bytes = 0;
    ebbi_heaps_each(add_filling, &bytes);
    return bytes;
}

void ebbi_limbo_seal(struct ebbi_heap *heap)
{
    struct ebbi_bag *mixed = heap->limbo.filling[EBBI_MIXED];
    if (mixed != NULL) {
        (void)ebbi_bag_seal(heap, mixed);
    }
    for (unsigned c = 1; c < EBBI_CLASS_COUNT && heap->limbo.filling_count > 0; c++) {
        if (heap->limbo.filling[c] != NULL) {
            (void)ebbi_bag_close(heap, c);
        }
    }
    struct ebbi_bag *spare = heap->limbo.spare;
    heap->limbo.spare = NULL;
    if (spare != NULL) {
        ebbi_own_free(spare);
    }
}

// Moves blocks from the bag's end, the last retired, to the empty magazine; how many. Under the lock.
static size_t fill_magazine(struct ebbi_heap *heap, unsigned class_number, struct ebbi_bag *bag)
{
    ebbi_assert_held(&heap->own.lock);
    EBBI_ASSERT(heap->magazines[class_number].stolen == 0 && bag->queue == class_number);
    struct ebbi_magazine *m = &heap->magazines[class_number];
    size_t count = ebbi_min(bag->count, m->slots - 1u);
    EBBI_ASSERT(count > 0 &&
                heap->fast.top[ebbi_class_bin(class_number, heap->lane)] == m->base + 1);
    bag->count -= (uint32_t)count;
    memcpy(m->base + 1, bag->blocks + bag->count, count * sizeof(void *));
    ebbi_compiler_fence(); // as in retire_mixed
    // relaxed: others only count
    ebbi_store_relaxed(&heap->fast.top[ebbi_class_bin(class_number, heap->lane)],
                       m->base + 1 + count);
    ebbi_bag_forget(heap, bag, count);
    return count;
}

// The bag that has been emptied in *empty.
static bool refill_from_bag(struct ebbi_heap *heap, unsigned class_number, struct ebbi_bag **empty)
{
    size_t count = 0;
    ebbi_lock_take(&heap->own.lock);
    if (ebbi_bag_first_passed(heap, class_number) && ebbi_magazine_ensure(heap, class_number)) {
        struct ebbi_bag *bag = heap->limbo.queues[class_number].first;
        ebbi_magazine_adapt(heap, class_number, false);
        count = fill_magazine(heap, class_number, bag);
        if (bag->count == 0) {
            *empty = ebbi_bag_dequeue(&heap->limbo.queues[class_number]);
            heap->limbo.bags--;
        }
    }
    ebbi_lock_drop(&heap->own.lock);
    if (count > 0) {
        EBBI_PROBE2(refill, ebbi_classes[class_number].size, count);
    }
    return count > 0;
}

bool ebbi_limbo_refill(struct ebbi_heap *heap, unsigned class_number)
{
    struct ebbi_bag *empty = NULL;
    // relaxed: only this thread adds to the queue
    if (ebbi_load_relaxed(&heap->limbo.queues[class_number].first) == NULL || heap->alone) {
        return false;
    }
    bool filled = refill_from_bag(heap, class_number, &empty);
    if (!filled && ebbi_clock_advance(&ebbi_clock, false)) {
        filled = refill_from_bag(heap, class_number, &empty);
    }
    if (empty != NULL) {
        ebbi_bag_recycle(heap, empty);
    }
    return filled;
}
