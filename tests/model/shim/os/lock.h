// SPDX-License-Identifier: MIT OR Apache-2.0
// For the models: os/lock.h over Relacy's mutex, which also finds deadlocks and wrong owners.
#ifndef EBB_OS_LOCK_H
#define EBB_OS_LOCK_H

#include "ebbtide/detail/atomic.h"

struct ebbi_lock {
    model::Placed<rl::mutex> mutex;
};

#define EBBI_LOCK(name)                                                                            \
    {                                                                                              \
    }
#define ebbi_lock_rank(lock, rank) ((void)(lock))

static inline bool ebbi_lock_try(struct ebbi_lock *lock) { return lock->mutex.real().try_lock($); }
static inline void ebbi_lock_take(struct ebbi_lock *lock) { lock->mutex.real().lock($); }
static inline void ebbi_lock_drop(struct ebbi_lock *lock) { lock->mutex.real().unlock($); }
static inline void ebbi_lock_reset(struct ebbi_lock *) {}        // no model forks
static inline void ebbi_assert_held(const struct ebbi_lock *) {} // Relacy looks itself

#endif
