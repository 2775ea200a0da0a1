// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: a thread's magazines and slabs, and everything that malloc and free do.
//
// A magazine is an array of free blocks of one class with a NULL below its first slot:
//
//     base: | NULL | oldest ... newest |  empty  |
//                                      ^ top     ^ limit
//
// malloc pops below top (and finds the NULL when empty), free pushes at top (and finds the limit
// when full). A thread without a heap has a static one where everything is empty and full at once.
//
// Blocks come from slabs, which belong to owners (owner.h); a heap has one of its own. Those of classes
// whose blocks share cache lines come from there. Those of whole-line classes come from the depots
// (depot.c), which all threads share: many half-used slabs of each class would cost more than a lock
// that is seldom contended.
//
// Blocks of other lanes are on their way home in trays, magazines that only free uses: one for each bin
// that comes often; the rest lies in the outbox.
//
// P1  a block is in one place: the program, one magazine, tray, outbox or bag, or one bitmap of its slab.
// P2  magazines hold whole-line blocks of any owner, and other blocks of their own lane only; a tray
//     those of one bin that the heap has no magazine for.
// P3  a magazine or tray with an array has its bit in `arrays`, NULL below its first slot, and base < top <=
//     limit = base + slots; one without has its ends at `nothing`.
//
// The thread alone touches the fast part, the magazines and the outbox (while it sleeps: park.c), its slow paths under the lock
// of the owner of the slabs concerned, which they take once per refill or flush. What waits in the
// limbo is under the lock of the heap's own owner, as other threads let it go, too.
#ifndef EBB_HEAP_HEAP_H
#define EBB_HEAP_HEAP_H

#include "arena/arena.h"
#include "heap/limbo.h"
#include "heap/owner.h"
#include "profile/profile.h"
#include "region/region.h"

#define EBBI_OUTBOX 64
#define EBBI_TRAYS 37
#define EBBI_ARRAYS (EBBI_CLASS_COUNT + EBBI_TRAYS) // magazines by class, then trays
_Static_assert(EBBI_ARRAYS <= 128, "a bit for each in two words");
#define EBBI_ENTERED 32
#define EBBI_SLOT_SIZES 11 // arrays of 1 << 0 .. 1 << 10 slots
#define EBBI_LEAST_SLOTS 16
#define EBBI_FIRST_ARRAYS 4 // of the least size, among the fields
#define EBBI_SLOTS 3456     // for all others, but of a heap that is hot (magazine.c)

typedef void *ebbi_slot; // a slot of a magazine

struct ebbi_fast {
    void **top[EBBI_TAG_COUNT];
    struct ebb_participant pin; // in the default collector; at EBB_SELF_PIN
    void **limit[EBBI_TAG_COUNT];
    struct ebbi_bag_top limbo[EBBI_TAG_COUNT];
    // By (bytes + 15) / 16; 0, so that each malloc is a slow one, in a heap that is none and while
    // allocations are sampled; atomic, and read by ebbi_bin_for.
    uint16_t bin_of[EBBI_LOOKUP_COUNT];
    struct ebbi_sampler sampler; // of a thread's own heap; in others always that of no round
};

struct ebbi_magazine {
    void **base;
    uint64_t
        asked_bytes; // of the requests that met it empty: a sample of what is asked of the class
    uint32_t asked_count;
    uint16_t slots;  // of the array, the sentinel's included; 0: no array yet
    uint16_t stolen; // see park.c
    uint16_t noted;  // the same
    uint16_t bin;    // of its blocks, once it has an array
    uint8_t streak;  // refills or flushes in a row
    bool flushed;    // the last event was a flush
    bool busy;       // used since the last sweep; a tray: filled
};

// A thread's part in a domain, of a heap that serves it (domain.c). The thread's alone.
struct ebbi_seat {
    struct ebb_domain *domain;    // NULL: an ordinary heap
    struct ebbi_heap *next;       // of the thread's heaps for domains
    struct ebbi_heap *thread;     // its ordinary heap
    uint32_t depth;               // enters that have not been left
    uint64_t scopes, scopes_told; // left so far; counted under the label so far
    uint32_t closed, drained;     // epochs that the label does not count yet
    uint64_t scopes_limit;        // of `scopes`: to be looked at
    uint64_t scopes_end;          // of `scopes`: the epoch ends
    uint64_t taken_limit;         // of taken_bytes: the epoch ends
    uint64_t taken_flushed;       // of taken_bytes, when the magazines were last flushed
    uint64_t ends_ms;             // 0: not by time
    uint64_t advance;             // the domain's, when the epoch began
    size_t live_told;             // bytes counted under the label
};

// See spares.c.
#define EBBI_SPARES 64 // granules: of one, and of all together
struct ebbi_spares {
    struct ebbi_large *first[EBBI_SPARES]; // by granules - 1, through `next`
    uint64_t sizes;                        // bit i: first[i] is not NULL
    size_t granules;                       // of all these; atomic
    // Of the thread's own writing, and others may take what it names; both atomic.
    uintptr_t
        last; // what was freed last, in no list: its header, and its granules in the low bits; 0: none
    uint32_t puts; // since all went to the arena
};
// A hint.
EBBI_INLINE size_t ebbi_spares_granules(const struct ebbi_spares *spares)
{
    // relaxed: counts
    return ebbi_load_relaxed(&spares->granules) + ebbi_load_relaxed(&spares->last) % EBBI_HEADER;
}

// What every thread's first calls touch stands together: bin_of, the fields behind it, the first arrays, and the
// first shelves. An idle thread holds five or six pages of its heap (docs/adr/0041-small-processes.md).
struct ebbi_heap {
    struct ebbi_fast fast; // first: what the thread's pointer points to
    void *nothing;         // NULL: the slot below the top of a magazine without an array

    // The thread's alone, unless it is said.
    uint32_t events;       // refills and flushes
    uint32_t swept_events; // of these, those before the last sweep
    uint32_t quiet_events; // those before its thread was unparked last
    uint32_t slow_work;    // theirs since slow_ms: EBBI_EVENT_WORK each, and 1 for each block
    uint32_t slow_ms;      // when the last one was
    uint32_t hot_ms;       // when there were many; 0: never
    uint16_t lane;
    uint8_t quiet;       // how often in a row there were none in between
    uint8_t exit_rounds; // of the thread's destructors
    uint8_t turns;       // that were asked for, modulo 256; see magazine.c
    uint8_t hand;        // the class where the next one goes on
    bool attached;       // under the registry lock
    bool alone;          // serves a thread in abort(): takes no other owner's lock
    uint8_t runs_calls;  // how often its thread is in ebbi_calls_run
    bool buries;         // and in ebbi_collectors_bury
    bool amid;           // its thread is between ebbi_lock_owner and ebbi_unlock_owner
    bool counted;        // its thread, among those that helper.c counts
    bool has_regions;    // its thread may own some
    bool lacks_slots;    // it is hot, and may have more
    bool lends;          // what its magazines are charged; under own.lock, as `parked` is changed
    bool had_regions;    // never destroyed: ebbi_sheet_owner_revoke may still look at it
    uint32_t
        inside; // how deep its thread is in slow calls; atomic, see park.c, as are the next two
    uint32_t parked;
    struct ebbi_fast **slot;
    size_t charged_bytes;       // by magazines, see magazine.c
    uint64_t taken_bytes;       // by refills, since the start; atomic
    struct ebbi_heap *seats;    // that the thread of this heap has in domains
    struct ebb_region *region;  // current, while ebbi_source is ebbi_heap_scoped
    struct ebbi_calls *running; // records taken, innermost run first
    struct ebbi_hooks_taken hooks;
    const void *run_frame;         // of the outermost ebbi_calls_run
    struct ebbi_collector *doomed; // to be destroyed behind it
    // Under the registry lock.
    struct ebbi_heap *next, *previous; // all heaps
    struct ebbi_heap *abandoned_next;
    uint32_t holds;         // of walkers
    uint32_t counted_round; // of the profile for which sampler.bins leads to its bins

    // The thread's alone, as is what lies below arrays: a free into the first slot looks there (heap/lately.h).
    uint64_t arrays[2];                // bit n: magazines[n] has an array
    void **slot_free[EBBI_SLOT_SIZES]; // arrays at hand
    void **slot_next, **slot_end;      // fresh ones
    void *more_slots;                  // a granule of its own for them; NULL: none
    uint32_t refused_ms;               // when the OS had none
    uint32_t entered_count;            // enters of regions that have not been left
    void *first_slots[EBBI_FIRST_ARRAYS][EBBI_LEAST_SLOTS]
        __attribute__((aligned(EBBI_CACHE_LINE)));
    struct ebbi_owner own; // of its slabs

    // The thread's alone.
    struct ebbi_magazine magazines[EBBI_ARRAYS];
    unsigned outbox_count;
    void *slots[EBBI_SLOTS] __attribute__((aligned(EBBI_CACHE_LINE)));
    void *outbox[EBBI_OUTBOX];
    struct ebbi_seat seat;
    struct ebb_region
        *entered[EBBI_ENTERED]; // the outermost of them, for a thread that ends inside

    // Under own.lock.
    struct ebbi_spares spares;
    struct ebbi_limbo limbo;
    struct ebbi_deferred deferred; // of the default collector
    struct ebbi_record *records;   // in others
};

// Where the thread's malloc takes blocks from and its free puts them: the same, the heap of a domain
// that is current, or ebbi_heap_scoped while a region is, or ebbi_heap_parked (park.c); these have no
// magazines: every call is a slow one. Those, and ebbi_heap_gone, are prepared when they are wanted first:
// most processes never touch them.
extern EBBI_HIDDEN _Thread_local struct ebbi_fast *ebbi_source
    __attribute__((tls_model("initial-exec")));
extern EBBI_HIDDEN struct ebbi_fast ebbi_heap_scoped;
extern EBBI_HIDDEN struct ebbi_fast ebbi_heap_none;
extern EBBI_HIDDEN struct ebbi_fast ebbi_heap_gone;
extern EBBI_HIDDEN struct ebbi_fast ebbi_heap_parked;
void ebbi_heap_prepare_first(struct ebbi_fast *nobodys);
EBBI_INLINE void ebbi_heap_prepare(struct ebbi_fast *nobodys) // the registry's lock may be taken
{
    // acquire[nobody-seen <- nobody-prepared]: all of it
    if (EBBI_UNLIKELY(ebbi_load_acquire(&nobodys->top[0]) == NULL)) {
        ebbi_heap_prepare_first(nobodys);
    }
}

// The thread's word (os.h): 0, or its heap, or else these.
#define EBBI_WORD_NO_HEAP ((uintptr_t)1)
#define EBBI_WORD_COUNTED ((uintptr_t)2) // by ebbi_threads_more
#define EBBI_WORD_OVER ((uintptr_t)4)    // pins that it held have been ended
#define EBBI_WORD_ROUND ((uintptr_t)8) // and its multiples: rounds of destructors that it has seen

// A refill, or a flush, of so many blocks: some hundred ns, and the sixteenth of it for each.
#define EBBI_EVENT_WORK 16u
EBBI_INLINE void ebbi_heap_count_event(struct ebbi_heap *heap, size_t blocks)
{
    heap->events++;
    heap->slow_work += EBBI_EVENT_WORK + (uint32_t)blocks;
}

EBBI_INLINE size_t ebbi_magazine_size(const struct ebbi_magazine *m) // of a block
{
    return ebbi_classes[ebbi_tag_class(m->bin)].size;
}

// The calling thread's heap: the static none before its first call and gone after its last.
EBBI_INLINE struct ebbi_fast *ebbi_current(void) { return (struct ebbi_fast *)ebb_self; }

#include "heap/park.h"

#endif
