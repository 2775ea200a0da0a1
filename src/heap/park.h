// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: what a thread does so that its heap can be parked while it sleeps (park.c). The last part of
// heap/heap.h, of which it needs the structs.
#ifndef EBB_HEAP_PARK_H
#define EBB_HEAP_PARK_H

// The calling thread's heap, or NULL: no heap is made. The entries of front/ and api/ have seen to that;
// below them a thread has its heap, or has none for good.
EBBI_INLINE struct ebbi_heap *ebbi_heap_mine(void)
{
    struct ebbi_fast *current = ebbi_current();
    bool none = current == &ebbi_heap_none || current == &ebbi_heap_gone;
    return none ? NULL : (struct ebbi_heap *)current;
}

// The helper writes the source, too.
EBBI_INLINE struct ebbi_fast *ebbi_source_now(void)
{
    return ebbi_load_relaxed(&ebbi_source); // relaxed: one's own, or parked
}
EBBI_INLINE void ebbi_source_set(struct ebbi_fast *to)
{
    ebbi_store_relaxed(&ebbi_source, to); // relaxed: as above
}

// Around whatever the calling thread does with its magazines, its outbox or its source, other
// than the fast paths. Nests. `heap`: what ebbi_inside has given.
void ebbi_unpark(struct ebbi_heap *heap);
EBBI_INLINE struct ebbi_heap *ebbi_inside(void)
{
    struct ebbi_heap *heap = ebbi_heap_mine();
    if (EBBI_UNLIKELY(heap == NULL)) {
        return NULL;
    }
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

// Takes back the pop of a malloc of `bytes` that then found its heap parked.
void ebbi_unpop(size_t bytes);

#endif
