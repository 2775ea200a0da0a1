// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: a futex mutex of one word, never recursive, zero when free. 0 free, 1 held, 2 held and
// somebody may sleep (Drepper, "Futexes are tricky", mutex 2). Critical sections may make one
// madvise call, so it spins briefly and then sleeps.
//
// Ranks, taken in this order and never downward: registry, heap, region, label, clock, arena.
#ifndef EBB_OS_LOCK_H
#define EBB_OS_LOCK_H

#include "base/base.h"
#include "ebbtide/detail/atomic.h"

struct ebbi_lock {
    uint32_t word;
};

void ebbi_lock_take_slow(struct ebbi_lock *lock);
void ebbi_lock_wake(struct ebbi_lock *lock);

EBBI_INLINE bool ebbi_lock_try(struct ebbi_lock *lock)
{
    uint32_t expected = 0;
    // acquire[lock-take <- lock-drop]: everything done under the lock before is now visible
    return ebbi_cas_acquire(&lock->word, &expected, 1u);
}

EBBI_INLINE void ebbi_lock_take(struct ebbi_lock *lock)
{
    if (EBBI_UNLIKELY(!ebbi_lock_try(lock))) {
        ebbi_lock_take_slow(lock);
    }
}

EBBI_INLINE void ebbi_lock_drop(struct ebbi_lock *lock)
{
    // release[lock-drop -> lock-take]: publishes everything done under the lock
    if (EBBI_UNLIKELY(ebbi_exchange_release(&lock->word, 0u) == 2)) {
        ebbi_lock_wake(lock);
    }
}

#endif
