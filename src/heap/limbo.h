// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: what has been retired and waits for its grace period.
//
// A thread collects the blocks it retires in bags, one for each class: retire pushes as free pushes
// to a magazine, through the pair of pointers in struct ebbi_fast. A full bag is sealed: it gets a
// tag from the clock and joins its class's queue. When malloc finds a magazine empty, the oldest
// bag, once its tag has passed, refills it: retire and malloc then meet without a slab between
// them. Bags that nobody asks for go home to their slabs. (After "bag = magazine" of FreeBSD's UMA
// with SMR.) Nothing is read from or written to a block.
//
//     filling[class] --full: tag--> queue[class]: | oldest ... youngest | --tag passed--> magazine
//                                                                                     or slabs
//
// A bag is itself a block of the heap, of 1 KiB. When memory for one is refused the blocks wait as
// bits of their slabs (stranded.c): to retire cannot fail. Large objects are chained through their
// headers. Calls (ebb_retire_with, and everything in collectors of their own) wait in records of
// {function, pointer, context}, which are sealed and queued in the same way.
//
// R1  a block that has been retired is in one place: one bag, one chain, one stranded bit.
// R2  `filling` and the bins' pointers are the owning thread's; everything else here is under the
//     heap's lock, so that any thread can empty the queues of one that sleeps.
// R3  the tags of a queue do not decrease but for bags that a hazard pointer held back.
#ifndef EBB_HEAP_LIMBO_H
#define EBB_HEAP_LIMBO_H

#include "epoch/clock.h"
#include "slab/classes.h"

#define EBBI_BAG_BLOCKS 125
#define EBBI_CALLS 40
#define EBBI_LIMBO_BYTES 65536u // in a bag or a record, of known size: the last block may go beyond
#define EBBI_SEEN 1024
#define EBBI_MIXED 0 // the queue, of no class, for blocks of other lanes

struct ebbi_heap;

struct ebbi_bag {
    struct ebbi_bag *next;
    uint64_t tag;
    uint32_t count;
    uint16_t queue; // class number, or EBBI_MIXED
    bool is_free;   // it has passed, and no hazard pointer points into it: none will any more
    void *blocks[EBBI_BAG_BLOCKS];
};

struct ebbi_bag_queue {
    struct ebbi_bag *first, *last; // `last` counts only when there is a first
};

// Per bin, beside the magazines' pointers: where retire pushes. Equal when there is no room.
struct ebbi_bag_top {
    void **top;
    void **limit;
};

struct ebbi_limbo {
    struct ebbi_bag *filling[EBBI_CLASS_COUNT];
    size_t mixed_bytes;     // in filling[EBBI_MIXED]; the thread's
    struct ebbi_bag *spare; // one empty bag
    struct ebbi_bag_queue queues[EBBI_CLASS_COUNT];
    void *large_first, *large_last;
    size_t large_free; // so many from the first on are as a bag with is_free
    size_t bags;       // in the queues
    size_t blocks;     // in the queues, large ones included
    size_t bytes;      // of them
    uint8_t check;     // number of the last one, see ebbi_bag_check; the thread's, as are these:
    uint8_t seen[EBBI_SEEN];
};

struct ebbi_call {
    void (*run)(void *p, void *context);
    void *p;
    void *context;
};

struct ebbi_calls {
    struct ebbi_calls *next;
    struct ebbi_clock *clock; // of its collector
    uint64_t tag;
    uint32_t count;
    uint16_t begun;  // of them, once it runs
    bool runs;       // under the lock of those taken, see deferred.c
    size_t bytes;    // of blocks that its calls free
    uintptr_t taker; // while it is taken, under that lock, as are these:
    struct ebbi_calls *taken_next, **taken_link;
    struct ebbi_call calls[EBBI_CALLS];
};

// Under the lock of the heap that it belongs to.
struct ebbi_deferred {
    struct ebbi_calls *filling;
    struct ebbi_calls *first, *last;
    size_t count;         // of calls
    size_t blocks, bytes; // that some of the calls will free
    size_t sealed;        // records in the queue
    uint32_t turns;       // calls added
    uint32_t turns_seen;  // when its unpins last looked
};

// A thread's part in a collector that is not the default one. Belongs to the thread's heap.
struct ebbi_record {
    struct ebb_participant participant; // first: what the program holds
    struct ebbi_collector *collector;
    struct ebbi_heap *heap;
    struct ebbi_deferred deferred;
    struct ebbi_record *next_of_heap;      // under the heap's lock
    struct ebbi_record *next_of_collector; // under the registry lock
    bool joined;                           // under the registry lock: its thread lives
};

struct ebbi_collector {
    struct ebbi_clock clock;            // first
    struct ebbi_record *records;        // under the registry lock
    struct ebbi_collector *next;        // under the registry lock
    bool ends;                          // under the registry lock: to be destroyed
    struct ebbi_collector *next_doomed; // of the heap whose thread destroys it when it can
    struct ebbi_deferred left;          // by threads that ended amid them; see ebbi_late_put
};

// What has been taken out of the queues and can go.
struct ebbi_expired {
    struct ebbi_bag *bags;
    void *large;
    struct ebbi_calls *calls, **calls_end;
    bool waiting; // something is too young yet
    size_t bytes; // of blocks
};

struct ebb_hazard;

// ---- retire.c: the calling thread's --------------------------------------------------------------
void ebbi_retire_slow(void *p);
// Into the participant's collector, by a call. False: refused; a large block has left its region all the same.
bool ebbi_retire_into(struct ebb_participant *me, void *p);
void ebbi_free_retired(void *p, void *bytes); // that call; `bytes` is the block's size
// Refills the magazine of a class from a bag whose time has come. False: there is none.
bool ebbi_limbo_refill(struct ebbi_heap *heap, unsigned class_number);
void ebbi_give_way(bool naps);                // to whoever holds up the default clock
void ebbi_limbo_seal(struct ebbi_heap *heap); // the bags that are filling

// ---- bags.c: the queues; under the heap's lock ---------------------------------------------------
void ebbi_bag_check(struct ebbi_limbo *limbo, const struct ebbi_bag *bag); // aborts on misuse
void ebbi_bag_enqueue(struct ebbi_heap *heap, struct ebbi_bag *bag);       // with a new tag
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
void ebbi_large_enqueue(struct ebbi_heap *heap, void *p); // with a new tag
void *ebbi_large_take_passed(struct ebbi_heap *heap);     // NULL: none may go
// No lock held: the blocks go home, by way of the heap, which may be NULL.
void ebbi_bag_release(struct ebbi_heap *heap, struct ebbi_bag *bag);
void ebbi_large_reclaim(void *p);
// Any time: bytes that wait more, or less.
extern EBBI_HIDDEN size_t ebbi_limbo_waiting_bytes; // atomic, in all heaps
void ebbi_limbo_count(size_t more, size_t less);
void ebbi_limbo_set_limit(size_t limit, void (*notify)(size_t bytes, void *context), void *context);
void ebbi_limit_lock(void); // fork()
void ebbi_limit_unlock(void);

// ---- reclaim.c: everybody's ----------------------------------------------------------------------
// Under the heap's lock: takes what may go out of its queues.
void ebbi_limbo_take_expired(struct ebbi_heap *heap, struct ebbi_expired *expired); // blocks
void ebbi_limbo_take_calls(struct ebbi_heap *heap, struct ebbi_expired *expired);
void ebbi_limbo_release(struct ebbi_expired *expired); // no lock held
void ebbi_clocks_advance(void);                        // of all collectors, pressing
// For api/: of the default collector where it is NULL.
void ebbi_synchronize(struct ebbi_collector *collector);
void ebbi_barrier(struct ebbi_collector *collector);
void ebbi_calls_finish(struct ebbi_collector *collector); // the same, unchecked
size_t ebbi_reclaim(struct ebbi_collector *collector);
struct ebbi_limbo_totals {
    size_t bytes, blocks, calls; // blocks that calls will free are counted as both:
    size_t calls_for_blocks;
};
void ebbi_limbo_totals(struct ebbi_collector *collector, struct ebbi_limbo_totals *totals);

// ---- stranded.c ----------------------------------------------------------------------------------
void ebbi_strand(void *p);
bool ebbi_strand_of_region(void *p); // a block of a region; false: no room
bool ebbi_stranded_release(void);    // true: some still wait
size_t ebbi_stranded_count(void);
void ebbi_stranded_lock(void); // fork()
void ebbi_stranded_unlock(void);

// ---- deferred.c ----------------------------------------------------------------------------------
enum ebbi_deferral { EBBI_REFUSED, EBBI_ADDED, EBBI_SEALED }; // sealed: with it a record was full
// Adds a call under `lock`, which it takes.
enum ebbi_deferral ebbi_defer(struct ebbi_lock *lock, struct ebbi_clock *clock,
                              struct ebbi_deferred *deferred, struct ebbi_call call);
// Under the lock.
void ebbi_deferred_seal(struct ebbi_clock *clock, struct ebbi_deferred *deferred);
// Takes records that may go, of at most `most` calls. True: another one may.
bool ebbi_deferred_take(struct ebbi_clock *clock, struct ebbi_deferred *deferred, size_t most,
                        struct ebbi_expired *expired);
void ebbi_deferred_put(struct ebbi_deferred *deferred, struct ebbi_calls *calls); // taken: in front
// No lock held: runs the chain, whose last link is *end. What has been begun and what not is in memory at
// any time: a call may end the thread.
void ebbi_calls_run(struct ebbi_calls *first, struct ebbi_calls **end);
void ebbi_calls_attach(struct ebbi_heap *heap); // a thread begins; it runs none
// The thread ends, perhaps amid a call: the others go back.
void ebbi_calls_abandon(struct ebbi_heap *heap);
bool ebbi_calls_in_flight(void);  // taken, and not run yet, by any thread
size_t ebbi_calls_returned(void); // records that went back so far
void ebbi_calls_lock(void);       // fork(): none is taken, begins or ends
void ebbi_calls_unlock(void);
// In the child, no lock held: what the others had taken and not begun goes back.
void ebbi_calls_forked(void);

// ---- pin.c ---------------------------------------------------------------------------------------
// For ebb_retire_with: of the calling thread's record, NULL for the default one.
bool ebbi_retire_with(struct ebb_participant *me, struct ebbi_call call);
// Something of the calling thread waits. Where no helper will come its unpins take it home, a little
// each. Not in a signal handler.
void ebbi_pin_attend_later(void);
// Pins and calls of threads that have no heap, for good.
void ebbi_late_take(struct ebbi_expired *expired);
// Calls that a thread has taken and will not run: back into its collector.
void ebbi_late_put(struct ebbi_calls *calls);
// Of those, and those of threads without a heap: all that can go; how many there are.
void ebbi_late_take_of(struct ebbi_collector *collector, struct ebbi_expired *expired);
size_t ebbi_late_count(struct ebbi_collector *collector);
void ebbi_late_lock(void); // fork()
void ebbi_late_unlock(void);
void ebbi_late_forget(void);                         // in the child of a fork
struct ebb_participant *ebbi_late_participant(void); // NULL: the calling thread has a heap, or may
bool ebbi_is_pinned(struct ebbi_collector *collector); // the calling thread
bool ebbi_is_in_the_way(void);                         // it, of the default clock

// ---- collector.c ---------------------------------------------------------------------------------
struct ebbi_collector *ebbi_collector_create(bool fenced); // NULL: memory refused
// In a destructor: when the thread's outermost run of them has ended.
void ebbi_collector_destroy(struct ebbi_collector *collector);
void ebbi_collectors_bury(struct ebbi_heap *heap);                 // those that wait for that
void ebbi_collector_check(const struct ebbi_collector *collector); // aborts if it is none
struct ebb_participant *ebbi_collector_attach(struct ebbi_collector *collector); // NULL: refused
// Under the heap's lock; and by the heap's thread, without.
struct ebbi_record *ebbi_record_find(struct ebbi_heap *heap,
                                     const struct ebbi_collector *collector);
struct ebbi_record *ebbi_record_of_mine(struct ebbi_heap *heap,
                                        const struct ebbi_collector *collector);
// fork(): all clocks, the registry being locked.
void ebbi_collectors_lock(void);
void ebbi_collectors_unlock(void);
// Under the registry lock.
void ebbi_records_leave(struct ebbi_heap *heap); // its thread ends
void ebbi_records_discard(
    struct ebbi_heap *heap); // those that hold nothing, of a heap without thread
void ebbi_collectors_each(void (*visit)(struct ebbi_collector *collector));
void ebbi_collectors_keep_only(struct ebbi_heap *mine); // in the child of a fork

// ---- hazard.c ------------------------------------------------------------------------------------
struct ebb_hazard *ebbi_hazard_open(const void *owner); // NULL: refused
void ebbi_hazard_close(struct ebb_hazard *hazard);
// Whether a hazard pointer points into [p, p + bytes). Behind the tag of p. O(hazard pointers in use).
bool ebbi_hazard_protects(const void *p, size_t bytes);
// Calls found(held, context) for each that points there, until it says true. Behind the tags.
bool ebbi_hazards_find(uintptr_t start, size_t bytes,
                       bool (*found)(const void *held, void *context), void *context);
size_t ebbi_hazards_count(void);
void ebbi_hazards_lock(void); // fork()
void ebbi_hazards_unlock(void);
void ebbi_hazards_keep_only(const void *owner); // in the child of a fork

// ---- suspects.c ----------------------------------------------------------------------------------
#define EBBI_SUSPECTS 128
#define EBBI_SUSPECT_BITS 9 // of the table's places
_Static_assert(EBBI_BAG_BLOCKS <= EBBI_SUSPECTS && EBBI_CALLS <= EBBI_SUSPECTS,
               "asked for at once");

struct ebbi_suspect {
    uintptr_t start;
    size_t bytes;
};

// Blocks, whose tags have passed; all but the list and what ebbi_suspects_mark leaves is its own.
struct ebbi_suspects {
    size_t count;
    uintptr_t first, end; // where they lie
    bool odd;             // some are no slabs' blocks
    bool hashed, any_will_do;
    struct ebbi_suspect list[EBBI_SUSPECTS];
    bool marks[EBBI_SUSPECTS];                // a hazard pointer points into it
    uint8_t table[1 << EBBI_SUSPECT_BITS];    // by start: number in the list, 0: none
    uint8_t granules[1 << EBBI_SUSPECT_BITS]; // by granule
};

EBBI_INLINE void ebbi_suspects_start(struct ebbi_suspects *suspects)
{
    suspects->count = 0;
    suspects->odd = suspects->hashed = suspects->any_will_do = false;
}
// A block, or a pointer that is none (of one byte). At most EBBI_SUSPECTS.
void ebbi_suspects_add(struct ebbi_suspects *suspects, const void *p, size_t bytes);
bool ebbi_suspects_any(struct ebbi_suspects *suspects);  // whether one is pointed into
void ebbi_suspects_mark(struct ebbi_suspects *suspects); // all that are

#endif
