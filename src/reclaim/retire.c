// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: the slow retire. By the heap's thread.
#include <errno.h>

#include "debug/check.h"
#include "debug/guard.h"
#include "heap/blocks.h"
#include "os/wake.h"
#include "reclaim/queues.h"
#include "report/report.h"

#define PRESSING_BYTES ((size_t)1 << 20) // of large objects
#define PRESSING_BAGS 8                  // in the queues, before a membarrier is worth it
#define PATIENT_BAGS 16 // in the queues, before the thread gives way to whoever holds up the clock
#define NAP_BAGS 64     // before it naps for a millisecond
#define SURPLUS_AT_ONCE 2
#define LARGE_AT_ONCE 16
#define CLAIMED ((uint64_t)1) // no stamp

static struct ebbi_bag *take_surplus(struct ebbi_heap *heap, unsigned queue)
{
    ebbi_lock_take(&heap->own.lock);
    bool surplus = ebbi_bag_has_surplus(heap, queue);
    struct ebbi_bag *bag = surplus ? ebbi_bag_take_passed(heap, queue) : NULL;
    ebbi_lock_drop(&heap->own.lock);
    return bag;
}

// More than one for each that is sealed, so that a queue that has grown shrinks again.
static void send_surplus_home(struct ebbi_heap *heap, unsigned queue)
{
    struct ebbi_bag *bag = take_surplus(heap, queue);
    for (int i = 0; i < SURPLUS_AT_ONCE && bag != NULL; i++) {
        ebbi_bag_release(heap, bag);
        ebbi_bag_recycle(heap, bag);
        ebbi_heap_count_event(heap, 0);
        ebbi_gather_alone();
        ebbi_purge_tick(heap);
        bag = i + 1 < SURPLUS_AT_ONCE ? take_surplus(heap, queue) : NULL;
    }
}

// After a bag was sealed: time may pass, and memory go. Where other threads have moved the clock on
// far enough already, it is left alone: each move costs every pinning thread a fence.
static void settle(struct ebbi_heap *heap, unsigned queue, struct ebbi_sealed sealed)
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

static void start_filling(struct ebbi_limbo *limbo, struct ebbi_bag *bag)
{
    limbo->filling_count++;
    ebbi_compiler_fence(); // another thread's fork() must not find a bag that is not counted
    limbo->filling[bag->queue] = bag;
}

static void retire_mixed(struct ebbi_heap *heap, void *p, unsigned class_number)
{
    struct ebbi_bag *bag = heap->limbo.filling[EBBI_MIXED];
    if (bag == NULL) {
        bag = ebbi_bag_get(heap, EBBI_MIXED);
        if (bag == NULL) {
            ebbi_strand(p);
            return;
        }
        start_filling(&heap->limbo, bag);
    }
    EBBI_ASSERT(bag->queue == EBBI_MIXED && bag->count < EBBI_BAG_BLOCKS);
    bag->blocks[bag->count] = p;
    ebbi_compiler_fence(); // another thread's fork() must not find a count without its block
    bag->count++;
    size_t bytes = heap->limbo.mixed_bytes + ebbi_classes[class_number].size;
    ebbi_limbo_set_mixed(&heap->limbo, bag->count, bytes);
    if (bag->count == EBBI_BAG_BLOCKS || bytes >= EBBI_LIMBO_BYTES) {
        settle(heap, EBBI_MIXED, ebbi_bag_seal(heap, bag));
    }
}

static void retire_own(struct ebbi_heap *heap, void *p, unsigned class_number)
{
    if (heap->limbo.filling[class_number] != NULL) {
        settle(heap, class_number, ebbi_bag_close(heap, class_number));
    }
    struct ebbi_bag *bag = ebbi_bag_get(heap, class_number);
    if (bag == NULL) {
        ebbi_strand(p);
        return;
    }
    struct ebbi_bag_top *room = &heap->fast.limbo[ebbi_class_bin(class_number, heap->lane)];
    bag->blocks[0] = p;
    start_filling(&heap->limbo, bag);
    EBBI_ASSERT(room->top == room->limit && bag->count == 0);
    // relaxed: others only count
    ebbi_store_relaxed(&room->limit, bag->blocks + ebbi_bag_room(ebbi_classes[class_number].size));
    ebbi_compiler_fence();                           // as in retire_mixed
    ebbi_store_relaxed(&room->top, bag->blocks + 1); // relaxed: as above
}

// Some of them: each that is retired comes by here. True: others wait.
static bool reclaim_large(struct ebbi_heap *heap)
{
    void *p = heap;
    bool waiting = true;
    for (int i = 0; i < LARGE_AT_ONCE && p != NULL; i++) {
        ebbi_lock_take(&heap->own.lock);
        p = ebbi_large_take_passed(heap);
        waiting = heap->limbo.large_first != NULL;
        ebbi_lock_drop(&heap->own.lock);
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
    ebbi_lock_take(&heap->own.lock);
    ebbi_large_enqueue(heap, p);
    limbo->blocks++;
    limbo->bytes += bytes;
    bool press = limbo->bytes >= PRESSING_BYTES;
    ebbi_lock_drop(&heap->own.lock);
    ebbi_limbo_count(bytes, 0);
    if (!ebbi_load_relaxed(&ebbi_dying)) { // relaxed: set by this thread or of no matter
        (void)ebbi_clock_advance(&ebbi_clock, press);
        if (reclaim_large(heap)) {
            ebbi_pin_attend_later();
        }
        ebbi_helper_kick();
    }
}

// False, as it has reported: it is retired already.
static bool claim_large(void *p)
{
    uint64_t free_to_claim = 0;
    // relaxed: of two threads one is told; the stamp itself is written under the heap's lock
    if (!ebbi_cas_relaxed(&ebbi_large_note(p)->stamp, &free_to_claim, CLAIMED)) {
        if (!ebbi_guard_report((uintptr_t)p, "retire", "retired, waits for its grace period")) {
            ebbi_misuse_said(
                (struct ebbi_report){.kind = {"double retire"}, .address = (uintptr_t)p},
                "%p, an object of its own, waits for its grace period already", p);
        }
        return false;
    }
    ebbi_region_forget(ebbi_large_note(p)); // it leaves by itself now
    return true;
}

// ---- blocks of regions -----------------------------------------------------------------------------

static bool any_of_regions; // atomic

bool ebbi_regions_may_wait(void)
{
    // relaxed: whoever retires beside a release is in error
    return ebbi_load_relaxed(&any_of_regions);
}

static bool retire_of_region(struct ebbi_heap *heap, struct ebb_participant *me, void *p)
{
    size_t bytes = ebbi_sheet_usable(p);       // no block in use: abort
    ebbi_store_relaxed(&any_of_regions, true); // relaxed: see ebbi_regions_may_wait
    // relaxed: as in free_retired; a release beside this is in error
    (void)ebbi_fetch_add_relaxed(&ebbi_sheet_of(p)->retired, 1u);
    struct ebbi_call call = {ebbi_free_passed_of_region, p, (void *)bytes};
    if (ebbi_retire_with(heap, me, call) || (me == NULL && ebbi_strand_of_region(p))) {
        return true;
    }
    // relaxed: no memory for the call: the block stays in its region
    (void)ebbi_fetch_sub_relaxed(&ebbi_sheet_of(p)->retired, 1u);
    return false;
}

// ---- any block -------------------------------------------------------------------------------------

// What it counts as while it waits: an empty one as its place. 0 bytes are a call's that frees nothing.
static size_t bytes_of(const void *p)
{
    size_t bytes = ebbi_usable_size(p);
    return bytes != 0 ? bytes : ebbi_classes[EBBI_CLASS_EMPTY].size;
}

// Not by a bag: its blocks start where those of classes do.
static void retire_checked(struct ebbi_heap *heap, void *p)
{
    size_t bytes = bytes_of(p);
    struct ebbi_call call = {ebbi_free_passed, p, (void *)bytes};
    int saved = errno;
    if (bytes != EBBI_NO_BLOCK && ebbi_check_retire(p)) {
        (void)ebbi_retire_with(heap, NULL, call); // refused: it stays
    }
    errno = saved;
}

void ebbi_retire_to(struct ebbi_heap *heap, void *p)
{
    unsigned tag = ebbi_tag_of(p);
    if (p == NULL) {
        return;
    }
    if (tag == EBBI_TAG_REGION) {
        int saved = errno;
        (void)retire_of_region(heap, NULL, p); // refused: it stays until its region is released
        errno = saved;
        return;
    }
    unsigned class_number = ebbi_tag_class(tag);
    if (class_number == 0 && ebbi_large_note(p) == NULL) {
        ebbi_report_invalid(p, "retire");
        return;
    }
    if (class_number != 0 && ebbi_check_is_on()) {
        retire_checked(heap, p);
        return;
    }
    if (class_number == 0 && !claim_large(p)) {
        return;
    }
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

bool ebbi_retire_easily(struct ebb_participant *me, void *p)
{
    size_t granule = ebbi_granule_of(p);
    if (EBBI_UNLIKELY(granule >= ebbi_window.fast_granules || me->now == &ebbi_clock.now)) {
        return false;
    }
    int64_t tag = ebbi_tag_load(&ebbi_window.tags[granule]);
    unsigned class_number = ebbi_tag_class((unsigned)ebbi_tag_bin(tag));
    size_t bytes = ebbi_classes[class_number].size;
    return EBBI_LIKELY(class_number != 0 && ebbi_slab_has_place(p, tag)) &&
           ebbi_defer_to(me, (struct ebbi_call){ebbi_free_passed, p, (void *)bytes}, bytes);
}

bool ebbi_retire_into(struct ebbi_heap *heap, struct ebb_participant *me, void *p)
{
    if (p == NULL || ebbi_tag_of(p) == EBBI_TAG_REGION) {
        return p == NULL || retire_of_region(heap, me, p);
    }
    bool large = ebbi_tag_class(ebbi_tag_of(p)) == 0;
    size_t bytes = bytes_of(p);
    struct ebbi_call call = {ebbi_free_passed, p, (void *)bytes};
    if (bytes == EBBI_NO_BLOCK || (large && !claim_large(p)) ||
        (!large && ebbi_check_is_on() && !ebbi_check_retire(p))) {
        return true; // as has been reported
    }
    bool done = ebbi_retire_with(heap, me, call);
    if (!done && large) {
        ebbi_store_relaxed(&ebbi_large_note(p)->stamp, (uint64_t)0); // relaxed: its owner's again
    } else if (!done && ebbi_check_is_on()) {
        ebbi_check_keep(p);
    }
    return done;
}
