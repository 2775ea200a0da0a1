// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: what a slow call does for memory that nobody uses. Spans by amount, magazines that stand still, what
// others have freed before the process grows; the rest is the helper's or, where there is none, a pass's that is asked for in time.
#include "heap/blocks.h"
#include "heap/registry.h"
#include "os/options.h"
#include "os/wake.h"

#define SWEEP_EVENTS 1024
#define RESERVE ((size_t)2 << 20) // of free pages: they last while the helper wakes
#define GAIN ((size_t)256 << 10)  // worth a look
#define STEP_MOST ((size_t)2 << 20)
#define STEP_PART 32 // of what is in use: to touch that takes longer than to walk over all threads

// Magazines that nobody has used since the last sweep give everything back.
static void sweep(struct ebbi_heap *heap)
{
    struct ebbi_heap *inside = ebbi_inside();
    ebbi_flush_idle(heap, 1);
    ebbi_outside(inside);
}

static uint64_t last_ms; // when a pass was asked for; a race only asks twice

// At start-up there is nothing to return: else the first refill of each process would make a pass.
void ebbi_purge_begin(void)
{
    ebbi_store_relaxed(&last_ms, ebbi_os_now_ms()); // relaxed: a hint
}

static void ask_in_time(void)
{
    uint64_t now_ms = ebbi_os_now_ms();
    // relaxed: a hint
    if (now_ms - ebbi_load_relaxed(&last_ms) > ebbi_option(EBBI_OPTION_PURGE_DELAY) / 2) {
        ebbi_store_relaxed(&last_ms, now_ms); // relaxed: a hint
        ebbi_pass_ask();
    }
}

static size_t looked_at;    // of the bytes that the arena has handed out; atomic
static size_t looked_clean; // the same of clean ones; atomic
static size_t look_step;    // what may be handed out without a look; atomic

void ebbi_gather(void)
{
    if (ebbi_owners_gather() >= GAIN) {
        ebbi_store_relaxed(&look_step, (size_t)0); // relaxed: a number
    }
}

void ebbi_gather_alone(void)
{
    if (!ebbi_os_is_threaded() &&
        !ebbi_load_relaxed(&ebbi_dying)) { // relaxed: as in ebbi_purge_tick
        (void)ebbi_owners_gather();
    }
}

// What there is will not last until somebody has looked, or does not fit.
static bool runs_low(void)
{
    // relaxed: a number
    return ebbi_arena_dirty_bytes() < RESERVE ||
           ebbi_arena_clean_bytes() != ebbi_load_relaxed(&looked_clean);
}

// Before the process grows by what lies free elsewhere, and nobody has looked. The more often in vain, the later again.
static void look_elsewhere(void)
{
    size_t given = ebbi_arena_given_bytes();
    size_t last = ebbi_load_relaxed(&looked_at); // relaxed: a number, as all here
    size_t now = ebbi_load_relaxed(&look_step);  // relaxed: as above
    // relaxed: as above
    if (given - last <= now || !ebbi_os_is_threaded() || !runs_low() ||
        !ebbi_cas_relaxed(&looked_at, &last, given)) {
        return;
    }
    size_t most = ebbi_max(STEP_MOST, ebbi_arena_used_bytes() / STEP_PART);
    ebbi_store_relaxed(&looked_clean, ebbi_arena_clean_bytes());            // relaxed: as above
    ebbi_store_relaxed(&look_step, ebbi_min(2 * now + EBBI_GRANULE, most)); // relaxed: as above
    if (ebbi_helper_is_there()) {
        ebbi_gather_ask();
    } else {
        ebbi_gather();
    }
}

void ebbi_purge_tick(struct ebbi_heap *heap)
{
    if (ebbi_load_relaxed(&ebbi_dying)) { // relaxed: set by this thread or of no matter
        return;
    }
    look_elsewhere();
    ebbi_purge_spans();
    if (heap != NULL && heap->events - heap->swept_events >= SWEEP_EVENTS) {
        heap->swept_events = heap->events;
        sweep(heap);
    }
    if (ebbi_helper_is_there()) {
        ebbi_helper_kick();
    } else {
        ask_in_time();
    }
}
