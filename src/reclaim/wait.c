// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: reclaiming for everybody: the queues of all threads, waiting, what there is.
#include "heap/blocks.h"
#include "os/wake.h"
#include "reclaim/queues.h"

#define WAIT_YIELDS 16 // before a wait sleeps
#define NAP_MS 1

static struct ebbi_clock *clock_of(struct ebbi_collector *collector)
{
    return collector != NULL ? &collector->clock : &ebbi_clock;
}

void ebbi_limbo_take_expired(struct ebbi_heap *heap, struct ebbi_expired *expired)
{
    ebbi_assert_held(&heap->own.lock);
    struct ebbi_bag *bag;
    void *p;
    for (unsigned q = 0; q < EBBI_CLASS_COUNT && heap->limbo.bags > 0; q++) {
        while ((bag = ebbi_bag_take_passed(heap, q)) != NULL) {
            expired->bytes += ebbi_bag_bytes(bag);
            bag->next = expired->bags;
            expired->bags = bag;
        }
    }
    while ((p = ebbi_large_take_passed(heap)) != NULL) {
        expired->bytes += ebbi_large_bytes(p);
        ebbi_large_note(p)->next = expired->large;
        expired->large = p;
    }
    expired->waiting |= heap->limbo.blocks > 0;
}

void ebbi_limbo_take_calls(struct ebbi_heap *heap, struct ebbi_expired *expired)
{
    ebbi_assert_held(&heap->own.lock);
    for (struct ebbi_record *r = heap->records; r != NULL; r = r->next_of_heap) {
        ebbi_deferred_take_all(&r->collector->clock, &r->deferred, expired);
        ebbi_late_take_of(r->collector, expired);
    }
    ebbi_deferred_take_all(&ebbi_clock, &heap->deferred, expired);
}

void ebbi_late_take(struct ebbi_expired *expired) { ebbi_late_take_of(NULL, expired); }

void ebbi_limbo_release(struct ebbi_expired *expired)
{
    while (expired->bags != NULL) {
        struct ebbi_bag *bag = expired->bags;
        expired->bags = bag->next;
        ebbi_bag_release(NULL, bag);
        ebbi_own_send(bag);
    }
    while (expired->large != NULL) {
        void *p = expired->large;
        expired->large = ebbi_large_note(p)->next;
        ebbi_large_reclaim(p);
    }
    if (expired->calls != NULL || expired->hooks > 0) {
        ebbi_calls_run(expired);
    }
}

static void advance(struct ebbi_collector *collector)
{
    (void)ebbi_clock_advance(clock_of(collector), true);
}

void ebbi_clocks_advance(void)
{
    advance(NULL);
    ebbi_collectors_each(advance);
}

static void check_unpinned(struct ebbi_collector *collector, const char *what)
{
    bool known = ebbi_current() != &ebbi_heap_gone; // else it shares a pin with others
    ebbi_collector_check(collector);
    if (known && ebbi_is_pinned(collector)) {
        ebbi_fatal("%s inside a pin: it would wait for its own thread", what);
    }
}

// No destructor runs inside a pin of the default collector.
static void check_outside(struct ebbi_collector *collector, const char *what)
{
    if (collector != NULL && ebbi_current() != &ebbi_heap_gone && ebbi_is_pinned(NULL)) {
        ebbi_fatal("%s inside a pin of the default collector: it runs destructors", what);
    }
}

static void wait_a_little(unsigned turn)
{
    ebbi_late_sweep();
    if (turn < WAIT_YIELDS) {
        ebbi_os_yield();
    } else {
        ebbi_nap(NAP_MS);
    }
}

static void wait_for(struct ebbi_clock *clock, uint64_t stamp)
{
    for (unsigned turn = 0; !ebbi_clock_passed(clock, stamp);) {
        if (!ebbi_clock_advance(clock, true)) {
            wait_a_little(turn++);
        }
    }
}

void ebbi_synchronize(struct ebbi_collector *collector)
{
    struct ebbi_clock *clock = clock_of(collector);
    check_unpinned(collector, "synchronize");
    wait_for(clock, ebbi_clock_stamp(clock));
}

// What a walk over the heaps looks for.
struct walk {
    struct ebbi_collector *collector;
    struct ebbi_expired expired;
    struct ebbi_limbo_totals totals;
};

static struct ebbi_deferred *deferred_of(struct ebbi_heap *heap, struct ebbi_collector *collector)
{
    ebbi_assert_held(&heap->own.lock);
    struct ebbi_record *record = collector != NULL ? ebbi_record_find(heap, collector) : NULL;
    return collector == NULL ? &heap->deferred : record != NULL ? &record->deferred : NULL;
}

static void walk_calls(struct ebbi_heap *heap, void *context)
{
    struct walk *walk = context;
    struct ebbi_deferred *deferred = deferred_of(heap, walk->collector);
    if (deferred != NULL) {
        ebbi_deferred_take_all(clock_of(walk->collector), deferred, &walk->expired);
    }
}

static void walk_blocks(struct ebbi_heap *heap, void *context)
{
    struct walk *walk = context;
    ebbi_limbo_take_expired(heap, &walk->expired);
}

static void start_walk(struct walk *walk, struct ebbi_collector *collector)
{
    *walk = (struct walk){.collector = collector, .expired.until = UINT64_MAX};
    walk->expired.calls_end = &walk->expired.calls;
}

// Runs what may run. False when some of what a barrier waits for still waits.
static bool run_calls(struct walk *walk)
{
    walk->expired.awaited = false;
    ebbi_heaps_each(walk_calls, walk);
    ebbi_late_take_of(walk->collector, &walk->expired);
    ebbi_limbo_release(&walk->expired);
    return !walk->expired.awaited;
}

// A destructor that is still there lies below on the stack. (One on another stack may lie anywhere:
// the message is wrong then, but not the end.)
static EBBI_NOINLINE void check_no_destructor(const struct ebbi_heap *heap)
{
    if (heap == NULL || !heap->runs_calls) {
        return;
    }
    if ((uintptr_t)__builtin_frame_address(0) > (uintptr_t)heap->run_frame) {
        ebbi_fatal("a destructor was left by longjmp or an exception: it has to return");
    }
    ebbi_fatal("barrier inside a destructor: it would wait for itself");
}

void ebbi_barrier(struct ebbi_collector *collector)
{
    check_unpinned(collector, "barrier");
    check_no_destructor(ebbi_heap_mine());
    check_outside(collector, "barrier");
    ebbi_calls_finish(collector);
}

static void walk_seal(struct ebbi_heap *heap, void *context)
{
    struct walk *walk = context;
    struct ebbi_deferred *deferred = deferred_of(heap, walk->collector);
    if (deferred != NULL) {
        ebbi_deferred_seal(clock_of(walk->collector), deferred);
    }
}

// What waits now is in a queue, then taken, then run (or put back, of a thread that ends). What comes later has a
// younger stamp, or a later turn, and is not waited for: others may go on retiring all the time.
void ebbi_calls_finish(struct ebbi_collector *collector)
{
    struct ebbi_clock *clock = clock_of(collector);
    struct walk walk;
    size_t returned;
    start_walk(&walk, collector);
    ebbi_heaps_each(walk_seal, &walk);
    ebbi_late_seal(collector);
    walk.expired.until = ebbi_clock_stamp(clock);
    do {
        returned = ebbi_calls_returned();
        for (unsigned turn = 0; !run_calls(&walk); turn++) {
            // What the clock does not hold back waits for a hazard pointer.
            if (!ebbi_clock_advance(clock, true) || turn > EBBI_ADVANCES) {
                wait_a_little(turn);
            }
        }
        uint64_t asked = ebbi_calls_ask();
        for (unsigned turn = 0; ebbi_calls_in_flight(asked); turn++) {
            wait_a_little(turn);
        }
    } while (ebbi_calls_returned() != returned);
}

size_t ebbi_reclaim(struct ebbi_collector *collector)
{
    struct ebbi_heap *heap = ebbi_heap_mine();
    struct walk walk;
    check_unpinned(collector, "reclaim");
    start_walk(&walk, collector);
    if (heap != NULL && collector == NULL) {
        ebbi_limbo_seal(heap);
    }
    // They wait in another collector inside a pin of the default one, and in the depth of destructors.
    bool runs = !ebbi_is_pinned(NULL) && ebbi_calls_may_nest(heap);
    bool done = !runs || run_calls(&walk); // seals
    for (int i = 0; i < EBBI_ADVANCES; i++) {
        (void)ebbi_clock_advance(clock_of(collector), true);
    }
    if (!done) {
        (void)run_calls(&walk);
    }
    if (collector == NULL) {
        ebbi_heaps_each(walk_blocks, &walk);
        ebbi_limbo_release(&walk.expired);
        (void)ebbi_stranded_release();
        bool some_wait = false;
        walk.expired.bytes += ebbi_remains_purge(&some_wait);
    }
    ebbi_gather_alone();
    ebbi_purge_tick(NULL);
    return walk.expired.bytes;
}

static void walk_totals(struct ebbi_heap *heap, void *context)
{
    ebbi_assert_held(&heap->own.lock);
    struct walk *walk = context;
    const struct ebbi_deferred *deferred = deferred_of(heap, walk->collector);
    if (deferred == NULL) { // the thread has no part in this collector
        return;
    }
    struct ebbi_limbo_totals more = ebbi_deferred_totals(deferred);
    walk->totals.calls += more.calls;
    walk->totals.calls_for_blocks += more.calls_for_blocks;
    walk->totals.blocks += more.blocks;
    walk->totals.bytes += more.bytes;
    if (walk->collector == NULL) {
        size_t filling = 0;
        walk->totals.bytes += heap->limbo.bytes + ebbi_limbo_filling(heap, &filling);
        walk->totals.blocks += heap->limbo.blocks + filling;
    }
}

void ebbi_limbo_totals(struct ebbi_collector *collector, struct ebbi_limbo_totals *totals)
{
    struct walk walk;
    start_walk(&walk, collector);
    ebbi_heaps_each(walk_totals, &walk);
    *totals = walk.totals;
    totals->calls += ebbi_late_count(collector);
    totals->blocks += collector == NULL ? ebbi_stranded_count() : 0;
}
