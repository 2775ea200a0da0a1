// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: pins of threads that have no heap, for good, and giving way to those that hold up the clock.
//
// A thread that has no heap for good (its last destructors run, or memory was refused to its first
// pin) shares one participant with the others of its kind: that is pinned while any of them is. A
// thread that joins an older pin is as safe as if it had been pinned all along. Each knows its own depth, which its
// end and a fork take off the sum.
#include "os/options.h"
#include "os/wake.h"
#include "reclaim/queues.h"

#define YIELDS 4
#define STALL_MS 50

static struct {
    struct ebbi_lock lock; // rank: owner
    struct ebb_participant participant;
    bool joined;
    size_t pins; // of all
} late = {.lock = EBBI_LOCK(OWNER)};
static _Thread_local size_t late_depth;

void ebbi_clock_choose(void)
{
    ebbi_clock_decide(&ebbi_clock, ebbi_option(EBBI_OPTION_PIN_FENCE) != 0);
}

void ebbi_late_pin(void)
{
    ebbi_heap_prepare(&ebbi_heap_gone);
    ebb_self = (char *)&ebbi_heap_gone; // for good: unpin has to find the way back here
    ebbi_lock_take(&late.lock);
    if (!late.joined) {
        late.joined = true;
        ebbi_assert_held(&late.lock);
        EBBI_ASSERT(late.pins == 0);
        ebbi_clock_join(&ebbi_clock, &late.participant);
        ebbi_clock_choose();
    }
    if (late.pins++ == 0) {
        ebbi_announce(&late.participant, 0);
    }
    late_depth++;
    ebbi_lock_drop(&late.lock);
}

// Under the lock, or as the only thread.
static void pins_less(size_t pins)
{
    EBBI_ASSERT(pins > 0 && late.pins >= pins);
    late.pins -= pins;
    if (late.pins == 0) {
        // release[unpin -> scan]: as in ebbi_unpin
        ebbi_store_release(&late.participant.state, ebbi_pin_state(&late.participant) - 1);
    }
}

static void unpin(size_t pins)
{
    ebbi_lock_take(&late.lock);
    pins_less(pins);
    late_depth -= pins;
    ebbi_lock_drop(&late.lock);
}

void ebbi_late_unpin(void)
{
    if (late_depth == 0) {
        ebbi_fatal("unpin without a pin");
    }
    unpin(1);
}

void ebbi_late_abandon(void)
{
    if (late_depth > 0) {
        unpin(late_depth);
    }
}

bool ebbi_late_is_pinned(void) { return late_depth > 0; }

void ebbi_late_lock(void) { ebbi_lock_take(&late.lock); }
void ebbi_late_unlock(void) { ebbi_lock_drop(&late.lock); }

struct ebb_participant *ebbi_late_participant(void)
{
    return ebbi_current() == &ebbi_heap_gone && late.joined ? &late.participant : NULL;
}

void ebbi_late_forget(void)
{
    if (late.pins > late_depth) {
        pins_less(late.pins - late_depth);
    }
    if (ebbi_late_participant() == NULL) {
        late.joined = false;
    }
}

static bool is_in_the_way(void)
{
    const struct ebb_participant *me = &ebbi_current()->pin;
    return me == &ebbi_heap_gone.pin
               ? ebbi_late_is_pinned()
               : !ebbi_pin_is_none(me) && ebbi_clock_waits_for(&ebbi_clock, me);
}

// Whoever holds up the clock is most often a thread that lost its processor inside a pin: it is let
// run, here or, by a nap that leaves this processor idle, from another's queue. One that has held it
// up for long is waiting for something else; for the thread itself there is no use in waiting.
void ebbi_give_way(bool naps)
{
    if (is_in_the_way()) {
        return;
    }
    bool stalled = ebbi_clock_stands_ms(&ebbi_clock) >= STALL_MS;
    for (int i = 0; i < (stalled ? 1 : YIELDS); i++) {
        ebbi_os_yield();
        if (ebbi_clock_advance(&ebbi_clock, true)) {
            return;
        }
    }
    if (!stalled && naps) {
        ebbi_nap(1);
        (void)ebbi_clock_advance(&ebbi_clock, true);
    }
}
