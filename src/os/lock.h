// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: a futex mutex of one word, never recursive. Zero when free; otherwise it names the thread
// that holds it, and its low bit is set when somebody may sleep (after Drepper, "Futexes are tricky",
// mutex 2). It spins briefly and then sleeps: those that malloc, free and fork take are not held while pages
// are given back, which takes the longer the more there are, but by the debugger of regions; only while some are asked
// for or closed.
//
// Holding and its holder are one word, so that there is no moment between: a thread that waits for
// itself, from a signal handler that interrupted it anywhere, is told so instead of hanging.
//
// Ranks, in the order in which they are taken: threads, loader, start, parking, registry, owner, region,
// label, clock, arena, late. Checked builds know what a thread holds and refuse to wait for a lock whose
// rank comes before one of these; to try it is allowed, and so is to wait for one of the same rank.
#ifndef EBB_OS_LOCK_H
#define EBB_OS_LOCK_H

#include "base/base.h"
#include "ebbtide/detail/atomic.h"
#include "ebbtide/detail/pin.h"

enum ebbi_rank {
    EBBI_RANK_NONE, // not said: refused
    EBBI_RANK_THREADS,
    EBBI_RANK_LOADER,
    EBBI_RANK_START,
    EBBI_RANK_PARKING,
    EBBI_RANK_REGISTRY,
    EBBI_RANK_OWNER,
    EBBI_RANK_REGION,
    EBBI_RANK_LABEL,
    EBBI_RANK_CLOCK,
    EBBI_RANK_ARENA,
    EBBI_RANK_LATE, // whoever waits for it has its signals held (reclaim/late.c)
    EBBI_RANKS
};

struct ebbi_lock {
    EBBI_ATOMIC(uintptr_t) word;
#if EBBI_HAVE_ASSERT
    enum ebbi_rank rank;
#endif
};

#if EBBI_HAVE_ASSERT
#define EBBI_LOCK(name)                                                                            \
    {                                                                                              \
        0, EBBI_RANK_##name                                                                        \
    }
extern EBBI_HIDDEN _Thread_local uint8_t ebbi_lock_held[EBBI_RANKS]; // by the calling thread

EBBI_INLINE void ebbi_lock_rank(struct ebbi_lock *lock, enum ebbi_rank rank) { lock->rank = rank; }

EBBI_INLINE void ebbi_lock_expect(const struct ebbi_lock *lock)
{
    EBBI_ASSERT(lock->rank != EBBI_RANK_NONE);
    for (int rank = (int)lock->rank + 1; rank < EBBI_RANKS; rank++) {
        EBBI_ASSERT(ebbi_lock_held[rank] == 0);
    }
}

EBBI_INLINE void ebbi_lock_count(const struct ebbi_lock *lock, int more)
{
    ebbi_lock_held[lock->rank] = (uint8_t)(ebbi_lock_held[lock->rank] + more);
}
// The calling thread holds none that another's malloc, free or fork waits for.
EBBI_INLINE void ebbi_lock_expect_none(void)
{
    for (int rank = EBBI_RANK_REGISTRY; rank < EBBI_RANKS; rank++) {
        EBBI_ASSERT(ebbi_lock_held[rank] == 0);
    }
}
// It is on its way to abort() and drops none of them.
EBBI_INLINE void ebbi_lock_forget_held(void)
{
    for (int rank = 0; rank < EBBI_RANKS; rank++) {
        ebbi_lock_held[rank] = 0;
    }
}
#else
#define EBBI_LOCK(name)                                                                            \
    {                                                                                              \
        0                                                                                          \
    }
#define ebbi_lock_rank(lock, rank) ((void)(lock))
#define ebbi_lock_expect(lock) ((void)(lock))
#define ebbi_lock_count(lock, more) ((void)(lock))
#define ebbi_lock_expect_none() ((void)0)
#define ebbi_lock_forget_held() ((void)0)
#endif

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

EBBI_INLINE bool ebbi_lock_claim(struct ebbi_lock *lock)
{
    uintptr_t expected = 0;
    // acquire[lock-take <- lock-drop]: everything done under the lock before is now visible
    return ebbi_cas_acquire(&lock->word, &expected, ebbi_lock_self());
}

EBBI_INLINE bool ebbi_lock_try(struct ebbi_lock *lock)
{
    // relaxed: one that is held keeps its line
    bool taken = ebbi_load_relaxed(&lock->word) == 0 && ebbi_lock_claim(lock);
    if (taken) {
        ebbi_lock_count(lock, 1);
    }
    return taken;
}

EBBI_INLINE void ebbi_lock_take(struct ebbi_lock *lock)
{
    ebbi_lock_expect(lock);
    if (EBBI_UNLIKELY(!ebbi_lock_claim(lock))) {
        ebbi_lock_take_slow(lock);
    }
    ebbi_lock_count(lock, 1);
}

// In the child of a fork: who held it is gone.
EBBI_INLINE void ebbi_lock_reset(struct ebbi_lock *lock)
{
    ebbi_store_relaxed(&lock->word, (uintptr_t)0); // relaxed: there is no other thread
}

EBBI_INLINE void ebbi_lock_drop(struct ebbi_lock *lock)
{
    ebbi_assert_held(lock);
    ebbi_lock_count(lock, -1);
    // release[lock-drop -> lock-take]: publishes everything done under the lock
    uintptr_t was = ebbi_exchange_release(&lock->word, (uintptr_t)0);
    if (EBBI_UNLIKELY((was & EBBI_LOCK_SLEEPERS) != 0)) {
        ebbi_lock_wake(lock);
    }
}

#endif
