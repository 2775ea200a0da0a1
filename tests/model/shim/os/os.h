// SPDX-License-Identifier: MIT OR Apache-2.0
// For the models: what the modelled sources ask of the operating system.
#ifndef EBB_OS_OS_H
#define EBB_OS_OS_H

#include "model.h"

#include "base/base.h"

static inline uint64_t ebbi_os_now_ms(void) { return model::the_system().now_ms; }
static inline uint32_t ebbi_os_thread_number(void) { return rl::thread_index() + 1; }
static inline bool ebbi_os_thread_lives(uint32_t number) { return number != 0; }
static inline bool ebbi_os_membarrier_register(void) { return true; }

// What the kernel promises and no more: a full fence of the caller, then one in every other thread,
// each at a moment of its own, then one of the caller again. A thread that sleeps has its own too.
static inline bool ebbi_os_membarrier(void)
{
    if (model::the_system().refuses) {
        return false;
    }
    unsigned threads = rl::ctx().get_thread_count(), first = rl::rand(threads);
    model::fence(model::is_weakened(__func__, "membarrier"), $);
    for (unsigned i = 0; i < threads; i++) {
        unsigned other = (first + i) % threads;
        if (other != rl::thread_index()) {
            model::pause();
            if (!model::is_weakened(__func__, "membarrier") &&
                !model::is_weakened(__func__, "others")) {
                model::fence_in()(other);
            }
        }
    }
    model::fence(model::is_weakened(__func__, "membarrier"), $);
    return true;
}

#endif
