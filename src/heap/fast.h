// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: the three fast paths. Their instruction counts are pinned in tests/golden.
//
//   malloc: size -> bin -> pop             empty, large, no heap: ebbi_malloc_slow
//   free:   granule -> tag = bin -> push   full, foreign, large, NULL: ebbi_free_slow
//   retire: the same, to the bag beside    the same, or no bag: ebbi_retire_slow
#ifndef EBB_HEAP_FAST_H
#define EBB_HEAP_FAST_H

#include "heap/heap.h"

EBBI_INLINE void *ebbi_malloc(size_t bytes)
{
    if (EBBI_UNLIKELY(bytes > EBBI_SMALL_MAX)) {
        return ebbi_malloc_slow(bytes);
    }
    struct ebbi_fast *heap = ebbi_source;
    size_t bin = heap->bin_of[(bytes + EBBI_QUANTUM - 1) / EBBI_QUANTUM];
    void **top = heap->top[bin];
    void *block = top[-1];
    if (EBBI_UNLIKELY(block == NULL)) {
        return ebbi_malloc_slow(bytes);
    }
    ebbi_store_relaxed(&heap->top[bin], top - 1); // relaxed: others only count
    return block;
}

EBBI_INLINE void ebbi_free(void *p)
{
    // Set before p was handed out. An address above the user's range must not leave the table: its
    // alias is some other granule, mostly untagged, and otherwise found out at the flush.
    size_t bin = ebbi_tags[ebbi_granule_of(p) & EBBI_TAG_MASK];
    struct ebbi_fast *heap = ebbi_source;
    void **top = heap->top[bin];
    if (EBBI_UNLIKELY(top == heap->limit[bin])) {
        ebbi_free_slow(p);
        return;
    }
    *top = p;
    ebbi_compiler_fence(); // another thread's fork() must not find a top without its block
    ebbi_store_relaxed(&heap->top[bin], top + 1); // relaxed: others only count
}

EBBI_INLINE void ebbi_retire(void *p)
{
    size_t bin = ebbi_tags[ebbi_granule_of(p) & EBBI_TAG_MASK]; // as in ebbi_free
    struct ebbi_bag_top *bag = &ebbi_current()->limbo[bin];
    void **top = bag->top;
    if (EBBI_UNLIKELY(top == bag->limit)) {
        ebbi_retire_slow(p);
        return;
    }
    *top = p;
    ebbi_compiler_fence();                  // as in ebbi_free
    ebbi_store_relaxed(&bag->top, top + 1); // relaxed: others only count
}

#endif
