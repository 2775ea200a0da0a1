// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: depots, the heaps whose slabs of whole-line classes all threads share.
//
// The first heaps become depots, one a processor. A refill or flush goes to the depot of the
// processor that it runs on, or to the next one that is not locked: so there are about as many
// part-full slabs of a class as threads that run at once, whatever the number of threads.
#include "heap/registry.h"
#include "heap/slabs.h"

#define LEAST_DEPOTS 2 // so that a stopped holder of the lock can be passed by
#define MOST_DEPOTS 64
#define TRIES 4

static struct ebbi_heap *depots[MOST_DEPOTS]; // the first depot_count never change
static size_t depot_count;                    // written under the registry lock

static size_t depot_limit(void)
{
    static size_t limit; // under the registry lock
    if (limit == 0) {
        limit = ebbi_min(ebbi_max(ebbi_os_cpus(), LEAST_DEPOTS), MOST_DEPOTS);
    }
    return limit;
}

void ebbi_depot_offer(struct ebbi_heap *heap)
{
    // relaxed: written under the registry lock, which is held
    size_t count = ebbi_load_relaxed(&depot_count);
    EBBI_ASSERT_REGISTRY();
    EBBI_ASSERT(!heap->is_depot && heap->seat.domain == NULL);
    EBBI_ASSERT(count <= MOST_DEPOTS);
    if (count < depot_limit()) {
        heap->is_depot = true;
        depots[count] = heap;
        // release[depot-add -> depot-pick]: the heap and its place in depots
        ebbi_store_release(&depot_count, count + 1);
    }
}

static struct ebbi_heap *lock_depot(void)
{
    // acquire[depot-pick <- depot-add]: the first of depots and what they point to
    size_t count = ebbi_load_acquire(&depot_count);
    size_t home = count > 1 ? ebbi_os_cpu() % count : 0;
    EBBI_ASSERT(count > 0 && home < count && depots[home]->is_depot);
    for (size_t i = 0; i < TRIES && i < count; i++) {
        struct ebbi_heap *depot = depots[(home + i) % count];
        if (ebbi_lock_try(&depot->lock)) {
            return depot;
        }
    }
    ebbi_lock_take(&depots[home]->lock);
    return depots[home];
}

// Blocks of another depot's slabs that are at least a quarter free. A thread that moves to another
// processor would else leave its free blocks behind and grow there.
static size_t borrow(const struct ebbi_heap *depot, unsigned class_number, void **slots,
                     size_t wanted)
{
    ebbi_assert_held(&depot->lock);
    EBBI_ASSERT(depot->is_depot && wanted > 0);
    // acquire[depot-pick <- depot-add]: as in lock_depot
    size_t count = ebbi_load_acquire(&depot_count);
    size_t next = ebbi_os_cpu() + 1;
    size_t got = 0;
    for (size_t i = 0; i < TRIES && i < count && got == 0; i++) {
        struct ebbi_heap *other = depots[(next + i) % count];
        if (other == depot || !ebbi_lock_try(&other->lock)) {
            continue;
        }
        ebbi_heap_tell_time(other);
        ebbi_heap_collect(other);
        EBBI_ASSERT(other->is_depot && other->seat.domain == NULL);
        struct ebbi_slab **bucket = other->shelves[class_number].bucket;
        if (bucket[EBBI_BUCKETS - 2] != NULL || bucket[EBBI_BUCKETS - 1] != NULL) {
            got = ebbi_heap_take(other, class_number, slots, wanted, false);
        }
        ebbi_lock_drop(&other->lock);
    }
    return got;
}

size_t ebbi_depot_take(struct ebbi_heap *depot, unsigned class_number, void **slots, size_t wanted)
{
    ebbi_assert_held(&depot->lock);
    EBBI_ASSERT(ebbi_is_class(class_number) && wanted > 0);
    size_t got = ebbi_heap_take(depot, class_number, slots, wanted, false);
    if (got == 0 && depot->is_depot && !ebbi_classes[class_number].shares_lines) {
        got = borrow(depot, class_number, slots, wanted);
    }
    return got > 0 ? got : ebbi_heap_take(depot, class_number, slots, wanted, true);
}

struct ebbi_heap *ebbi_lock_owner(struct ebbi_heap *heap, unsigned class_number)
{
    EBBI_ASSERT(ebbi_is_class(class_number));
    if (!ebbi_classes[class_number].shares_lines && !heap->alone && heap->seat.domain == NULL) {
        return lock_depot();
    }
    ebbi_lock_take(&heap->lock);
    return heap;
}
