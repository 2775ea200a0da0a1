// SPDX-License-Identifier: MIT OR Apache-2.0
// For the models: what src/reclaim/hazard.c asks of the heap.
#ifndef EBB_HEAP_HEAP_H
#define EBB_HEAP_HEAP_H

#include "base/base.h"
#include "ebbtide/detail/hazard.h"
#include "os/lock.h"

// Of hazard pointers: the model has them, kept for good and never freed.
struct ebbi_hazards *ebbi_own_alloc(size_t bytes);
inline void ebbi_fatal(const char *, ...)
{
    RL_ASSERT(!"fatal");
    std::abort();
}

#endif
