// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer process: the thread that returns memory while the others sleep.
//
// It lives while the program has threads besides its first one. To create a thread takes locks of
// libc, which calls free with some of them held; so malloc and free only say in one word that there
// is something to return, and the helper is started where the program itself creates a thread
// (override/threads.c) or calls a function that libc never calls (ebbi_helper_look). When the last of
// the program's threads has ended it waits a little for the next one, returns at once all that is
// free, as nobody comes later who would (but with a long delay what is older than that), and ends; without that where the first thread has ended too, so
// that the process can, or before an unshare.
//
// Its states are in os/wake.h.
#include "heap/blocks.h"
#include "os/options.h"
#include "os/wake.h"
#include "process/process.h"

#define LINGER_MS 200
#define SHORT_MS 1000 // who asks for a longer delay has it
#define GONE_YIELDS 1000
#define LAST_STEPS_MS 100
#define ASKED_MS                                                                                   \
    1000 // between looks at what another process may have asked for, while there is nothing to return

// Such looks until what the OS has refused to take is offered again: each time in vain twice as many.
#define RETRY_LEAST 2u
#define RETRY_MOST 64u

static uint32_t threads; // of the program, but the first and the helper; atomic
static uint32_t leaves;  // not 0: it is to end at once; atomic
static uint32_t stays;   // not 0: the program has asked for it, whatever threads are seen; atomic
static uint32_t first_gone; // not 0: the process's first thread has ended; atomic
static bool seen;           // every thread that the program creates is counted from its creation on
static uint32_t own_number; // of the helper thread
static struct ebbi_lock thread_lock = EBBI_LOCK(THREADS); // start and stop; not malloc or free
// Of a thread that is to be joined; 0: none. Taken by whoever changes it to 0; atomic.
static uintptr_t handle;

static bool no_threads(void)
{
    return ebbi_load_relaxed(&threads) == 0; // relaxed: whoever takes it to 0 rings
}

bool ebbi_threads_any(void) { return !no_threads(); }

static bool may_end(void)
{
    return no_threads() && ebbi_load_relaxed(&stays) == 0; // relaxed: a choice
}

static bool must_end(void)
{
    // relaxed: whoever sets them rings
    return ebbi_load_relaxed(&leaves) != 0 || (no_threads() && ebbi_load_relaxed(&first_gone) != 0);
}

// The end of the last thread was not seen: it came to the library, or forked, in its last destructors. To the kernel its
// first thread is there as long as another one. Else the process would never end.
static void look_around(void)
{
    static uint64_t looked_ms; // the helper's
    uint64_t now_ms = ebbi_os_now_ms();
    if (now_ms - looked_ms >= ASKED_MS) {
        looked_ms = now_ms;
        if (ebbi_os_first_has_ended() && ebbi_os_thread_count() == 2) {
            ebbi_store_relaxed(&leaves, 1u); // relaxed: for itself
        }
    }
}

// In between BUSY, as it touches memory; not during a fork.
static void helper_listen(enum ebbi_helper_state from)
{
    if (ebbi_helper_state_move(from, EBBI_HELPER_BUSY)) {
        ebbi_asked_serve(true);
        ebbi_profile_lapse();
        ebbi_metrics_lapse(true);
        if (ebbi_gather_claim()) {
            ebbi_gather();
        }
        if (!ebbi_helper_state_move(EBBI_HELPER_BUSY, from)) {
            ebbi_helper_state_set(EBBI_HELPER_NAPS); // kicked meanwhile
        }
    }
    look_around();
}

// Until somebody rings.
static uint64_t nap_ms(void) { return ebbi_max(ebbi_option(EBBI_OPTION_PURGE_DELAY) / 2, 10); }

// Half the delay, which may be changed meanwhile.
static void helper_nap(void)
{
    uint32_t heard = ebbi_bell_listen();
    uint64_t begin_ms = ebbi_os_now_ms(), now_ms = begin_ms;
    uint64_t end_ms = begin_ms + nap_ms();
    while (!must_end() && ebbi_bell_listen() == heard && now_ms < end_ms) {
        ebbi_bell_wait(heard, (uint32_t)ebbi_min(end_ms - now_ms, ASKED_MS));
        helper_listen(EBBI_HELPER_NAPS);
        now_ms = ebbi_os_now_ms();
        end_ms = begin_ms + nap_ms();
    }
}

static void helper_idle(uint32_t looks)
{
    for (uint32_t i = 0; i < looks && ebbi_helper_state() == EBBI_HELPER_IDLE; i++) {
        uint32_t heard = ebbi_bell_listen();
        if (may_end() || must_end()) {
            break;
        }
        ebbi_bell_wait(heard, ASKED_MS);
        helper_listen(EBBI_HELPER_IDLE);
    }
    (void)ebbi_helper_state_move(EBBI_HELPER_IDLE, EBBI_HELPER_NAPS);
}

static void helper_last_pass(struct ebbi_pass pass, uint32_t heard)
{
    bool was_quiet = ebbi_bell_listen() == heard;
    if (was_quiet && may_end() && !must_end() &&
        ebbi_helper_state_move(EBBI_HELPER_LINGERS, EBBI_HELPER_BUSY)) {
        pass.delay_ms = pass.delay_ms > SHORT_MS ? pass.delay_ms : 0;
        ebbi_purge_pass(&pass);
        ebbi_helper_state_set(EBBI_HELPER_LINGERS); // the fence orders it
    }
    ebbi_fence_full(); // full[helper-lingers <-> thread-counted]: a new thread that found it busy
    if ((!was_quiet || !may_end()) && !must_end()) {
        (void)ebbi_helper_state_move(EBBI_HELPER_LINGERS, EBBI_HELPER_NAPS);
    }
}

// Until a thread is there again. True: it has ended.
static bool helper_linger(const struct ebbi_pass *pass)
{
    uint32_t heard = ebbi_bell_listen();
    if (must_end()) {
        return ebbi_helper_state_move(EBBI_HELPER_NAPS, EBBI_HELPER_NONE);
    }
    if (ebbi_helper_state_move(EBBI_HELPER_NAPS, EBBI_HELPER_LINGERS)) {
        ebbi_bell_wait(heard, LINGER_MS);
        helper_last_pass(*pass, heard);
        return ebbi_helper_state_move(EBBI_HELPER_LINGERS, EBBI_HELPER_NONE);
    }
    return false;
}

static void helper_work(struct ebbi_pass *pass, uint32_t *retry)
{
    EBBI_ASSERT(ebbi_helper_is_me());
    if (!ebbi_helper_state_move(EBBI_HELPER_NAPS, EBBI_HELPER_BUSY)) {
        return;
    }
    ebbi_purge_pass(pass);
    bool refused = ebbi_arena_was_refused();
    uint32_t looks = refused ? *retry : UINT32_MAX;
    *retry = !refused ? RETRY_LEAST : *retry < RETRY_MOST ? *retry * 2 : RETRY_MOST;
    if (!pass->waiting && ebbi_helper_state_move(EBBI_HELPER_BUSY, EBBI_HELPER_IDLE)) {
        helper_idle(looks);
    } else {
        ebbi_helper_state_set(EBBI_HELPER_NAPS);
    }
}

static void helper_main(void)
{
    struct ebbi_pass pass = {.parks = true, .heap_for_calls = ebbi_heap_get};
    bool ended = false;
    uint32_t retry = RETRY_LEAST;
    ebbi_store_relaxed(&own_number, ebbi_os_thread_number()); // relaxed: for this thread
    while (!ended) {
        helper_nap();
        pass.delay_ms = ebbi_option(EBBI_OPTION_PURGE_DELAY);
        if (may_end() || must_end()) {
            ended = helper_linger(&pass);
        } else {
            helper_work(&pass, &retry);
        }
    }
    // Nobody waits for an end that was not asked for, unless somebody has begun to.
    uintptr_t own = ebbi_os_own_thread();
    if (ebbi_cas_relaxed(&handle, &own, (uintptr_t)0)) { // relaxed: a number
        ebbi_os_leave_thread(ebbi_os_own_thread());
    }
}

bool ebbi_helper_is_me(void)
{
    return ebbi_load_relaxed(&own_number) == ebbi_os_thread_number(); // relaxed: see helper_main
}

void ebbi_helper_abandon(void)
{
    if (ebbi_helper_state() >= EBBI_HELPER_IDLE && ebbi_helper_is_me()) {
        ebbi_helper_state_set(EBBI_HELPER_WANTED);
    }
}

static uintptr_t handle_take(void)
{
    uintptr_t taken = ebbi_load_relaxed(&handle);              // relaxed: a number
    while (!ebbi_cas_relaxed(&handle, &taken, (uintptr_t)0)) { // relaxed: as above
    }
    return taken;
}

// False: refused.
static bool helper_create(void)
{
    ebbi_assert_held(&thread_lock);
    static const struct ebbi_os_thread thread = {helper_main, "ebb-purge"};
    ebbi_os_leave_thread(handle_take());
    ebbi_store_relaxed(&leaves, 0u); // relaxed: there is no helper
    uintptr_t fresh = ebbi_thread_make(&thread);
    ebbi_store_relaxed(&handle, fresh); // relaxed: under the lock, and see helper_main
    if (fresh == 0) {
        ebbi_helper_state_set(EBBI_HELPER_WANTED);
    }
    return fresh != 0;
}

static bool may_have_helper(void)
{
    return ebbi_option(EBBI_OPTION_PURGE_THREAD) != 0 && !ebbi_os_under_tsan();
}

// False: refused, or not wanted by the user. (One that another thread has just stopped is resumed by it.)
static bool helper_try(void)
{
    if (!may_have_helper()) {
        return false;
    }
    if (ebbi_helper_state() >= EBBI_HELPER_IDLE) {
        return true;
    }
    bool done = true;
    ebbi_lock_take(&thread_lock);
    if (ebbi_helper_state_move(EBBI_HELPER_LINGERS, EBBI_HELPER_NAPS)) {
        ebbi_bell_ring();
    } else if (ebbi_helper_state_move(EBBI_HELPER_NONE, EBBI_HELPER_NAPS) ||
               ebbi_helper_state_move(EBBI_HELPER_WANTED, EBBI_HELPER_NAPS)) {
        done = helper_create();
    }
    ebbi_lock_drop(&thread_lock);
    return done;
}

void ebbi_helper_start(void) { (void)helper_try(); }

void ebbi_helper_hand_on(void)
{
    bool wanted = may_have_helper() && !may_end() && !must_end();
    // Who has the lock starts one, or waits for the end of this one.
    if (!wanted || !ebbi_lock_try(&thread_lock)) {
        return;
    }
    if (ebbi_helper_state_move(EBBI_HELPER_WANTED, EBBI_HELPER_NAPS)) {
        (void)helper_create();
    }
    ebbi_lock_drop(&thread_lock);
}

void ebbi_helper_look(void)
{
    if (ebbi_helper_state() == EBBI_HELPER_WANTED && !may_end()) {
        ebbi_helper_start();
    }
}

bool ebbi_helper_keep(void)
{
    ebbi_store_relaxed(&stays, 1u); // relaxed: a choice
    return helper_try();
}

// A helper that ended by itself lets itself go, and may be on its last steps; to the kernel one that was joined, too. Once.
static void wait_until_gone(void)
{
    uint32_t number =
        ebbi_load_relaxed(&own_number); // relaxed: it has ended, or lives and is found
    for (int i = 0; i < GONE_YIELDS && number != 0 && ebbi_os_thread_lives(number); i++) {
        ebbi_os_yield();
    }
    ebbi_store_relaxed(&own_number, 0u); // relaxed: under the lock, and there is none
}

static void stop(bool to_the_kernel)
{
    ebbi_lock_take(&thread_lock);
    ebbi_store_relaxed(&leaves, 1u); // relaxed: see may_end
    ebbi_bell_ring();
    uintptr_t taken = handle_take();
    ebbi_os_join_thread(taken);
    if (taken == 0 || to_the_kernel) {
        wait_until_gone();
    }
    ebbi_store_relaxed(&leaves, 0u); // relaxed: there is no helper
    ebbi_lock_drop(&thread_lock);
}

void ebbi_helper_stop(void) { stop(false); }

// The first thread, or the last one that is left.
static bool is_only_thread(void)
{
    // relaxed: what another thread does meanwhile the program has not waited for
    return ebbi_load_relaxed(&threads) + (ebbi_load_relaxed(&first_gone) == 0) <= 1;
}

void ebbi_helper_make_way(void)
{
    if (is_only_thread()) {
        stop(true);
    }
}

// At the exit of the process, which waits for nobody: nobody joins the helper any more.
__attribute__((destructor)) static void helper_last(void)
{
    if (ebbi_lock_try(&thread_lock)) {
        ebbi_os_leave_thread(handle_take());
        ebbi_lock_drop(&thread_lock);
    }
}

void ebbi_helper_resume(void)
{
    if (!may_end()) {
        ebbi_helper_start();
    }
}

void ebbi_threads_see(void) { seen = true; }
bool ebbi_threads_are_seen(void) { return seen; }

void ebbi_threads_more(void)
{
    (void)ebbi_fetch_add_relaxed(&threads, 1u); // relaxed: the fence orders it
    ebbi_fence_full(); // full[thread-counted <-> helper-lingers]: the helper's state is looked at next
}

// The last thread of a process runs its exit handlers, which expect the signals and the stack of a thread
// of the program. So the last one of the program waits for the helper's end.
static void last_ends(void)
{
    ebbi_fence_full(); // full[thread-ends <-> thread-ends]: of two that end, one sees the other
    if (no_threads() && ebbi_load_relaxed(&first_gone) != 0) { // relaxed: behind the fence
        ebbi_helper_stop();
    }
}

void ebbi_threads_less(void)
{
    // relaxed: a count
    if (ebbi_fetch_sub_relaxed(&threads, 1u) == 1) {
        if (ebbi_helper_state() >= EBBI_HELPER_IDLE) { // what lingers goes on doing so
            ebbi_bell_ring();
        }
        last_ends();
    }
}

void ebbi_threads_first_ends(void)
{
    ebbi_store_relaxed(&first_gone, 1u); // relaxed: see last_ends
    last_ends();
}

// One that ends, behind its last destructor that we see or as a helper, may be in a call all the same.
static bool nobody_else(bool helper_is_there)
{
    uint32_t count = ebbi_os_thread_count();
    uint32_t gone =
        ebbi_load_relaxed(&first_gone) != 0 && ebbi_os_first_has_ended(); // relaxed: its own
    return count <= 1 + helper_is_there + gone && (seen || count != 0);
}

static bool hold_helper(void)
{
    if (!ebbi_os_is_threaded()) {
        return true;
    }
    if (seen && !no_threads()) {
        return false;
    }
    uint32_t before = ebbi_helper_state();
    bool is_there = before != EBBI_HELPER_NONE && before != EBBI_HELPER_WANTED;
    if (is_there &&
        (before >= EBBI_HELPER_BUSY || !ebbi_helper_state_move(before, EBBI_HELPER_HELD))) {
        return false;
    }
    bool alone = nobody_else(is_there);
    if (!alone) {
        ebbi_threads_go_on();
    }
    return alone;
}

bool ebbi_threads_hold(void) { return (seen || !ebbi_os_is_threaded()) && hold_helper(); }

bool ebbi_threads_await(void)
{
    bool held = hold_helper();
    for (uint32_t ms = 0; !held && (!seen || no_threads()) && ms < LAST_STEPS_MS; ms++) {
        ebbi_nap(1);
        held = hold_helper();
    }
    return held;
}

void ebbi_threads_go_on(void) { (void)ebbi_helper_state_move(EBBI_HELPER_HELD, EBBI_HELPER_NAPS); }

void ebbi_helper_forget(bool counted)
{
    ebbi_helper_state_set(EBBI_HELPER_NONE);
    ebbi_store_relaxed(&threads, counted ? 1u : 0u);    // relaxed: as above
    ebbi_store_relaxed(&first_gone, counted ? 1u : 0u); // relaxed: as above; it is that one
    ebbi_store_relaxed(&leaves, 0u);                    // relaxed: as above
    ebbi_lock_reset(&thread_lock);
    handle = 0;
    own_number = 0;
    ebbi_os_forget_threads();
}
