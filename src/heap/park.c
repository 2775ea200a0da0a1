// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: memory of threads that sleep. What a thread has freed lies in its magazines, which
// nobody else may touch while it runs; a thread that waits for hours would keep it. So the helper
// parks the heaps of all threads at each of its passes: it points a thread's source to a heap where
// every call is a slow one, whose first step takes the heap back. Who has not come for it by the next
// pass sleeps, and the helper sends the blocks of its magazines home.
//
//     in use --helper--> parked --next pass--> parked, emptied
//        ^                  |                        |
//        '-- the thread's next slow call, which every call is --'
//
// P1  `parked` and `inside` are Dekker's flags: the thread stores `inside` and loads `parked`, the
//     helper stores `parked`, makes a membarrier and loads `inside`. One of the two gives way.
// P2  the source of a parked heap is ebbi_heap_parked. One malloc or free that had loaded the source
//     before may still be under way, however long the thread does not run: it takes the newest block
//     of one magazine, or adds one. So the newest block of each stays.
// P3  `stolen` of a magazine counts the slots from its base on that are empty though they are below
//     its top. The thread moves the others down when it comes back.
// P4  `slot` is where the thread keeps its source, while it certainly lives and its end will be seen;
//     changed under the heap's lock.
#include "heap/heap.h"

struct ebbi_fast ebbi_heap_parked; // as ebbi_heap_scoped

static bool ready; // the kernel knows the membarrier; of the helper's thread, or under trim's pass

static void move_down(struct ebbi_heap *heap, unsigned class_number)
{
    struct ebbi_magazine *m = &heap->magazines[class_number];
    unsigned bin = ebbi_class_bin(class_number, heap->lane);
    size_t rest = (size_t)(heap->fast.top[bin] - (m->base + 1)) - m->stolen;
    ebbi_assert_held(&heap->lock);
    EBBI_ASSERT(m->stolen < m->slots && rest < m->slots);
    for (size_t i = 1; i <= rest; i++) {
        m->base[i] = m->base[i + m->stolen];
    }
    ebbi_store_relaxed(&heap->fast.top[bin], m->base + 1 + rest); // relaxed: others only count
    m->stolen = 0;
}

EBBI_NOINLINE void ebbi_unpark(struct ebbi_heap *heap)
{
    EBBI_ASSERT(heap->inside > 0);
    ebbi_lock_take(&heap->lock);
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        if (heap->magazines[c].stolen != 0) {
            move_down(heap, c);
        }
    }
    ebbi_store_relaxed(&heap->parked, 0u); // relaxed: under the lock but for this thread's look
    if (ebbi_source_now() == &ebbi_heap_parked) {
        ebbi_source_set(&heap->fast);
    }
    ebbi_lock_drop(&heap->lock);
    ebbi_helper_kick(); // so that it is parked again
}

// ---- the helper ----------------------------------------------------------------------------------

static void park(struct ebbi_heap *heap, void *context)
{
    ebbi_assert_held(&heap->lock);
    struct ebbi_fast *own = &heap->fast;
    bool *any = context;
    if (heap->slot == NULL || heap->parked != 0) {
        return;
    }
    ebbi_store_relaxed(&heap->parked, 1u); // relaxed: the membarrier orders it, P1
    // relaxed: as above
    *any |= ebbi_cas_relaxed(heap->slot, &own, &ebbi_heap_parked);
}

// The blocks of a magazine but the newest, and the empty slots below.
static size_t steal(struct ebbi_heap *heap, unsigned class_number)
{
    struct ebbi_magazine *m = &heap->magazines[class_number];
    // relaxed: at most one call of the thread is under way, P2
    void **top = ebbi_load_relaxed(&heap->fast.top[ebbi_class_bin(class_number, heap->lane)]);
    size_t held = (size_t)(top - (m->base + 1));
    EBBI_ASSERT(held < m->slots && m->stolen <= held);
    if (held < m->stolen + (size_t)2) {
        return 0;
    }
    size_t count = held - 1 - m->stolen;
    ebbi_give_blocks(NULL, m->base + 1 + m->stolen, count);
    EBBI_ASSERT(m->stolen + count < held);
    m->stolen = (uint16_t)(m->stolen + count);
    return count * ebbi_classes[class_number].size;
}

static bool sleeps(const struct ebbi_heap *heap)
{
    // acquire[inside-look <- inside-end]: the magazines as its last slow call left them
    return heap->slot != NULL && heap->parked != 0 && ebbi_load_acquire(&heap->inside) == 0 &&
           ebbi_load_relaxed(heap->slot) == &ebbi_heap_parked; // relaxed: behind a membarrier, P1
}

static void empty(struct ebbi_heap *heap, void *context)
{
    ebbi_assert_held(&heap->lock);
    size_t *bytes = context;
    if (!sleeps(heap)) {
        return;
    }
    for (unsigned w = 0; w < 2; w++) {
        for (uint64_t left = heap->arrays[w]; left != 0; left &= left - 1) {
            *bytes += steal(heap, w * 64 + ebbi_lowest_bit(left));
        }
    }
}

bool ebbi_park_all(void)
{
    bool any = false;
    ebbi_heaps_each(park, &any);
    if (any && !ready) {
        ready = ebbi_os_membarrier_register();
    }
    return any && ready && ebbi_os_membarrier();
}

size_t ebbi_park_empty(void)
{
    size_t bytes = 0;
    ebbi_heaps_each(empty, &bytes);
    return bytes;
}
