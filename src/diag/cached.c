// SPDX-License-Identifier: MIT OR Apache-2.0
#include "diag/cached.h"

#include <string.h>

#include "heap/registry.h"
#include "profile/profile.h"

static void count_room(struct ebbi_heap *heap, void *context)
{
    struct ebbi_cached *cached = context;
    cached->room += EBBI_OUTBOX;
    for (unsigned n = 1; n < EBBI_ARRAYS; n++) {
        cached->room += heap->magazines[n].slots;
    }
}

static void add_blocks(struct ebbi_cached *cached, void *const *slots, size_t count)
{
    for (size_t i = 0; i < count && cached->count < cached->room; i++) {
        EBBI_ASSERT(cached->blocks != NULL);
        // relaxed: a hint, see ebbi_slab_measure
        cached->blocks[cached->count++] = (uintptr_t)ebbi_load_relaxed(&slots[i]);
    }
}

static void add_heap_blocks(struct ebbi_heap *heap, void *context)
{
    // relaxed: the owner goes on meanwhile
    size_t waiting = ebbi_load_relaxed(&heap->outbox_count);
    add_blocks(context, heap->outbox, ebbi_min(waiting, EBBI_OUTBOX));
    for (unsigned n = 1; n < EBBI_ARRAYS; n++) {
        size_t count = ebbi_magazine_count(heap, n);
        if (count > 0) {
            const struct ebbi_magazine *m = &heap->magazines[n];
            add_blocks(context, m->base + 1 + m->stolen, count);
        }
    }
}

// Beside samples of a profile, in no magazine.
static void add_held_blocks(struct ebbi_cached *cached)
{
    void *held[EBBI_LOANS];
    for (uint32_t place = 1; place != 0;) {
        add_blocks(cached, held, ebbi_live_held(held, &place));
    }
}

// Below `end`, from `at` down: no element is greater than the one at half its number.
static void sift(uintptr_t *heap, size_t at, size_t end)
{
    uintptr_t moved = heap[at];
    for (size_t child = 2 * at + 1; child < end; child = 2 * at + 1) {
        child += child + 1 < end && heap[child] < heap[child + 1];
        if (heap[child] <= moved) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

// A heapsort, in place: libc's sort may allocate.
static void sort(uintptr_t *blocks, size_t count)
{
    for (size_t i = count / 2; i > 0; i--) {
        sift(blocks, i - 1, count);
    }
    for (size_t end = count; end > 1; end--) {
        uintptr_t greatest = blocks[0];
        blocks[0] = blocks[end - 1];
        blocks[end - 1] = greatest;
        sift(blocks, 0, end - 1);
    }
}

static size_t mapped_bytes(const struct ebbi_cached *cached)
{
    return ebbi_align_up(cached->room * sizeof(uintptr_t), ebbi_os_page_size());
}

bool ebbi_cached_collect(struct ebbi_cached *cached)
{
    *cached = (struct ebbi_cached){.room = 1};
    ebbi_heaps_visit(count_room, cached);
    cached->room += ebbi_live_places();
    cached->blocks = ebbi_os_map(NULL, mapped_bytes(cached));
    if (cached->blocks == NULL) {
        return false;
    }
    ebbi_heaps_visit(add_heap_blocks, cached);
    add_held_blocks(cached);
    sort(cached->blocks, cached->count);
    return true;
}

void ebbi_cached_drop(struct ebbi_cached *cached)
{
    if (cached->blocks != NULL) {
        ebbi_os_release(cached->blocks, mapped_bytes(cached));
    }
}

// The number of the first address that is not below `address`.
static size_t first_from(const struct ebbi_cached *cached, uintptr_t address)
{
    size_t low = 0;
    size_t high = cached->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (cached->blocks[middle] < address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void mark_cached(const struct ebbi_slab *slab, const struct ebbi_cached *cached,
                        uint64_t *bits)
{
    EBBI_ASSERT(slab->first_block != 0);
    const struct ebbi_class *c = ebbi_slab_class(slab);
    uintptr_t first = slab->first_block;
    uintptr_t end = first + (size_t)c->blocks * c->size;
    for (size_t i = first_from(cached, first); i < cached->count && cached->blocks[i] < end; i++) {
        size_t offset = cached->blocks[i] - first;
        if (offset % c->size == 0) {
            bits[offset / c->size / 64] |= (uint64_t)1 << (offset / c->size % 64);
        }
    }
}

void ebbi_slab_measure(const struct ebbi_slab *slab, const struct ebbi_cached *cached,
                       struct ebbi_slab_use *use)
{
    size_t blocks = ebbi_slab_class(slab)->blocks;
    memset(use, 0, sizeof *use);
    mark_cached(slab, cached, use->cached);
    for (unsigned w = 0; w < slab->words; w++) {
        size_t left = blocks - w * (size_t)64;
        uint64_t every = left < 64 ? ((uint64_t)1 << left) - 1 : ~(uint64_t)0;
        // relaxed: a count, out of date at once
        uint64_t out = every & ~(slab->local[w] | ebbi_load_relaxed(&ebbi_slab_remote(slab)[w]));
        use->cached[w] &= out;
        use->live[w] = out & ~use->cached[w];
        use->live_blocks += ebbi_count_bits(use->live[w]);
        use->cached_blocks += ebbi_count_bits(use->cached[w]);
    }
}
