// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: whether a heap's lists, counts and magazines agree. For debug builds and tests.
#include "heap/slabs.h"

#if EBBI_HAVE_ASSERT || defined(EBB_NO_OVERRIDE) // not in the library that is installed

struct heap_sums {
    const struct ebbi_heap *heap;
    size_t slabs, bytes, idle_bytes; // of what the lists hold
};

static EBBI_COLD EBBI_NORETURN void heap_audit_fail(const struct ebbi_heap *heap, int property,
                                                    const char *what, size_t found)
{
    ebbi_fatal("heap P%d: %s, found %zu (heap at %p)", property, what, found, (const void *)heap);
}

static void heap_require(const struct heap_sums *sums, bool holds, const char *what, size_t found)
{
    if (!holds) {
        heap_audit_fail(sums->heap, 3, what, found);
    }
}

static void audit_slab(struct heap_sums *sums, const struct ebbi_slab *slab)
{
    const struct ebbi_class *c = ebbi_slab_class(slab);
    heap_require(sums, ((const struct ebbi_span *)slab)->state == EBBI_SPAN_SLAB,
                 "a slab in a list", ((const struct ebbi_span *)slab)->state);
    heap_require(sums, slab->heap == sums->heap, "the slab's heap is this one", slab->class_number);
    heap_require(sums, slab->free_count <= c->blocks, "free blocks of a slab", slab->free_count);
    sums->slabs++;
    sums->bytes += (size_t)c->granules << EBBI_GRANULE_SHIFT;
    sums->idle_bytes += (size_t)slab->idle * c->size;
}

static void audit_bucket(struct heap_sums *sums, unsigned class_number, unsigned bucket)
{
    const struct ebbi_slab *previous = NULL;
    const struct ebbi_slab *slab = sums->heap->shelves[class_number].bucket[bucket];
    for (; slab != NULL; previous = slab, slab = slab->next) {
        heap_require(sums, slab->previous == previous, "links of a bucket", bucket);
        heap_require(sums, slab->bucket == bucket && !slab->away, "the slab's bucket",
                     slab->bucket);
        heap_require(sums, slab->class_number == class_number, "the slab's class",
                     slab->class_number);
        heap_require(sums, slab->free_count < slab->moves_at, "free blocks before the slab moves",
                     slab->free_count);
        audit_slab(sums, slab);
    }
}

static void audit_shelf(struct heap_sums *sums, unsigned class_number)
{
    const struct ebbi_slab *current = sums->heap->shelves[class_number].current;
    if (current != NULL) {
        heap_require(sums, current->bucket == EBBI_NO_BUCKET && !current->away,
                     "the current slab is in no list", current->bucket);
        heap_require(sums, current->class_number == class_number, "the current slab's class",
                     current->class_number);
        audit_slab(sums, current);
    }
    for (unsigned b = 0; b < EBBI_BUCKETS; b++) {
        audit_bucket(sums, class_number, b);
    }
}

static void audit_away(struct heap_sums *sums)
{
    for (const struct ebbi_slab *slab = sums->heap->away; slab != NULL; slab = slab->next) {
        heap_require(sums, slab->away && slab->bucket == EBBI_NO_BUCKET, "a slab that is away",
                     slab->bucket);
        audit_slab(sums, slab);
    }
}

static void audit_sums(const struct heap_sums *sums)
{
    const struct ebbi_heap *heap = sums->heap;
    if (sums->slabs > heap->slab_count || sums->bytes > heap->held_bytes) {
        heap_audit_fail(heap, 5, "slabs in lists, among all of them", sums->slabs);
    }
    if (sums->idle_bytes != heap->idle_bytes) {
        heap_audit_fail(heap, 5, "idle bytes of the slabs in lists", sums->idle_bytes);
    }
}

static void audit_purge_queue(const struct ebbi_heap *heap)
{
    const struct ebbi_slab *previous = NULL;
    for (const struct ebbi_slab *slab = heap->purge_first; slab != NULL; slab = slab->purge_next) {
        if (!slab->purge_queued || slab->purge_previous != previous || slab->heap != heap) {
            heap_audit_fail(heap, 6, "a slab in the purge queue", slab->class_number);
        }
        previous = slab;
    }
    if (heap->purge_last != previous && heap->purge_first != NULL) {
        heap_audit_fail(heap, 6, "the purge queue's end", heap->purge_last != NULL);
    }
}

void ebbi_heap_audit(const struct ebbi_heap *heap)
{
    struct heap_sums sums = {.heap = heap};
    ebbi_assert_held(&heap->lock);
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        audit_shelf(&sums, c);
    }
    audit_away(&sums);
    audit_sums(&sums);
    audit_purge_queue(heap);
}

static void audit_magazine(const struct ebbi_heap *heap, unsigned class_number)
{
    const struct ebbi_magazine *m = &heap->magazines[class_number];
    unsigned bin = ebbi_class_bin(class_number, heap->lane);
    void *const *top = heap->fast.top[bin];
    void *const *limit = heap->fast.limit[bin];
    bool has_array = (heap->arrays[class_number / 64] >> (class_number % 64) & 1) != 0;
    if (has_array != (m->slots != 0)) {
        heap_audit_fail(heap, 4, "the bit of a magazine's array", class_number);
    }
    if (m->slots == 0) {
        if (top != limit || top[-1] != NULL) {
            heap_audit_fail(heap, 4, "a magazine without an array is empty and full", class_number);
        }
        return;
    }
    if (m->base[0] != NULL || limit != m->base + m->slots || top <= m->base || top > limit) {
        heap_audit_fail(heap, 4, "a magazine's ends", class_number);
    }
    for (void *const *slot = m->base + 1 + m->stolen; slot < top; slot++) {
        if (*slot == NULL || ebbi_tag_of(*slot) != bin) {
            heap_audit_fail(heap, 2, "a magazine's block is of its bin", class_number);
        }
    }
}

void ebbi_magazines_audit(const struct ebbi_heap *heap)
{
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        audit_magazine(heap, c);
    }
}

#endif
