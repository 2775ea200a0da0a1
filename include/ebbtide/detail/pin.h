// SPDX-License-Identifier: MIT OR Apache-2.0
// The inline half of the epoch clock (src/epoch has the other): how a participant says that it
// reads. Not part of the API: include <ebbtide/reclaim.h>.
//
// state = epoch << 16 | depth. The low 16 bits: 0 outside of a pin; the number of nested pins,
// below EBB_PIN_DEEPEST; EBB_PIN_ATTENTION added when the outermost unpin, this or the next, or the
// first pin has more to do; all set in the record of threads that have none. So one comparison in pin
// and one in unpin send everything unusual to the slow functions.
//
// To *announce* an epoch is to store it and make a full fence. In a biased clock an unpin leaves the
// epoch announced: while the clock stands, the next pins only count up and down, without a fence.
// The clock can tell such a participant from one that will not come back by a membarrier
// (epoch/clock.c). In a fenced clock every outermost pin announces. The clock's word is what an
// unpinned state that may be pinned again at once looks like: epoch << 16 in a biased clock, which a
// state outside of a pin may equal; epoch << 16 | 1 in a fenced one, which none does.
//
// P1  a participant's state is stored by its own thread alone, so a signal handler of that thread
//     may pin and unpin: it leaves the depth as it found it. (A handler that interrupts a pin whose
//     fence is still to come counts up and relies on the signal's delivery: a full fence on x86-64.)
// P2  an epoch in the state was announced, behind a load that found the clock there.
// P3  a pin without a fence stores its depth first and then finds the clock still at its epoch.
#ifndef EBB_DETAIL_PIN_H
#define EBB_DETAIL_PIN_H

#include "ebbtide/detail/atomic.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EBB_PIN_SHIFT 16
#define EBB_PIN_DEPTH ((uint64_t)0xFFFF)
#define EBB_PIN_ATTENTION ((uint64_t)0x8000)
#define EBB_PIN_DEEPEST ((uint64_t)0x7FFF)
#define EBB_PIN_NONE EBB_PIN_DEPTH
#define EBB_EPOCH_ONE ((uint64_t)1 << EBB_PIN_SHIFT)

// One cache line; the fields below `now` belong to src/epoch, the last three to src/reclaim/pin.c.
struct ebb_participant {
    EBBI_ATOMIC(uint64_t) state;
    const EBBI_ATOMIC(uint64_t) * now; // the clock's word
    uint32_t busy;                     // of a thread: in the middle of a free (src/region)
    uint32_t thread;                   // the kernel's number of the thread
    struct ebb_participant *next, *previous;
    uint64_t released; // a state that was found left for good
    uint64_t looked;   // the clock's word when work was last looked for; 0: there was more
    uint32_t due;      // what attention is for
    uint32_t in_vain;  // looks in a row that found nothing
} __attribute__((aligned(64)));

__attribute__((visibility("default"))) void ebb_pin_slow(struct ebb_participant *me);
__attribute__((visibility("default"))) void ebb_unpin_slow(struct ebb_participant *me);

// Depth 1. `attention`: kept of the state before.
EBBI_INLINED void ebbi_announce(struct ebb_participant *me, uint64_t attention)
{
    // relaxed: an epoch that is old by now only holds up the next advance
    uint64_t now = ebbi_load_relaxed(me->now);
    // full[pin <-> advance, stamp]: either the advancer sees this pin, or this thread sees what was
    // unlinked before the advance
    // release[pin -> scan]: what this thread read under its last pin
    ebbi_store_full(&me->state, now | attention | 1);
}

EBBI_INLINED void ebbi_pin_deeper(struct ebb_participant *me)
{
    uint64_t state = ebbi_load_relaxed(&me->state); // relaxed: P1
    if (__builtin_expect((state & EBB_PIN_DEPTH) < EBB_PIN_DEEPEST - 1, 1)) {
        ebbi_store_relaxed(&me->state, state + 1); // relaxed: the epoch stays as it is
    } else {
        ebb_pin_slow(me);
    }
}

// The clock moved on between the two looks at it. (In a fenced clock this was a nested pin.)
EBBI_INLINED void ebbi_pin_anew(struct ebb_participant *me)
{
    if ((ebbi_load_relaxed(&me->state) & EBB_PIN_DEPTH) == 1) { // relaxed: P1
        ebbi_announce(me, 0);
    }
}

EBBI_INLINED void ebbi_pin(struct ebb_participant *me)
{
    const EBBI_ATOMIC(uint64_t) *clock = me->now;
    uint64_t state = ebbi_load_relaxed(&me->state); // relaxed: P1
    uint64_t now = ebbi_load_relaxed(clock);        // relaxed: looked at again
    if (__builtin_expect(state == now, 1)) {
        ebbi_store_relaxed(&me->state, now + 1); // relaxed: announced before
        ebbi_compiler_fence();                   // P3; the rest is the advancer's membarrier
        // relaxed: what was unlinked before the announcement is seen since; see epoch/clock.h
        if (__builtin_expect(ebbi_load_relaxed(clock) != now, 0)) {
            ebbi_pin_anew(me);
        }
    } else if ((state & EBB_PIN_DEPTH) == 0) {
        ebbi_announce(me, 0);
    } else {
        ebbi_pin_deeper(me);
    }
}

EBBI_INLINED void ebbi_unpin(struct ebb_participant *me)
{
    uint64_t state = ebbi_load_relaxed(&me->state) - 1; // relaxed: P1
    if (__builtin_expect((state & EBB_PIN_DEPTH) >= EBB_PIN_DEEPEST, 0)) {
        ebb_unpin_slow(me);
    } else {
        // release[unpin -> scan]: this thread has done with all that it read
        ebbi_store_release(&me->state, state);
    }
}

EBBI_INLINED void ebbi_repin(struct ebb_participant *me)
{
    uint64_t state = ebbi_load_relaxed(&me->state);           // relaxed: P1
    if ((state & EBB_PIN_DEPTH) == (EBB_PIN_ATTENTION | 1)) { // work that waits for an unpin
        ebb_unpin_slow(me);
        ebbi_pin(me);
    } else if ((state & EBB_PIN_DEPTH) == 1 &&
               state != (ebbi_load_relaxed(me->now) | 1)) { // relaxed: as in ebbi_announce
        ebbi_announce(me, 0);
    }
}

#ifndef EBB_MODEL
// The calling thread's heap: its record in the default collector lies EBB_SELF_PIN bytes in. Before
// the thread's first call, and after its last, one that only leads to the slow functions.
#ifdef EBB_INSIDE // by a name of its own, so that another copy of the library in the process has another
extern __attribute__((visibility("hidden"))) __thread char *ebb_self __asm__("ebbi_mine")
    __attribute__((tls_model("initial-exec")));
#else
extern __attribute__((visibility("default"))) __thread char *ebb_self
    __attribute__((tls_model("initial-exec")));
#endif
#define EBB_SELF_PIN 4096
EBBI_INLINED struct ebb_participant *ebbi_self(void)
{
    return (struct ebb_participant *)(ebb_self + EBB_SELF_PIN);
}

// Stands for the calling thread from its beginning to its end, and may stand for a later one.
EBBI_INLINED const void *ebbi_thread_mark(void) { return (const void *)&ebb_self; }
#endif

#ifdef __cplusplus
}
#endif

#endif
