// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: what a thread points to, and the static heaps of threads that have none.
//
// Bin 0 is empty (the NULL of limit[1] lies below its top) and full (its top is its limit); it is
// where every size and every NULL leads. All other bins are full.
#include "heap/blocks.h"
#include "heap/registry.h"

#define NO_BLOCK ((void **)&ebbi_heap_none.limit[2])
#define NO_PIN                                                                                     \
    {                                                                                              \
        .state = EBB_PIN_NONE, .now = &ebbi_clock.now                                              \
    }
struct ebbi_fast ebbi_heap_none = {.pin = NO_PIN, .top = {NO_BLOCK}, .limit = {NO_BLOCK}};
EBBI_SPARSE struct ebbi_fast ebbi_heap_gone;
EBBI_SPARSE struct ebbi_fast ebbi_heap_scoped;
_Thread_local char *ebb_self = (char *)&ebbi_heap_none;
_Thread_local struct ebbi_fast *ebbi_source = &ebbi_heap_none;
bool ebbi_dying;

void ebbi_heap_prepare_first(struct ebbi_fast *nobodys)
{
    bool locks = !ebbi_load_relaxed(&ebbi_dying); // relaxed: what is in abort() may hold the lock
    if (locks) {
        ebbi_registry_lock();
    }
    if (nobodys->top[0] == NULL) {
        nobodys->pin = (struct ebb_participant)NO_PIN;
        nobodys->limit[0] = NO_BLOCK;
        // release[nobody-prepared -> nobody-seen]: its limit and its pin
        ebbi_store_release(&nobodys->top[0], NO_BLOCK);
    }
    if (locks) {
        ebbi_registry_unlock();
    }
}
