// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: blocks as the layers above see them: magazines that fill and empty, large objects, what a
// pointer is. Of the calling thread's heap, inside; no lock held unless it is said.
#ifndef EBB_HEAP_BLOCKS_H
#define EBB_HEAP_BLOCKS_H

#include "debug/site.h"
#include "heap/slabs.h"

// ---- magazine.c: under the lock of one of the heap's owners ----------------------------------------
void ebbi_magazine_adapt(struct ebbi_heap *heap, unsigned class_number, bool flush);
bool ebbi_magazine_ensure(struct ebbi_heap *heap, unsigned class_number); // false: not now
void ebbi_magazines_tell_time(struct ebbi_heap *heap, uint32_t now_ms);   // of a refill or flush
bool ebbi_magazines_owe(const struct ebbi_heap *heap); // it has more than it may keep
unsigned ebbi_magazines_hand(struct ebbi_heap *heap);  // the class that is to go home next; 0: none
unsigned ebbi_magazines_turn(struct ebbi_heap *heap);  // the same, at one in so many calls
void ebbi_magazines_extend(struct ebbi_heap *heap);    // it lacks slots; no lock is held
void ebbi_magazines_lend(struct ebbi_heap *heap);      // nobody uses them; under own.lock
void ebbi_magazines_lend_no_more(struct ebbi_heap *heap);   // its thread does
size_t ebbi_magazines_charge(const struct ebbi_heap *heap); // what charged_bytes is to be
EBBI_INLINE unsigned ebbi_tray_number(unsigned bin) { return EBBI_CLASS_COUNT + bin % EBBI_TRAYS; }
void ebbi_magazine_first(struct ebbi_heap *heap);               // a new heap's first arrays
void ebbi_tray_open(struct ebbi_heap *heap, unsigned bin);      // if there is room for its array
void ebbi_tray_adapt(struct ebbi_heap *heap, unsigned number);  // it was full, and is empty
void ebbi_array_close(struct ebbi_heap *heap, unsigned number); // a magazine's or tray's, empty
// Blocks in a magazine or tray: a hint. Any thread, under the lock of the heap's own owner.
size_t ebbi_magazine_count(const struct ebbi_heap *heap, unsigned number);

// ---- refill.c ------------------------------------------------------------------------------------
bool ebbi_magazine_is_empty(const struct ebbi_heap *heap, unsigned class_number);
// A block, for a request of `bytes`, by way of its magazine. NULL: memory refused.
void *ebbi_heap_pop(struct ebbi_heap *heap, unsigned class_number, size_t bytes);
void *ebbi_take_one(unsigned class_number); // for a thread without a heap
// Any size, for the program, whatever is current; NULL and ENOMEM. heap: of the calling thread, or NULL. Not inside.
void *ebbi_heap_alloc(struct ebbi_heap *heap, size_t align, size_t bytes, ebbi_site site);
void *ebbi_own_alloc(size_t bytes); // for Ebbtide's own needs: aligned to a cache line

// ---- flush.c -------------------------------------------------------------------------------------
void ebbi_heap_free(struct ebbi_heap *heap,
                    void *p); // of a class; heap: whose magazines are current
void ebbi_heap_check(struct ebbi_heap *heap, void *p); // as a free looks whether it is free
// What ebbi_own_alloc gave, or NULL; not inside.
void ebbi_own_free(void *p);
void ebbi_own_send(void *p); // the same, not NULL, by whatever thread, which needs no heap
// Of a class, as the program got it. site 0: it was retired, and its grace period is over.
void ebbi_class_free(void *p, ebbi_site site);
bool ebbi_held_rest(void);                   // what EBB_CHECK holds is free; true: there was some
void ebbi_flush_all(struct ebbi_heap *heap); // and the outbox
void ebbi_flush_idle(struct ebbi_heap *heap, unsigned from); // of the arrays from this one on
void ebbi_flush_foreign(struct ebbi_heap *heap);             // the outbox, and trays
void ebbi_flush_quiet(
    struct ebbi_heap *heap); // of a thread that was parked: what it seems not to need
void ebbi_flush_turn(struct ebbi_heap *heap); // one that stood still makes room
// Its thread ends: everything that is free goes home.
void ebbi_heap_rest(struct ebbi_heap *heap);

// ---- spares.c: of the calling thread's heap --------------------------------------------------------
// Under its lock, the one that was freed last aside. NULL: none fits.
struct ebbi_large *ebbi_spare_take(struct ebbi_heap *heap, size_t granules);
// The one that was freed last, if it is large enough, and at most an eighth longer.
EBBI_INLINE struct ebbi_large *ebbi_spare_last(struct ebbi_heap *heap, size_t granules)
{
    uintptr_t last = ebbi_load_relaxed(&heap->spares.last); // relaxed: one's own, or 0
    size_t longer = last % EBBI_HEADER - granules;          // of 0: too long
    if (longer > granules / 8 ||
        !ebbi_cas_relaxed(&heap->spares.last, &last, (uintptr_t)0)) { // relaxed: as above
        return NULL;
    }
    struct ebbi_large *large = (struct ebbi_large *)(last - granules - longer);
    EBBI_ASSERT(large->head.state == EBBI_SPAN_SPARE && large->head.granules == granules + longer);
    large->head.state = EBBI_SPAN_LARGE;
    large->head.zeroed = false;
    return large;
}
void ebbi_spares_give(struct ebbi_heap *heap); // all go to the arena; of any heap, under its lock
bool ebbi_spares_rest(struct ebbi_heap *heap); // the same without the lock; true: there were any
// After a put: shelves what was the last one before, if any; looks whether there is too much.
void ebbi_spare_settle(struct ebbi_heap *heap, uintptr_t before, bool looks);
#define EBBI_SPARE_LOOK_EVERY 8 // puts since all were given away
// False: it is too long.
EBBI_INLINE bool ebbi_spare_put(struct ebbi_heap *heap, struct ebbi_large *large)
{
    struct ebbi_spares *spares = &heap->spares;
    size_t granules = large->head.granules;
    EBBI_ASSERT(large->head.state == EBBI_SPAN_LARGE);
    if (EBBI_UNLIKELY(ebbi_spares_granules(spares) + granules > EBBI_SPARES)) {
        if (granules > EBBI_SPARES) {
            return false;
        }
        (void)ebbi_spares_rest(heap);
    }
    large->head.state = EBBI_SPAN_SPARE;
    // release[spare-put -> spare-claim]: the span's header
    uintptr_t before = ebbi_exchange_release(&spares->last, (uintptr_t)large + granules);
    uint32_t puts = ebbi_load_relaxed(&spares->puts); // relaxed: a race is one look more or less
    ebbi_store_relaxed(&spares->puts, puts + 1);      // relaxed: as above
    bool looks = puts % EBBI_SPARE_LOOK_EVERY == 0;
    if (before != 0 || looks) {
        ebbi_spare_settle(heap, before, looks);
    }
    return true;
}

// ---- look.c --------------------------------------------------------------------------------------
// With EBB_CHECK, at all that is held or free in a slab. O(bytes of it), each owner's lock taken in turn.
void ebbi_look(void);
void ebbi_look_alone(void);  // and in use: no other thread uses the heap
void ebbi_look_forked(void); // in the child of a fork beside other threads
// The first, if the last look is fifty times as long ago as it took. False: it is not.
bool ebbi_look_again(void);

// ---- registry.c ----------------------------------------------------------------------------------
// The thread of this heap counts in that round of a profile: unless it is over, the sampler leads to the heap's bins.
void ebbi_heap_count(struct ebbi_heap *heap, uint32_t round);

// ---- samples.c -----------------------------------------------------------------------------------
void ebbi_sample_hold(void *block); // in a sample's stead: the pages that it fills go back
void ebbi_sample_freed(struct ebbi_note *note); // as far as a profile sees; of whatever the note is
void ebbi_samples_look(void); // sees what each sample in use keeps (profile/profile.h, P5)

// ---- tick.c --------------------------------------------------------------------------------------
void ebbi_purge_begin(void); // once, at start-up
// Frees what threads have given back to owners that have not looked. The helper, or who is about to grow.
void ebbi_gather(void);
// The same in a process of one thread, where nobody else would: before the amounts are looked at, behind what has sent blocks
// to other owners, such as the thread's heaps for domains.
void ebbi_gather_alone(void);
void ebbi_purge_tick(struct ebbi_heap *heap); // after a flush; NULL: of a large one, or a refill

// ---- large.c -------------------------------------------------------------------------------------
void ebbi_large_begin(void); // once, at start-up
// Counted under the label, if any.
void *ebbi_large_alloc(size_t bytes, size_t align, bool zero, struct ebbi_label *label);
// Of no label, from what the heap keeps, not cleared. heap: the calling thread's. NULL: there is none.
void *ebbi_large_again(struct ebbi_heap *heap, size_t bytes);
void ebbi_large_free(void *p);
void ebbi_large_free_tagged(void *p); // whose tag was just seen to be that of one
void ebbi_large_sampled(void *p);     // by a profile, just allocated: its span counts by its bytes
size_t ebbi_large_samples_rounding(void); // of these, what spans have beyond the bytes
// False, as it has reported: it has been retired. what: the program does with it.
bool ebbi_large_check_retired(const void *p, const struct ebbi_note *note, const char *what);
size_t ebbi_large_bytes(const void *p); // reports when p is no large object, EBBI_NO_BLOCK then
void *ebbi_large_resize(void *p, size_t bytes); // in place or by moving pages; NULL: copy instead
// What grows and has to move will do so again: a copy in a mapping, of which the pages move from then on. NULL: not now.
void *ebbi_large_grow_out(const void *p, size_t old_bytes, size_t bytes);
// To a block that has just been allocated and not cleared: what is zero is not written where it is new for the process as well.
void ebbi_large_copy(void *to, const void *from, size_t bytes);
bool ebbi_large_is_limited(void); // since the start, in address space

// ---- pointer.c -----------------------------------------------------------------------------------
size_t ebbi_usable_size(
    const void *p); // 0 for NULL; reports what is not a block, EBBI_NO_BLOCK then
size_t ebbi_known_size(const void *p); // the same, for the program: 0 then
// Returns where the process goes on (ebbi_misuse).
void ebbi_report_invalid(const void *p, const char *what);
// A call that frees the block says that it has so many bytes (or EBBI_UNSAID) at that alignment (or 0).
EBBI_NORETURN void ebbi_report_mismatch(const void *p, size_t bytes, size_t align);

// ---- compact.c: ebb_is_sparse, ebb_compact -------------------------------------------------------
bool ebbi_block_is_sparse(const void *p);
void *ebbi_block_compact(void *p);

// ---- current.c -----------------------------------------------------------------------------------
extern EBBI_HIDDEN bool ebbi_dying; // a thread of the process is on its way to abort(); atomic

#endif
