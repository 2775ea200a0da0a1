// SPDX-License-Identifier: MIT OR Apache-2.0
// The clock's source, and pins and advances with one error each, for the errors that no weakened
// order makes. These are variants of ebbtide/detail/pin.h and epoch/clock.c, and use their functions
// for all the rest.
#ifndef EBB_MODEL_MUTANTS_H
#define EBB_MODEL_MUTANTS_H

#include "model.h"

#include "epoch/clock.c"

namespace model {

// The pin of a biased clock believes its first look.
inline void pin_with_one_look(struct ebb_participant *me)
{
    uint64_t now = ebbi_load_relaxed(me->now);
    if (ebbi_load_relaxed(&me->state) == now) {
        ebbi_store_relaxed(&me->state, now + 1);
    } else {
        ebbi_pin(me);
    }
}

// It looks twice, and stores its depth then: what a compiler might do to it.
inline void pin_that_stores_late(struct ebb_participant *me)
{
    uint64_t now = ebbi_load_relaxed(me->now);
    if (ebbi_load_relaxed(&me->state) == now) {
        bool moved = ebbi_load_relaxed(me->now) != now;
        ebbi_store_relaxed(&me->state, now + 1);
        if (moved) {
            ebbi_pin_anew(me);
        }
    } else {
        ebbi_pin(me);
    }
}

// It sees that the clock moved on, and shows the new epoch without the fence of an announcement.
inline void pin_anew_without_fence(struct ebb_participant *me)
{
    uint64_t now = ebbi_load_relaxed(me->now);
    if (ebbi_load_relaxed(&me->state) == now) {
        ebbi_store_relaxed(&me->state, now + 1);
        uint64_t again = ebbi_load_relaxed(me->now);
        if (again != now) {
            ebbi_store_release(&me->state, again + 1);
        }
    } else {
        ebbi_pin(me);
    }
}

using Pin = void (*)(struct ebb_participant *me);

inline void right_pin(struct ebb_participant *me) { ebbi_pin(me); }

inline void pin(struct ebb_participant *me)
{
    static const Pin chosen = is_mutant("one_look")             ? pin_with_one_look
                              : is_mutant("late_store")         ? pin_that_stores_late
                              : is_mutant("anew_without_fence") ? pin_anew_without_fence
                                                                : right_pin;
    chosen(me);
}

// As in a fenced clock: who is not pinned is nobody.
inline bool advance_past_away(struct ebbi_clock *clock, uint64_t now)
{
    for (struct ebb_participant *p = clock->participants; p != nullptr; p = p->next) {
        if (hindrance_of(p, now, true) == PINNED) {
            return false;
        }
    }
    return true;
}

// Behind the membarrier, all are released.
inline bool release_pinned(struct ebbi_clock *clock, uint64_t now)
{
    enum hindrance hindrance = scan(clock, now, ebbi_clock_is_fenced(clock));
    if (hindrance == AWAY && ebbi_os_membarrier()) {
        for (struct ebb_participant *p = clock->participants; p != nullptr; p = p->next) {
            p->released = ebbi_load_acquire(&p->state);
        }
        return true;
    }
    return hindrance == NOBODY;
}

// What was seen before the membarrier is believed behind it.
inline bool release_unseen(struct ebbi_clock *clock, uint64_t now)
{
    uint64_t seen[4] = {}, *next = seen;
    enum hindrance hindrance = scan(clock, now, ebbi_clock_is_fenced(clock));
    for (struct ebb_participant *p = clock->participants; p != nullptr; p = p->next) {
        *next = ebbi_load_acquire(&p->state);
        if (epoch_of(*next) != epoch_of(now) && is_pinned(*next)) {
            return false;
        }
        next++;
    }
    if (hindrance == NOBODY) {
        return true;
    }
    (void)ebbi_os_membarrier();
    next = seen;
    for (struct ebb_participant *p = clock->participants; p != nullptr; p = p->next) {
        p->released = *next++;
    }
    return true;
}

// Released first, and made sure of then.
inline bool release_early(struct ebbi_clock *clock, uint64_t now)
{
    enum hindrance hindrance = scan(clock, now, ebbi_clock_is_fenced(clock));
    return hindrance == NOBODY ||
           (hindrance == AWAY && release_away(clock, now) && ebbi_os_membarrier());
}

// Released once is released for good: the epoch in the state is not compared.
inline bool release_by_depth(struct ebbi_clock *clock, uint64_t now)
{
    bool away = false;
    for (struct ebb_participant *p = clock->participants; p != nullptr; p = p->next) {
        enum hindrance found = hindrance_of(p, now, false);
        if (found == PINNED) {
            return false;
        }
        away |= found == AWAY && p->released == 0;
    }
    return !away || (ebbi_os_membarrier() && release_away(clock, now));
}

// The clock becomes fenced, and the depths that are on their way are not waited for.
inline bool turn_at_once(struct ebbi_clock *clock, uint64_t now)
{
    if (scan(clock, now, ebbi_clock_is_fenced(clock)) == AWAY) {
        become_fenced(clock);
        return false;
    }
    return scan(clock, now, ebbi_clock_is_fenced(clock)) == NOBODY;
}

// They are waited for, while pins go on without a fence.
inline bool turn_unflagged(struct ebbi_clock *clock, uint64_t now)
{
    bool waited = clock->turned_ms != 0 && ebbi_os_now_ms() - clock->turned_ms >= 1000;
    enum hindrance hindrance = scan(clock, now, waited);
    if (hindrance == AWAY && clock->turned_ms == 0) {
        clock->turned_ms = ebbi_os_now_ms();
    }
    return hindrance == NOBODY;
}

using MayMove = bool (*)(struct ebbi_clock *clock, uint64_t now);

inline MayMove wrong_may_move()
{
    return is_mutant("away_ignored")       ? advance_past_away
           : is_mutant("release_pinned")   ? release_pinned
           : is_mutant("release_unseen")   ? release_unseen
           : is_mutant("release_early")    ? release_early
           : is_mutant("release_by_depth") ? release_by_depth
           : is_mutant("turn_at_once")     ? turn_at_once
           : is_mutant("turn_unflagged")   ? turn_unflagged
                                           : nullptr;
}

inline bool advance(struct ebbi_clock *clock, bool press)
{
    static const MayMove wrong = wrong_may_move();
    if (wrong == nullptr) {
        return ebbi_clock_advance(clock, press);
    }
    if (!ebbi_lock_try(&clock->lock)) {
        return false;
    }
    uint64_t now = ebbi_load_relaxed(&clock->now);
    ebbi_fence_full();
    bool moves = wrong(clock, now);
    if (moves) {
        ebbi_store_release(&clock->now, now + EBB_EPOCH_ONE);
    }
    ebbi_lock_drop(&clock->lock);
    return moves;
}

} // namespace model

#endif
