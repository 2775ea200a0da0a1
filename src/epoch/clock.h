// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer epoch: a clock that says when everybody has moved on. It owns no memory and knows no blocks:
// participants live in their threads' heaps, what waits is kept by the layers above.
//
// The clock counts epochs. A pin writes the epoch it sees into its participant (the inline half,
// ebbtide/detail/pin.h). The clock goes from e to e + 1 only while no participant is pinned in
// another epoch than e. Who has unlinked something takes a stamp, the epoch behind a full fence, and
// may reuse the memory once the clock shows stamp + 2 (K. Fraser, "Practical lock-freedom", 2004).
//
// Why + 2: let a reader R hold the block, and let the clock show c at the full fence of R's
// announcement. The unlinking came behind that fence (else R would have seen the link gone), and the
// stamp t was read behind both: t >= c. An advance that begins behind R's fence finds R's state, which
// shows what R had seen before, c at most. One advance may have looked at R earlier and take the clock
// to c + 1; there it stays until R unpins or announces anew. So t + 2 is not reached.
//
// A biased clock leaves unpinned participants announced, so that their next pins need no fence: they
// store their depth and find the clock where it was. They are in nobody's way while they stay in the
// present epoch. One of an older epoch e is pinned, or it may be about to pin on the strength of a
// look at the clock when it stood at e. A membarrier now, with the clock beyond e, is a full fence at
// some point of R's program. Is that point before R stores its depth, then R's look, which comes
// after, finds the clock beyond e, and R announces anew, as everybody does. Is it behind, then the
// depth is visible now. So R is found pinned, or it is `released`: it will not pin in e again.
//
// When the kernel refuses the membarrier that it has promised (a filter of system calls that came
// later), a biased clock becomes a fenced one, once: the word gets its flag, `turned_ms` says when.
// Every pin that looks at the word from then on announces with a fence. Left are those that looked
// before, and whose depths, stored without a fence, may still be on their way to memory. So for one
// second (EBBI_CLOCK_TURN_MS) whoever is away stays in the way, as before; then what an unpinned state
// says can be believed, as in a fenced clock. Nothing in an architecture's manual bounds the time that
// a store may take to become visible: that a second is enough is an assumption about the machine, not
// a proof. It rests on this: a store buffer drains as fast as the caches answer, in less than
// microseconds, and in any case when its processor takes an interrupt, switches threads or goes to
// sleep, which happens many times a second; and the look at the word is one load, which no processor
// holds back for so long. The wait happens once a clock.
//
// C1  `now` is changed under the lock alone: by one epoch at a time, and once by its flag.
// C2  a participant is in the list, which `count` counts, while its thread may pin; joining and leaving
//     take the lock.
// C3  whether the clock is biased is decided before its first pin; then it may become fenced, once.
// C4  a participant whose state equals its `released` does not pin before it has announced anew. One
//     that is not pinned in an old epoch neither, in a clock that was fenced from the start or became
//     so a second ago.
// C5  no participant announces an epoch that the clock has not shown.
// C6  a participant whose thread has ended is not pinned for long once it is in the way. A thread may pin in a destructor
//     that runs behind the library's own, its end is seen by nobody then: an advance that has been held up for EBBI_CLOCK_STALL_MS
//     asks the kernel whether the thread lives. Of one that does not, all reads are over.
//     (While another thread has the same number, as the kernel gives them out again, it is taken to live.)
#ifndef EBB_EPOCH_CLOCK_H
#define EBB_EPOCH_CLOCK_H

#include "base/base.h"
#include "ebbtide/detail/pin.h"
#include "os/lock.h"

struct ebbi_clock {
    EBBI_ATOMIC(uint64_t) now; // epoch << 16, in a fenced clock | 1: see detail/pin.h
    struct ebbi_lock lock __attribute__((aligned(EBBI_CACHE_LINE))); // rank: clock
    bool decided;                                                    // C3; atomic
    struct ebb_participant *participants; // under the lock, as is all below
    size_t count;
    uint64_t changed_ms; // when the epoch became what it is; atomic for a look
    uint64_t turned_ms;  // when it became fenced, less than a second ago; 0: long ago, or never
    uint64_t asked_ms;   // when the kernel was last asked about one in the way, which lived
};

#define EBBI_CLOCK_FIRST (EBB_EPOCH_ONE * 2 | 1) // fenced until it is decided
#define EBBI_CLOCK_NEW                                                                             \
    {                                                                                              \
        .now = EBBI_CLOCK_FIRST, .lock = EBBI_LOCK(CLOCK)                                          \
    }
#define EBBI_GRACE (EBB_EPOCH_ONE * 2)
#define EBBI_CLOCK_TURN_MS 1000
#define EBBI_CLOCK_STALL_MS 50

// The clock of the default collector.
extern EBBI_HIDDEN struct ebbi_clock ebbi_clock;

// Before the first pin: fenced if `fenced`, or if the kernel knows no membarrier. Idempotent.
void ebbi_clock_decide(struct ebbi_clock *clock, bool fenced);
// Whether anybody may ever have pinned.
EBBI_INLINE bool ebbi_clock_is_used(const struct ebbi_clock *clock)
{
    // acquire[decided-read <- decided-set]: the clock's word
    return ebbi_load_acquire(&clock->decided);
}
EBBI_INLINE bool ebbi_clock_is_fenced(const struct ebbi_clock *clock)
{
    return (ebbi_load_relaxed(&clock->now) & 1) != 0; // relaxed: under the lock, or as of just now
}

// The first pin of `me` goes through ebb_pin_slow. `thread`: its number, or 0 for the participant of several.
void ebbi_clock_join(struct ebbi_clock *clock, struct ebb_participant *me, uint32_t thread);
// No longer pinned, and out of the list.
void ebbi_clock_leave(struct ebbi_clock *clock, struct ebb_participant *me);

// A stamp for what has been unlinked before. Any thread.
uint64_t ebbi_clock_stamp(struct ebbi_clock *clock);

// Moves on by one epoch if it may. False if somebody is in the way or at it already: it gives way to
// another that is at it. `press`: participants that have not come back are worth a membarrier.
// O(participants).
bool ebbi_clock_advance(struct ebbi_clock *clock, bool press);

// Whether what has this stamp may be reused.
EBBI_INLINE bool ebbi_clock_passed(const struct ebbi_clock *clock, uint64_t stamp)
{
    // acquire[epoch-read <- epoch-advance]: all that the participants did before they moved on
    uint64_t now = ebbi_load_acquire(&clock->now);
    EBBI_ASSERT((stamp & EBB_PIN_DEPTH) == 0 && now >= stamp);
    return now - stamp >= EBBI_GRACE;
}

// Whether the clock can not move on before this participant, the calling thread's, unpins.
bool ebbi_clock_waits_for(const struct ebbi_clock *clock, const struct ebb_participant *me);

// For how long the epoch has been what it is, if it ever moved. A hint.
uint64_t ebbi_clock_stands_ms(const struct ebbi_clock *clock);

struct ebbi_clock_state {
    uint64_t epoch;
    size_t participants;
    size_t pinned;
    uint64_t oldest_ms; // at least; of the oldest pin
    uint32_t oldest_thread;
};
void ebbi_clock_state(struct ebbi_clock *clock, struct ebbi_clock_state *state);

// Ends the process unless C1 to C5 hold, as far as can be seen, with a message that names the one. Under
// the lock, or alone. O(participants).
void ebbi_clock_audit(const struct ebbi_clock *clock);
void ebbi_clock_audit_sometimes(const struct ebbi_clock *clock);
#define EBBI_CLOCK_AUDIT(clock) (EBBI_HAVE_ASSERT ? ebbi_clock_audit_sometimes(clock) : (void)0)

// fork(): taken before, dropped after. The child then lets go of the participants that are not
// `kept`, which may be NULL.
void ebbi_clock_lock(struct ebbi_clock *clock);
void ebbi_clock_unlock(struct ebbi_clock *clock);
// A biased clock asks the kernel again, and becomes fenced where it refuses.
void ebbi_clock_keep_only(struct ebbi_clock *clock, struct ebb_participant *kept);

#endif
