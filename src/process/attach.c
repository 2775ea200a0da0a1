// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer process: start-up, and threads as they come and go.
//
// Start-up happens in the first call that needs memory, which may come before any constructor.
//
// A thread gets a heap at its first allocation and leaves it in the destructor of a pthread key (os/word.c), in
// the second round of them, as others may allocate. After it the thread has none for good: glibc
// frees when all destructors have run, also other threads' memory. Such a free sends the block home;
// so does one in a thread that has not allocated and whose end would not be seen.
#include "debug/check.h"
#include "debug/guard.h"
#include "heap/blocks.h"
#include "heap/registry.h"
#include "lifetime/domain.h"
#include "os/options.h"
#include "os/wake.h"
#include "process/process.h"
#include "reclaim/reclaim.h"
#include "report/report.h"

// pthread_atfork() allocates: with the override from this heap, so that it has to wait for the first
// one; without, it is done before there can be threads.
#ifdef EBB_NO_OVERRIDE
#define WATCH_FORK_AT_START true
#define FREE_ATTACHES true // libc does not free here
#else
#define WATCH_FORK_AT_START false
#define FREE_ATTACHES false
#endif
#define CHECKS_RATE 1000 // guarded a second, with EBB_CHECK and without a word on them
#define SAMPLE_RATE 100  // the same, with EBB_CHECK=sample: ADR 35
#define EXIT_ROUNDS 2    // of pthread key destructors: later ones may still allocate

static bool started;
static bool has_words;

static void thread_exit(uintptr_t word);

// Whether every block is checked.
static bool is_checked(enum ebbi_check_choice choice)
{
    return choice == EBBI_CHECKS_ON || choice == EBBI_CHECKS_LOG;
}

static size_t guard_rate(enum ebbi_check_choice choice)
{
    if (choice == EBBI_CHECKS_OFF || ebbi_option_source(EBBI_OPTION_GUARD) != EBBI_BY_DEFAULT) {
        return ebbi_option(EBBI_OPTION_GUARD);
    }
    return is_checked(choice) ? CHECKS_RATE : SAMPLE_RATE;
}

int ebbi_start(void)
{
    // acquire[started-read <- started-set]: everything that start-up wrote
    if (EBBI_LIKELY(ebbi_load_acquire(&started))) {
        return 0;
    }
    ebbi_lock_take(&ebbi_start_lock);
    int result = 0;
    if (!started) {
        ebbi_os_start();
        ebbi_options_read();
        enum ebbi_check_choice choice = (enum ebbi_check_choice)ebbi_option(EBBI_OPTION_CHECK);
        if (is_checked(choice)) {
            ebbi_report_goes_on = choice == EBBI_CHECKS_LOG;
            ebbi_check_begin(ebbi_option(EBBI_OPTION_CHECK_BYTES),
                             ebbi_option(EBBI_OPTION_CHECK_FAMILY) != 0);
        }
        if (ebbi_option(EBBI_OPTION_MINCORE) != 0) {
            ebbi_os_look_anyway();
        }
        ebbi_places_prepare(0); // the depots'
        result = ebbi_arena_init((enum ebbi_os_huge)ebbi_option(EBBI_OPTION_THP));
        if (result == 0) {
            ebbi_before_abort = ebbi_fork_abort;
            if (ebbi_check_is_on()) {
                ebbi_window_slow_frees();
            }
            // Without words a thread's heap is not handed on: memory stays usable.
            has_words = ebbi_os_word_start(thread_exit);
            (void)ebbi_guard_begin(guard_rate(choice), is_checked(choice));
            ebbi_purge_begin();
            ebbi_large_begin();
            if (WATCH_FORK_AT_START) {
                ebbi_fork_watch();
            }
            // release[started-set -> started-read]: all of the above
            ebbi_store_release(&started, true);
        }
    }
    ebbi_lock_drop(&ebbi_start_lock);
    return result;
}

uintptr_t ebbi_thread_make(const struct ebbi_os_thread *thread)
{
    uintptr_t before = ebbi_scope_suspend();
    uintptr_t made = ebbi_os_start_thread(thread);
    ebbi_scope_resume(before);
    return made;
}

void ebbi_thread_begins(void)
{
    if (!ebbi_os_word_set(EBBI_WORD_NO_HEAP | EBBI_WORD_COUNTED)) {
        ebbi_threads_less(); // its end will not be seen
    }
}

static bool is_counted(void)
{
    uintptr_t word = ebbi_os_word();
    return word != 0 && (word & (EBBI_WORD_NO_HEAP | EBBI_WORD_COUNTED)) != EBBI_WORD_NO_HEAP;
}

// Counted from now on, if it is not yet and is of the program, but not its first thread.
static bool count_thread(void)
{
    if (is_counted()) {
        return true;
    }
    if (!has_words || ebbi_os_is_first_thread() || ebbi_helper_is_me()) {
        return false;
    }
    ebbi_threads_more();
    return true;
}

static struct ebbi_heap *take_heap(void)
{
    ebbi_registry_lock();
    struct ebbi_heap *heap = ebbi_heap_adopt();
    if (heap == NULL) {
        ebbi_registry_unlock();
        heap = ebbi_heap_make(0);
        ebbi_registry_lock();
        if (heap != NULL) {
            ebbi_heap_join(heap);
        }
    }
    if (heap != NULL) {
        EBBI_ASSERT(!heap->attached && heap->seat.domain == NULL);
        EBBI_ASSERT(heap->outbox_count == 0 && heap->entered_count == 0);
        heap->attached = true;
        heap->exit_rounds = EXIT_ROUNDS;
        ebbi_sampler_forget(&heap->fast.sampler);
        ebbi_calls_attach(heap);
        heap->inside = heap->parked = 0;
        ebbi_clock_join(&ebbi_clock, &heap->fast.pin, ebbi_os_thread_number());
    }
    ebbi_registry_unlock();
    return heap;
}

static void give_heap_back(struct ebbi_heap *heap)
{
    ebbi_registry_lock();
    ebbi_clock_leave(&ebbi_clock, &heap->fast.pin);
    ebbi_heap_push_abandoned(heap);
    ebbi_registry_unlock();
}

// See park.c. What follows is not parked where another source has been set by then.
static void set_slot(struct ebbi_heap *heap, struct ebbi_fast **slot)
{
    ebbi_lock_take(&heap->own.lock);
    heap->slot = slot;
    ebbi_lock_drop(&heap->own.lock);
}

static struct ebbi_heap *attach(void)
{
    struct ebbi_heap *heap = ebbi_start() == 0 ? take_heap() : NULL;
    if (heap == NULL) {
        return NULL;
    }
    if (ebbi_current() != &ebbi_heap_none) { // a signal handler that interrupted this has attached
        give_heap_back(heap);
        return ebbi_heap_mine();
    }
    bool is_seen = ebbi_threads_are_seen() && (is_counted() || ebbi_os_is_first_thread());
    heap->counted = count_thread();
    ebb_self = (char *)&heap->fast; // before the next lines, which may allocate
    ebbi_source_set(&heap->fast);
    bool ends_well = ebbi_os_word_set((uintptr_t)heap);
    set_slot(heap, is_seen && ends_well ? &ebbi_source : NULL);
    ebbi_fork_watch();
    return heap;
}

struct ebbi_heap *ebbi_heap_get(void)
{
    struct ebbi_heap *mine = ebbi_heap_mine();
    return EBBI_LIKELY(mine != NULL) || ebbi_current() == &ebbi_heap_gone ? mine : attach();
}

// The end of a thread that is not counted may have been: glibc frees behind the last destructor.
struct ebbi_heap *ebbi_source_for_free(void)
{
    bool would_attach = ebbi_source_now() == &ebbi_heap_none && ebbi_current() == &ebbi_heap_none;
    return would_attach && !FREE_ATTACHES && !is_counted() ? NULL : ebbi_source_get();
}

struct ebbi_heap *ebbi_source_get(void)
{
    struct ebbi_fast *source = ebbi_source_now();
    if (EBBI_LIKELY(source != &ebbi_heap_none && source != &ebbi_heap_gone &&
                    source != &ebbi_heap_scoped && source != &ebbi_heap_parked)) {
        return (struct ebbi_heap *)source;
    }
    struct ebbi_heap *heap = ebbi_heap_get();
    if (source == &ebbi_heap_none && heap != NULL) {
        ebbi_source_set(&heap->fast); // attached while another source was put back
    }
    return heap;
}

// No thread uses the heap any more: its magazines and reserves go back, what it has retired waits on
// in it, and its pins are over.
static void heap_abandon(struct ebbi_heap *heap)
{
    if (heap->has_regions) {
        ebbi_regions_disown(&heap->fast);
        heap->has_regions = false;
        heap->had_regions = true;
    }
    ebbi_limbo_seal(heap);
    ebbi_seats_rest(heap);
    ebbi_heap_rest(heap);
    (void)ebbi_spares_rest(heap);
    ebbi_registry_lock();
    ebbi_clock_leave(&ebbi_clock, &heap->fast.pin);
    ebbi_records_leave(heap);
    ebbi_seats_leave(heap);
    struct ebbi_heap *ended = ebbi_heap_abandon(heap, ebbi_records_discard);
    ebbi_registry_unlock();
    if (ended != NULL) {
        ebbi_heap_end(ended);
    }
    ebbi_helper_kick();
}

static void have_none(void)
{
    ebbi_heap_prepare(&ebbi_heap_gone);
    ebb_self = (char *)&ebbi_heap_gone;
    ebbi_source_set(&ebbi_heap_gone);
}

// The round in which what a thread has brought pinned is over: the last one, where its first call came in the first. TSan
// may be called no more in that.
static uintptr_t pins_end(void) { return EXIT_ROUNDS + (ebbi_os_has_tsan() ? 0 : 1); }

static void leave_heap(struct ebbi_heap *heap)
{
    bool counted = heap->counted;
    bool first = ebbi_os_is_first_thread();
    // A handler that pins needs the clock's lock.
    struct ebbi_os_signals signals = ebbi_os_hold_signals();
    ebbi_late_begin();
    (void)ebbi_inside(); // for good
    set_slot(heap, NULL);
    ebbi_scope_abandon(heap);
    EBBI_ASSERT(ebbi_current() == &heap->fast);
    have_none();
    uintptr_t word = pins_end() != EXIT_ROUNDS ? ebbi_late_inherit(&heap->fast.pin) : 0;
    if (word != 0) {
        (void)ebbi_os_word_set(word | EXIT_ROUNDS * EBBI_WORD_ROUND);
    }
    heap_abandon(heap);
    if (counted) {
        ebbi_threads_less();
    }
    if (first) {
        ebbi_threads_first_ends();
    }
    ebbi_os_let_signals(signals);
}

static void end_round(struct ebbi_heap *heap)
{
    // What is abandoned may run destructors, and one of them end the thread once more: back to here.
    (void)ebbi_os_word_set((uintptr_t)heap);
    bool amid_calls = heap->runs_calls != 0;
    if (amid_calls) {
        ebbi_helper_abandon();
    }
    ebbi_calls_abandon(heap);
    if (amid_calls) {
        ebbi_helper_hand_on();
    }
    EBBI_ASSERT(heap->exit_rounds > 0 && heap->attached);
    if (--heap->exit_rounds == 0) {
        (void)ebbi_os_word_set(0);
        leave_heap(heap);
    }
}

static bool has_seen(uintptr_t word, uintptr_t rounds) { return word / EBBI_WORD_ROUND == rounds; }

// Once more than it takes, as others may allocate meanwhile; where it is pinned, once more.
static void end_round_without(uintptr_t word)
{
    bool again = true;
    word += EBBI_WORD_ROUND;
    if (has_seen(word, EXIT_ROUNDS)) {
        have_none();
        again = ebbi_late_bring();
        if ((word & EBBI_WORD_COUNTED) != 0) {
            ebbi_threads_less();
        }
    }
    if (again && has_seen(word, pins_end())) {
        ebbi_late_abandon();
        word |= EBBI_WORD_OVER;
        again = pins_end() != EXIT_ROUNDS;
    }
    if (again) {
        (void)ebbi_os_word_set(word);
    }
}

// A heap that is not this thread's is another Ebbtide's: in another namespace of the loader (dlmopen) is another libc, whose
// keys are numbered as these.
static void thread_exit(uintptr_t word)
{
    struct ebbi_fast *mine = ebbi_current();
    if (mine != &ebbi_heap_none && mine != &ebbi_heap_gone) {
        end_round((struct ebbi_heap *)mine);
    } else if ((word & EBBI_WORD_NO_HEAP) != 0) {
        end_round_without(word);
    }
}

bool ebbi_thread_forked(void)
{
    struct ebbi_fast *current = ebbi_current();
    if (current == &ebbi_heap_none) {
        return is_counted();
    }
    return current != &ebbi_heap_gone && ((struct ebbi_heap *)current)->counted;
}
