// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: pins of threads that have no heap, for good, and giving way to those that hold up the clock.
//
// A thread that has no heap for good (its last destructors run, or memory was refused to its first
// pin) shares one participant with the others of its kind: that is pinned while any of them is. A
// thread that joins an older pin is as safe as if it had been pinned all along. Each is a holder of so many pins, which its
// end and a fork take off the sum. What a thread has pinned that gives its heap back is of that kind from then on, until the next
// round of its destructors. Whether one that pins behind that lives, whoever waits for the clock asks the kernel. Holders are
// in a table that grows by pages, which a handler may map, too. Where that is refused the pins are anybody's: such a thread
// has to unpin before it ends; what it had pinned before is over.
//
// A signal handler may pin, and would meet the lock of what it interrupted: signals wait while it is held. What it has
// interrupted may hold any other lock. So nothing else is waited for under this one, a fork takes it last, and the
// participant has joined the clock, which takes a lock, before a handler may come.
#include "os/options.h"
#include "os/wake.h"
#include "reclaim/queues.h"

#define YIELDS 4
#define CROWD 127 // holders in a page

struct holder {
    const void *mark; // of the thread, also in the child of a fork; another's when it has ended
    uint32_t thread;  // so that it is known to have
    size_t pins;      // 0: nobody's
    size_t brought;   // of these, by a thread that ends: from before it had no heap
};

struct crowd {
    struct crowd *next;
    struct holder holders[CROWD];
};
_Static_assert(sizeof(struct crowd) <= 4096, "a crowd is a page at most");

static struct {
    struct ebbi_lock lock;       // rank: late
    struct ebbi_os_signals held; // while a fork has the lock
    struct ebb_participant participant;
    uint32_t joined; // atomic
    size_t pins;     // of all; atomic
    size_t anybodys; // of these
    struct crowd crowd;
} late = {.lock = EBBI_LOCK(LATE)};

enum joined { APART, JOINS, JOINED };

// The one behind `holder` (NULL: the first), which is one of *crowd; NULL: there is none.
static struct holder *next_holder(struct crowd **crowd, struct holder *holder)
{
    if (holder == NULL) {
        *crowd = &late.crowd;
    } else if (holder + 1 < (*crowd)->holders + CROWD) {
        return holder + 1;
    } else {
        *crowd = (*crowd)->next;
    }
    return *crowd != NULL ? (*crowd)->holders : NULL;
}

static struct ebbi_os_signals lock_late(void)
{
    struct ebbi_os_signals signals = ebbi_os_hold_signals();
    ebbi_lock_take(&late.lock);
    return signals;
}

static void unlock_late(struct ebbi_os_signals signals)
{
    ebbi_lock_drop(&late.lock);
    ebbi_os_let_signals(signals);
}

// Under the lock, or as the only thread, here and below.
static void pins_less(size_t pins)
{
    EBBI_ASSERT(pins > 0 && late.pins >= pins);
    ebbi_store_relaxed(&late.pins, late.pins - pins); // relaxed: under the lock, but for a hint
    if (late.pins == 0) {
        // release[unpin -> scan]: as in ebbi_unpin
        ebbi_store_release(&late.participant.state, ebbi_pin_state(&late.participant) - 1);
    }
}

static void holder_unpins(struct holder *holder, size_t pins)
{
    pins_less(pins);
    holder->pins -= pins;
    holder->brought = ebbi_min(holder->brought, holder->pins); // the innermost end first
}

static void holder_ends(struct holder *holder) { holder_unpins(holder, holder->pins); }

// The calling thread's; NULL: it holds none. A dead thread's mark may be a new one's.
static struct holder *own_holder(void)
{
    struct crowd *crowd;
    for (struct holder *holder = next_holder(&crowd, NULL); holder != NULL;
         holder = next_holder(&crowd, holder)) {
        if (holder->pins > 0 && holder->mark == ebbi_thread_mark()) {
            if (holder->thread == ebbi_os_thread_number()) {
                return holder;
            }
            holder_ends(holder);
        }
    }
    return NULL;
}

static void sweep_holders(void)
{
    struct crowd *crowd;
    for (struct holder *holder = next_holder(&crowd, NULL); holder != NULL;
         holder = next_holder(&crowd, holder)) {
        if (holder->pins > 0 && !ebbi_os_thread_lives(holder->thread)) {
            holder_ends(holder);
        }
    }
}

static struct holder *free_holder(void)
{
    struct crowd *crowd;
    for (struct holder *holder = next_holder(&crowd, NULL); holder != NULL;
         holder = next_holder(&crowd, holder)) {
        if (holder->pins == 0) {
            return holder;
        }
    }
    return NULL;
}

// NULL: refused.
static struct holder *more_holders(void)
{
    struct crowd *more =
        ebbi_os_map(NULL, ebbi_align_up(sizeof(struct crowd), ebbi_os_page_size()));
    if (more == NULL) {
        return NULL;
    }
    more->next = late.crowd.next;
    late.crowd.next = more;
    return more->holders;
}

// The calling thread's; NULL: there is no memory for as many.
static struct holder *any_holder(void)
{
    struct holder *mine = own_holder();
    if (mine != NULL) {
        return mine;
    }
    mine = free_holder();
    if (mine == NULL) {
        sweep_holders();
        mine = free_holder();
    }
    mine = mine != NULL ? mine : more_holders();
    if (mine != NULL) {
        mine->mark = ebbi_thread_mark();
        mine->thread = ebbi_os_thread_number();
    }
    return mine;
}

static void count_pin(void)
{
    struct holder *mine = any_holder();
    if (mine != NULL) {
        mine->pins++;
    } else {
        late.anybodys++;
    }
}

void ebbi_clock_choose(void)
{
    ebbi_clock_decide(&ebbi_clock, ebbi_option(EBBI_OPTION_PIN_FENCE) != 0);
}

static void join_clock(void)
{
    uint32_t apart = APART;
    // acquire[late-joined <- late-joins]: the participant is in the clock's list
    if (EBBI_LIKELY(ebbi_load_acquire(&late.joined) == JOINED)) {
        return;
    }
    struct ebbi_os_signals signals = ebbi_os_hold_signals();
    if (ebbi_cas_relaxed(&late.joined, &apart, (uint32_t)JOINS)) { // relaxed: the first alone
        ebbi_clock_join(&ebbi_clock, &late.participant, 0);
        ebbi_clock_choose();
        // release[late-joins -> late-joined]: as above
        ebbi_store_release(&late.joined, (uint32_t)JOINED);
    }
    // acquire[late-joined <- late-joins]: as above
    while (ebbi_load_acquire(&late.joined) != JOINED) {
        ebbi_os_yield();
    }
    ebbi_os_let_signals(signals);
}

void ebbi_late_begin(void)
{
    // acquire[decided-read <- decided-set]: somebody has pinned, so this thread's handlers may
    if (ebbi_load_acquire(&ebbi_clock.decided)) {
        join_clock();
    }
}

void ebbi_late_pin(void)
{
    ebbi_heap_prepare(&ebbi_heap_gone);
    ebb_self = (char *)&ebbi_heap_gone; // for good: unpin has to find the way back here
    if (ebbi_os_word() == 0) {          // its end is to be seen
        (void)ebbi_os_word_set(EBBI_WORD_NO_HEAP);
    }
    join_clock();
    struct ebbi_os_signals signals = lock_late();
    if (late.pins == 0) {
        ebbi_announce(&late.participant, 0);
    }
    ebbi_store_relaxed(&late.pins, late.pins + 1); // relaxed: as above
    count_pin();
    unlock_late(signals);
}

// What the thread's own participant holds, which leaves the clock next: until then that is one epoch further at most.
uintptr_t ebbi_late_inherit(const struct ebb_participant *from)
{
    uint64_t pinned = (ebbi_pin_state(from) & ~EBB_PIN_DEPTH) | 1;
    size_t pins = ebbi_pin_depth(from);
    if (pins == 0) {
        return 0;
    }
    struct ebbi_os_signals signals = lock_late();
    struct holder *mine = any_holder();
    if (mine != NULL) { // else there is nobody who would end them
        if (late.pins == 0 || ebbi_pin_state(&late.participant) > pinned) {
            // release[pin -> scan]: what this thread read under its pins
            ebbi_store_release(&late.participant.state, pinned);
        }
        ebbi_store_relaxed(&late.pins, late.pins + pins); // relaxed: as above
        mine->pins += pins;
        mine->brought = mine->pins;
    }
    unlock_late(signals);
    return mine != NULL ? EBBI_WORD_NO_HEAP : EBBI_WORD_NO_HEAP | EBBI_WORD_OVER;
}

// A word that says no more than that its end is to be seen, of a thread that holds no pin.
static void let_end_be(bool holds)
{
    if (!holds && ebbi_os_word() % EBBI_WORD_ROUND == EBBI_WORD_NO_HEAP) {
        (void)ebbi_os_word_set(0);
    }
}

void ebbi_late_unpin(void)
{
    struct ebbi_os_signals signals = lock_late();
    struct holder *mine = own_holder();
    bool pinned = mine != NULL || late.anybodys > 0;
    if (mine != NULL) {
        holder_unpins(mine, 1);
    } else if (pinned) {
        late.anybodys--;
        pins_less(1);
    }
    bool holds = mine != NULL && mine->pins > 0; // else it may be another thread's from here on
    unlock_late(signals);
    if (!pinned && (ebbi_os_word() & EBBI_WORD_OVER) == 0) {
        ebbi_fatal("unpin without a pin");
    }
    let_end_be(holds);
}

bool ebbi_late_bring(void)
{
    struct ebbi_os_signals signals = lock_late();
    struct holder *mine = own_holder();
    if (mine != NULL) {
        mine->brought = mine->pins;
    }
    unlock_late(signals);
    return mine != NULL;
}

void ebbi_late_abandon(void)
{
    struct ebbi_os_signals signals = lock_late();
    struct holder *mine = own_holder();
    if (mine != NULL && mine->brought > 0) {
        size_t brought = mine->brought;
        mine->brought = 0;
        holder_unpins(mine, brought);
    }
    unlock_late(signals);
}

void ebbi_late_sweep(void)
{
    if (EBBI_UNLIKELY(ebbi_load_relaxed(&late.pins) != 0)) { // relaxed: a hint
        struct ebbi_os_signals signals = lock_late();
        sweep_holders();
        unlock_late(signals);
    }
}

bool ebbi_late_is_pinned(void)
{
    struct ebbi_os_signals signals = lock_late();
    bool is = own_holder() != NULL || late.anybodys > 0;
    unlock_late(signals);
    return is;
}

// Handlers of other threads do not come by the lock: their signals are let be amid the fork.
void ebbi_late_lock(void)
{
    struct ebbi_os_signals held = {.held = false};
    if (ebbi_current() == &ebbi_heap_gone) {
        held = lock_late();
    } else {
        ebbi_lock_take(&late.lock);
    }
    late.held = held;
}

void ebbi_late_unlock(void) { unlock_late(late.held); }

struct ebb_participant *ebbi_late_participant(void)
{
    // relaxed: its own pins, or under all locks
    bool joined = ebbi_load_relaxed(&late.joined) == JOINED;
    return ebbi_current() == &ebbi_heap_gone && joined ? &late.participant : NULL;
}

void ebbi_late_forget(void)
{
    struct crowd *crowd;
    for (struct holder *holder = next_holder(&crowd, NULL); holder != NULL;
         holder = next_holder(&crowd, holder)) {
        if (holder->pins > 0 && holder->mark == ebbi_thread_mark()) {
            holder->thread = ebbi_os_thread_number();
        } else if (holder->pins > 0) {
            holder_ends(holder);
        }
    }
    if (ebbi_late_participant() == NULL) {
        ebbi_store_relaxed(&late.joined, (uint32_t)APART); // relaxed: the only thread
    }
}

static bool is_in_the_way(void)
{
    const struct ebb_participant *me = &ebbi_current()->pin;
    return me == &ebbi_heap_gone.pin
               ? ebbi_late_is_pinned()
               : !ebbi_pin_is_none(me) && ebbi_clock_waits_for(&ebbi_clock, me);
}

// While the clock stands: whether nobody has given way for as long as that. On a busy machine each time costs a time slice.
static bool is_time_again(void)
{
    static uint32_t gave_way_ms; // atomic
    uint32_t now_ms = (uint32_t)ebbi_os_now_ms();
    bool again = now_ms - ebbi_load_relaxed(&gave_way_ms) >= EBBI_CLOCK_STALL_MS; // relaxed: a hint
    if (again) {
        ebbi_store_relaxed(&gave_way_ms, now_ms); // relaxed: as above
    }
    return again;
}

// Whoever holds up the clock is most often a thread that lost its processor inside a pin: it is let
// run, here or, by a nap that leaves this processor idle, from another's queue. One that has held it
// up for long is waiting for something else; for the thread itself there is no use in waiting.
void ebbi_give_way(bool naps)
{
    ebbi_late_sweep();
    bool stalled = ebbi_clock_stands_ms(&ebbi_clock) >= EBBI_CLOCK_STALL_MS;
    if (is_in_the_way() || (stalled && !is_time_again())) {
        return;
    }
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
