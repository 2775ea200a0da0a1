// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim, for its own files: bags and records of calls, in and out of their queues.
#ifndef EBB_RECLAIM_QUEUES_H
#define EBB_RECLAIM_QUEUES_H

#include "heap/registry.h"
#include "heap/slabs.h"
#include "reclaim/reclaim.h"

// ---- bags.c: the queues; under the heap's lock but for ebbi_bag_check ------------------------------
void ebbi_bag_check(struct ebbi_limbo *limbo, const struct ebbi_bag *bag); // aborts on misuse
void ebbi_bag_enqueue(struct ebbi_heap *heap, struct ebbi_bag *bag);       // with a new stamp
struct ebbi_bag *ebbi_bag_dequeue(struct ebbi_bag_queue *queue);           // which is not empty
// A queue keeps two bags for malloc to come for; what is expired beyond them goes home.
bool ebbi_bag_has_surplus(const struct ebbi_heap *heap, unsigned queue);
// Whether the first bag of a queue may go.
bool ebbi_bag_first_passed(struct ebbi_heap *heap, unsigned queue);
// It, out of the queue and the counts, if it may go; else NULL.
struct ebbi_bag *ebbi_bag_take_passed(struct ebbi_heap *heap, unsigned queue);
// `count` blocks, those behind the bag's own count, do not wait any more.
void ebbi_bag_forget(struct ebbi_heap *heap, const struct ebbi_bag *bag, size_t count);
size_t ebbi_bag_bytes(const struct ebbi_bag *bag);
void ebbi_large_enqueue(struct ebbi_heap *heap, void *p); // with a new stamp
void *ebbi_large_take_passed(struct ebbi_heap *heap);     // NULL: none may go
// No lock held: the blocks go home, by way of the heap, which may be NULL.
void ebbi_bag_release(struct ebbi_heap *heap, struct ebbi_bag *bag);
void ebbi_large_reclaim(void *p);
// Any time: bytes that wait more, or less.
void ebbi_limbo_count(size_t more, size_t less);
void ebbi_limbo_add(size_t more); // the same without a look at the limit

#define EBBI_BAG_LEAST 4u

EBBI_INLINE size_t ebbi_bag_room(size_t block_bytes)
{
    return ebbi_min(EBBI_BAG_BLOCKS, ebbi_max(EBBI_BAG_LEAST, EBBI_LIMBO_BYTES / block_bytes));
}

EBBI_INLINE void ebbi_limbo_set_mixed(struct ebbi_limbo *limbo, size_t blocks, size_t bytes)
{
    ebbi_store_relaxed(&limbo->mixed_blocks, blocks); // relaxed: others only count
    ebbi_store_relaxed(&limbo->mixed_bytes, bytes);   // relaxed: as above
}

// ---- limbo.c: by the heap's thread, no lock held ----------------------------------------------------
struct ebbi_bag *ebbi_bag_get(struct ebbi_heap *heap, unsigned queue); // empty; NULL: refused
void ebbi_bag_recycle(struct ebbi_heap *heap, struct ebbi_bag *bag);
struct ebbi_sealed {
    size_t bags;     // in the heap's queues
    bool has_passed; // the oldest of this queue
    bool surplus;    // malloc need not come for all of this queue
};
// A full bag, or one whose thread ends, joins its queue.
struct ebbi_sealed ebbi_bag_seal(struct ebbi_heap *heap, struct ebbi_bag *bag);
struct ebbi_sealed ebbi_bag_close(struct ebbi_heap *heap,
                                  unsigned class_number); // the one that is filling

// ---- deferred.c ----------------------------------------------------------------------------------
enum ebbi_deferral { EBBI_REFUSED, EBBI_ADDED, EBBI_SEALED }; // sealed: with it a record was full
// Adds a call under `lock`, which it takes.
enum ebbi_deferral ebbi_defer(struct ebbi_lock *lock, struct ebbi_clock *clock,
                              struct ebbi_deferred *deferred, struct ebbi_call call);
// All that wait, those of the filling record, too; under the lock.
size_t ebbi_deferred_count(const struct ebbi_deferred *deferred);
struct ebbi_limbo_totals ebbi_deferred_totals(const struct ebbi_deferred *deferred);
// All that have come so far.
uint32_t ebbi_deferred_turns(const struct ebbi_deferred *deferred);
// By its thread, or behind its end; under the lock.
void ebbi_deferred_leave(struct ebbi_deferred *deferred);
// Under the lock.
void ebbi_deferred_seal(struct ebbi_clock *clock, struct ebbi_deferred *deferred);
// Takes records that may go, of at most `most` calls. True: another one may.
bool ebbi_deferred_take(struct ebbi_clock *clock, struct ebbi_deferred *deferred, size_t most,
                        struct ebbi_expired *expired);
// The same with all, the filling ones sealed; says what has to wait.
void ebbi_deferred_take_all(struct ebbi_clock *clock, struct ebbi_deferred *deferred,
                            struct ebbi_expired *expired);
enum ebbi_deferral ebbi_defer_hook(struct ebbi_lock *lock, struct ebbi_clock *clock,
                                   struct ebbi_deferred *deferred, struct ebb_hook *hook);
// Calls of so many records, or as many as would fill those, are sealed. A hint.
size_t ebbi_deferred_records(const struct ebbi_deferred *deferred);
bool ebbi_defer_late(struct ebbi_call call); // by a thread without a heap; false: refused
void ebbi_defer_hook_late(struct ebb_hook *hook);
// Calls that a thread has taken and will not run: back into its collector.
void ebbi_late_put(struct ebbi_calls *calls);
void ebbi_late_put_hooks(struct ebbi_hooks_taken *taken);
// Of those, and those of threads without a heap: all that can go; how many there are.
void ebbi_late_take_of(struct ebbi_collector *collector, struct ebbi_expired *expired);
size_t ebbi_late_count(struct ebbi_collector *collector);
void ebbi_late_seal(struct ebbi_collector *collector);
struct ebbi_calls_taken {
    struct ebbi_lock lock;           // rank: owner; nothing is taken under it
    struct ebbi_calls *first, **end; // the oldest first
    struct ebbi_hooks_taken *hooks;
    uint64_t turn;   // barriers that have asked
    size_t returned; // how often some went back to a queue, which may have been found empty before
};
extern EBBI_HIDDEN struct ebbi_calls_taken ebbi_calls_taken;
void ebbi_taken_remove(struct ebbi_calls *calls, bool returns);

// ---- hooks.c: under the lock of what they belong to, unless it is said -------------------------------
// True: with it the chain was full, and is sealed.
bool ebbi_hooks_add(struct ebbi_clock *clock, struct ebbi_hooked *hooked, struct ebb_hook *hook);
void ebbi_hooks_seal(struct ebbi_clock *clock, struct ebbi_hooked *hooked);
// Takes at most `most` that may go; how many.
size_t ebbi_hooks_take(struct ebbi_clock *clock, struct ebbi_hooked *hooked, size_t most,
                       struct ebbi_expired *expired);
// Back, in front: their time has come before. Under the lock of those taken, too. How many.
size_t ebbi_hooks_put(struct ebbi_hooked *hooked, struct ebbi_hooks_taken *taken);
// No lock held. The helper may have come by its heap since it took them: they become its, before a call ends it.
void ebbi_hooks_claim(struct ebbi_heap *heap, const struct ebbi_expired *expired);
void ebbi_hooks_run(struct ebbi_heap *heap, size_t count); // as many as were taken
void ebbi_hooks_abandon(struct ebbi_heap *heap);           // as ebbi_calls_abandon
void ebbi_hooks_forked(struct ebbi_heap *heap);            // as ebbi_calls_forked

// ---- calls.c -------------------------------------------------------------------------------------
// No lock held: runs what has been taken. What has been begun and what not is in memory at any time: a call
// may end the thread.
void ebbi_calls_run(struct ebbi_expired *expired);
// False: the thread is so deep in destructors that run others that it takes no more.
bool ebbi_calls_may_nest(const struct ebbi_heap *heap);
// For barriers: what has been taken before, by any thread, has an earlier turn than this returns.
uint64_t ebbi_calls_ask(void);
bool ebbi_calls_in_flight(uint64_t turn); // of an earlier turn, and not run yet
size_t ebbi_calls_returned(void);

// ---- passed.c ------------------------------------------------------------------------------------
// The call of a block that waits as one; `bytes` is the block's size.
void ebbi_free_passed(void *p, void *bytes);
void ebbi_free_passed_of_region(void *p, void *bytes);
EBBI_INLINE bool ebbi_call_is_block(const struct ebbi_call *call) // else a destructor
{
    return call->run == ebbi_free_passed || call->run == ebbi_free_passed_of_region;
}
EBBI_INLINE size_t ebbi_call_bytes(const struct ebbi_call *call) // 0: a destructor
{
    return ebbi_call_is_block(call) ? (size_t)call->context : 0;
}

EBBI_INLINE uint64_t ebbi_pin_state(const struct ebb_participant *me)
{
    return ebbi_load_relaxed(&me->state); // relaxed: its own
}
EBBI_INLINE bool ebbi_pin_is_none(const struct ebb_participant *me)
{
    return (ebbi_pin_state(me) & EBB_PIN_DEPTH) == EBB_PIN_NONE;
}
EBBI_INLINE uint64_t ebbi_pin_depth(const struct ebb_participant *me)
{
    return ebbi_pin_state(me) & EBB_PIN_DEPTH & ~EBB_PIN_ATTENTION;
}

// ---- late.c: pins of threads that have no heap, for good ---------------------------------------------
void ebbi_late_pin(void);
void ebbi_late_unpin(void);
bool ebbi_late_is_pinned(void);                      // the calling thread
struct ebb_participant *ebbi_late_participant(void); // NULL: the calling thread has a heap, or may
void ebbi_clock_choose(void);                        // at the first pin: fences or membarriers

#endif
