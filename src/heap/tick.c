// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: what a slow call does for memory that nobody uses. Spans by amount, magazines that stand still;
// the rest is the helper's or, where there is none, a pass's that is asked for in time.
#include "heap/blocks.h"
#include "os/options.h"
#include "os/wake.h"

#define SWEEP_EVENTS 1024

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

void ebbi_purge_tick(struct ebbi_heap *heap)
{
    if (ebbi_load_relaxed(&ebbi_dying)) { // relaxed: set by this thread or of no matter
        return;
    }
    ebbi_purge_spans();
    if (heap != NULL && heap->events % SWEEP_EVENTS == 0) {
        sweep(heap);
    }
    if (ebbi_helper_is_there()) {
        ebbi_helper_kick();
    } else {
        ask_in_time();
    }
}
