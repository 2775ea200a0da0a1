// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: the slabs of an owner, under its lock: supply, shelves, what comes home, what may be purged.
#ifndef EBB_HEAP_SLABS_H
#define EBB_HEAP_SLABS_H

#include "heap/heap.h"

// ---- supply.c ------------------------------------------------------------------------------------
// Up to `wanted` blocks; of a new slab only where there is no other and `may_grow`.
size_t ebbi_owner_take(struct ebbi_owner *owner, unsigned class_number, void **slots, size_t wanted,
                       bool may_grow);
void ebbi_owner_collect(struct ebbi_owner *owner); // takes in what other threads freed

// ---- vacant.c ------------------------------------------------------------------------------------
// With EBB_CHECK. Not of one that is purging. What was written to is nobody's from then on, and noted.
void ebbi_vacant_look_in(struct ebbi_owner *owner, struct ebbi_slab *slab);
void ebbi_vacant_tell(void); // reports what was noted; no lock held

// ---- depot.c -------------------------------------------------------------------------------------
void ebbi_depots_grow(size_t heaps);           // so many threads' heaps; under the registry lock
size_t ebbi_depots(struct ebbi_owner **first); // how many are in use
// The owner whose slabs serve a heap (NULL: a thread without one) for a class, at this moment. Locked.
struct ebbi_owner *ebbi_lock_owner(struct ebbi_heap *heap, unsigned class_number);
void ebbi_unlock_owner(struct ebbi_heap *heap, struct ebbi_owner *owner);
// Locks the slab's owner for a look, if it serves the heap and is not waited for. Else NULL.
struct ebbi_owner *ebbi_lock_owner_of(const struct ebbi_heap *heap, const struct ebbi_slab *slab);
// As ebbi_owner_take with growth; a depot borrows from others first.
size_t ebbi_depot_take(struct ebbi_owner *owner, unsigned class_number, void **slots,
                       size_t wanted);

// ---- give.c --------------------------------------------------------------------------------------
// Under the lock of the owner, or without one: then all blocks go as other threads'.
void ebbi_give_blocks(struct ebbi_owner *owner, void **blocks, size_t count);
// Any thread, no lock held.
void ebbi_give_one(void *p);
void ebbi_give_word(struct ebbi_slab *slab, unsigned word, uint64_t mask);

// ---- shelf.c -------------------------------------------------------------------------------------
// No refill takes from it, and it does not move, until ebbi_shelf_return.
void ebbi_shelf_send_away(struct ebbi_owner *owner, struct ebbi_slab *slab);
void ebbi_shelf_return(struct ebbi_owner *owner, struct ebbi_slab *slab); // it may end with this
void ebbi_shelf_move(struct ebbi_owner *owner, struct ebbi_slab *slab);
void ebbi_shelf_drop_full(struct ebbi_owner *owner,
                          struct ebbi_slab *slab); // if it is, from its bucket
void ebbi_shelf_set_current(struct ebbi_owner *owner, unsigned class_number,
                            struct ebbi_slab *slab);
EBBI_INLINE void ebbi_shelf_settle(struct ebbi_owner *owner, struct ebbi_slab *slab)
{ // after blocks came back
    if (slab->free_count >= slab->moves_at) {
        ebbi_shelf_move(owner, slab);
    }
}
// So many blocks were taken from the slab, whose free ones were these before.
void ebbi_shelf_count_taken(struct ebbi_owner *owner, const struct ebbi_slab *slab, size_t count,
                            struct ebbi_slab_free before);
void ebbi_shelf_take_one(struct ebbi_owner *owner, struct ebbi_slab *slab,
                         unsigned block); // this one, which is free in it
struct ebbi_slab *ebbi_shelf_next(struct ebbi_owner *owner, unsigned class_number);

// ---- purge_queue.c -------------------------------------------------------------------------------
void ebbi_purge_note(struct ebbi_owner *owner, struct ebbi_slab *slab);
void ebbi_purge_unnote(struct ebbi_owner *owner, struct ebbi_slab *slab);
// Returns what has been free for so long, of a bounded number of slabs, and drops the lock meanwhile. True: there may
// be more.
bool ebbi_purge_old(struct ebbi_owner *owner, size_t delay_ms);
// Its thread has ended: without a helper all that is free goes, as nobody comes later who would.
void ebbi_purge_ended(struct ebbi_owner *owner);
void ebbi_purge_blocks(struct ebbi_owner *owner); // by amount; as above
// So many of its blocks that a purge took before their time are in use again.
void ebbi_purge_regret(struct ebbi_owner *owner, const struct ebbi_slab *slab, size_t blocks);
void ebbi_purge_rest(struct ebbi_owner *owner);      // it ends
void ebbi_owner_turn_peak(struct ebbi_owner *owner); // at each pass
// In the child of a fork: nobody purges its slabs any more.
void ebbi_purge_forked(struct ebbi_owner *owner, void *context);
void ebbi_purge_spans(void); // of the arena, by amount; no lock held, but of a thread that is dying

// ---- heap_audit.c: abort on what they find; the second by the heap's thread, inside ----------------
void ebbi_owner_audit(const struct ebbi_owner *owner);
void ebbi_magazines_audit(const struct ebbi_heap *heap);
#if EBBI_HAVE_ASSERT // of many events
#define EBBI_OWNER_AUDIT(owner, n) ((n) % 64 == 0 ? ebbi_owner_audit(owner) : (void)0)
#define EBBI_MAGAZINES_AUDIT(heap, n) ((n) % 64 == 0 ? ebbi_magazines_audit(heap) : (void)0)
#else
#define EBBI_OWNER_AUDIT(owner, n) ((void)0)
#define EBBI_MAGAZINES_AUDIT(heap, n) ((void)0)
#endif

#endif
