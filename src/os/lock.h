// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: a futex mutex of one word, never recursive, zero when free. 0 free, 1 held, 2 held and
// somebody may sleep (Drepper, "Futexes are tricky", mutex 2). No critical section makes a system
// call that may take long, so it spins briefly and then sleeps.
//
// It knows its owner: a thread that waits for itself, from a signal handler that interrupted it, is
// told so instead of hanging.
//
// Ranks, taken in this order and never downward: stacks (debug mode), parking, registry, heap, region, label, clock, arena.
#ifndef EBB_OS_LOCK_H
#define EBB_OS_LOCK_H

#include "base/base.h"
#include "ebbtide/detail/atomic.h"
#include "ebbtide/detail/pin.h"

struct ebbi_lock {
    uint32_t word;
    const void *owner; // stands for the thread that holds it; atomic
};

void ebbi_lock_take_slow(struct ebbi_lock *lock);
void ebbi_lock_wake(struct ebbi_lock *lock);

EBBI_INLINE void ebbi_lock_own(struct ebbi_lock *lock)
{
    EBBI_ASSERT(ebbi_load_relaxed(&lock->owner) == NULL);      // relaxed: this thread has the lock
    ebbi_store_relaxed(&lock->owner, (const void *)&ebb_self); // relaxed: for this thread alone
}

EBBI_INLINE bool ebbi_lock_is_mine(const struct ebbi_lock *lock)
{
    return ebbi_load_relaxed(&lock->owner) == &ebb_self; // relaxed: as above
}

EBBI_INLINE void ebbi_assert_held(const struct ebbi_lock *lock)
{
    EBBI_ASSERT(ebbi_lock_is_mine(lock));
}

EBBI_INLINE bool ebbi_lock_try(struct ebbi_lock *lock)
{
    uint32_t expected = 0;
    // acquire[lock-take <- lock-drop]: everything done under the lock before is now visible
    bool taken = ebbi_cas_acquire(&lock->word, &expected, 1u);
    if (taken) {
        ebbi_lock_own(lock);
    }
    return taken;
}

EBBI_INLINE void ebbi_lock_take(struct ebbi_lock *lock)
{
    if (EBBI_UNLIKELY(!ebbi_lock_try(lock))) {
        ebbi_lock_take_slow(lock);
    }
}

EBBI_INLINE void ebbi_lock_drop(struct ebbi_lock *lock)
{
    ebbi_assert_held(lock);
    EBBI_ASSERT(ebbi_load_relaxed(&lock->word) != 0);     // relaxed: others only announce a sleeper
    ebbi_store_relaxed(&lock->owner, (const void *)NULL); // relaxed: as in ebbi_lock_own
    // release[lock-drop -> lock-take]: publishes everything done under the lock
    if (EBBI_UNLIKELY(ebbi_exchange_release(&lock->word, 0u) == 2)) {
        ebbi_lock_wake(lock);
    }
}

#endif
