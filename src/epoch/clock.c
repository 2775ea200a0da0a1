// SPDX-License-Identifier: MIT OR Apache-2.0
#include "epoch/clock.h"

#include "os/os.h"

struct ebbi_clock ebbi_clock = {.now = EBBI_CLOCK_FIRST};

static uint64_t epoch_of(uint64_t state) { return state >> EBB_PIN_SHIFT; }

static bool is_pinned(uint64_t state) { return (state & EBB_PIN_DEPTH & ~EBB_PIN_ATTENTION) != 0; }

void ebbi_clock_join(struct ebbi_clock *clock, struct ebb_participant *me)
{
    me->now = &clock->now;
    me->light = clock->light;
    me->thread = ebbi_os_thread_number();
    me->previous = NULL;
    ebbi_lock_take(&clock->lock);
    me->next = clock->participants;
    if (me->next != NULL) {
        me->next->previous = me;
    }
    clock->participants = me;
    clock->count++;
    ebbi_lock_drop(&clock->lock);
}

static void unlink_participant(struct ebbi_clock *clock, struct ebb_participant *me)
{
    // release[unpin -> scan]: its thread has ended, or is this one
    ebbi_store_release(&me->state, (uint64_t)0);
    *(me->previous != NULL ? &me->previous->next : &clock->participants) = me->next;
    if (me->next != NULL) {
        me->next->previous = me->previous;
    }
    clock->count--;
}

void ebbi_clock_leave(struct ebbi_clock *clock, struct ebb_participant *me)
{
    ebbi_lock_take(&clock->lock);
    unlink_participant(clock, me);
    ebbi_lock_drop(&clock->lock);
}

uint64_t ebbi_clock_tag(struct ebbi_clock *clock)
{
    // full[tag <-> pin, hazard-set]: a pin that does not see the unlinking is one that an advance must see
    ebbi_fence_full();
    return ebbi_load_relaxed(&clock->now); // relaxed: behind the fence
}

// The participant that is pinned in an epoch before this one, or NULL. Under the lock.
static struct ebb_participant *find_laggard(struct ebbi_clock *clock, uint64_t now)
{
    struct ebb_participant *p = clock->participants;
    for (; p != NULL; p = p->next) {
        // acquire[scan <- pin, unpin]: its reads under the pin that it has left
        uint64_t state = ebbi_load_acquire(&p->state);
        if (is_pinned(state) && epoch_of(state) != epoch_of(now)) {
            break;
        }
    }
    return p;
}

// The one in the way last time is looked at first, by its place: the head of the list.
static void move_to_front(struct ebbi_clock *clock, struct ebb_participant *p)
{
    if (p->previous == NULL) {
        return;
    }
    p->previous->next = p->next;
    if (p->next != NULL) {
        p->next->previous = p->previous;
    }
    p->previous = NULL;
    p->next = clock->participants;
    p->next->previous = p;
    clock->participants = p;
}

// What the pins of others have stored is visible after this, and what they load from now on is no
// older than what this thread has seen.
static bool fence_all(const struct ebbi_clock *clock)
{
    // full[advance <-> pin]: a pin that this scan misses sees what was unlinked before it
    ebbi_fence_full();
    return !clock->light || ebbi_os_membarrier();
}

bool ebbi_clock_advance(struct ebbi_clock *clock)
{
    if (!ebbi_lock_try(&clock->lock)) {
        return false;
    }
    bool moves = false;
    uint64_t now = ebbi_load_relaxed(&clock->now); // relaxed: C1
    if (fence_all(clock)) {
        struct ebb_participant *laggard = find_laggard(clock, now);
        moves = laggard == NULL;
        if (moves) {
            clock->changed_ms = ebbi_os_now_ms();
            // release[epoch-advance -> epoch-read]: what the scan saw the participants do
            ebbi_store_release(&clock->now, now + EBB_EPOCH_ONE);
        } else {
            move_to_front(clock, laggard);
        }
    }
    ebbi_lock_drop(&clock->lock);
    return moves;
}

void ebbi_clock_state(struct ebbi_clock *clock, struct ebbi_clock_state *state)
{
    *state = (struct ebbi_clock_state){0};
    ebbi_lock_take(&clock->lock);
    uint64_t now = ebbi_load_relaxed(&clock->now); // relaxed: C1
    uint64_t oldest = now;
    state->epoch = epoch_of(now);
    state->participants = clock->count;
    for (struct ebb_participant *p = clock->participants; p != NULL; p = p->next) {
        uint64_t pin = ebbi_load_relaxed(&p->state); // relaxed: a count, out of date at once
        if (is_pinned(pin)) {
            state->pinned++;
            if (state->oldest_thread == 0 || epoch_of(pin) < epoch_of(oldest)) {
                oldest = pin;
                state->oldest_thread = p->thread;
            }
        }
    }
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
    struct ebb_participant *next;
    for (struct ebb_participant *p = clock->participants; p != NULL; p = next) {
        next = p->next;
        if (p != kept) {
            unlink_participant(clock, p);
        }
    }
    if (kept != NULL) {
        kept->thread = ebbi_os_thread_number();
    }
}
