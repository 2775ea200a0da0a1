// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: whether an owner's lists and counts agree, and a heap's magazines. For debug builds and tests.
#include "heap/blocks.h"

#if EBBI_HAVE_ASSERT || defined(EBB_NO_OVERRIDE) // not in the library that is installed

struct owner_sums {
    const struct ebbi_owner *owner;
    size_t slabs, bytes, dirty_bytes; // of what the lists hold, as are the next
    uint32_t dirty_blocks[EBBI_CLASS_COUNT], pinned[EBBI_CLASS_COUNT];
    size_t shelf_slabs; // that the shelves count, as the next
    uint32_t out_bytes;
};

static EBBI_COLD EBBI_NORETURN void owner_audit_fail(const struct ebbi_owner *owner, int property,
                                                     const char *what, size_t found)
{
    ebbi_fatal("owner P%d: %s, found %zu (owner at %p)", property, what, found,
               (const void *)owner);
}

static void owner_require(const struct owner_sums *sums, bool holds, const char *what, size_t found)
{
    if (!holds) {
        owner_audit_fail(sums->owner, 1, what, found);
    }
}

static void audit_slab(struct owner_sums *sums, const struct ebbi_slab *slab)
{
    const struct ebbi_class *c = ebbi_slab_class(slab);
    owner_require(sums, slab->head.state == EBBI_SPAN_SLAB, "a slab in a list", slab->head.state);
    owner_require(sums, slab->owner == sums->owner, "the slab's owner is this one",
                  slab->class_number);
    owner_require(sums, slab->free_count <= c->blocks, "free blocks of a slab", slab->free_count);
    sums->slabs++;
    sums->bytes += (size_t)c->granules << EBBI_GRANULE_SHIFT;
    sums->dirty_bytes += (size_t)slab->dirty_blocks * c->size;
    sums->dirty_blocks[slab->class_number] += slab->dirty_blocks;
    sums->pinned[slab->class_number] += slab->pinned_bytes / EBBI_QUANTUM;
}

static void audit_bucket(struct owner_sums *sums, unsigned class_number, unsigned bucket)
{
    const struct ebbi_slab *previous = NULL;
    const struct ebbi_slab *slab = sums->owner->shelves[class_number].bucket[bucket];
    for (; slab != NULL; previous = slab, slab = slab->next) {
        owner_require(sums, slab->previous == previous, "links of a bucket", bucket);
        owner_require(sums, slab->bucket == bucket && !slab->purging, "the slab's bucket",
                      slab->bucket);
        owner_require(sums, slab->class_number == class_number, "the slab's class",
                      slab->class_number);
        owner_require(sums, slab->free_count < slab->moves_at, "free blocks before the slab moves",
                      slab->free_count);
        audit_slab(sums, slab);
    }
}

static void audit_shelf(struct owner_sums *sums, unsigned class_number)
{
    const struct ebbi_shelf *shelf = &sums->owner->shelves[class_number];
    const struct ebbi_slab *current = shelf->current;
    sums->shelf_slabs += shelf->slabs;
    sums->out_bytes += shelf->out_blocks * (uint32_t)ebbi_classes[class_number].size;
    if (current != NULL) {
        owner_require(sums, current->bucket == EBBI_NO_BUCKET && !current->purging,
                      "the current slab is in no list", current->bucket);
        owner_require(sums, current->class_number == class_number, "the current slab's class",
                      current->class_number);
        audit_slab(sums, current);
    }
    for (unsigned b = 0; b < EBBI_BUCKETS; b++) {
        audit_bucket(sums, class_number, b);
    }
}

static void audit_away(struct owner_sums *sums)
{
    for (const struct ebbi_slab *slab = sums->owner->purging; slab != NULL; slab = slab->next) {
        owner_require(sums, slab->purging && slab->bucket == EBBI_NO_BUCKET,
                      "a slab that is being purged", slab->bucket);
        audit_slab(sums, slab);
    }
}

static void audit_sums(const struct owner_sums *sums)
{
    const struct ebbi_owner *owner = sums->owner;
    if (sums->slabs > owner->slab_count || sums->bytes > owner->held_bytes) {
        owner_audit_fail(owner, 2, "slabs in lists, among all of them", sums->slabs);
    }
    if (sums->shelf_slabs != owner->slab_count || sums->out_bytes != (uint32_t)owner->out_bytes) {
        owner_audit_fail(owner, 2, "slabs of all shelves", sums->shelf_slabs);
    }
    if (sums->dirty_bytes != owner->dirty_bytes) {
        owner_audit_fail(owner, 2, "dirty bytes of the slabs in lists", sums->dirty_bytes);
    }
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        const struct ebbi_shelf *shelf = &owner->shelves[c];
        if (sums->dirty_blocks[c] != shelf->dirty_blocks || sums->pinned[c] != shelf->pinned) {
            owner_audit_fail(owner, 2, "dirty and pinned ones of a shelf's slabs", c);
        }
    }
}

static void audit_purge_queue(const struct ebbi_owner *owner)
{
    const struct ebbi_slab *previous = NULL;
    for (const struct ebbi_slab *slab = owner->purge_first; slab != NULL; slab = slab->purge_next) {
        if (!slab->purge_queued || slab->purge_previous != previous || slab->owner != owner) {
            owner_audit_fail(owner, 3, "a slab in the purge queue", slab->class_number);
        }
        previous = slab;
    }
    if (owner->purge_last != previous && owner->purge_first != NULL) {
        owner_audit_fail(owner, 3, "the purge queue's end", owner->purge_last != NULL);
    }
}

void ebbi_owner_audit(const struct ebbi_owner *owner)
{
    struct owner_sums sums = {.owner = owner};
    ebbi_assert_held(&owner->lock);
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        audit_shelf(&sums, c);
    }
    audit_away(&sums);
    audit_sums(&sums);
    audit_purge_queue(owner);
}

static EBBI_COLD EBBI_NORETURN void magazine_fail(const struct ebbi_heap *heap, int property,
                                                  const char *what, size_t found)
{
    ebbi_fatal("heap P%d: %s, found %zu (heap at %p)", property, what, found, (const void *)heap);
}

static void audit_array(const struct ebbi_heap *heap, unsigned number)
{
    const struct ebbi_magazine *m = &heap->magazines[number];
    bool has_array = (heap->arrays[number / 64] >> (number % 64) & 1) != 0;
    if (has_array != (m->slots != 0)) {
        magazine_fail(heap, 3, "the bit of a magazine's array", number);
    }
    void *const *top = heap->fast.top[m->bin];
    void *const *limit = heap->fast.limit[m->bin];
    if (m->slots == 0) {
        return;
    }
    if (m->base[0] != NULL || limit != m->base + m->slots || top <= m->base || top > limit) {
        magazine_fail(heap, 3, "a magazine's ends", number);
    }
    for (void *const *slot = m->base + 1 + m->stolen; slot < top; slot++) {
        if (*slot == NULL || ebbi_tag_of(*slot) != m->bin) {
            magazine_fail(heap, 2, "a magazine's block is of its bin", number);
        }
    }
}

static void audit_magazine(const struct ebbi_heap *heap, unsigned class_number)
{
    unsigned bin = ebbi_class_bin(class_number, heap->lane);
    const struct ebbi_magazine *m = &heap->magazines[class_number];
    void *const *top = heap->fast.top[bin];
    if (m->slots != 0 && m->bin != bin) {
        magazine_fail(heap, 2, "the bin of a class's magazine", m->bin);
    }
    if (m->slots == 0 && (top != heap->fast.limit[bin] || top[-1] != NULL)) {
        magazine_fail(heap, 3, "a magazine without an array is empty and full", class_number);
    }
}

// No magazine of the heap is of the same bin, and one tray alone.
static void audit_tray(const struct ebbi_heap *heap, unsigned number)
{
    const struct ebbi_magazine *tray = &heap->magazines[number];
    unsigned class_number = ebbi_tag_class(tray->bin);
    if (tray->slots != 0 && (ebbi_tray_number(tray->bin) != number ||
                             ebbi_class_bin(class_number, heap->lane) == tray->bin)) {
        magazine_fail(heap, 2, "the bin of a tray", tray->bin);
    }
}

void ebbi_magazines_audit(const struct ebbi_heap *heap)
{
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        audit_magazine(heap, c);
    }
    for (unsigned n = EBBI_CLASS_COUNT; n < EBBI_ARRAYS; n++) {
        audit_tray(heap, n);
    }
    for (unsigned n = 1; n < EBBI_ARRAYS; n++) {
        audit_array(heap, n);
    }
    if (heap->charged_bytes != ebbi_magazines_charge(heap)) {
        magazine_fail(heap, 1, "what magazines are charged", 0);
    }
}

#endif
