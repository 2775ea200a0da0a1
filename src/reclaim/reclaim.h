// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: retire, pins, grace periods and whoever waits for them. `heap` is the calling thread's, or
// NULL where it has none for good; no lock is held unless it is said.
#ifndef EBB_RECLAIM_RECLAIM_H
#define EBB_RECLAIM_RECLAIM_H

#include "heap/heap.h"
#include "reclaim/hazards.h"
#include "reclaim/record.h"

#define EBBI_ADVANCES 3 // of a clock: after as many everything sealed before has passed

// ---- retire.c ------------------------------------------------------------------------------------
void ebbi_retire_to(struct ebbi_heap *heap, void *p);
// Into the participant's collector, by a call. False: refused; a large block has left its region all the same.
bool ebbi_retire_into(struct ebbi_heap *heap, struct ebb_participant *me, void *p);
// The same of a block of a class, without a lock, where that is all there is to do; false: nothing is done.
bool ebbi_retire_easily(struct ebb_participant *me, void *p);
// Whether a block of a region has ever been retired.
bool ebbi_regions_may_wait(void);

// ---- limbo.c -------------------------------------------------------------------------------------
// Refills the magazine of a class from a bag whose time has come. False: there is none.
bool ebbi_limbo_refill(struct ebbi_heap *heap, unsigned class_number);
void ebbi_limbo_seal(struct ebbi_heap *heap); // the bags that are filling

// ---- bags.c --------------------------------------------------------------------------------------
// Bytes that wait in all heaps: the sum, modulo 2^64, of what each part says. A thread counts in that of the
// processor that it runs on: one word for all is the line that stops a machine with many.
#define EBBI_WAITING_PARTS 64
struct ebbi_waiting_part {
    size_t bytes __attribute__((aligned(EBBI_CACHE_LINE))); // atomic
};
extern EBBI_HIDDEN struct ebbi_waiting_part ebbi_limbo_waiting[EBBI_WAITING_PARTS];
void ebbi_limbo_set_limit(size_t limit, void (*notify)(size_t bytes, void *context), void *context);
void ebbi_limit_lock(void); // fork()
void ebbi_limit_unlock(void);

// ---- pin.c ---------------------------------------------------------------------------------------
void ebbi_pin_slow(struct ebb_participant *me);
bool ebbi_unpin_slow(struct ebb_participant *me); // true: it has taken home some of what waits
// For ebb_retire_with: of the calling thread's record, NULL for the default one.
bool ebbi_retire_with(struct ebbi_heap *heap, struct ebb_participant *me, struct ebbi_call call);
// The same by ebbi_defer_append, where that is all there is to do; false: nothing is done.
EBBI_INLINE bool ebbi_defer_to(struct ebb_participant *me, struct ebbi_call call, size_t bytes)
{
    struct ebbi_heap *heap = ebbi_heap_mine();
    bool is_default = me->now == &ebbi_clock.now;
    return heap != NULL &&
           ebbi_defer_append(is_default ? &heap->deferred : &((struct ebbi_record *)me)->deferred,
                             call, bytes);
}
void ebbi_retire_hooked(struct ebbi_heap *heap, struct ebb_hook *hook);
// Something of the calling thread waits. Where no helper will come its unpins take it home, a little
// each. Not in a signal handler.
void ebbi_pin_attend_later(void);

// ---- late.c: pins and calls of threads that have no heap, for good -----------------------------------
void ebbi_give_way(bool naps); // to whoever holds up the default clock
void ebbi_late_begin(void);    // the calling thread has no heap from now on
void ebbi_late_lock(void);     // fork(), the innermost of all
void ebbi_late_unlock(void);
void ebbi_late_forget(void);                                     // in the child of a fork
uintptr_t ebbi_late_inherit(const struct ebb_participant *from); // the thread's word; 0: no pin
// The calling thread has no heap, and is about to end: what it has pinned so far, and, at the end, that it is over.
bool ebbi_late_bring(void); // false: nothing
void ebbi_late_abandon(void);
void ebbi_late_sweep(void);      // those that have ended unseen are pinned no more
void ebbi_late_calls_lock(void); // fork(); deferred.c
void ebbi_late_calls_unlock(void);

// ---- hooks.c -------------------------------------------------------------------------------------
// Aborts if it is one that waits.
void ebbi_hook_mark(struct ebb_hook *hook, void *p, void (*run)(void *p, struct ebb_hook *hook));

// ---- calls.c -------------------------------------------------------------------------------------
void ebbi_calls_attach(struct ebbi_heap *heap); // a thread begins; it runs none
// The thread ends, perhaps amid a call: the others go back.
void ebbi_calls_abandon(struct ebbi_heap *heap);
void ebbi_calls_lock(void); // fork(): none is taken, begins or ends
void ebbi_calls_unlock(void);
// In the child, no lock held: what the others had taken and not begun goes back.
void ebbi_calls_forked(void);

// ---- wait.c: everybody's -------------------------------------------------------------------------
// Under the heap's lock: takes what may go out of its queues.
void ebbi_limbo_take_expired(struct ebbi_heap *heap, struct ebbi_expired *expired); // blocks
void ebbi_limbo_take_calls(struct ebbi_heap *heap, struct ebbi_expired *expired);
// Of threads without a heap.
void ebbi_late_take(struct ebbi_expired *expired);
void ebbi_limbo_release(struct ebbi_expired *expired); // no lock held
void ebbi_clocks_advance(void);                        // of all collectors, pressing
// Of the default collector where it is NULL.
void ebbi_synchronize(struct ebbi_collector *collector);
void ebbi_barrier(struct ebbi_collector *collector);
void ebbi_calls_finish(struct ebbi_collector *collector); // the same, unchecked
size_t ebbi_reclaim(struct ebbi_collector *collector);
struct ebbi_limbo_totals {
    size_t bytes, blocks, calls; // blocks that calls will free are counted as both:
    size_t calls_for_blocks;
};
void ebbi_limbo_totals(struct ebbi_collector *collector, struct ebbi_limbo_totals *totals);
// Bytes, and blocks, of the batches that a thread still fills; a hint. O(classes).
size_t ebbi_limbo_filling(const struct ebbi_heap *heap, size_t *blocks);
size_t ebbi_limbo_unsealed(void); // of all heaps, in bytes: what ebbi_limbo_waiting lacks

// ---- stranded.c ----------------------------------------------------------------------------------
void ebbi_strand(void *p);
bool ebbi_strand_of_region(void *p); // a block of a region; false: no room
bool ebbi_stranded_release(void);    // true: some still wait
size_t ebbi_stranded_count(void);
void ebbi_stranded_lock(void); // fork()
void ebbi_stranded_unlock(void);

// ---- remains.c: what a release has left, through `next` ----------------------------------------------
void ebbi_remains_put(struct ebbi_sheet *sheets);       // until nobody is in them any more
size_t ebbi_remains_destroy(struct ebbi_sheet *sheets); // now; bytes
size_t ebbi_remains_purge(bool *some_wait);             // of those that wait; bytes
void ebbi_remains_lock(void);                           // fork()
void ebbi_remains_unlock(void);

// ---- collector.c ---------------------------------------------------------------------------------
struct ebbi_collector *ebbi_collector_create(bool fenced); // NULL: memory refused
// In a destructor: when the thread's outermost run of them has ended.
void ebbi_collector_destroy(struct ebbi_heap *heap, struct ebbi_collector *collector);
void ebbi_collectors_bury(struct ebbi_heap *heap);                 // those that wait for that
void ebbi_collector_check(const struct ebbi_collector *collector); // aborts if it is none
// NULL: refused.
struct ebb_participant *ebbi_collector_attach(struct ebbi_heap *heap,
                                              struct ebbi_collector *collector);
bool ebbi_is_pinned(struct ebbi_collector *collector); // the calling thread
// Under the heap's lock.
struct ebbi_record *ebbi_record_find(struct ebbi_heap *heap,
                                     const struct ebbi_collector *collector);
// fork(): all clocks, the registry being locked.
void ebbi_collectors_lock(void);
void ebbi_collectors_unlock(void);
// Under the registry lock.
void ebbi_records_leave(struct ebbi_heap *heap); // its thread ends
// Those that hold nothing, of a heap without thread; under that heap's lock, too.
void ebbi_records_discard(struct ebbi_heap *heap);
void ebbi_collectors_each(void (*visit)(struct ebbi_collector *collector));
void ebbi_collectors_keep_only(struct ebbi_heap *mine); // in the child of a fork

#endif
