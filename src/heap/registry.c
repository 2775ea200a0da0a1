// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: all heaps, and with the depots all owners. A heap is one granule of metadata. A thread takes an
// abandoned one, whole, before a new one is made; what is abandoned without slabs is destroyed but for a few
// spare ones. Other threads keep setting remote bits in an abandoned heap's slabs meanwhile.
//
// Whoever walks over them holds one at a time: it stays in the list, its lock is free to be taken
// and dropped, and the registry's is not held while something is done with it.
#include "heap/registry.h"

#include "base/list.h"
#include "debug/check.h"
#include "heap/blocks.h"
#include "heap/lately.h"
#include "os/options.h"

#define SPARE_HEAPS 8 // at least; one for each processor
#define COLOURS 31u   // lines, in half a page: what idle threads hold is in five pages

static struct ebbi_lock registry = EBBI_LOCK(REGISTRY);
// Under it.
static struct ebbi_heap *all_heaps;
static struct ebbi_heap *abandoned;
static size_t abandoned_count;
static size_t thread_heaps; // made so far
static unsigned next_heap;  // made so far, seats included; atomic
// Of threads' heaps by lane, while allocations are sampled; none for 0 bytes, which count as one; atomic.
static EBBI_SPARSE uint16_t counted_bins[EBBI_LANES][EBBI_LOOKUP_COUNT];
static EBBI_SPARSE uint16_t no_bins[EBBI_LOOKUP_COUNT]; // 0

_Static_assert(sizeof(struct ebbi_heap) + (COLOURS - 1) * (size_t)EBBI_CACHE_LINE <= EBBI_GRANULE,
               "a heap is one granule, wherever it starts in it");

_Static_assert(offsetof(struct ebbi_heap, slots) - offsetof(struct ebbi_heap, outbox_count) >=
                   EBBI_LATELY * sizeof(void *),
               "what a free into the first array reads below it is the thread's");

void ebbi_registry_lock(void) { ebbi_lock_take(&registry); }
void ebbi_registry_unlock(void) { ebbi_lock_drop(&registry); }
#if EBBI_HAVE_ASSERT
void ebbi_registry_assert(void) { ebbi_assert_held(&registry); }
#endif

// In two loops, of which the first is one for vector instructions: each thread's first heap waits for it.
static void fill_lookup(uint16_t *bins, unsigned lane)
{
    unsigned first_bin = lane / EBBI_TAG_DOMAIN * EBBI_TAG_DOMAIN;
    for (size_t i = 0; i < EBBI_LOOKUP_COUNT; i++) {
        bins[i] = (uint16_t)(first_bin + ebbi_lookup[i]);
    }
    for (size_t i = 0; i <= EBBI_SHARING_MAX / EBBI_QUANTUM; i++) {
        bins[i] = (uint16_t)ebbi_lookup_bin(i * EBBI_QUANTUM, lane);
    }
}

static void prepare_bins(struct ebbi_heap *heap)
{
    fill_lookup(heap->fast.bin_of, heap->lane);
    heap->fast.top[0] = heap->fast.limit[0] = (void **)&heap->nothing + 1;
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        unsigned bin = ebbi_class_bin(c, heap->lane);
        heap->fast.top[bin] = (void **)&heap->nothing + 1;
        heap->fast.limit[bin] = (void **)&heap->nothing + 1;
    }
}

// Its thread may look meanwhile: it finds the bin or 0, and both are right. Inlined, its array would be a page of each
// thread's stack.
static EBBI_NOINLINE void set_lookup(struct ebbi_heap *heap)
{
    uint16_t bins[EBBI_LOOKUP_COUNT];
    bool counts = ebbi_profile_round() != 0 && heap->lane < EBBI_LANES;
    bool slows = ebbi_profile_round() != 0 || ebbi_check_is_on();
    fill_lookup(bins, heap->lane);
    for (size_t i = 0; i < EBBI_LOOKUP_COUNT; i++) {
        if (counts && i > 0) {
            ebbi_store_relaxed(&counted_bins[heap->lane][i], bins[i]); // relaxed: see above
        }
        uint16_t bin = slows ? 0 : bins[i];
        ebbi_store_relaxed(&heap->fast.bin_of[i], bin); // relaxed: see above
    }
    if (heap->counted_round != ebbi_profile_round()) {
        // relaxed: its thread finds the bins of a round that was, or none
        ebbi_store_relaxed(&heap->fast.sampler.bins, no_bins);
    }
}

void ebbi_heap_count(struct ebbi_heap *heap, uint32_t round)
{
    ebbi_lock_take(&registry);
    if (ebbi_profile_round() == round && heap->lane < EBBI_LANES && !ebbi_check_is_on()) {
        heap->counted_round = round;
        uint16_t *bins = counted_bins[heap->lane];
        ebbi_store_relaxed(&heap->fast.sampler.bins, bins); // relaxed: as above
    }
    ebbi_lock_drop(&registry);
}

// Whoever changes the round comes here afterwards: the last one sees what holds.
void ebbi_heaps_look_up(void)
{
    ebbi_lock_take(&registry);
    for (struct ebbi_heap *heap = all_heaps; heap != NULL; heap = heap->next) {
        set_lookup(heap);
    }
    ebbi_lock_drop(&registry);
}

struct ebbi_heap *ebbi_heap_make(unsigned first_lane)
{
    EBBI_ASSERT(first_lane % EBBI_TAG_DOMAIN == 0);
    void *granule = ebbi_own_take();
    if (granule == NULL) {
        return NULL;
    }
    unsigned number = ebbi_fetch_add_relaxed(&next_heap, 1u); // relaxed: a number
    // Heaps at the same place of their granules would have their hot lines in the same cache sets.
    uintptr_t start = (uintptr_t)granule;
    struct ebbi_heap *heap = (void *)(start + number % COLOURS * (size_t)EBBI_CACHE_LINE);
    heap->lane = (uint16_t)(first_lane + number % EBBI_LANES);
    heap->own.lane = heap->lane;
    heap->fast.sampler.bins = no_bins;
    ebbi_lock_rank(&heap->own.lock, EBBI_RANK_OWNER);
    heap->slot_next = heap->slots;
    heap->slot_end = heap->slots + EBBI_SLOTS;
    EBBI_ASSERT((uintptr_t)heap % EBBI_CACHE_LINE == 0);
    ebbi_magazine_first(heap);
    prepare_bins(heap);
    return heap;
}

void ebbi_heap_prepare_first(struct ebbi_fast *nobodys)
{
    bool locks = !ebbi_load_relaxed(&ebbi_dying); // relaxed: what is in abort() may hold the lock
    if (locks) {
        ebbi_registry_lock();
    }
    if (nobodys->top[0] == NULL) {
        nobodys->pin = ebbi_heap_none.pin;
        nobodys->limit[0] = ebbi_heap_none.limit[0];
        // release[nobody-prepared -> nobody-seen]: its limit and its pin
        ebbi_store_release(&nobodys->top[0], ebbi_heap_none.top[0]);
    }
    if (locks) {
        ebbi_registry_unlock();
    }
}

void ebbi_heap_join(struct ebbi_heap *heap)
{
    ebbi_assert_held(&registry);
    EBBI_ASSERT(heap->next == NULL && heap->previous == NULL && heap != all_heaps);
    if (heap->seat.domain == NULL) {
        ebbi_depots_grow(++thread_heaps);
    }
    ebbi_places_prepare(heap->lane);
    if (ebbi_profile_round() != 0 || ebbi_check_is_on()) {
        set_lookup(heap);
    }
    EBBI_LIST_PUSH(all_heaps, heap, next, previous);
}

static void unlink_heap(struct ebbi_heap *heap)
{
    ebbi_assert_held(&registry);
    EBBI_ASSERT(heap->holds == 0);
    EBBI_ASSERT(heap->own.slab_count == 0 && heap->own.purging == NULL &&
                heap->own.purge_first == NULL);
    EBBI_ASSERT(heap->records == NULL && heap->seats == NULL &&
                ebbi_spares_granules(&heap->spares) == 0);
    ebbi_purge_rest(&heap->own);
    EBBI_LIST_REMOVE(all_heaps, heap, next, previous);
}

void ebbi_heap_end(struct ebbi_heap *heap)
{
    EBBI_ASSERT(heap->lends || heap->charged_bytes == 0);
    if (heap->more_slots != NULL) {
        ebbi_own_give(heap->more_slots);
    }
    ebbi_own_give((void *)ebbi_align_down((uintptr_t)heap, EBBI_GRANULE));
}

static size_t spare_heaps(void) { return ebbi_max(SPARE_HEAPS, ebbi_os_cpus()); }

struct ebbi_heap *ebbi_heap_adopt(void)
{
    ebbi_assert_held(&registry);
    EBBI_ASSERT((abandoned == NULL) == (abandoned_count == 0));
    struct ebbi_heap *heap = abandoned;
    if (heap != NULL) {
        abandoned = heap->abandoned_next;
        abandoned_count--;
        EBBI_ASSERT(!heap->attached && heap->seat.domain == NULL);
    }
    return heap;
}

void ebbi_heap_push_abandoned(struct ebbi_heap *heap)
{
    ebbi_assert_held(&registry);
    heap->attached = false;
    heap->abandoned_next = abandoned;
    abandoned = heap;
    abandoned_count++;
}

// Under the heap's lock.
static bool is_empty(const struct ebbi_heap *heap)
{
    ebbi_assert_held(&heap->own.lock);
    return heap->own.slab_count == 0 && ebbi_spares_granules(&heap->spares) == 0 &&
           heap->limbo.blocks == 0 && heap->deferred.count == 0 && heap->deferred.filling == NULL &&
           heap->records == NULL && !heap->had_regions;
}

struct ebbi_heap *ebbi_heap_abandon(struct ebbi_heap *heap, void (*discard)(struct ebbi_heap *heap))
{
    ebbi_assert_held(&registry);
    ebbi_lock_take(&heap->own.lock);
    discard(heap);
    bool empty = is_empty(heap);
    ebbi_lock_drop(&heap->own.lock);
    if (empty && heap->holds == 0 && abandoned_count >= spare_heaps()) {
        unlink_heap(heap);
        return heap;
    }
    ebbi_heap_push_abandoned(heap);
    return NULL;
}

// From `from`, which is let go, to the next, which is held; NULL: the first.
static struct ebbi_heap *next_held(struct ebbi_heap *from)
{
    ebbi_lock_take(&registry);
    EBBI_ASSERT(from == NULL || from->holds > 0);
    struct ebbi_heap *to = from != NULL ? from->next : all_heaps;
    if (from != NULL) {
        from->holds--;
    }
    if (to != NULL) {
        to->holds++;
    }
    ebbi_lock_drop(&registry);
    return to;
}

void ebbi_heaps_each(void (*visit)(struct ebbi_heap *heap, void *context), void *context)
{
    for (struct ebbi_heap *heap = next_held(NULL); heap != NULL; heap = next_held(heap)) {
        ebbi_lock_take(&heap->own.lock);
        visit(heap, context);
        ebbi_lock_drop(&heap->own.lock);
    }
}

void ebbi_depots_each(void (*visit)(struct ebbi_owner *owner, void *context), void *context)
{
    struct ebbi_owner *depots;
    size_t count = ebbi_depots(&depots);
    for (size_t i = 0; i < count; i++) {
        ebbi_lock_take(&depots[i].lock);
        visit(&depots[i], context);
        ebbi_lock_drop(&depots[i].lock);
    }
}

static void gather(struct ebbi_owner *owner)
{
    // relaxed: an early look
    if (ebbi_load_relaxed(&owner->pending) != NULL && ebbi_lock_try(&owner->lock)) {
        ebbi_owner_tell_time(owner);
        ebbi_owner_collect(owner);
        ebbi_purge_blocks(owner);
        ebbi_lock_drop(&owner->lock);
    }
}

size_t ebbi_owners_gather(void)
{
    size_t before = ebbi_arena_dirty_bytes();
    struct ebbi_owner *depots;
    for (size_t i = 0, count = ebbi_depots(&depots); i < count; i++) {
        gather(&depots[i]);
    }
    for (struct ebbi_heap *heap = next_held(NULL); heap != NULL; heap = next_held(heap)) {
        gather(&heap->own);
    }
    size_t now = ebbi_arena_dirty_bytes();
    return now > before ? now - before : 0;
}

void ebbi_heaps_prune(void (*discard)(struct ebbi_heap *heap))
{
    size_t spare = 0;
    struct ebbi_heap *ended = NULL;
    ebbi_lock_take(&registry);
    struct ebbi_heap **link = &abandoned;
    while (*link != NULL) {
        struct ebbi_heap *heap = *link;
        ebbi_lock_take(&heap->own.lock);
        discard(heap);
        bool empty = is_empty(heap);
        ebbi_lock_drop(&heap->own.lock);
        if (empty && heap->holds == 0 && ++spare > spare_heaps()) {
            *link = heap->abandoned_next;
            abandoned_count--;
            unlink_heap(heap);
            heap->abandoned_next = ended;
            ended = heap;
        } else {
            link = &heap->abandoned_next;
        }
    }
    ebbi_lock_drop(&registry);
    while (ended != NULL) {
        struct ebbi_heap *heap = ended;
        ended = heap->abandoned_next;
        ebbi_heap_end(heap);
    }
}

void ebbi_owners_freeze(void)
{
    struct ebbi_owner *depots;
    ebbi_lock_take(&registry);
    for (size_t i = 0, count = ebbi_depots(&depots); i < count; i++) {
        ebbi_lock_take(&depots[i].lock);
    }
    for (struct ebbi_heap *heap = all_heaps; heap != NULL; heap = heap->next) {
        ebbi_lock_take(&heap->own.lock);
    }
}

void ebbi_heaps_visit(void (*visit)(struct ebbi_heap *heap, void *context), void *context)
{
    ebbi_assert_held(&registry);
    for (struct ebbi_heap *heap = all_heaps; heap != NULL; heap = heap->next) {
        visit(heap, context);
    }
}

void ebbi_owners_thaw(void)
{
    struct ebbi_owner *depots;
    ebbi_assert_held(&registry);
    for (struct ebbi_heap *heap = all_heaps; heap != NULL; heap = heap->next) {
        ebbi_lock_drop(&heap->own.lock);
    }
    for (size_t i = 0, count = ebbi_depots(&depots); i < count; i++) {
        ebbi_lock_drop(&depots[i].lock);
    }
    ebbi_lock_drop(&registry);
}

struct ebbi_heap *ebbi_heaps_first(void)
{
    ebbi_assert_held(&registry);
    return all_heaps;
}
