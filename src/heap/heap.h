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
// Slabs belong to a heap. Those of line-sharing classes belong to the heap of the thread that takes
// blocks from them. Those of whole-line classes belong to the depots, the first few heaps, which all
// threads share (depot.c): many half-used slabs of each class would cost more than a lock that is
// seldom contended.
//
// P1  a block is in one place: the program, one magazine or outbox, or one bitmap of its slab.
// P2  magazines hold whole-line blocks of any heap, and other blocks of their own lane only.
// P3  every slab of the heap with a free block is `current` of its class, in one bucket, or away; in a
//     bucket it has fewer free blocks than those at which it moves.
// P4  a magazine with an array has its bit in `arrays`, NULL below its first slot, and base < top <=
//     limit = base + slots; one without has its ends at `nothing`.
// P5  slab_count, held_bytes and idle_bytes are sums over the heap's slabs; full ones have nothing idle.
// P6  the purge queue is linked both ways through slabs of the heap that say so.
//
// The thread alone touches the fast part, the magazines and the outbox, its slow paths under the
// lock of the owner of the slabs concerned, which they take once per refill or flush. Slabs and
// lists are under their heap's `lock`; the purger and fork() take it too. `pending` is written by
// anybody.
#ifndef EBB_HEAP_HEAP_H
#define EBB_HEAP_HEAP_H

#include "arena/arena.h"
#include "heap/limbo.h"
#include "os/lock.h"
#include "region/region.h"
#include "slab/slab.h"

#define EBBI_OUTBOX 64
#define EBBI_LATELY 3 // of the blocks that were freed last, free looks at as many
#define EBBI_ENTERED 32
#define EBBI_SLOT_SIZES 9 // arrays of 1 << 0 .. 1 << 8 slots

typedef void *ebbi_slot; // a slot of a magazine

struct ebbi_fast {
    void **top[EBBI_TAG_COUNT];
    struct ebb_participant pin; // in the default collector; at EBB_SELF_PIN
    void **limit[EBBI_TAG_COUNT];
    struct ebbi_bag_top limbo[EBBI_TAG_COUNT];
    uint16_t bin_of[EBBI_LOOKUP_COUNT]; // by (bytes + 15) / 16; 0 in a heap that is none
};

struct ebbi_magazine {
    void **base;
    uint64_t
        asked_bytes; // of the requests that met it empty: a sample of what is asked of the class
    uint32_t asked_count;
    uint16_t slots;  // of the array, the sentinel's included; 0: no array yet
    uint16_t stolen; // see park.c
    uint16_t noted;  // the same
    uint8_t streak;  // refills or flushes in a row
    bool flushed;    // the last event was a flush
    bool busy;       // used since the last sweep
};

struct ebbi_shelf { // slabs of one class
    struct ebbi_slab *current;
    struct ebbi_slab *bucket[EBBI_BUCKETS];
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

struct ebbi_heap {
    struct ebbi_fast fast; // first: what the thread's pointer points to
    void *nothing;         // NULL: the slot below the top of a magazine without an array

    struct ebbi_slab *pending __attribute__((aligned(EBBI_CACHE_LINE))); // atomic, any thread

    struct ebbi_lock lock __attribute__((aligned(EBBI_CACHE_LINE)));
    uint32_t events;   // refills and flushes
    uint32_t clock_ms; // about now
    uint16_t lane;
    uint8_t exit_rounds; // of the thread's destructors
    bool is_depot;       // see depot.c; never destroyed
    bool attached;
    bool alone; // serves a thread in abort(): takes no other lock
    uint32_t
        inside; // how deep its thread is in slow calls; atomic, see park.c, as are the next two
    uint32_t parked;
    struct ebbi_fast **slot;
    bool runs_calls; // its thread is in ebbi_calls_run
    bool buries;     // and in ebbi_collectors_bury
    bool counted;    // its thread, among those that helper.c counts
    uint32_t holds;  // of walkers; under the registry lock
    size_t slab_count;
    size_t held_bytes;        // of slabs
    size_t idle_bytes;        // free blocks of slabs that may hold pages
    size_t peak_bytes;        // held and not idle at most, lately
    size_t budget_bytes;      // what magazines may still grow by
    size_t freed_bytes;       // since the last purge by amount
    size_t out_bytes;         // of blocks that are not in its slabs
    uint64_t taken_bytes;     // out of its slabs by refills, since the start
    struct ebbi_label *label; // whose memory it is; NULL: nobody's
    struct ebbi_seat seat;
    struct ebbi_heap *seats;   // that the thread of this heap has in domains
    struct ebb_region *region; // current, while ebbi_source is ebbi_heap_scoped
    uint32_t entered_count;    // enters of regions that have not been left
    struct ebb_region
        *entered[EBBI_ENTERED]; // the outermost of them, for a thread that ends inside
    bool has_regions;           // its thread may own some
    bool had_regions;           // never destroyed: ebbi_owner_revoke may still look at it
    uint64_t arrays[2];         // bit c: magazines[c] has an array
    size_t purged_bytes;        // pages of slabs returned since the start
    struct ebbi_slab *purge_first, *purge_last;
    struct ebbi_slab *away;            // slabs whose pages are being returned, through `next`
    struct ebbi_heap *next, *previous; // all heaps, under the registry lock
    struct ebbi_heap *abandoned_next;  // under the registry lock
    void **slot_free[EBBI_SLOT_SIZES]; // recycled arrays
    void **slot_next, **slot_end;      // fresh ones
    unsigned outbox_count;
    void *outbox[EBBI_OUTBOX];
    struct ebbi_magazine magazines[EBBI_CLASS_COUNT];
    struct ebbi_shelf shelves[EBBI_CLASS_COUNT];
    struct ebbi_limbo limbo;
    struct ebbi_deferred deferred; // of the default collector
    struct ebbi_record *records;   // in others
    struct ebbi_calls *running;    // its thread's, as are these: records taken, innermost run first
    const void *run_frame;         // of the outermost ebbi_calls_run
    struct ebbi_collector *doomed; // to be destroyed behind it
};

// The calling thread's heap: the static none before its first call and gone after its last.
EBBI_INLINE struct ebbi_fast *ebbi_current(void) { return (struct ebbi_fast *)ebb_self; }
// Where the thread's malloc takes blocks from and its free puts them: the same, the heap of a domain
// that is current, or ebbi_heap_scoped while a region is, which has none: every call is a slow one.
extern EBBI_HIDDEN _Thread_local struct ebbi_fast *ebbi_source
    __attribute__((tls_model("initial-exec")));
extern EBBI_HIDDEN struct ebbi_fast ebbi_heap_scoped;
extern EBBI_HIDDEN struct ebbi_fast ebbi_heap_none;
extern EBBI_HIDDEN struct ebbi_fast ebbi_heap_gone;
extern EBBI_HIDDEN struct ebbi_fast ebbi_heap_parked;

#include "heap/park.h"

// Under the lock: so no heap's clock goes backward, and no slab was touched in its future.
EBBI_INLINE void ebbi_heap_tell_time(struct ebbi_heap *heap)
{
    heap->clock_ms = (uint32_t)ebbi_os_now_ms();
}

// Under the lock.
EBBI_INLINE void ebbi_heap_count_out(struct ebbi_heap *heap, int64_t more)
{
    // relaxed: a count, which domain.c reads without the lock
    ebbi_store_relaxed(&heap->out_bytes, heap->out_bytes + (size_t)more);
}

// ---- for the surface -----------------------------------------------------------------------------
// All thread-safe; ENOMEM in errno with NULL. The fast malloc and free are in heap/fast.h.
void *ebbi_malloc_slow(size_t bytes);
void ebbi_free_slow(void *p);
void *ebbi_calloc(size_t count, size_t size);
void *ebbi_realloc(void *p, size_t bytes); // realloc(p, 0) frees and gives NULL
// What a block that has to move is given: a large one that grows once tends to grow again, and room
// behind it is only address space.
size_t ebbi_room_to_grow(const struct ebb_region *region, size_t old_bytes, size_t bytes);
void *ebbi_aligned(size_t align, size_t bytes); // align: a power of two
size_t ebbi_usable_size(const void *p);         // 0 for NULL; aborts on what is not a block
size_t ebbi_trim(void);                         // gives back all that is free; bytes
int ebbi_start(void);                           // idempotent; 0 or -ENOMEM
// When the library is loaded: what EBB_STATS asks for. In diag/, above; called by name so that a program
// that is linked with the archive gets that object with its malloc.
void ebbi_reports_start(void);

// ---- within the layer ----------------------------------------------------------------------------
// thread.c
void ebbi_thread_begins(void);      // a new thread of the program, counted by ebbi_threads_more
void ebbi_fork_watch(void);         // fork.c: once, by pthread_atfork, which may allocate
void ebbi_fork_abort(void);         // fork.c: this thread is on its way to abort()
extern EBBI_HIDDEN bool ebbi_dying; // a thread of the process is on its way to abort()
struct ebbi_heap *ebbi_heap_get(
    void); // the thread's, attached now if need be; NULL: none to be had
// The one that malloc and free work on: the thread's, or its current domain's. NULL as above.
struct ebbi_heap *ebbi_source_get(void);
// The same for a free, which is no reason to give a thread a heap whose end would not be seen.
struct ebbi_heap *ebbi_source_for_free(void);

// registry.c
struct ebbi_heap *ebbi_heap_lock_public(void); // for threads without one; locked, or NULL
void ebbi_heaps_prune(void); // destroys abandoned heaps without slabs but for a few
// Takes every heap's lock, for a reader of all slabs, then calls visit (if any) for each.
void ebbi_heaps_freeze(void (*visit)(struct ebbi_heap *heap, void *context), void *context);
void ebbi_heaps_thaw(void);
// Between the two.
void ebbi_heaps_visit(void (*visit)(struct ebbi_heap *heap, void *context), void *context);
// Each in turn under its lock, which visit may drop and take again; no other lock is held.
void ebbi_heaps_each(void (*visit)(struct ebbi_heap *heap, void *context), void *context);
void ebbi_registry_lock(void); // of all heaps, and of all records in collectors
void ebbi_registry_unlock(void);
void ebbi_registry_assert(void); // checked builds: aborts unless the calling thread holds it
#define EBBI_ASSERT_REGISTRY() (EBBI_HAVE_ASSERT ? ebbi_registry_assert() : (void)0)

// A heap for a domain: a new one, in the list of all. Under the registry lock; NULL: refused.
struct ebbi_heap *ebbi_heap_create_for(struct ebb_domain *domain, struct ebbi_label *label);
// thread.c: its thread ends: everything that is free goes home. No lock held.
void ebbi_heap_rest(struct ebbi_heap *heap);

// depot.c
void ebbi_depot_offer(struct ebbi_heap *heap); // new; under the registry lock
// The heap whose slabs serve this one for a class, at this moment: the heap itself where blocks
// share cache lines. Locked.
struct ebbi_heap *ebbi_lock_owner(struct ebbi_heap *heap, unsigned class_number);
// As ebbi_heap_take from a depot whose lock is held, which borrows before it grows.
size_t ebbi_depot_take(struct ebbi_heap *depot, unsigned class_number, void **slots, size_t wanted);

// audit.c: abort on what they find. Under the lock; and by the heap's thread, inside.
void ebbi_heap_audit(const struct ebbi_heap *heap);
void ebbi_magazines_audit(const struct ebbi_heap *heap);
#if EBBI_HAVE_ASSERT // of many events
#define EBBI_HEAP_AUDIT(heap, n) ((n) % 64 == 0 ? ebbi_heap_audit(heap) : (void)0)
#define EBBI_MAGAZINES_AUDIT(heap, n) ((n) % 64 == 0 ? ebbi_magazines_audit(heap) : (void)0)
#else
#define EBBI_HEAP_AUDIT(heap, n) ((void)0)
#define EBBI_MAGAZINES_AUDIT(heap, n) ((void)0)
#endif

// magazine.c: under the lock of one of the heap's owners
void ebbi_magazine_reset(struct ebbi_heap *heap, unsigned class_number); // empty, smallest
void ebbi_magazine_adapt(struct ebbi_heap *heap, unsigned class_number, bool flush);
bool ebbi_magazine_ensure(struct ebbi_heap *heap, unsigned class_number);

// refill.c
// For a request of `bytes`. Takes the lock; false: memory refused, or no array to be had.
bool ebbi_refill(struct ebbi_heap *heap, unsigned class_number, size_t bytes);
// Under the lock: up to `wanted` blocks; of a new slab only where there is no other and `may_grow`.
size_t ebbi_heap_take(struct ebbi_heap *heap, unsigned class_number, void **slots, size_t wanted,
                      bool may_grow);
void ebbi_heap_collect(struct ebbi_heap *heap); // takes in what other threads freed

// From the thread's heap, whatever is current.
void *ebbi_heap_alloc(size_t align, size_t bytes);
// For Ebbtide's own needs: the same, aligned to a cache line.
void *ebbi_alloc_own(size_t bytes);

// flush.c
void ebbi_flush(struct ebbi_heap *heap, unsigned class_number);       // makes room; takes the lock
void ebbi_flush_class(struct ebbi_heap *heap, unsigned class_number); // all of it; takes the lock
void ebbi_flush_all(struct ebbi_heap *heap);     // and the outbox; takes the locks
void ebbi_send_outbox(struct ebbi_heap *heap);   // takes the lock
void ebbi_flush_largest(struct ebbi_heap *heap); // whose array others then share; takes the lock
// Under the lock of the heap, or without one: then all blocks go as other threads'.
void ebbi_give_blocks(struct ebbi_heap *heap, void **blocks, size_t count);
void ebbi_give_one(void *p); // from a thread without a heap
void ebbi_give_word(struct ebbi_slab *slab, unsigned word, uint64_t mask); // as another thread's

// shelf.c: under the heap's lock
void ebbi_shelf_remove(struct ebbi_heap *heap, struct ebbi_slab *slab);
// No refill takes from it, and it does not move, until ebbi_shelf_return.
void ebbi_shelf_send_away(struct ebbi_heap *heap, struct ebbi_slab *slab);
void ebbi_shelf_return(struct ebbi_heap *heap, struct ebbi_slab *slab); // it may end with this
void ebbi_shelf_move(struct ebbi_heap *heap, struct ebbi_slab *slab);
void ebbi_shelf_set_current(struct ebbi_heap *heap, unsigned class_number, struct ebbi_slab *slab);
EBBI_INLINE void ebbi_shelf_settle(struct ebbi_heap *heap, struct ebbi_slab *slab)
{ // after blocks came back
    if (slab->free_count >= slab->moves_at) {
        ebbi_shelf_move(heap, slab);
    }
}
struct ebbi_slab *ebbi_shelf_next(struct ebbi_heap *heap, unsigned class_number);

// purge.c
void ebbi_purge_note(struct ebbi_heap *heap, struct ebbi_slab *slab); // under the lock
void ebbi_purge_unnote(struct ebbi_heap *heap, struct ebbi_slab *slab);
void ebbi_purge_blocks(
    struct ebbi_heap *heap);                  // by amount, under the lock, as ebbi_purge_abandoned
void ebbi_purge_spans(void);                  // by amount, no lock held
void ebbi_purge_tick(struct ebbi_heap *heap); // after a flush, no lock held; NULL: of a large one
void ebbi_purge_abandoned(struct ebbi_heap *heap); // under the lock, which it drops and takes again
// In the child of a fork, under its lock: nobody purges its slabs any more.
void ebbi_purge_forked(struct ebbi_heap *heap, void *context);
struct ebbi_pass {
    size_t delay_ms;             // in: how long memory must have been free
    size_t bytes;                // out, summed up: returned
    bool parks;                  // in: magazines of threads that sleep are emptied
    bool runs_calls;             // in: the caller may run destructors of ebb_retire_with
    bool more;                   // out: a queue was not looked at to its end
    bool waiting;                // out: something is too young yet
    struct ebbi_expired expired; // on its way home
};
void ebbi_purge_pass(struct ebbi_pass *pass); // over all heaps and the arena, until nothing is left

// helper.c: any thread
bool ebbi_helper_wanted(void); // there is one: what is kept for a while will be returned
bool ebbi_helper_is_me(void);
void ebbi_helper_kick(void);   // there may be something to return later; creates no thread
void ebbi_helper_start(void);  // creates it, if it is not there; not from malloc or free
void ebbi_helper_look(void);   // the same where it is needed
bool ebbi_helper_keep(void);   // creates it, for the whole life of the process; false: refused
void ebbi_helper_resume(void); // after a stop: there are threads, so it begins anew
void ebbi_helper_stop(void);   // waits until its thread has ended; not from malloc or free
void ebbi_helper_forget(bool counted); // in the child of a fork, whose thread is counted or not
void ebbi_threads_see(void); // from now on each thread is counted when the program creates it
bool ebbi_threads_are_seen(void);
bool ebbi_threads_any(void); // besides the first one, of the program
void ebbi_threads_more(void);
void ebbi_threads_less(void);
void ebbi_threads_first_ends(void);
// True: certainly no other thread uses the heap, nor does the helper until ebbi_threads_go_on.
bool ebbi_threads_hold(void);
void ebbi_threads_go_on(void);
// A destructor ends this thread: another helper may start, if it is one.
void ebbi_helper_abandon(void);

// lifetime.c
struct ebb_region_options;
void *ebbi_scoped_malloc(size_t bytes); // from the region that is current
void *ebbi_scoped_aligned(size_t align, size_t bytes);
void *ebbi_region_slow(struct ebb_region *region, size_t align, size_t bytes);
void *ebbi_region_aligned(struct ebb_region *region, size_t align, size_t bytes);
void *ebbi_region_realloc(struct ebb_region *region, void *p, size_t bytes);
void *ebbi_region_resize(void *p, size_t bytes); // in place, or NULL
void *ebbi_promote(const void *p, struct ebb_region *to);
void ebbi_region_promise_close(struct ebb_region *region); // it is new
int ebbi_region_cleanup(struct ebb_region *region, void (*call)(void *argument), void *argument);
void ebbi_region_release(struct ebb_region *region, bool stays_open);
void ebbi_region_end(struct ebb_region *region); // closes it
// A block of a region, into the participant's collector; NULL: the default one. False: refused.
bool ebbi_region_retire(struct ebb_participant *me, void *p);
void ebbi_region_free_retired(void *p, void *bytes); // the call that is behind that
struct ebb_region *ebbi_region_of(const void *p);
// remains.c: what a release has left, through `next`
void ebbi_remains_put(struct ebbi_sheet *sheets);       // until nobody is in them any more
size_t ebbi_remains_destroy(struct ebbi_sheet *sheets); // now; bytes
size_t ebbi_remains_purge(bool *some_wait);             // of those that wait; bytes
void ebbi_remains_lock(void);                           // fork()
void ebbi_remains_unlock(void);

// domain.c
#define EBBI_SCOPE_REGION ((uintptr_t)1)
#define EBBI_SCOPE_DOMAIN ((uintptr_t)2)
#define EBBI_SCOPE_NONE ((uintptr_t)4)                 // an enter that did not happen
struct ebb_domain *ebbi_domain_find(const char *name); // NULL: memory refused
bool ebbi_domain_set_policy(struct ebb_domain *domain, unsigned policy, size_t n);
void ebbi_domain_advance(struct ebb_domain *domain);
// As malloc, or aligned, with the domain current. Its label may be one of regions.
void *ebbi_domain_alloc(struct ebb_domain *domain, size_t align, size_t bytes);
struct ebb_domain *ebbi_domain_of_label(struct ebbi_label *label); // NULL: memory refused
const struct ebbi_label *ebbi_domain_label(const struct ebb_domain *domain);
uintptr_t ebbi_enter_region(struct ebb_region *region);
uintptr_t ebbi_enter_domain(struct ebb_domain *domain);
uintptr_t ebbi_enter_heap(void);
void ebbi_leave(uintptr_t before);
void ebbi_domain_block(void);                  // the calling thread is about to wait
void ebbi_seats_rest(struct ebbi_heap *heap);  // its thread ends: ebbi_heap_rest
void ebbi_seats_leave(struct ebbi_heap *heap); // then, under the registry's lock
void ebbi_seats_flush(struct ebbi_heap *heap);
void ebbi_seat_abandon(struct ebbi_heap *heap);  // under the registry lock: for the next thread
void ebbi_scope_abandon(struct ebbi_heap *heap); // what is current in it is so no more

// large.c
void *ebbi_large_alloc(size_t bytes, size_t align, bool zero);
void ebbi_large_free(void *p);
size_t ebbi_large_bytes(const void *p);         // aborts when p is no large object
struct ebbi_note *ebbi_large_note(void *p);     // NULL when p is no large object
void *ebbi_large_resize(void *p, size_t bytes); // in place or by moving pages; NULL: copy instead

EBBI_NORETURN void ebbi_report_invalid(const void *p, const char *what);

#endif
