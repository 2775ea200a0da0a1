// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: a futex mutex of one word, never recursive. Zero when free; otherwise it names the thread
// that holds it, and its low bit is set when somebody may sleep (after Drepper, "Futexes are tricky",
// mutex 2). No critical section makes a system call that may take long, so it spins briefly and then
// sleeps.
//
// Holding and its holder are one word, so that there is no moment between: a thread that waits for
// itself, from a signal handler that interrupted it anywhere, is told so instead of hanging.
//
// Ranks, taken in this order and never downward: threads, stacks, start, parking, registry, owner, region,
// label, clock, arena. docs/locks.md lists the locks.
#ifndef EBB_OS_LOCK_H
#define EBB_OS_LOCK_H

#include "base/base.h"
#include "ebbtide/detail/atomic.h"
#include "ebbtide/detail/pin.h"

struct ebbi_lock {
    EBBI_ATOMIC(uintptr_t) word;
};

#define EBBI_LOCK_SLEEPERS ((uintptr_t)1)

void ebbi_lock_take_slow(struct ebbi_lock *lock);
void ebbi_lock_wake(struct ebbi_lock *lock);
// Ends the process: for a thread that has met itself, in a signal handler.
EBBI_COLD EBBI_NORETURN void ebbi_lock_interrupted(void);

// An aligned address that no other living thread has.
EBBI_INLINE uintptr_t ebbi_lock_self(void) { return (uintptr_t)&ebb_self; }

EBBI_INLINE bool ebbi_lock_is_mine(const struct ebbi_lock *lock)
{
    // relaxed: its name is there from its taking of the lock to its dropping, and it sees both in order
    return (ebbi_load_relaxed(&lock->word) & ~EBBI_LOCK_SLEEPERS) == ebbi_lock_self();
}

EBBI_INLINE void ebbi_assert_held(const struct ebbi_lock *lock)
{
    EBBI_ASSERT(ebbi_lock_is_mine(lock));
}

EBBI_INLINE bool ebbi_lock_try(struct ebbi_lock *lock)
{
    uintptr_t expected = 0;
    // acquire[lock-take <- lock-drop]: everything done under the lock before is now visible
    return ebbi_cas_acquire(&lock->word, &expected, ebbi_lock_self());
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
    // release[lock-drop -> lock-take]: publishes everything done under the lock
    uintptr_t was = ebbi_exchange_release(&lock->word, (uintptr_t)0);
    if (EBBI_UNLIKELY((was & EBBI_LOCK_SLEEPERS) != 0)) {
        ebbi_lock_wake(lock);
    }
}

#endif
