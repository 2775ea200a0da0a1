// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: what a thread points to, and the static heaps of threads that have none.
//
// Bin 0, here and in every heap, is empty (the NULL of limit[1] lies below its top) and full (its top is its limit); it is
// where every size and every NULL leads. All other bins are full.
#include "heap/blocks.h"

#define NO_BLOCK ((void **)&ebbi_heap_none.limit[2])
#define NO_PIN                                                                                     \
    {                                                                                              \
        .state = EBB_PIN_NONE, .now = &ebbi_clock.now                                              \
    }
struct ebbi_fast ebbi_heap_none = {.pin = NO_PIN, .top = {NO_BLOCK}, .limit = {NO_BLOCK}};
EBBI_SPARSE struct ebbi_fast ebbi_heap_gone;
EBBI_SPARSE struct ebbi_fast ebbi_heap_scoped;
_Thread_local char *ebb_self = (char *)&ebbi_heap_none;
extern _Thread_local char *programs_self __asm__("ebb_self")
    __attribute__((alias("ebbi_mine"), visibility("default"), tls_model("initial-exec")));
_Thread_local struct ebbi_fast *ebbi_source = &ebbi_heap_none;
bool ebbi_dying;
