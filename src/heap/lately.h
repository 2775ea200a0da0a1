// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: the look for a double free that every free makes.
#ifndef EBB_HEAP_LATELY_H
#define EBB_HEAP_LATELY_H

#include "heap/heap.h"

#define EBBI_LATELY 3 // of the blocks that were freed last, free looks at as many

// Whether p is one of the EBBI_LATELY blocks that were last pushed; it may say so of what lies below them.
EBBI_INLINE bool ebbi_was_freed_lately(ebbi_slot *top, const void *p)
{
    return top[-1] == p || top[-2] == p || top[-3] == p;
}

#endif
