// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: the slow retire, and the malloc that takes what has been retired. By the heap's thread.
#include <errno.h>
#include <string.h>

#include "heap/fast.h"

#define BAG_LEAST 4u
#define PRESSING_BYTES ((size_t)1 << 20) // of large objects
#define PRESSING_BAGS 8                  // in the queues, before a membarrier is worth it
#define PATIENT_BAGS 16 // in the queues, before the thread gives way to whoever holds up the clock
#define NAP_BAGS 64     // before it naps for a millisecond
#define YIELDS 4
#define STALL_MS 50
#define SURPLUS_AT_ONCE 2
#define LARGE_AT_ONCE 16
#define CLAIMED ((uint64_t)1) // no tag

static size_t bag_room(size_t block_bytes)
{
    return ebbi_min(EBBI_BAG_BLOCKS, ebbi_max(BAG_LEAST, EBBI_LIMBO_BYTES / block_bytes));
}

static struct ebbi_bag *bag_take(struct ebbi_heap *heap, unsigned queue)
{
    EBBI_ASSERT(queue < EBBI_CLASS_COUNT);
    struct ebbi_bag *bag = heap->limbo.spare;
    heap->limbo.spare = NULL;
    if (bag == NULL) {
        int saved = errno;
        bag = ebbi_alloc_own(sizeof *bag);
        errno = saved;
    }
    if (bag != NULL) {
        bag->queue = (uint16_t)queue;
        bag->count = 0;
    }
    return bag;
}

static void bag_recycle(struct ebbi_heap *heap, struct ebbi_bag *bag)
{
    EBBI_ASSERT(bag->count == 0 || bag != heap->limbo.spare);
    if (heap->limbo.spare == NULL) {
        heap->limbo.spare = bag;
    } else {
        ebbi_free(bag);
    }
}

struct sealed {
    size_t bags;     // in the heap's queues
    bool has_passed; // the oldest of this queue
    bool surplus;    // malloc need not come for all of this queue
};

// A full bag, or one whose thread ends, joins its queue.
static struct sealed seal(struct ebbi_heap *heap, struct ebbi_bag *bag)
{
    EBBI_ASSERT(bag->count > 0 && heap->limbo.filling[bag->queue] == bag);
    struct ebbi_limbo *limbo = &heap->limbo;
    size_t bytes = ebbi_bag_bytes(bag);
    if (bag->queue != EBBI_MIXED) {
        ebbi_bag_check(limbo, bag);
    }
    ebbi_lock_take(&heap->lock);
    limbo->filling[bag->queue] = NULL;
    ebbi_bag_enqueue(heap, bag);
    size_t bags = ++limbo->bags;
    bool passed = ebbi_clock_passed(&ebbi_clock, limbo->queues[bag->queue].first->tag);
    bool surplus = ebbi_bag_has_surplus(heap, bag->queue);
    limbo->blocks += bag->count;
    limbo->bytes += bytes;
    ebbi_lock_drop(&heap->lock);
    ebbi_limbo_count(bytes, 0);
    return (struct sealed){bags, passed, surplus};
}

static struct ebbi_bag *take_surplus(struct ebbi_heap *heap, unsigned queue)
{
    ebbi_lock_take(&heap->lock);
    bool surplus = ebbi_bag_has_surplus(heap, queue);
    struct ebbi_bag *bag = surplus ? ebbi_bag_take_passed(heap, queue) : NULL;
    ebbi_lock_drop(&heap->lock);
    return bag;
}

// More than one for each that is sealed, so that a queue that has grown shrinks again.
static void send_surplus_home(struct ebbi_heap *heap, unsigned queue)
{
    struct ebbi_bag *bag = take_surplus(heap, queue);
    for (int i = 0; i < SURPLUS_AT_ONCE && bag != NULL; i++) {
        ebbi_bag_release(heap, bag);
        bag_recycle(heap, bag);
        heap->events++;
        ebbi_purge_tick(heap);
        bag = i + 1 < SURPLUS_AT_ONCE ? take_surplus(heap, queue) : NULL;
    }
}

// Whoever holds up the clock is most often a thread that lost its processor inside a pin: it is let
// run, here or, by a nap that leaves this processor idle, from another's queue. One that has held it
// up for long is waiting for something else; for the thread itself there is no use in waiting.
void ebbi_give_way(bool naps)
{
    static uint32_t never; // always 0
    if (ebbi_is_in_the_way()) {
        return;
    }
    bool stalled = ebbi_clock_stands_ms(&ebbi_clock) >= STALL_MS;
    for (int i = 0; i < (stalled ? 1 : YIELDS); i++) {
        ebbi_os_yield();
        if (ebbi_clock_advance(&ebbi_clock, true)) {
            return;
        }
    }
    if (!stalled && naps) {
        ebbi_os_wait(&never, 0, 1);
        (void)ebbi_clock_advance(&ebbi_clock, true);
    }
}

// After a bag was sealed: time may pass, and memory go. Where other threads have moved the clock on
// far enough already, it is left alone: each move costs every pinning thread a fence.
static void settle(struct ebbi_heap *heap, unsigned queue, struct sealed sealed)
{
    if (ebbi_load_relaxed(&ebbi_dying)) { // relaxed: set by this thread or of no matter
        return;
    }
    if (!sealed.has_passed && !ebbi_clock_advance(&ebbi_clock, sealed.bags >= PRESSING_BAGS) &&
        sealed.bags > PATIENT_BAGS) {
        ebbi_give_way(sealed.bags > NAP_BAGS);
    }
    if (sealed.surplus) {
        send_surplus_home(heap, queue);
        ebbi_pin_attend_later();
    }
    ebbi_helper_kick();
}

static void retire_mixed(struct ebbi_heap *heap, void *p, unsigned class_number)
{
    struct ebbi_bag *bag = heap->limbo.filling[EBBI_MIXED];
    if (bag == NULL) {
        bag = bag_take(heap, EBBI_MIXED);
        if (bag == NULL) {
            ebbi_strand(p);
            return;
        }
        heap->limbo.filling[EBBI_MIXED] = bag;
        heap->limbo.mixed_bytes = 0;
    }
    EBBI_ASSERT(bag->queue == EBBI_MIXED && bag->count < EBBI_BAG_BLOCKS);
    bag->blocks[bag->count] = p;
    ebbi_compiler_fence(); // another thread's fork() must not find a count without its block
    bag->count++;
    heap->limbo.mixed_bytes += ebbi_classes[class_number].size;
    if (bag->count == EBBI_BAG_BLOCKS || heap->limbo.mixed_bytes >= EBBI_LIMBO_BYTES) {
        settle(heap, EBBI_MIXED, seal(heap, bag));
    }
}

static struct sealed close_bag(struct ebbi_heap *heap, unsigned class_number)
{
    struct ebbi_bag *bag = heap->limbo.filling[class_number];
    struct ebbi_bag_top *room = &heap->fast.limbo[ebbi_class_bin(class_number, heap->lane)];
    EBBI_ASSERT(bag->queue == class_number && room->top > bag->blocks &&
                room->top <= bag->blocks + EBBI_BAG_BLOCKS);
    bag->count = (uint32_t)(room->top - bag->blocks);
    room->top = room->limit = NULL;
    return seal(heap, bag);
}

static void retire_own(struct ebbi_heap *heap, void *p, unsigned class_number)
{
    if (heap->limbo.filling[class_number] != NULL) {
        settle(heap, class_number, close_bag(heap, class_number));
    }
    struct ebbi_bag *bag = bag_take(heap, class_number);
    if (bag == NULL) {
        ebbi_strand(p);
        return;
    }
    struct ebbi_bag_top *room = &heap->fast.limbo[ebbi_class_bin(class_number, heap->lane)];
    bag->blocks[0] = p;
    heap->limbo.filling[class_number] = bag;
    EBBI_ASSERT(room->top == room->limit && bag->count == 0);
    room->limit = bag->blocks + bag_room(ebbi_classes[class_number].size);
    ebbi_compiler_fence(); // as in retire_mixed
    room->top = bag->blocks + 1;
}

// Some of them: each that is retired comes by here. True: others wait.
static bool reclaim_large(struct ebbi_heap *heap)
{
    void *p = heap;
    bool waiting = true;
    for (int i = 0; i < LARGE_AT_ONCE && p != NULL; i++) {
        ebbi_lock_take(&heap->lock);
        p = ebbi_large_take_passed(heap);
        waiting = heap->limbo.large_first != NULL;
        ebbi_lock_drop(&heap->lock);
        if (p != NULL) {
            ebbi_large_reclaim(p);
        }
    }
    return waiting;
}

static void retire_large(struct ebbi_heap *heap, void *p)
{
    EBBI_ASSERT(ebbi_large_note(p) != NULL);
    struct ebbi_limbo *limbo = &heap->limbo;
    size_t bytes = ebbi_large_bytes(p);
    ebbi_lock_take(&heap->lock);
    ebbi_large_enqueue(heap, p);
    limbo->blocks++;
    limbo->bytes += bytes;
    bool press = limbo->bytes >= PRESSING_BYTES;
    ebbi_lock_drop(&heap->lock);
    ebbi_limbo_count(bytes, 0);
    if (!ebbi_load_relaxed(&ebbi_dying)) { // relaxed: set by this thread or of no matter
        (void)ebbi_clock_advance(&ebbi_clock, press);
        if (reclaim_large(heap)) {
            ebbi_pin_attend_later();
        }
        ebbi_helper_kick();
    }
}

static void claim_large(void *p)
{
    uint64_t free_to_claim = 0;
    // relaxed: of two threads one is told; the tag itself is written under the heap's lock
    if (!ebbi_cas_relaxed(&ebbi_large_note(p)->tag, &free_to_claim, CLAIMED)) {
        ebbi_fatal("double retire: %p, a large object, waits for its grace period already", p);
    }
    ebbi_region_forget(ebbi_large_note(p)); // it leaves by itself now
}

EBBI_NOINLINE void ebbi_retire_slow(void *p)
{
    unsigned tag = ebbi_tag_of(p);
    if (p == NULL) {
        return;
    }
    if (tag == EBBI_TAG_REGION) {
        int saved = errno;
        (void)ebbi_region_retire(NULL, p); // refused: it stays until its region is released
        errno = saved;
        return;
    }
    unsigned class_number = ebbi_tag_class(tag);
    if (class_number == 0 && ebbi_large_note(p) == NULL) {
        ebbi_report_invalid(p, "retire");
    }
    if (class_number == 0) {
        claim_large(p);
    }
    struct ebbi_heap *heap = ebbi_heap_get();
    if (heap == NULL) {
        ebbi_strand(p);
    } else if (class_number == 0) {
        retire_large(heap, p);
    } else if (ebbi_class_bin(class_number, heap->lane) != tag) {
        retire_mixed(heap, p, class_number);
    } else {
        retire_own(heap, p, class_number);
    }
}

void ebbi_free_retired(void *p, void *bytes)
{
    (void)bytes;
    if (ebbi_tag_class(ebbi_tag_of(p)) == 0) {
        ebbi_large_reclaim(p);
    } else {
        ebbi_free(p);
    }
}

bool ebbi_retire_into(struct ebb_participant *me, void *p)
{
    if (p == NULL || ebbi_tag_of(p) == EBBI_TAG_REGION) {
        return p == NULL || ebbi_region_retire(me, p);
    }
    bool large = ebbi_tag_class(ebbi_tag_of(p)) == 0;
    struct ebbi_call call = {ebbi_free_retired, p, (void *)ebbi_usable_size(p)};
    if (large) {
        claim_large(p);
    }
    bool done = ebbi_retire_with(me, call);
    if (!done && large) {
        ebbi_store_relaxed(&ebbi_large_note(p)->tag, (uint64_t)0); // relaxed: its owner's again
    }
    return done;
}

void ebbi_limbo_seal(struct ebbi_heap *heap)
{
    struct ebbi_bag *mixed = heap->limbo.filling[EBBI_MIXED];
    if (mixed != NULL) {
        (void)seal(heap, mixed);
    }
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        if (heap->limbo.filling[c] != NULL) {
            (void)close_bag(heap, c);
        }
    }
    struct ebbi_bag *spare = heap->limbo.spare;
    heap->limbo.spare = NULL;
    if (spare != NULL) {
        ebbi_free(spare);
    }
}

// Moves blocks from the bag's end, the last retired, to the empty magazine. Under the lock.
static void fill_magazine(struct ebbi_heap *heap, unsigned class_number, struct ebbi_bag *bag)
{
    ebbi_assert_held(&heap->lock);
    EBBI_ASSERT(heap->magazines[class_number].stolen == 0 && bag->queue == class_number);
    struct ebbi_magazine *m = &heap->magazines[class_number];
    size_t count = ebbi_min(bag->count, m->slots - 1u);
    EBBI_ASSERT(count > 0 &&
                heap->fast.top[ebbi_class_bin(class_number, heap->lane)] == m->base + 1);
    bag->count -= (uint32_t)count;
    memcpy(m->base + 1, bag->blocks + bag->count, count * sizeof(void *));
    ebbi_compiler_fence(); // as in retire_mixed
    heap->fast.top[ebbi_class_bin(class_number, heap->lane)] = m->base + 1 + count;
    ebbi_bag_forget(heap, bag, count);
}

// The bag that has been emptied in *empty.
static bool refill_from_bag(struct ebbi_heap *heap, unsigned class_number, struct ebbi_bag **empty)
{
    bool filled = false;
    ebbi_lock_take(&heap->lock);
    if (ebbi_bag_first_passed(heap, class_number) && ebbi_magazine_ensure(heap, class_number)) {
        struct ebbi_bag *bag = heap->limbo.queues[class_number].first;
        ebbi_magazine_adapt(heap, class_number, false);
        fill_magazine(heap, class_number, bag);
        if (bag->count == 0) {
            *empty = ebbi_bag_dequeue(&heap->limbo.queues[class_number]);
            heap->limbo.bags--;
        }
        filled = true;
    }
    ebbi_lock_drop(&heap->lock);
    return filled;
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
        bag_recycle(heap, empty);
    }
    return filled;
}
