// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: what a thread does so that its heap can be parked while it sleeps (park.c). The last part of
// heap/heap.h, of which it needs the structs.
#ifndef EBB_HEAP_PARK_H
#define EBB_HEAP_PARK_H

// The helper writes the source, too.
EBBI_INLINE struct ebbi_fast *ebbi_source_now(void)
{
    return ebbi_load_relaxed(&ebbi_source); // relaxed: one's own, or parked
}
EBBI_INLINE void ebbi_source_set(struct ebbi_fast *to)
{
    ebbi_store_relaxed(&ebbi_source, to); // relaxed: as above
}
// What it was. Inside.
EBBI_INLINE struct ebbi_fast *ebbi_source_swap(struct ebbi_fast *to)
{
    struct ebbi_fast *before = ebbi_source_now();
    ebbi_source_set(to);
    return before;
}

// Around whatever the calling thread does with its magazines, its outbox or its source, other
// than the fast paths. Nests. `heap`: what ebbi_inside has given.
void ebbi_unpark(struct ebbi_heap *heap);
EBBI_INLINE struct ebbi_heap *ebbi_inside(void)
{
    struct ebbi_fast *current = ebbi_current();
    if (EBBI_UNLIKELY(current == &ebbi_heap_none || current == &ebbi_heap_gone)) {
        return NULL;
    }
    struct ebbi_heap *heap = (struct ebbi_heap *)current;
    // relaxed: the helper's membarrier orders it
    ebbi_store_relaxed(&heap->inside, heap->inside + 1);
    ebbi_compiler_fence();
    if (EBBI_UNLIKELY(ebbi_load_relaxed(&heap->parked) != 0)) { // relaxed: as above
        ebbi_unpark(heap);
    }
    return heap;
}
EBBI_INLINE void ebbi_outside(struct ebbi_heap *heap)
{
    if (EBBI_LIKELY(heap != NULL)) {
        // release[inside-end -> inside-look]: what this thread has done to its magazines
        ebbi_store_release(&heap->inside, heap->inside - 1);
    }
}
// By the helper, or in a trim. Threads that do nothing until the next pass leave their magazines' blocks
// to it. False: none is newly parked, or the kernel knows no membarrier. `came_home`: bytes.
bool ebbi_park_pass(size_t *came_home);
void ebbi_park_lock(void); // fork()
void ebbi_park_unlock(void);

// As ebbi_malloc_slow, after a pop that is to be taken back.
void *ebbi_malloc_parked(size_t bytes);

#endif
