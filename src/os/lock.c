// SPDX-License-Identifier: MIT OR Apache-2.0
#include "os/lock.h"

#include "os/os.h"

enum { SPINS = 64 };

EBBI_INLINE void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

EBBI_COLD void ebbi_lock_take_slow(struct ebbi_lock *lock)
{
    if (ebbi_lock_is_mine(lock)) {
        ebbi_fatal("a signal handler called what it had interrupted (malloc, free or the like)");
    }
    for (int i = 0; i < SPINS; i++) {
        pause_cpu();
        // relaxed: only a hint that trying is worth it
        if (ebbi_load_relaxed(&lock->word) == 0 && ebbi_lock_try(lock)) {
            return;
        }
    }
    // acquire[lock-take <- lock-drop]: as in ebbi_lock_try
    while (ebbi_exchange_acquire(&lock->word, 2u) != 0) {
        ebbi_os_wait(&lock->word, 2u, 0);
    }
    EBBI_ASSERT(ebbi_load_relaxed(&lock->word) == 2); // relaxed: nobody else takes the 2 away
    ebbi_lock_own(lock);
}

EBBI_COLD void ebbi_lock_wake(struct ebbi_lock *lock) { ebbi_os_wake(&lock->word, 1); }
