// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: pins of threads that have no heap, for good, and giving way to those that hold up the clock.
//
// A thread that has no heap for good (its last destructors run, or memory was refused to its first
// pin) shares one participant with the others of its kind: that is pinned while any of them is. A
// thread that joins an older pin is as safe as if it had been pinned all along. Each keeps its own depth in its
// word (heap.h), and its end and a fork take that off the sum. Where libc has no memory for a word, either, its pins
// are anybody's: such a thread has to unpin before it ends.
#include "os/options.h"
#include "os/wake.h"
#include "reclaim/queues.h"

#define YIELDS 4
#define STALL_MS 50

static struct {
    struct ebbi_lock lock; // rank: owner
    struct ebb_participant participant;
    bool joined;
    size_t pins;     // of all
    size_t anybodys; // of these
} late = {.lock = EBBI_LOCK(OWNER)};

static size_t own_pins(void)
{
    uintptr_t word = ebbi_os_word();
    return (word & EBBI_WORD_NO_HEAP) != 0 ? word / EBBI_WORD_PIN : 0;
}

// False: they are anybody's.
static bool keep_own_pins(size_t pins)
{
    uintptr_t flags = ebbi_os_word() & (EBBI_WORD_PIN - 1);
    bool needed = pins > 0 || (flags & EBBI_WORD_COUNTED) != 0; // else its end is not to be seen
    return ebbi_os_word_set(needed ? pins * EBBI_WORD_PIN | flags | EBBI_WORD_NO_HEAP : 0);
}

void ebbi_clock_choose(void)
{
    ebbi_clock_decide(&ebbi_clock, ebbi_option(EBBI_OPTION_PIN_FENCE) != 0);
}

void ebbi_late_pin(void)
{
    ebbi_heap_prepare(&ebbi_heap_gone);
    ebb_self = (char *)&ebbi_heap_gone; // for good: unpin has to find the way back here
    bool kept = keep_own_pins(own_pins() + 1);
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
    late.anybodys += kept ? 0 : 1;
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

void ebbi_late_abandon(size_t pins)
{
    if (pins > 0) {
        ebbi_lock_take(&late.lock);
        pins_less(pins);
        ebbi_lock_drop(&late.lock);
    }
}

void ebbi_late_unpin(void)
{
    size_t own = own_pins();
    ebbi_lock_take(&late.lock);
    bool pinned = own > 0 || late.anybodys > 0;
    if (pinned) {
        late.anybodys -= own == 0 ? 1 : 0;
        pins_less(1);
    }
    ebbi_lock_drop(&late.lock);
    if (!pinned) {
        ebbi_fatal("unpin without a pin");
    }
    if (own > 0) {
        (void)keep_own_pins(own - 1);
    }
}

bool ebbi_late_is_pinned(void)
{
    ebbi_lock_take(&late.lock);
    bool is = own_pins() > 0 || late.anybodys > 0;
    ebbi_lock_drop(&late.lock);
    return is;
}

void ebbi_late_lock(void) { ebbi_lock_take(&late.lock); }
void ebbi_late_unlock(void) { ebbi_lock_drop(&late.lock); }

struct ebb_participant *ebbi_late_participant(void)
{
    return ebbi_current() == &ebbi_heap_gone && late.joined ? &late.participant : NULL;
}

void ebbi_late_forget(void)
{
    size_t here = own_pins() + late.anybodys;
    if (late.pins > here) {
        pins_less(late.pins - here);
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
