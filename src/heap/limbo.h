// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: what has been retired and waits for its grace period.
//
// A thread collects the blocks it retires in bags, one for each class: retire pushes as free pushes
// to a magazine, through the pair of pointers in struct ebbi_fast. A full bag is sealed: it gets a
// stamp from the clock and joins its class's queue. When malloc finds a magazine empty, the oldest
// bag, once its stamp has passed, refills it: retire and malloc then meet without a slab between
// them. Bags that nobody asks for go home to their slabs. (After "bag = magazine" of FreeBSD's UMA
// with SMR.) Nothing is read from or written to a block.
//
//     filling[class] --full: stamp--> queue[class]: | oldest ... youngest | --stamp passed--> magazine
//                                                                                     or slabs
//
// A bag is itself a block of the heap, of 1 KiB. When memory for one is refused the blocks wait as
// bits of their slabs (stranded.c): to retire cannot fail. Large objects are chained through their
// headers. Calls (ebb_retire_with, and everything in collectors of their own) wait in records of
// {function, pointer, context}, which are sealed and queued in the same way.
//
// R1  what has been retired is in one place: one bag, one record, one chain, one stranded bit or list.
// R2  `filling`, what says so below and the bins' pointers are the owning thread's; everything else is under the
//     heap's lock, so that any thread can empty the queues of one that sleeps.
// R3  the stamps of a queue do not decrease but for bags that a hazard pointer held back.
//
// The record that fills is written to without a lock. Its `state` is the count of its calls, and three bits:
//
//     0, 1, .. --append: call, then count + 1--> n --CLOSED--> queue --> taken --> run --DONE--.
//                                                |                                             +--> free
//                                                '--the next append fails: another one --LEFT--'
//
// F1  the thread it belongs to appends: it writes the call behind the last, and then raises the count by a
//     compare-and-swap, which fails once the record is CLOSED. What it wrote then is in no call's place.
// F2  who closes it, under the lock, puts it into the queue. `count` is what `state` said.
// F3  that thread may write to it until it has LEFT, others read it until they are DONE: who is second frees it.
//     `filling` is changed by that thread alone, under the lock.
// F4  a record of the default collector has destructors or blocks, not both: a hazard pointer to a block holds back all
//     of its record, and no barrier waits for one of blocks that is held.
// Without an owner, for threads that have no heap, all append under the lock.
//
// Objects that bring a hook (ebb_retire_hooked) need no memory to wait in: they are chained. A chain has one
// stamp, and two of them are enough:
//
//     filling --32: stamp--> young --> old --stamp passed--> passed --no hazard pointer--> taken --> begun --> run
//                                                               ^------ held <------|
//
// H1  a hook that waits is in one chain.
// H2  of chains whose stamps have not passed there are two at most: their stamps are the clock's epoch and the
//     one before. `young` is empty where `old` is; its stamp is greater.
// H3  `filling` to `held` are under the lock of what they belong to. A hook that has been taken is in a thread's
//     `waits`, under the lock of those taken; it goes there under both, and back: so fork() finds it in one place.
//     Begun ones are the thread's own: the child of another thread's fork has lost them.
// H4  a hook's mark is its destructor and its own address in one word while it waits, and 0 when the destructor
//     begins: who finds there what it would store has found an object that waits already.
#ifndef EBB_HEAP_LIMBO_H
#define EBB_HEAP_LIMBO_H

#include "epoch/clock.h"
#include "slab/classes.h"

#define EBBI_BAG_BLOCKS 125
#define EBBI_CALLS 32
#define EBBI_CALLS_CLOSED ((uint32_t)1 << 8) // F2; the count lies below
#define EBBI_CALLS_LEFT ((uint32_t)1 << 9)   // F3
#define EBBI_CALLS_DONE ((uint32_t)1 << 10)
#define EBBI_LIMBO_BYTES                                                                           \
    65536u // in a bag or a record, of known size: the last block, or the least number of them, may go beyond
#define EBBI_SEEN 1024
#define EBBI_MIXED 0 // the queue, of no class, for blocks of other lanes

struct ebbi_heap;
struct ebb_hook;

struct ebbi_bag {
    struct ebbi_bag *next;
    uint64_t stamp;
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
    size_t filling_count;   // that are not NULL, or one more for a moment; the thread's
    size_t mixed_bytes;     // in filling[EBBI_MIXED]; the thread's, others read it
    size_t mixed_blocks;    // their number, as well
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
    uint64_t stamp;
    uint32_t state;  // F1 to F3
    uint8_t count;   // once it is closed
    uint8_t begun;   // of them, once it runs
    bool held;       // by a hazard pointer, when it was looked at last
    bool runs;       // under the lock of those taken, see deferred.c
    uint64_t turn;   // while it is taken: of the barriers, when it was
    uintptr_t taker; // while it is taken, under that lock, as are these:
    struct ebbi_calls *taken_next, **taken_link;
    struct ebbi_call calls[EBBI_CALLS];
};

struct ebbi_chain {
    struct ebb_hook *first, *last; // count only where there are any
    size_t count;
};

struct ebbi_stamped {
    struct ebbi_chain chain;
    uint64_t stamp;
};

struct ebbi_hooked {
    struct ebbi_chain filling;
    struct ebbi_stamped young, old;
    struct ebbi_chain passed;
    struct ebbi_chain held; // when they were looked at last
    size_t sealed;          // from young to passed; atomic for a look
};

// Hooks that a thread has taken. All but `begun` is under the lock of those taken.
struct ebbi_hooks_taken {
    struct ebbi_chain waits, begun;        // H3
    size_t count;                          // taken, and not known to have run
    uint64_t turn;                         // of the barriers, when it was 0 last
    struct ebbi_hooks_taken *next, **link; // of those that have some
};

// Under the lock of the heap that it belongs to.
struct ebbi_deferred {
    struct ebbi_calls *filling; // F1
    size_t filling_bytes; // of blocks that its calls free; the thread's, and 0 where there are none
    struct ebbi_calls *first, *last;
    struct ebbi_hooked hooked; // of the default collector alone
    size_t count;              // of calls that are closed, and of all hooked ones
    size_t blocks, bytes;      // that some of the calls will free, the closed ones
    size_t sealed;             // records in the queue
    uint32_t turns;            // calls that were closed, and hooks
    uint32_t turns_seen;       // when its unpins last looked
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
    struct ebbi_hooks_taken *hooks_at; // where hooks were put
    size_t hooks;
    bool waiting;   // something has to wait yet
    uint64_t until; // in: a barrier waits for what has this stamp, or an older one
    bool awaited;   // there is some, but for hooks that hazard pointers hold back
    size_t bytes;   // of blocks
};

#endif
