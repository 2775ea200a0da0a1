// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: memory of threads that sleep. What a thread has freed lies in its magazines, which
// nobody else may touch while it runs; a thread that waits for hours would keep it. So the helper
// parks the heaps of all threads that it can (P5; not those of domains) at each of its passes: it points a thread's source to a heap where
// every call is a slow one, whose first step takes the heap back. Who has not come for it by the next
// pass sleeps, and the helper sends the blocks of its magazines home.
//
//     in use --park, membarrier--> parked --note, membarrier--> parked, emptied
//        ^                            |                            |
//        '------ the thread's next slow call, which every call is -'
//
// P1  `parked` and `inside` are Dekker's flags: the thread stores `inside` and loads `parked`, the
//     helper stores `parked`, makes a membarrier and loads `inside`. One of the two gives way.
// P2  the source of a parked heap is ebbi_heap_parked, unless a region or domain is current in its thread
//     (then it does not sleep, for us). One malloc or free that had loaded the source
//     before may still be under way, however long the thread does not run. A malloc looks at the source
//     again behind its pop (Dekker's once more: it stores the top and loads the source) and, as the
//     block may have gone home, puts it back. A free adds a block above those that stay or go.
// P3  what goes home lay below the top before one more membarrier: a free stores its block first and
//     the top then, so that block can be seen.
// P4  `stolen` of a magazine counts the slots from its base on that are empty though they are below
//     its top. The thread moves the others down when it comes back.
// P5  `slot` is where the thread keeps its source, while it certainly lives and its end will be seen;
//     changed under the heap's lock.
// P6  `parked` is changed under the heap's lock, and but to 0 by one pass at a time: a second one could
//     take for behind a membarrier what is not.
#include "heap/blocks.h"
#include "heap/registry.h"
#include "heap/slabs.h"
#include "os/wake.h"

EBBI_SPARSE struct ebbi_fast ebbi_heap_parked; // as ebbi_heap_scoped, prepared by a pass

enum parked {
    NOT_PARKED,
    PARKED,  // awaits the membarrier of P1 and P2
    SETTLED, // has had it
    NOTED,   // awaits that of P3
};

static struct ebbi_lock passing = EBBI_LOCK(PARKING); // held over membarriers
static bool ready;                                    // the kernel knows this process

static void move_down(struct ebbi_heap *heap, struct ebbi_magazine *m)
{
    size_t rest = (size_t)(heap->fast.top[m->bin] - (m->base + 1)) - m->stolen;
    ebbi_assert_held(&heap->own.lock);
    EBBI_ASSERT(m->stolen < m->slots && rest < m->slots);
    for (size_t i = 1; i <= rest; i++) {
        m->base[i] = m->base[i + m->stolen];
    }
    ebbi_store_relaxed(&heap->fast.top[m->bin], m->base + 1 + rest); // relaxed: others only count
    m->stolen = 0;
}

EBBI_NOINLINE void ebbi_unpark(struct ebbi_heap *heap)
{
    EBBI_ASSERT(heap->inside > 0);
    ebbi_lock_take(&heap->own.lock);
    for (unsigned n = 1; n < EBBI_ARRAYS; n++) {
        if (heap->magazines[n].stolen != 0) {
            move_down(heap, &heap->magazines[n]);
        }
    }
    ebbi_magazines_lend_no_more(heap);
    ebbi_store_relaxed(&heap->parked, 0u); // relaxed: under the lock but for this thread's look
    if (ebbi_source_now() == &ebbi_heap_parked) {
        ebbi_source_set(&heap->fast);
    }
    ebbi_lock_drop(&heap->own.lock);
    if (heap->inside == 1) { // else amid a call, which may have an array in hand
        ebbi_flush_quiet(heap);
    }
    ebbi_helper_kick(); // so that it is parked again
}

void ebbi_unpop(size_t bytes)
{
    struct ebbi_fast *own = ebbi_current();
    unsigned bin = ebbi_class_bin(ebbi_class_for(bytes), ((struct ebbi_heap *)own)->lane);
    ebbi_store_relaxed(&own->top[bin], own->top[bin] + 1); // relaxed: others only count
}

// ---- the helper ----------------------------------------------------------------------------------

struct parking {
    bool any;     // to make a membarrier for
    bool newly;   // a thread's source was changed
    size_t bytes; // that went home
};

static bool sleeps(const struct ebbi_heap *heap)
{
    // acquire[inside-look <- inside-end]: the magazines as its last slow call left them
    return heap->slot != NULL && ebbi_load_acquire(&heap->inside) == 0 &&
           ebbi_load_relaxed(heap->slot) == &ebbi_heap_parked; // relaxed: behind a membarrier, P1
}

// The first magazine or tray, from this one on, that has an array; 0: none.
static unsigned next_array(const struct ebbi_heap *heap, unsigned number)
{
    for (unsigned w = number / 64; w < 2; w++) {
        uint64_t left = heap->arrays[w];
        left &= w == number / 64 ? ~(uint64_t)0 << (number % 64) : ~(uint64_t)0;
        if (left != 0) {
            return w * 64 + ebbi_lowest_bit(left);
        }
    }
    return 0;
}

static void note(struct ebbi_heap *heap, struct parking *parking)
{
    ebbi_assert_held(&heap->own.lock);
    for (unsigned n = 1; (n = next_array(heap, n)) != 0; n++) {
        struct ebbi_magazine *m = &heap->magazines[n];
        // relaxed: at most one call of the thread is under way, P2
        ebbi_slot *top = ebbi_load_relaxed(&heap->fast.top[m->bin]);
        m->noted = (uint16_t)(top - (m->base + 1));
        EBBI_ASSERT(m->noted < m->slots && m->stolen <= m->noted + 1);
        parking->any |= m->noted > m->stolen;
    }
    ebbi_store_relaxed(&heap->parked, (uint32_t)NOTED); // relaxed: under the lock
}

static void park(struct ebbi_heap *heap, void *context)
{
    ebbi_assert_held(&heap->own.lock);
    struct parking *parking = (struct parking *)context;
    if (heap->slot == NULL) {
        return;
    }
    if (heap->parked >= SETTLED) {
        if (sleeps(heap)) {
            note(heap, parking);
        }
        return;
    }
    struct ebbi_fast *own = &heap->fast;
    ebbi_store_relaxed(&heap->parked, (uint32_t)PARKED); // relaxed: the membarrier orders it, P1
    // relaxed: as above
    parking->newly |= ebbi_cas_relaxed(heap->slot, &own, &ebbi_heap_parked);
}

static size_t steal(struct ebbi_magazine *m)
{
    if (m->noted <= m->stolen) {
        return 0;
    }
    size_t count = (size_t)m->noted - m->stolen;
    EBBI_ASSERT(m->noted < m->slots);
    ebbi_give_blocks(NULL, m->base + 1 + m->stolen, count);
    m->stolen = m->noted;
    return count * ebbi_magazine_size(m);
}

static void empty(struct ebbi_heap *heap, void *context)
{
    ebbi_assert_held(&heap->own.lock);
    struct parking *parking = (struct parking *)context;
    bool noted = heap->parked == NOTED && sleeps(heap);
    for (unsigned n = 1; noted && (n = next_array(heap, n)) != 0; n++) {
        parking->bytes += steal(&heap->magazines[n]);
    }
    if (noted) {
        ebbi_magazines_lend(heap);
    }
    if (heap->parked != NOT_PARKED) {
        ebbi_store_relaxed(&heap->parked, (uint32_t)SETTLED); // relaxed: under the lock
    }
}

static bool park_pass(size_t *came_home)
{
    struct parking parking = {0};
    ebbi_heap_prepare(&ebbi_heap_parked);
    ebbi_heaps_each(park, &parking);
    if (!parking.any && !parking.newly) {
        return false;
    }
    ready = ready || ebbi_os_membarrier_register();
    if (!ready || !ebbi_os_membarrier()) {
        return false;
    }
    ebbi_heaps_each(empty, &parking);
    *came_home = parking.bytes;
    return parking.newly;
}

bool ebbi_park_pass(size_t *came_home)
{
    *came_home = 0;
    ebbi_lock_take(&passing);
    bool newly = park_pass(came_home);
    ebbi_lock_drop(&passing);
    return newly;
}

void ebbi_park_lock(void) { ebbi_lock_take(&passing); }
void ebbi_park_unlock(void) { ebbi_lock_drop(&passing); }
