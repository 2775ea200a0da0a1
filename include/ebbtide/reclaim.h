// SPDX-License-Identifier: MIT OR Apache-2.0
// Ebbtide: safe memory reclamation for lock-free structures (epoch-based, after Fraser 2004).
//
// A reader pins before it loads shared pointers and unpins when it has done with what they point
// to. A writer unlinks a block, so that no later load finds it, and retires it: the block is freed
// once every pin that was there has ended. To retire is a free that waits.
//
//     ebb_pin();                                    ebb_pin();
//     struct node *n = atomic_load(&head);          struct node *old = atomic_exchange(&head, fresh);
//     use(n);                                       ebb_retire(old);
//     ebb_unpin();                                  ebb_unpin();
//
// Threads register themselves at their first call and leave when they end; there is no limit to
// their number. A pin says nothing about time: while one thread stays pinned, nothing that is
// retired meanwhile is freed, by this scheme's nature. ebb_reclaim_stats shows who stalls whom; a
// reader that may stop for long belongs under a hazard pointer (below), which holds back one block
// and the few that wait in one container with it. Plain pins, retired memory and hazard pointers work
// together on the same blocks.
//
// Every function may be called by any thread. On x86-64 ebb_pin and ebb_unpin may be called in a
// signal handler of a thread that has called ebb_pin before, unless it is installed with SA_NODEFER or SA_RESETHAND
// (one more exception, of processes that filter system calls: docs/reclamation.md);
// nothing else here may, and on aarch64, where the delivery of a signal is no full fence, not these
// either. A child of fork() goes on with its own pins; those of the other threads are gone with them, and
// what these had retired is the child's to free. Where one of them was running destructors, up to 32
// that came next are lost to the child, and 32 more for each destructor that it was in. A thread
// that ends while pinned is no longer pinned. Its record goes when the library's own pthread_key has had its second turn among the
// thread's, a turn a round: in the second round of destructors, or in the one behind that where the thread's first call came
// in a round behind the key's turn (so in the third, if that was the first). Pins from before end with the key's turn in the round
// behind that, and to unpin them from then on does nothing; under ThreadSanitizer with the record, and to unpin them then is an error.
// Those that it makes later count until the kernel has let go of it, moments behind its end. (Where memory is refused as more than
// 127 threads are pinned at a time behind their records, of those beyond pins from before end with the record, and later ones
// last until they are unpinned.
// In a program with libebbtide.a a thread whose first call comes in the third round or later is not seen to end: docs/deploy.md.)
// Errors of the caller (unpin without pin, retire of what is
// no block or is retired already, waiting inside a pin) end the process by abort() after one line
// on stderr that starts with "ebbtide: NAME[PID]: ". Wrong retires of blocks up to 128 KiB are found when
// their batch is complete or freed; a block that was freed before, or retired in another batch, as far as
// double frees are.
#ifndef EBBTIDE_RECLAIM_H
#define EBBTIDE_RECLAIM_H

#include <ebbtide.h>

#include "ebbtide/detail/hazard.h"
#include "ebbtide/detail/pin.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- reading -------------------------------------------------------------------------------------

// Begins a pin, or goes one deeper (32,766 at most): a handful of instructions, and one full fence
// at the first pin after the clock has moved on. No call, no allocation but in a thread's first one.
// Where memory for the thread's record is refused, pins of that thread go through a lock.
EBB_EXPORT void ebb_pin(void) EBB_NOEXCEPT;
// Ends the innermost pin. Ending the outermost one may run some destructors that this thread has
// passed to ebb_retire_with or ebb_retire_hooked: 64 of a collector, or twice as many as it has passed to that since its unpins
// last looked (its destructors' included), if that is more; what is left goes on at the thread's next
// unpins. In a process without the library's helper thread it also frees a little of what the thread
// has retired (16 batches or large blocks; once a purge delay all that can go), until nothing waits that
// could but the two batches of each size class that malloc takes first. Only what was retired in this very
// pin is looked after while the thread blocks a signal that has a handler: it may be in that one.
EBB_EXPORT void ebb_unpin(void) EBB_NOEXCEPT;
// Ends the pin and begins it anew, so that what was retired before can go, and does in between what
// ebb_unpin does; pointers that were loaded before must not be used any more. Does nothing in a nested
// pin or when there is no need.
EBB_EXPORT void ebb_repin(void) EBB_NOEXCEPT;
// Whether the calling thread is inside a pin. (For threads that share a record, in their last
// destructors or where memory was refused: whether any of them is.)
EBB_EXPORT int ebb_is_pinned(void) EBB_NOEXCEPT;

#ifndef EBB_RECLAIM_NO_INLINE
// The same functions inline; their addresses are the library's.
EBBI_INLINED void ebb_pin(void) EBB_NOEXCEPT { ebbi_pin(ebbi_self()); }
EBBI_INLINED void ebb_unpin(void) EBB_NOEXCEPT { ebbi_unpin(ebbi_self()); }
EBBI_INLINED void ebb_repin(void) EBB_NOEXCEPT { ebbi_repin(ebbi_self()); }
#endif

// ---- retiring ------------------------------------------------------------------------------------

// Frees the block (of ebb_malloc, or malloc under the override) after the grace period: when no pin is
// left that began before, and no hazard pointer points into it. (A pin that begins afterwards, before the
// clock has moved on once more, holds it back as well: in a program that goes on retiring that is soon,
// in one that does nothing else it is at the next look of the helper or of ebb_reclaim.) The block has been
// unlinked; its contents stay as they are until then. NULL is allowed. Never fails, runs
// nothing of the program; called inside a pin or outside, by any thread. O(1) but for
// every n-th call, which looks at all participants. While a pin of another thread holds back much (16 batches
// of up to 125 blocks) those calls give up their time slice up to four times, from 64 batches on also for a
// millisecond; once only when the pin has lasted for 50 ms.
EBB_EXPORT void ebb_retire(void *p) EBB_NOEXCEPT;

// After the grace period calls destroy(p, context), which owns p then. Runs in the thread that
// retired, here or when it ends an outermost pin (so many each time as ebb_unpin says), in the functions
// below, or in the library's helper thread, which both run all that can (and which a process with one
// thread does not have: there the last few of each collector, 200 at most, wait for the next of these calls): never inside a
// pin of the default collector, and with no lock of Ebbtide held, so it may allocate, free, pin and retire. It
// must return, and end the pins that it begins: what is left by longjmp or an exception counts as
// running for ever. (In C it may end its thread, by pthread_exit or cancellation: the calls behind it
// then run elsewhere. In C++ these functions are noexcept, so that such an end is std::terminate.) p need not be a block of Ebbtide. 0, or -1 with errno = ENOMEM; then nothing has
// changed.
EBB_EXPORT int ebb_retire_with(void *p, void (*destroy)(void *p, void *context),
                               void *context) EBB_NOEXCEPT;

// A place to wait in, part of an object that ebb_retire_hooked takes. The library writes to it from then until
// the destructor begins. All zeros at first.
struct ebb_hook {
    struct ebb_hook *next;
    uintptr_t mark;
    void *p;
};

// As ebb_retire_with, but the call waits in *hook, which must live until destroy begins: nothing is allocated, and
// it never fails. A hazard pointer to p holds back this object alone. ebb_barrier does not wait for what is held
// back so; ebb_reclaim and the helper come back for it. An object that waits already: abort, if destroy is the
// same. Into the default collector.
EBB_EXPORT void ebb_retire_hooked(struct ebb_hook *hook, void *p,
                                  void (*destroy)(void *p, struct ebb_hook *hook)) EBB_NOEXCEPT;

// ---- waiting -------------------------------------------------------------------------------------
// These are for threads that are not pinned (in a pin: abort), but for the cookies.

// Waits until every pin that was there when it was called has ended.
EBB_EXPORT void ebb_synchronize(void) EBB_NOEXCEPT;
// Waits until all destructors that were passed to ebb_retire_with or ebb_retire_hooked before, by any thread, have
// run (but for objects with hooks that a hazard pointer holds back).
// Not to be called in a destructor (abort), nor by who holds back such a call with a hazard pointer of its
// own: that would be waited for, too.
EBB_EXPORT void ebb_barrier(void) EBB_NOEXCEPT;
// Frees and destroys what can go now, of all threads' but for the batches that the other threads still
// fill: of each size class up to 125 blocks, of together less than 64 KiB and one more. Does not wait.
// Returns the bytes of blocks freed. In a destructor it runs others inside of that; eight deep it runs none
// (they wait on) and frees blocks alone.
EBB_EXPORT size_t ebb_reclaim(void) EBB_NOEXCEPT;
// A point in time, and whether it is certain that every pin that was there then has ended: for as long as
// a pin lasts that began soon after, it is not. Allowed inside a pin.
EBB_EXPORT uint64_t ebb_epoch_cookie(void) EBB_NOEXCEPT;
EBB_EXPORT int ebb_epoch_passed(uint64_t cookie) EBB_NOEXCEPT;

// ---- collectors ----------------------------------------------------------------------------------
// A collector is a clock of its own: its pins hold back nothing of others. In the functions of this
// section NULL means the default collector.

struct ebb_collector;

enum {
    // Every outermost pin makes a full fence, and no advance of the clock ever interrupts a thread.
    // Otherwise, and in the default collector unless EBB_PIN_FENCE=1, threads that have not pinned
    // for a while are found out by a membarrier system call (about 1 to 10 us) when much waits for
    // them. Where the kernel has no such call all collectors are fenced; where it refuses one later (a
    // filter of system calls; after PR_SET_NO_NEW_PRIVS nobody tries) a collector becomes fenced then, and
    // waits for a second once.
    EBB_COLLECTOR_FENCED = 1,
};

// NULL with errno = ENOMEM when refused, EINVAL for unknown flags.
EBB_EXPORT struct ebb_collector *ebb_collector_create(unsigned flags) EBB_NOEXCEPT;
// Frees and destroys all that was retired into it, then the collector; waits for hazard pointers (so the
// caller has none set into what waits there). No thread may be pinned in it (abort) or use it any more. Not inside a pin of the default collector
// (abort: it runs destructors). In a destructor it only marks the collector: all this is done when the
// thread's outermost run of destructors has ended. Nothing is done for NULL; twice, or for what is
// none: abort. O(what waits + collectors that were created later).
EBB_EXPORT void ebb_collector_destroy(struct ebb_collector *collector) EBB_NOEXCEPT;
// Whether every outermost pin makes a fence. Known at a collector's creation, and for the default one
// from the process's first pin on; 0 may become 1 when the kernel refuses membarriers, see above.
EBB_EXPORT int ebb_collector_is_fenced(const struct ebb_collector *collector) EBB_NOEXCEPT;

// The calling thread's record in a collector: found, or made at the thread's first call. For this
// thread alone, until its end begins or the collector is destroyed: what runs behind the first round of its
// pthread_key destructors (those that another one has set again) must not use it any more, unless the thread's first call
// of the library was made behind that. ebb_pin, ebb_retire and ebb_retire_with
// go on working there. O(collectors that the thread uses). NULL with errno = ENOMEM when refused,
// and once the thread's record has gone (see the top).
EBB_EXPORT struct ebb_participant *ebb_collector_attach(struct ebb_collector *collector)
    EBB_NOEXCEPT;

// As ebb_pin, ebb_unpin and ebb_repin, with the record at hand.
static inline void ebb_participant_pin(struct ebb_participant *me) { ebbi_pin(me); }
static inline void ebb_participant_unpin(struct ebb_participant *me) { ebbi_unpin(me); }
static inline void ebb_participant_repin(struct ebb_participant *me) { ebbi_repin(me); }
static inline int ebb_participant_is_pinned(const struct ebb_participant *me)
{
    // relaxed: its own
    return (ebbi_load_relaxed(&me->state) & EBB_PIN_DEPTH & ~EBB_PIN_ATTENTION) != 0;
}

// As ebb_retire and ebb_retire_with into the record's collector. Both may fail: -1, ENOMEM; p is the
// caller's still, but a block of a region above 128 KiB has left its region for the heap. For
// retire, p comes from Ebbtide. Their destructors run in the retiring thread, here or at an unpin of that
// or the default collector, in the functions below, or in the helper: never inside a pin of either.
EBB_EXPORT int ebb_participant_retire(struct ebb_participant *me, void *p) EBB_NOEXCEPT;
EBB_EXPORT int ebb_participant_retire_with(struct ebb_participant *me, void *p,
                                           void (*destroy)(void *p, void *context),
                                           void *context) EBB_NOEXCEPT;

// As those without a collector. Inside a pin of the default one ebb_collector_barrier aborts, and
// ebb_collector_reclaim runs nothing: what it would have run waits on. A hazard pointer to a block may hold back up to
// 31 other calls of the thread that retired it there, so who holds back any is not to call ebb_collector_barrier. A collector that was destroyed:
// abort, unless another has its address.
EBB_EXPORT void ebb_collector_synchronize(struct ebb_collector *collector) EBB_NOEXCEPT;
EBB_EXPORT void ebb_collector_barrier(struct ebb_collector *collector) EBB_NOEXCEPT;
EBB_EXPORT size_t ebb_collector_reclaim(struct ebb_collector *collector) EBB_NOEXCEPT;

// ---- hazard pointers -----------------------------------------------------------------------------
// A reader that may stop for long (Michael 2004): it protects one block a hazard pointer instead of
// everything, and every block that comes from `ebb_retire` and the like honours it, whether or not
// the writer knows. However long it stops, what a hazard pointer holds back is the block that it points
// into and what waits in one container with that: at most 125 blocks (regions', a collector's: 32), of
// together less than 64 KiB and one more block, or four of one size; above 128 KiB, but in a collector,
// the block alone; of destructors 32, whatever they free. (Where memory for the container was refused,
// everything that this befell.) What has a destructor is held back by a pointer to p itself, not by one
// into it. `*source` must be a link of something that cannot be retired meanwhile or that a second hazard
// pointer protects and is checked to be still linked after the load.

struct ebb_hazard;

// NULL with errno = ENOMEM when refused. O(open ones / 63), takes a lock: keep it for the thread's
// life. It may be handed to another thread, and its thread's end does not close it. In the child of a fork() all stay
// open; those that another living thread has opened and nobody has set, or has set last, protect nothing there; of those
// of a thread that had ended, that is not said: close them, or set them anew.
EBB_EXPORT struct ebb_hazard *ebb_hazard_open(void) EBB_NOEXCEPT;
// Ends the protection too. NULL is allowed; closed twice: abort.
EBB_EXPORT void ebb_hazard_close(struct ebb_hazard *hazard) EBB_NOEXCEPT;

// Inline, in ebbtide/detail/hazard.h, with their descriptions:
//   void ebb_hazard_set(struct ebb_hazard *hazard, void *p);
//   void *ebb_hazard_protect(struct ebb_hazard *hazard, void *const *source);
//   void ebb_hazard_clear(struct ebb_hazard *hazard);

// ---- what waits, and for whom --------------------------------------------------------------------

// Of a thread that retires or allocates meanwhile a batch of retired blocks may be counted twice or left out; what
// waits because its region was released is not among them, and what destructors free is unknown. A pin's age is
// counted from when the clock last moved on, or was first asked for, behind its beginning: 0 at a first look, and it
// grows from there.
struct ebb_reclaim_stats {
    size_t retired_bytes;       // waiting, by block size
    size_t retired_blocks;      // their number
    size_t destructors;         // calls that wait, not those in hand: ebb_barrier waits for these
    uint64_t epoch;             // of the clock
    size_t participants;        // threads registered; those without a record are one, while pinned
    size_t pinned;              // of them, inside a pin now
    uint64_t oldest_pin_ms;     // for how long the oldest pin is known to have lasted
    uint32_t oldest_pin_thread; // its thread (gettid); 0: none, or one without a heap
    size_t hazards;             // open hazard pointers
    int fenced;                 // every outermost pin makes a fence
};

// A snapshot, which moves the clock on if it may. O(heaps); takes the heaps' locks one at a time.
EBB_EXPORT void ebb_reclaim_stats_get(struct ebb_collector *collector,
                                      struct ebb_reclaim_stats *stats) EBB_NOEXCEPT;

// Calls notify(bytes, context) when the bytes that wait in the default collector exceed `limit`,
// once each time that they do: in the thread that retires, perhaps inside its pin, with no lock
// held. It may read statistics, log, and raise flags; it must not wait. notify = NULL ends it.
EBB_EXPORT void ebb_reclaim_set_limit(size_t limit, void (*notify)(size_t bytes, void *context),
                                      void *context) EBB_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
