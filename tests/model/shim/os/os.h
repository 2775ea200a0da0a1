// SPDX-License-Identifier: MIT OR Apache-2.0
// For the models: what the modelled sources ask of the operating system.
#ifndef EBB_OS_OS_H
#define EBB_OS_OS_H

#include "base/base.h"
#include "ebbtide/detail/atomic.h"

static inline uint64_t ebbi_os_now_ms(void) { return 1; }
static inline uint32_t ebbi_os_thread_number(void) { return rl::thread_index() + 1; }

// Everything that any thread did before is ordered before everything that any thread does after.
static inline bool ebbi_os_membarrier(void)
{
    static const bool missing = model::is_weakened(__func__, "membarrier");
    rl::ctx().sched();
    if (!missing) {
        rl::systemwide_fence($);
    }
    return true;
}

#endif
