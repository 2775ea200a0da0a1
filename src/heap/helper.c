// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: the thread that returns memory while the others sleep. It is started when there is
// something to return, naps between passes, and ends when there is nothing left, so that a process
// whose last own thread has ended can end too.
#include "heap/heap.h"
#include "os/options.h"

// One word, so that a kick and the helper's end cannot miss each other. What there is to return is
// found under the locks: no state needs an order.
enum state { NONE, RUNS, RUNS_AND_KICKED, REFUSED };

static uint32_t state;
static uint32_t never; // always 0: what a nap waits on

static bool move_state(uint32_t from, uint32_t to)
{
    return ebbi_cas_relaxed(&state, &from, to); // relaxed: see above
}

static void helper_main(void)
{
    struct ebbi_pass pass = {.delay_ms = ebbi_option(EBBI_OPTION_PURGE_DELAY), .runs_calls = true};
    uint32_t nap_ms = (uint32_t)ebbi_max(pass.delay_ms / 2, 10);
    do {
        (void)move_state(RUNS_AND_KICKED, RUNS);
        ebbi_os_wait(&never, 0, nap_ms);
        ebbi_purge_pass(&pass);
    } while (pass.waiting || !move_state(RUNS, NONE));
}

bool ebbi_helper_wanted(void)
{
    return ebbi_option(EBBI_OPTION_PURGE_THREAD) != 0 && ebbi_os_is_threaded() &&
           ebbi_load_relaxed(&state) != REFUSED; // relaxed: see above
}

void ebbi_helper_kick(void)
{
    static const struct ebbi_os_thread thread = {helper_main, "ebb-purge"};
    uint32_t seen = ebbi_load_relaxed(&state); // relaxed: see above
    if (seen == RUNS_AND_KICKED || !ebbi_helper_wanted()) {
        return;
    }
    if (seen == NONE && move_state(NONE, RUNS_AND_KICKED)) {
        struct ebbi_fast *before = ebbi_source_swap(ebbi_current()); // it allocates
        bool started = ebbi_os_start_thread(&thread);
        ebbi_source = before;
        if (!started) {
            ebbi_store_relaxed(&state, (uint32_t)REFUSED); // relaxed: see above
        }
    } else {
        (void)move_state(RUNS, RUNS_AND_KICKED);
    }
}

void ebbi_helper_forget(void)
{
    ebbi_store_relaxed(&state, (uint32_t)NONE); // relaxed: see above
}
