// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: what is retired when there is no memory for a bag, or by a thread without a heap.
// Blocks wait as bits of their slabs, large objects in a chain, a few blocks of regions in a list; all of
// them by the stamp of the last. To find them again takes a walk over every slab: this is for the worst of days.
#include "reclaim/queues.h"

#define OF_REGIONS 256 // a sheet's bitmaps have no bit to spare

static struct {
    struct ebbi_lock lock; // rank: owner
    uint64_t stamp;        // of the last
    size_t count;          // atomic for a look; changed under the lock
    void *large;
    size_t of_regions_count;
    void *of_regions[OF_REGIONS];
} stranded = {.lock = EBBI_LOCK(OWNER)};

static void count_one(void)
{
    ebbi_assert_held(&stranded.lock);
    stranded.stamp = ebbi_clock_stamp(&ebbi_clock);
    ebbi_store_relaxed(&stranded.count, stranded.count + 1); // relaxed: a hint outside of the lock
}

void ebbi_strand(void *p)
{
    bool is_large = ebbi_tag_class(ebbi_tag_of(p)) == 0;
    ebbi_lock_take(&stranded.lock);
    if (is_large) {
        struct ebbi_note *note = ebbi_large_note(p);
        note->next = stranded.large;
        stranded.large = p;
    } else {
        ebbi_slab_strand(ebbi_slab_of(p), p);
    }
    count_one();
    if (is_large) {
        // relaxed: under the lock, but for claims
        ebbi_store_relaxed(&ebbi_large_note(p)->stamp, stranded.stamp);
    }
    ebbi_lock_drop(&stranded.lock);
    (void)ebbi_clock_advance(&ebbi_clock, true);
}

bool ebbi_strand_of_region(void *p)
{
    ebbi_lock_take(&stranded.lock);
    bool has_room = stranded.of_regions_count < OF_REGIONS;
    if (has_room) {
        stranded.of_regions[stranded.of_regions_count++] = p;
        count_one();
    }
    ebbi_lock_drop(&stranded.lock);
    (void)ebbi_clock_advance(&ebbi_clock, true);
    return has_room;
}

static void visit_chunk(struct ebbi_chunk *chunk, void *context)
{
    ebbi_assert_held(&stranded.lock);
    EBBI_ASSERT(chunk->first <= chunk->committed && chunk->committed <= chunk->granules);
    (void)context;
    for (size_t g = chunk->first; g < chunk->committed;) {
        struct ebbi_span *span = ebbi_span_at((uintptr_t)chunk, g);
        g += ebbi_max(span->granules, 1);
        if (span->state == EBBI_SPAN_SLAB) {
            ebbi_slab_take_stranded(ebbi_slab_in(span), ebbi_give_word);
        }
    }
}

// While any hazard pointer is set, all waits: which block it protects does not matter here.
static bool may_go(void)
{
    ebbi_assert_held(&stranded.lock);
    return ebbi_clock_passed(&ebbi_clock, stranded.stamp) && !ebbi_hazard_protects(NULL, SIZE_MAX);
}

bool ebbi_stranded_release(void)
{
    void *chain = NULL;
    void *of_regions[OF_REGIONS];
    size_t of_regions_count = 0;
    if (ebbi_load_relaxed(&stranded.count) == 0) { // relaxed: a hint
        return false;
    }
    ebbi_lock_take(&stranded.lock);
    if (may_go()) {
        ebbi_arena_each_chunk(visit_chunk, NULL);
        chain = stranded.large;
        stranded.large = NULL;
        for (; of_regions_count < stranded.of_regions_count; of_regions_count++) {
            of_regions[of_regions_count] = stranded.of_regions[of_regions_count];
        }
        stranded.of_regions_count = 0;
        ebbi_store_relaxed(&stranded.count, (size_t)0); // relaxed: a hint outside of the lock
    }
    bool waiting = stranded.count > 0;
    ebbi_lock_drop(&stranded.lock);
    while (chain != NULL) {
        void *p = chain;
        chain = ebbi_large_note(p)->next;
        ebbi_large_reclaim(p);
    }
    while (of_regions_count > 0) {
        ebbi_free_passed_of_region(of_regions[--of_regions_count], NULL);
    }
    return waiting;
}

size_t ebbi_stranded_count(void)
{
    return ebbi_load_relaxed(&stranded.count); // relaxed: a count
}

void ebbi_stranded_lock(void) { ebbi_lock_take(&stranded.lock); }
void ebbi_stranded_unlock(void) { ebbi_lock_drop(&stranded.lock); }
