// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: spans of large objects that the thread has freed and will ask for again, by granules: a quarter of
// what was in use lately, but at least 1 MiB and at most 4 MiB. For the arena they are in use; for a free they are
// not: they have no tag.
//
// The thread takes and puts under the lock of its heap's own owner, where every pass, trim and fork comes by as
// well. A pass gives all of them to the arena, so that none stays for longer than to the next one; so does a put that
// finds no room, a thread that ends, and memory that is refused.
#include "heap/blocks.h"
#include "os/wake.h"

#define SPARES_LEAST 16 // granules
#define SPARES_PART 4   // of the peak
#define LOOK_EVERY 8    // puts since all were given away

// Smallest that holds `granules`, and is at most an eighth longer. 0: none.
static size_t spare_fit(const struct ebbi_spares *spares, size_t granules)
{
    uint64_t fit = spares->sizes >> (granules - 1);
    size_t longer = fit != 0 ? ebbi_lowest_bit(fit) : granules;
    return longer <= granules / 8 ? granules + longer : 0;
}

static struct ebbi_large *pop(struct ebbi_spares *spares, size_t granules)
{
    struct ebbi_large *large = spares->first[granules - 1];
    EBBI_ASSERT(large->head.state == EBBI_SPAN_SPARE && large->head.granules == granules);
    spares->first[granules - 1] = large->next;
    if (large->next == NULL) {
        spares->sizes &= ~((uint64_t)1 << (granules - 1));
    }
    // relaxed: under the lock but for the thread's own look
    ebbi_store_relaxed(&spares->granules, spares->granules - granules);
    return large;
}

static bool give(struct ebbi_spares *spares)
{
    struct ebbi_large *all = NULL;
    while (spares->sizes != 0) {
        struct ebbi_large *large = pop(spares, ebbi_lowest_bit(spares->sizes) + 1);
        large->next = all;
        all = large;
    }
    spares->puts = 0;
    if (all != NULL) {
        ebbi_larges_free(all);
    }
    return all != NULL;
}

struct ebbi_large *ebbi_spare_take(struct ebbi_heap *heap, size_t granules)
{
    struct ebbi_spares *spares = &heap->spares;
    // relaxed: others only make it less
    if (granules > EBBI_SPARES || ebbi_load_relaxed(&spares->granules) < granules) {
        return NULL;
    }
    struct ebbi_large *large = NULL;
    ebbi_lock_take(&heap->own.lock);
    size_t fit = spare_fit(spares, granules);
    if (fit != 0) {
        large = pop(spares, fit);
        large->head.state = EBBI_SPAN_LARGE;
        large->head.zeroed = false;
    }
    ebbi_lock_drop(&heap->own.lock);
    return large;
}

static size_t spares_most(void)
{
    size_t part = ebbi_arena_peak_bytes() / SPARES_PART >> EBBI_GRANULE_SHIFT;
    return ebbi_min(ebbi_max(part, SPARES_LEAST), EBBI_SPARES);
}

bool ebbi_spare_put(struct ebbi_heap *heap, struct ebbi_large *large)
{
    size_t most = spares_most();
    struct ebbi_spares *spares = &heap->spares;
    size_t granules = large->head.granules;
    EBBI_ASSERT(large->head.state == EBBI_SPAN_LARGE);
    if (granules > most) {
        return false;
    }
    ebbi_lock_take(&heap->own.lock);
    if (spares->granules + granules > most) {
        (void)give(spares);
    }
    bool looks = spares->puts++ % LOOK_EVERY == 0;
    large->head.state = EBBI_SPAN_SPARE;
    large->next = spares->first[granules - 1];
    spares->first[granules - 1] = large;
    spares->sizes |= (uint64_t)1 << (granules - 1);
    ebbi_store_relaxed(&spares->granules, spares->granules + granules); // relaxed: as above
    ebbi_lock_drop(&heap->own.lock);
    if (looks) {
        ebbi_purge_tick(NULL);
    }
    return true;
}

void ebbi_spares_give(struct ebbi_heap *heap)
{
    ebbi_assert_held(&heap->own.lock);
    (void)give(&heap->spares);
}

bool ebbi_spares_rest(struct ebbi_heap *heap)
{
    ebbi_lock_take(&heap->own.lock);
    bool any = give(&heap->spares);
    ebbi_lock_drop(&heap->own.lock);
    return any;
}
