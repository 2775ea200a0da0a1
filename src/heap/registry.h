// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: what thread.c and fork.c ask of registry.c.
#ifndef EBB_HEAP_REGISTRY_H
#define EBB_HEAP_REGISTRY_H

#include "heap/heap.h"

// One that is in no list; NULL: memory refused.
struct ebbi_heap *ebbi_heap_make(unsigned first_lane);

// Under the registry's lock.
struct ebbi_heap *ebbi_heap_adopt(void); // an abandoned heap or a new one; NULL: memory refused
void ebbi_heap_push_abandoned(struct ebbi_heap *heap);
void ebbi_heap_retire(struct ebbi_heap *heap); // its thread has gone: abandoned, or destroyed
struct ebbi_heap *ebbi_heaps_first(void);      // of all, through `next`

// ---- thread.c, for fork.c ------------------------------------------------------------------------
extern EBBI_HIDDEN struct ebbi_lock ebbi_start_lock;
bool ebbi_thread_forked(void); // in the child: whether its thread is one of those that are counted

#endif
