// SPDX-License-Identifier: MIT OR Apache-2.0
#include "epoch/clock.h"

#include "base/list.h"
#include "base/probe.h"
#include "os/os.h"

struct ebbi_clock ebbi_clock = EBBI_CLOCK_NEW;

static uint64_t epoch_of(uint64_t state) { return state >> EBB_PIN_SHIFT; }

static bool is_pinned(uint64_t state) { return (state & EBB_PIN_DEPTH & ~EBB_PIN_ATTENTION) != 0; }

void ebbi_clock_decide(struct ebbi_clock *clock, bool fenced)
{
    // acquire[decided-read <- decided-set]: the clock's word
    if (ebbi_load_acquire(&clock->decided)) {
        return;
    }
    ebbi_lock_take(&clock->lock);
    if (!clock->decided) {
        EBBI_ASSERT(ebbi_clock_is_fenced(clock));
        EBBI_ASSERT(ebbi_load_relaxed(&clock->now) >= EBB_EPOCH_ONE * 2); // relaxed: C1
        if (!fenced && ebbi_os_membarrier_register()) {
            // relaxed: nobody pins before this is done
            ebbi_store_relaxed(&clock->now, ebbi_load_relaxed(&clock->now) & ~(uint64_t)1);
        }
        // release[decided-set -> decided-read]: the clock's word
        ebbi_store_release(&clock->decided, true);
    }
    ebbi_lock_drop(&clock->lock);
}

void ebbi_clock_join(struct ebbi_clock *clock, struct ebb_participant *me, uint32_t thread)
{
    ebbi_store_relaxed(&me->state, EBB_PIN_ATTENTION); // relaxed: not in the list yet
    me->now = &clock->now;
    me->released = me->looked = 0;
    me->due = me->in_vain = 0;
    ebbi_store_relaxed(&me->busy, 0u);       // relaxed: nobody waits for a thread that begins
    ebbi_store_relaxed(&me->thread, thread); // relaxed: a number, as where it is read
    ebbi_lock_take(&clock->lock);
    EBBI_ASSERT((clock->participants == NULL) == (clock->count == 0));
    EBBI_ASSERT(clock->participants != me);
    EBBI_LIST_PUSH(clock->participants, me, next, previous);
    clock->count++;
    EBBI_CLOCK_AUDIT(clock);
    ebbi_lock_drop(&clock->lock);
}

static void unlink_participant(struct ebbi_clock *clock, struct ebb_participant *me)
{
    EBBI_ASSERT(me->now == &clock->now);
    EBBI_ASSERT(clock->count > 0);
    // release[unpin -> scan]: its thread has ended, or is this one
    ebbi_store_release(&me->state, (uint64_t)0);
    ebbi_store_relaxed(&me->thread, 0u); // relaxed: a number, as where it is read
    EBBI_LIST_REMOVE(clock->participants, me, next, previous);
    clock->count--;
}

void ebbi_clock_leave(struct ebbi_clock *clock, struct ebb_participant *me)
{
    ebbi_lock_take(&clock->lock);
    unlink_participant(clock, me);
    EBBI_CLOCK_AUDIT(clock);
    ebbi_lock_drop(&clock->lock);
}

uint64_t ebbi_clock_stamp(struct ebbi_clock *clock)
{
    // full[stamp <-> pin, hazard-set]: a pin that does not see the unlinking is one that an advance must see
    ebbi_fence_full();
    // relaxed: behind the fence. Without the flag of a fenced clock, which one before its first pin is
    return ebbi_load_relaxed(&clock->now) & ~(uint64_t)1;
}

enum hindrance {
    NOBODY,
    AWAY,   // announced in an old epoch, not pinned: perhaps about to pin
    PINNED, // in an old epoch
};

// In a biased clock. Whoever has work to do at its next pin announces anew.
static bool may_pin_again(const struct ebb_participant *p, uint64_t state)
{
    return (state & EBB_PIN_ATTENTION) == 0 && state != p->released;
}

static enum hindrance hindrance_of(const struct ebb_participant *p, uint64_t now, bool fenced)
{
    // acquire[scan <- pin, unpin]: its reads under the pin that it has left
    uint64_t state = ebbi_load_acquire(&p->state);
    EBBI_ASSERT(epoch_of(state) <= epoch_of(now));
    EBBI_ASSERT((state & EBB_PIN_DEPTH) != EBB_PIN_NONE);
    if (epoch_of(state) == epoch_of(now)) {
        return NOBODY;
    }
    if (is_pinned(state)) {
        return PINNED;
    }
    return fenced || !may_pin_again(p, state) ? NOBODY : AWAY;
}

// The one in the way is looked at first next time: it comes to the head of the list.
static void move_to_front(struct ebbi_clock *clock, struct ebb_participant *p)
{
    ebbi_assert_held(&clock->lock);
    EBBI_ASSERT(clock->participants->previous == NULL);
    if (p->previous == NULL) {
        return;
    }
    EBBI_ASSERT(p->previous->next == p);
    EBBI_ASSERT(p->next == NULL || p->next->previous == p);
    p->previous->next = p->next;
    if (p->next != NULL) {
        p->next->previous = p->previous;
    }
    p->previous = NULL;
    p->next = clock->participants;
    p->next->previous = p;
    clock->participants = p;
}

// Fenced, and no pin without a fence is on its way any more. Under the lock.
static bool is_settled(struct ebbi_clock *clock)
{
    ebbi_assert_held(&clock->lock);
    EBBI_ASSERT(clock->turned_ms == 0 || ebbi_clock_is_fenced(clock));
    if (clock->turned_ms != 0 && ebbi_os_now_ms() - clock->turned_ms >= EBBI_CLOCK_TURN_MS) {
        clock->turned_ms = 0;
    }
    return ebbi_clock_is_fenced(clock) && clock->turned_ms == 0;
}

// The greatest hindrance. Under the lock, behind a full fence.
static enum hindrance scan(struct ebbi_clock *clock, uint64_t now, bool fenced)
{
    enum hindrance greatest = NOBODY;
    for (struct ebb_participant *p = clock->participants; p != NULL; p = p->next) {
        enum hindrance found = hindrance_of(p, now, fenced);
        greatest = found > greatest ? found : greatest;
        if (greatest == PINNED) {
            move_to_front(clock, p);
            break;
        }
    }
    return greatest;
}

// Behind a membarrier: those that are not pinned in their old epoch will not be. C4.
static bool release_away(struct ebbi_clock *clock, uint64_t now)
{
    ebbi_assert_held(&clock->lock);
    EBBI_ASSERT(!ebbi_clock_is_fenced(clock));
    for (struct ebb_participant *p = clock->participants; p != NULL; p = p->next) {
        // acquire[scan <- pin, unpin]: as above
        uint64_t state = ebbi_load_acquire(&p->state);
        if (epoch_of(state) != epoch_of(now)) {
            if (is_pinned(state)) {
                return false;
            }
            EBBI_ASSERT(epoch_of(state) < epoch_of(now));
            p->released = state;
        }
    }
    return true;
}

// The kernel has broken its promise. Under the lock.
static void become_fenced(struct ebbi_clock *clock)
{
    uint64_t now = ebbi_load_relaxed(&clock->now); // relaxed: C1
    EBBI_ASSERT((now & 1) == 0 && clock->turned_ms == 0);
    clock->turned_ms = ebbi_max(ebbi_os_now_ms(), 1);
    // release[epoch-advance -> epoch-read]: the epoch is the same, and what came before it
    ebbi_store_release(&clock->now, now | 1);
}

static bool find_out_away(struct ebbi_clock *clock, uint64_t now)
{
    if (ebbi_os_membarrier()) {
        return release_away(clock, now);
    }
    become_fenced(clock);
    return false;
}

// C6. Under the lock.
static bool let_go_if_dead(struct ebb_participant *p)
{
    bool dead = p->thread != 0 && !ebbi_os_thread_lives(p->thread);
    if (dead) {
        ebbi_store_relaxed(&p->state, EBB_PIN_ATTENTION); // relaxed: nobody pins by it any more
    }
    return dead;
}

// The one in the way is the first in the list. Under the lock.
static bool first_has_ended(struct ebbi_clock *clock)
{
    uint64_t now_ms = ebbi_os_now_ms();
    ebbi_assert_held(&clock->lock);
    if (now_ms - clock->changed_ms < EBBI_CLOCK_STALL_MS ||
        now_ms - clock->asked_ms < EBBI_CLOCK_STALL_MS) {
        return false;
    }
    bool ended = let_go_if_dead(clock->participants);
    clock->asked_ms = ended ? clock->asked_ms : now_ms;
    return ended;
}

static bool may_move(struct ebbi_clock *clock, uint64_t now, bool press)
{
    bool settled = is_settled(clock);
    enum hindrance hindrance;
    do {
        // full[advance <-> pin]: an announcement that this scan misses sees what was unlinked before it
        ebbi_fence_full();
        hindrance = scan(clock, now, settled);
    } while (hindrance == PINNED && first_has_ended(clock));
    if (hindrance == AWAY && press && !ebbi_clock_is_fenced(clock)) {
        return find_out_away(clock, now);
    }
    return hindrance == NOBODY;
}

bool ebbi_clock_advance(struct ebbi_clock *clock, bool press)
{
    if (!ebbi_lock_try(&clock->lock)) {
        return false;
    }
    uint64_t now = ebbi_load_relaxed(&clock->now); // relaxed: C1
    bool moves = may_move(clock, now, press);
    if (moves) {
        EBBI_ASSERT(ebbi_load_relaxed(&clock->now) == now);       // relaxed: C1
        ebbi_store_relaxed(&clock->changed_ms, ebbi_os_now_ms()); // relaxed: a hint outside
        // release[epoch-advance -> epoch-read]: what the scan saw the participants do
        ebbi_store_release(&clock->now, now + EBB_EPOCH_ONE);
        EBBI_CLOCK_AUDIT(clock);
    }
    ebbi_lock_drop(&clock->lock);
    if (moves) {
        EBBI_PROBE2(epoch, clock, epoch_of(now + EBB_EPOCH_ONE));
    }
    return moves;
}

bool ebbi_clock_waits_for(const struct ebbi_clock *clock, const struct ebb_participant *me)
{
    uint64_t state = ebbi_load_relaxed(&me->state); // relaxed: its own
    // relaxed: out of date at once
    return is_pinned(state) && epoch_of(state) != epoch_of(ebbi_load_relaxed(&clock->now));
}

uint64_t ebbi_clock_stands_ms(const struct ebbi_clock *clock)
{
    uint64_t changed_ms = ebbi_load_relaxed(&clock->changed_ms); // relaxed: a hint
    return changed_ms != 0 ? ebbi_os_now_ms() - changed_ms : 0;
}

void ebbi_clock_state(struct ebbi_clock *clock, struct ebbi_clock_state *state)
{
    *state = (struct ebbi_clock_state){0};
    ebbi_lock_take(&clock->lock);
    uint64_t now = ebbi_load_relaxed(&clock->now); // relaxed: C1
    uint64_t oldest = UINT64_MAX;
    state->epoch = epoch_of(now);
    for (struct ebb_participant *p = clock->participants; p != NULL; p = p->next) {
        uint64_t pin = ebbi_load_relaxed(&p->state); // relaxed: a count, out of date at once
        EBBI_ASSERT(epoch_of(pin) <= epoch_of(now));
        bool pinned = is_pinned(pin) && !let_go_if_dead(p);
        state->participants += p->thread != 0 || pinned; // of no thread: late.c's
        if (pinned) {
            state->pinned++;
            if (epoch_of(pin) < epoch_of(oldest)) {
                oldest = pin;
                state->oldest_thread = p->thread;
            }
        }
    }
    EBBI_ASSERT(state->pinned <= state->participants);
    // A pin of the epoch before began before the present one did.
    if (epoch_of(oldest) < epoch_of(now) && clock->changed_ms != 0) {
        state->oldest_ms = ebbi_os_now_ms() - clock->changed_ms;
    }
    ebbi_lock_drop(&clock->lock);
}

void ebbi_clock_lock(struct ebbi_clock *clock) { ebbi_lock_take(&clock->lock); }
void ebbi_clock_unlock(struct ebbi_clock *clock) { ebbi_lock_drop(&clock->lock); }

void ebbi_clock_keep_only(struct ebbi_clock *clock, struct ebb_participant *kept)
{
    EBBI_ASSERT(kept == NULL || kept->now == &clock->now);
    struct ebb_participant *next;
    for (struct ebb_participant *p = clock->participants; p != NULL; p = next) {
        next = p->next;
        if (p != kept) {
            unlink_participant(clock, p);
            ebbi_store_relaxed(&p->busy, 0u); // relaxed: its thread is gone
        }
    }
    EBBI_ASSERT(clock->participants == kept && clock->count == (kept != NULL));
    if (kept != NULL && kept->thread != 0) {
        // relaxed: the only thread
        ebbi_store_relaxed(&kept->thread, ebbi_os_thread_number());
    }
    if (!ebbi_clock_is_fenced(clock) && !ebbi_os_membarrier_register()) {
        become_fenced(clock);
    }
    clock->turned_ms = 0; // this thread is the only one, and sees its own stores
    EBBI_CLOCK_AUDIT(clock);
}
