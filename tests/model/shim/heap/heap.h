// SPDX-License-Identifier: MIT OR Apache-2.0
// For the models: what src/heap/hazard.c asks of the heap.
#ifndef EBB_HEAP_HEAP_H
#define EBB_HEAP_HEAP_H

#include "base/base.h"
#include "ebbtide/detail/hazard.h"
#include "os/lock.h"

#define _Alignof alignof
#define EBB_MODEL_HAZARDS 4

// Hazard pointers come from here, since they are kept for good and never freed.
struct ebbi_model_hazards {
    alignas(64) unsigned char places[EBB_MODEL_HAZARDS][sizeof(struct ebb_hazard)];
    size_t used;
};
inline struct ebbi_model_hazards ebbi_model_hazards;

static inline struct ebb_hazard *ebbi_alloc_own(size_t bytes)
{
    RL_ASSERT(alignof(struct ebb_hazard) <= 64 && bytes == sizeof(struct ebb_hazard));
    RL_ASSERT(ebbi_model_hazards.used < EBB_MODEL_HAZARDS);
    return new (ebbi_model_hazards.places[ebbi_model_hazards.used++]) ebb_hazard;
}

#endif
