// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: spans of large objects that the thread has freed and will ask for again, by granules, 4 MiB at most.
// For the arena they are in use; for a free they are not: they have no tag.
//
// S1  The one that was freed last is named by `last` alone, and changes hands by an exchange of that word: its thread puts
//     it there, and takes it by a compare-and-swap (heap/blocks.h); a pass exchanges it for nothing. Who has got
//     the word has the span. A signal handler amid either loses nothing.
// S2  All others are in the lists, where its thread shelves and takes them under the lock of its heap's own owner.
//
// Every pass, trim and fork comes by there and gives all of them to the arena, so that none stays for longer than to the
// next one; so does a put that finds no room, a thread that ends, memory that is refused, and a take that finds none
// where the arena would have more in use than lately: a program's peak is not raised by what it has freed.
#include "heap/blocks.h"
#include "os/wake.h"

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

static struct ebbi_large *named_by(uintptr_t word)
{
    return (struct ebbi_large *)(word - word % EBBI_HEADER);
}

// S1: what was freed last, in a list of one, or NULL.
static struct ebbi_large *claim_last(struct ebbi_spares *spares)
{
    uintptr_t word = 0;
    if (ebbi_load_relaxed(&spares->last) != 0) { // relaxed: a look, so that few write to the line
        // acquire[spare-claim <- spare-put]: the span's header
        word = ebbi_exchange_acquire(&spares->last, (uintptr_t)0);
    }
    struct ebbi_large *large = word != 0 ? named_by(word) : NULL;
    if (large != NULL) {
        large->next = NULL;
    }
    return large;
}

static EBBI_NOINLINE bool give(struct ebbi_spares *spares)
{
    struct ebbi_large *all = claim_last(spares);
    while (spares->sizes != 0) {
        struct ebbi_large *large = pop(spares, ebbi_lowest_bit(spares->sizes) + 1);
        large->next = all;
        all = large;
    }
    // relaxed: the thread counts, and one look more or less is of no matter
    if (ebbi_load_relaxed(&spares->puts) != 0) {        // else its page stays untouched
        ebbi_store_relaxed(&spares->puts, (uint32_t)0); // relaxed: as above
    }
    if (all != NULL) {
        ebbi_larges_free(all);
    }
    return all != NULL;
}

static EBBI_NOINLINE void found_none(struct ebbi_spares *spares, size_t granules)
{
    size_t bytes = granules << EBBI_GRANULE_SHIFT;
    if (ebbi_arena_used_bytes() + bytes > ebbi_arena_peak_bytes()) {
        (void)give(spares);
    }
}

struct ebbi_large *ebbi_spare_take(struct ebbi_heap *heap, size_t granules)
{
    struct ebbi_spares *spares = &heap->spares;
    if (ebbi_spares_granules(spares) == 0) { // others only make it less
        return NULL;
    }
    struct ebbi_large *large = NULL;
    ebbi_lock_take(&heap->own.lock);
    size_t fit = granules <= EBBI_SPARES ? spare_fit(spares, granules) : 0;
    if (fit != 0) {
        large = pop(spares, fit);
        large->head.state = EBBI_SPAN_LARGE;
        large->head.zeroed = false;
    } else {
        found_none(spares, granules);
    }
    ebbi_lock_drop(&heap->own.lock);
    return large;
}

static void shelve(struct ebbi_heap *heap, struct ebbi_large *large)
{
    struct ebbi_spares *spares = &heap->spares;
    size_t granules = large->head.granules;
    ebbi_lock_take(&heap->own.lock);
    large->next = spares->first[granules - 1];
    spares->first[granules - 1] = large;
    spares->sizes |= (uint64_t)1 << (granules - 1);
    ebbi_store_relaxed(&spares->granules, spares->granules + granules); // relaxed: as above
    ebbi_lock_drop(&heap->own.lock);
}

void ebbi_spare_settle(struct ebbi_heap *heap, uintptr_t before, bool looks)
{
    if (before != 0) {
        shelve(heap, named_by(before));
    }
    if (looks) {
        ebbi_purge_tick(NULL);
    }
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
