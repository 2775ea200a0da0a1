// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: depots, the owners of the slabs of whole-line classes, which all threads share.
//
// There are as many as heaps were made, at most one a processor and two in any case. A refill or flush goes to the depot
// of the processor that it runs on, or to the next one that is not locked: so there are about as many
// part-full slabs of a class as threads that run at once, whatever the number of threads. A thread
// that has no heap takes single blocks of any class from there.
#include "heap/registry.h"
#include "heap/slabs.h"

#define LEAST_DEPOTS 2 // so that a stopped holder of the lock can be passed by
#define MOST_DEPOTS 64
#define TRIES 4
#define MANY_SLABS 4u  // of free blocks, wherever they lie
#define LOCK_LOOKS 512 // looks at their locks, before it grows: 7 us with pauses of 13 ns

static struct ebbi_owner all_depots[MOST_DEPOTS] = {
    EBBI_8_TIMES(EBBI_8_TIMES({.lock = EBBI_LOCK(OWNER)}))};
static size_t depot_count = 1; // of them in use; written under the registry lock

static size_t depot_limit(void)
{
    static size_t limit; // under the registry lock
    if (limit == 0) {
        limit = ebbi_min(ebbi_max(ebbi_os_cpus(), LEAST_DEPOTS), MOST_DEPOTS);
    }
    return limit;
}

void ebbi_depots_grow(size_t heaps)
{
    EBBI_ASSERT_REGISTRY();
    // relaxed: who does not see the last one yet takes from the others, which are as good
    ebbi_store_relaxed(&depot_count, ebbi_max(depot_count, ebbi_min(heaps, depot_limit())));
}

size_t ebbi_depots(struct ebbi_owner **first)
{
    *first = all_depots;
    return ebbi_load_relaxed(&depot_count); // relaxed: as in ebbi_depots_grow
}

static bool is_depot(const struct ebbi_owner *owner)
{
    return owner >= all_depots && owner < all_depots + MOST_DEPOTS;
}

static struct ebbi_owner *lock_depot(void)
{
    size_t count = ebbi_load_relaxed(&depot_count); // relaxed: as in ebbi_depots_grow
    size_t home = count > 1 ? ebbi_os_cpu() % count : 0;
    EBBI_ASSERT(count > 0 && home < count);
    for (size_t i = 0; i < TRIES && i < count; i++) {
        struct ebbi_owner *depot = &all_depots[(home + i) % count];
        if (ebbi_lock_try(&depot->lock)) {
            return depot;
        }
    }
    ebbi_lock_take(&all_depots[home].lock);
    return &all_depots[home];
}

// Slabs that are at least a quarter free, or many blocks in all.
static bool has_many(const struct ebbi_owner *depot, unsigned class_number)
{
    const struct ebbi_shelf *shelf = &depot->shelves[class_number];
    uint32_t blocks = ebbi_classes[class_number].blocks;
    return shelf->bucket[EBBI_BUCKETS - 2] != NULL || shelf->bucket[EBBI_BUCKETS - 1] != NULL ||
           shelf->slabs * blocks - shelf->out_blocks >= MANY_SLABS * blocks;
}

// False: its holder may not run. *looks: that are left.
static bool try_for_a_while(struct ebbi_lock *lock, unsigned *looks)
{
    bool taken = ebbi_lock_try(lock);
    for (; !taken && *looks > 0; (*looks)--) {
        ebbi_pause();
        taken = ebbi_lock_try(lock);
    }
    return taken;
}

// Blocks of another depot that has many. A thread that moves to another processor would else leave its
// free blocks behind and grow there, by as much as it uses.
static size_t borrow(const struct ebbi_owner *depot, unsigned class_number, void **slots,
                     size_t wanted)
{
    ebbi_assert_held(&depot->lock);
    EBBI_ASSERT(is_depot(depot) && wanted > 0);
    size_t count = ebbi_load_relaxed(&depot_count); // relaxed: as in ebbi_depots_grow
    size_t next = ebbi_os_cpu() + 1;
    size_t got = 0;
    unsigned looks = LOCK_LOOKS;
    for (size_t i = 0; i < TRIES && i < count && got == 0; i++) {
        struct ebbi_owner *other = &all_depots[(next + i) % count];
        if (other == depot || !try_for_a_while(&other->lock, &looks)) {
            continue;
        }
        ebbi_owner_tell_time(other);
        ebbi_owner_collect(other);
        if (has_many(other, class_number)) {
            got = ebbi_owner_take(other, class_number, slots, wanted, false);
        }
        ebbi_lock_drop(&other->lock);
    }
    return got;
}

size_t ebbi_depot_take(struct ebbi_owner *owner, unsigned class_number, void **slots, size_t wanted)
{
    ebbi_assert_held(&owner->lock);
    EBBI_ASSERT(ebbi_is_class(class_number) && wanted > 0);
    size_t got = ebbi_owner_take(owner, class_number, slots, wanted, false);
    if (got == 0 && is_depot(owner)) {
        got = borrow(owner, class_number, slots, wanted);
    }
    return got > 0 ? got : ebbi_owner_take(owner, class_number, slots, wanted, true);
}

static bool serves_itself(const struct ebbi_heap *heap, unsigned class_number)
{
    return ebbi_classes[class_number].shares_lines || heap->alone || heap->seat.domain != NULL;
}

// A signal handler that interrupts what is between lock and unlock would find magazines half changed: the
// depot's lock alone does not stop it, as another depot is free. So the heap has a mark of its own.
struct ebbi_owner *ebbi_lock_owner(struct ebbi_heap *heap, unsigned class_number)
{
    EBBI_ASSERT(ebbi_is_class(class_number));
    if (heap == NULL) {
        return lock_depot();
    }
    if (EBBI_UNLIKELY(heap->amid)) {
        ebbi_lock_interrupted();
    }
    struct ebbi_owner *owner = &heap->own;
    if (serves_itself(heap, class_number)) {
        ebbi_lock_take(&owner->lock);
    } else {
        owner = lock_depot();
    }
    heap->amid = true;
    ebbi_compiler_fence(); // before whatever the caller changes
    return owner;
}

void ebbi_unlock_owner(struct ebbi_heap *heap, struct ebbi_owner *owner)
{
    if (heap != NULL) {
        EBBI_ASSERT(heap->amid);
        ebbi_compiler_fence(); // behind whatever the caller changed
        heap->amid = false;
    }
    ebbi_lock_drop(&owner->lock);
}

struct ebbi_owner *ebbi_lock_owner_of(const struct ebbi_heap *heap, const struct ebbi_slab *slab)
{
    struct ebbi_owner *owner = slab->owner;
    if (owner == &heap->own) {
        ebbi_lock_take(&owner->lock);
    } else if (!is_depot(owner) || heap->alone || !ebbi_lock_try(&owner->lock)) {
        return NULL;
    }
    if (slab->owner != owner) { // of a block that is in use it does not change
        ebbi_lock_drop(&owner->lock);
        return NULL;
    }
    return owner;
}
