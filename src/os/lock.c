// SPDX-License-Identifier: MIT OR Apache-2.0
#include "os/lock.h"

#include "os/os.h"

#ifndef EBBI_LOCK_SPINS
#define EBBI_LOCK_SPINS 64
#endif

#if EBBI_HAVE_ASSERT
_Thread_local uint8_t ebbi_lock_held[EBBI_RANKS];
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the low half is at the word's address");

// The half that has the sleepers' bit. Two holders alike in it do no harm: with the bit set, a
// sleeper may sleep on.
EBBI_INLINE uint32_t *futex(struct ebbi_lock *lock) { return (uint32_t *)&lock->word; }

void ebbi_lock_interrupted(void)
{
    ebbi_fatal("a signal handler called what it had interrupted (malloc, free or the like)");
}

EBBI_COLD void ebbi_lock_take_slow(struct ebbi_lock *lock)
{
    if (ebbi_lock_is_mine(lock)) {
        ebbi_lock_interrupted();
    }
    for (int i = 0; i < EBBI_LOCK_SPINS; i++) {
        ebbi_pause();
        // relaxed: only a hint that trying is worth it
        if (ebbi_load_relaxed(&lock->word) == 0 && ebbi_lock_claim(lock)) {
            return;
        }
    }
    for (;;) {
        uintptr_t holder = ebbi_load_relaxed(&lock->word); // relaxed: judged by the exchanges below
        if (holder == 0) {
            // It may not be the last that slept: the next to drop the lock wakes another in vain.
            // acquire[lock-take <- lock-drop]: as in ebbi_lock_claim
            if (ebbi_cas_acquire(&lock->word, &holder, ebbi_lock_self() | EBBI_LOCK_SLEEPERS)) {
                return;
            }
        } else if ((holder & EBBI_LOCK_SLEEPERS) != 0 ||
                   // relaxed: nothing is read by it
                   ebbi_cas_relaxed(&lock->word, &holder, holder | EBBI_LOCK_SLEEPERS)) {
            ebbi_os_wait(futex(lock), (uint32_t)(holder | EBBI_LOCK_SLEEPERS), 0);
        }
    }
}

EBBI_COLD void ebbi_lock_wake(struct ebbi_lock *lock) { ebbi_os_wake(futex(lock), 1); }
