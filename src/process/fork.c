// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer process: fork(), and the thread that is on its way to abort().
//
// fork() takes the locks in rank order, so that the child finds every structure whole; those of what it forgets
// in the child (the helper, closings, a pass over orphans) are reset there. Before ours
// the one of libc that its own fork takes afterwards: a thread that holds it (fflush(NULL)) waits for
// a stream whose owner (getline) may be waiting for one of ours.
//
// The program's own handlers may allocate and wait for threads that do. So ours are registered before
// all others (override/atfork.c): they begin last, and end first.
//
// A process that certainly has one thread takes none: it may fork in a signal handler that has
// interrupted malloc, and what is locked then is locked by that thread, which goes on in both
// processes. Where there are others, a fork that finds this thread inside of malloc ends the process by a line.
#include <pthread.h>
#include <string.h>

#include "debug/check.h"
#include "debug/guard_records.h"
#include "debug/quarantine.h"
#include "heap/blocks.h"
#include "heap/registry.h"
#include "lifetime/domain.h"
#include "process/process.h"
#include "reclaim/reclaim.h"
#include "report/report.h"

#ifdef __GLIBC__
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                      void *owner);
#endif

struct ebbi_lock ebbi_start_lock = EBBI_LOCK(START);

static bool takes_locks; // the fork that is under way; under all of them, or of the only thread

// A crash handler may allocate and fork while this thread holds the registry's or a heap's lock:
// it gets a heap of its own, and neither purge nor fork takes those locks any more.
void ebbi_fork_abort(void)
{
    bool again = ebbi_load_relaxed(&ebbi_dying); // relaxed: for this thread; for others a hint
    ebbi_store_relaxed(&ebbi_dying, true);       // relaxed: as above
    ebbi_lock_forget_held();
    struct ebbi_heap *heap = again || ebbi_arena_is_mine() ? NULL : ebbi_heap_make(0);
    ebbi_heap_prepare(&ebbi_heap_gone);
    ebbi_source_set(heap != NULL ? &heap->fast : &ebbi_heap_gone);
    ebb_self = (char *)ebbi_source_now();
    if (heap != NULL) {
        heap->alone = true;
        ebbi_places_prepare(heap->lane);
    }
}

// Of those that a call holds for long enough to be interrupted there; any other is found when its turn comes.
static bool holds_a_lock(void)
{
    struct ebbi_owner *depots;
    const struct ebbi_heap *heap = ebbi_heap_mine();
    bool holds = ebbi_arena_is_mine() || (heap != NULL && ebbi_lock_is_mine(&heap->own.lock));
    for (size_t i = 0, count = ebbi_depots(&depots); i < count; i++) {
        holds |= ebbi_lock_is_mine(&depots[i].lock);
    }
    return holds;
}

// Checks are to look at what the child has in use, which they don't where anybody was at work.
static bool forks_alone(void)
{
    return ebbi_check_is_on() && ebbi_threads_are_seen() ? ebbi_threads_await()
                                                         : ebbi_threads_hold();
}

static void prepare(void)
{
    // A thread whose end has been seen is counted no more: there may be others beside it.
    bool may_be_alone = ebbi_current() != &ebbi_heap_gone;
    // relaxed: set by this thread or of no matter
    if (ebbi_load_relaxed(&ebbi_dying) || (may_be_alone && forks_alone())) {
        takes_locks = false;
        return;
    }
    if (holds_a_lock()) { // else it could wait for another thread that waits for this one
        ebbi_lock_interrupted();
    }
    ebbi_os_streams_lock();
    ebbi_os_loader_lock();
    ebbi_lock_take(&ebbi_start_lock);
    ebbi_park_lock();
    ebbi_owners_freeze();
    ebbi_late_calls_lock();
    ebbi_remains_lock();
    ebbi_stranded_lock();
    ebbi_limit_lock();
    ebbi_calls_lock();
    ebbi_hazards_lock();
    ebbi_regions_lock();
    ebbi_orphans_lock();
    ebbi_labels_lock();
    ebbi_collectors_lock();
    ebbi_arena_lock();
    ebbi_own_lock();
    ebbi_profile_lock();
    ebbi_guard_lock();
    ebbi_check_lock();
    ebbi_late_lock();
    takes_locks = true;
}

static void drop_locks(void)
{
    EBBI_ASSERT(takes_locks);
    ebbi_late_unlock();
    ebbi_check_unlock();
    ebbi_guard_unlock();
    ebbi_profile_unlock();
    ebbi_own_unlock();
    ebbi_arena_unlock();
    ebbi_collectors_unlock();
    ebbi_labels_unlock();
    ebbi_orphans_unlock();
    ebbi_regions_unlock();
    ebbi_hazards_unlock();
    ebbi_calls_unlock();
    ebbi_limit_unlock();
    ebbi_stranded_unlock();
    ebbi_remains_unlock();
    ebbi_late_calls_unlock();
    ebbi_owners_thaw();
    ebbi_park_unlock();
    ebbi_lock_drop(&ebbi_start_lock);
    ebbi_os_loader_unlock();
}

static void parent(void)
{
    if (takes_locks) {
        drop_locks();
        ebbi_os_streams_unlock();
    }
    ebbi_threads_go_on();
}

// What the thread of a heap changes without a lock. fork() copies one page after the other while the
// other threads run on, so these need not agree with each other in the child: a top may be newer than
// the slots below it. The blocks that they held are lost to the child.
static void forget_unlocked(struct ebbi_heap *heap)
{
    ebbi_assert_held(&heap->own.lock);
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        unsigned bin = ebbi_class_bin(c, heap->lane);
        struct ebbi_magazine *m = &heap->magazines[c];
        m->stolen = 0;
        heap->fast.top[bin] = m->slots != 0 ? m->base + 1 : (void **)&heap->nothing + 1;
        heap->fast.limbo[bin] = (struct ebbi_bag_top){NULL, NULL};
    }
    for (unsigned n = EBBI_CLASS_COUNT; n < EBBI_ARRAYS; n++) {
        struct ebbi_magazine *tray = &heap->magazines[n];
        tray->stolen = 0;
        if (tray->slots != 0) {
            heap->fast.top[tray->bin] = tray->base + 1;
        }
    }
    ebbi_magazines_lend(heap);
    memset(heap->limbo.filling, 0, sizeof heap->limbo.filling);
    heap->limbo.mixed_bytes = heap->limbo.mixed_blocks = 0;
    heap->limbo.spare = NULL;
    heap->outbox_count = 0;
    heap->inside = heap->parked = 0;
    heap->amid = false; // the lock may have been dropped for a purge
    heap->slot = NULL;
}

// The other threads are gone; their heaps, limbo included, are the next threads'.
static struct ebbi_heap *take_over_heaps(void)
{
    struct ebbi_heap *mine = NULL;
    for (struct ebbi_heap *heap = ebbi_heaps_first(); heap != NULL; heap = heap->next) {
        heap->holds = 0;
        if (&heap->fast == ebbi_current()) {
            mine = heap;
            ebbi_sampler_forget(&heap->fast.sampler);
        } else if (heap->seat.domain == NULL && heap->attached) {
            forget_unlocked(heap);
            heap->seats = NULL;
            heap->entered_count = 0;
            heap->fast.pin.busy = 0;
            ebbi_heap_push_abandoned(heap);
        } else if (heap->seat.thread != NULL && &heap->seat.thread->fast != ebbi_current()) {
            forget_unlocked(heap);
            ebbi_seat_abandon(heap);
        }
    }
    return mine;
}

// Slabs may end, which takes the arena's lock.
static void heap_forked(struct ebbi_heap *heap, void *context)
{
    ebbi_purge_forked(&heap->own, context);
}

static void forget_threads(void)
{
    struct ebbi_heap *mine = take_over_heaps();
    ebbi_arena_forked();
    ebbi_collectors_keep_only(mine);
    ebbi_hazards_keep_only(ebbi_thread_mark());
    ebbi_late_forget();
    drop_locks();
    ebbi_calls_forked();
    ebbi_heaps_each(heap_forked, NULL);
    ebbi_depots_each(ebbi_purge_forked, NULL);
    ebbi_regions_keep_only(ebb_self, mine != NULL ? mine->entered : NULL,
                           mine != NULL ? ebbi_min(mine->entered_count, EBBI_ENTERED) : 0);
    ebbi_quarantine_forget();
}

// Of a process that had no other: only its number changes.
static void keep_thread(void)
{
    struct ebbi_fast *current = ebbi_current();
    if (current != &ebbi_heap_none && current != &ebbi_heap_gone) {
        ebbi_clock_keep_only(&ebbi_clock, &current->pin);
        ebbi_late_forget(); // its participant is not in the list any more
        ebbi_sampler_forget(&current->sampler);
    }
}

static void child(void)
{
    if (takes_locks) {
        forget_threads();
        ebbi_look_forked();
        ebbi_os_streams_reset();
    } else {
        keep_thread();
    }
    ebbi_report_forget();
    ebbi_check_draw_anew();
    ebbi_helper_forget(ebbi_thread_forked());
    ebbi_asked_forget();
    ebbi_metrics_forget();
}

void ebbi_fork_watch(void)
{
    static bool watched;
    bool before = false;
    if (ebbi_cas_relaxed(&watched, &before, true)) { // relaxed: the first one alone
        ebbi_check_draw_anew(); // it may be a child of one that has not come here
#ifdef __GLIBC__ // its pthread_atfork lies in an archive that some linkers can not put into a library
        (void)__register_atfork(prepare, parent, child, NULL);
#else
        (void)pthread_atfork(prepare, parent, child);
#endif
    }
}
