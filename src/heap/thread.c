// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: threads come, go and fork; heaps stay.
//
// A heap is one granule of metadata. A thread takes an abandoned heap, whole, before it makes a new
// one; a heap that ends its thread without slabs is destroyed but for a few spare ones. Other
// threads keep setting remote bits in an abandoned heap's slabs meanwhile.
//
// Start-up happens in the first call that needs memory, which may come before any constructor.
#define _GNU_SOURCE
#include "heap/heap.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "os/options.h"

#define SPARE_HEAPS 8
#define COLOURS 61u // lines, in the first page
// pthread_atfork() allocates: with the override from this heap, so that it has to wait for the first
// one; without, it is done before there can be threads.
#ifdef EBB_NO_OVERRIDE
#define WATCH_FORK_AT_START true
#else
#define WATCH_FORK_AT_START false
#endif
#define EXIT_ROUNDS 2 // of pthread key destructors: later ones may still allocate

// Bin 0 is empty (the NULL of limit[1] lies below its top) and full (its top is its limit); it is
// where every size and every NULL leads. All other bins are full.
#define NOTHING ((void **)&ebbi_heap_none.limit[2])
#define NO_PIN                                                                                     \
    {                                                                                              \
        .state = EBB_PIN_NONE, .now = &ebbi_clock.now                                              \
    }
struct ebbi_fast ebbi_heap_none = {.pin = NO_PIN, .top = {NOTHING}, .limit = {NOTHING}};
struct ebbi_fast ebbi_heap_gone = {.pin = NO_PIN};
struct ebbi_fast ebbi_heap_scoped;
_Thread_local char *ebb_self = (char *)&ebbi_heap_none;
_Thread_local struct ebbi_fast *ebbi_source = &ebbi_heap_none;

static struct ebbi_lock start_lock;
static struct ebbi_lock registry; // rank: registry
static bool started;
bool ebbi_dying;
static pthread_key_t exit_key;
static bool has_exit_key;
// Under the registry lock.
static struct ebbi_heap *all_heaps;
static struct ebbi_heap *abandoned;
static size_t abandoned_count;
static struct ebbi_heap *public_heap;
static unsigned next_heap;

_Static_assert(sizeof(struct ebbi_heap) <= EBBI_GRANULE / 2, "room for the magazines' arrays");

static void enter_abort(void);
static void thread_exit(void *argument);
static void fork_prepare(void);
static void fork_parent(void);
static void fork_child(void);

int ebbi_start(void)
{
    // acquire[started-read <- started-set]: everything that start-up wrote
    if (EBBI_LIKELY(ebbi_load_acquire(&started))) {
        return 0;
    }
    ebbi_lock_take(&start_lock);
    int result = 0;
    if (!started) {
        ebbi_options_read();
        result = ebbi_arena_init((enum ebbi_os_huge)ebbi_option(EBBI_OPTION_THP));
        if (result == 0) {
            ebbi_heap_gone.top[0] = ebbi_heap_gone.limit[0] = NOTHING;
            ebbi_heap_scoped.top[0] = ebbi_heap_scoped.limit[0] = NOTHING;
            ebbi_before_abort = enter_abort;
            ebbi_region_note = ebbi_large_note;
            // Without a key a thread's heap is not handed on: memory stays usable.
            has_exit_key = pthread_key_create(&exit_key, thread_exit) == 0;
            if (WATCH_FORK_AT_START) {
                (void)pthread_atfork(fork_prepare, fork_parent, fork_child);
            }
            // release[started-set -> started-read]: all of the above
            ebbi_store_release(&started, true);
        }
    }
    ebbi_lock_drop(&start_lock);
    return result;
}

// Not left to the first malloc: a program whose first call is a free of something foreign is to be
// told so. Costs the reservation of the tag table.
__attribute__((constructor)) static void start_at_load(void)
{
    (void)ebbi_start();
    ebbi_options_report();
}

static void prepare_bins(struct ebbi_heap *heap)
{
    unsigned first_bin = heap->lane / EBBI_TAG_DOMAIN * EBBI_TAG_DOMAIN;
    for (size_t i = 0; i < EBBI_LOOKUP_COUNT; i++) {
        heap->fast.bin_of[i] = (uint16_t)(first_bin + ebbi_lookup[i]);
    }
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        unsigned bin = ebbi_class_bin(c, heap->lane);
        heap->fast.top[bin] = (void **)&heap->nothing + 1;
        heap->fast.limit[bin] = (void **)&heap->nothing + 1;
    }
    for (size_t i = 0; i <= EBBI_SMALL_MAX / EBBI_QUANTUM; i++) {
        const struct ebbi_class *c = &ebbi_classes[ebbi_bin_class[ebbi_lookup[i]]];
        if (c->size >= 512) { // no class shares lines from here on
            break;
        }
        heap->fast.bin_of[i] = (uint16_t)ebbi_class_bin(ebbi_bin_class[c->bin], heap->lane);
    }
}

// A heap that is in no list.
static struct ebbi_heap *heap_make(unsigned first_lane)
{
    struct ebbi_span *span = ebbi_span_alloc(1, 1, EBBI_SPAN_HEAP);
    if (span == NULL) {
        return NULL;
    }
    // Heaps at the same place of their granules would have their hot lines in the same cache sets.
    uintptr_t start = (uintptr_t)ebbi_span_start(span);
    struct ebbi_heap *heap = (void *)(start + next_heap % COLOURS * (size_t)EBBI_CACHE_LINE);
    if (!span->zeroed) {
        memset(heap, 0, sizeof *heap);
    }
    heap->lane = (uint16_t)(first_lane + next_heap++ % EBBI_LANES);
    heap->budget_bytes = ebbi_option(EBBI_OPTION_CACHE);
    heap->slot_next = (void **)ebbi_align_up((uintptr_t)(heap + 1), EBBI_CACHE_LINE);
    heap->slot_end = (void **)(start + EBBI_GRANULE);
    prepare_bins(heap);
    return heap;
}

static void link_heap(struct ebbi_heap *heap)
{
    heap->next = all_heaps;
    if (all_heaps != NULL) {
        all_heaps->previous = heap;
    }
    all_heaps = heap;
}

static struct ebbi_heap *heap_create(void)
{
    struct ebbi_heap *heap = heap_make(0);
    if (heap == NULL) {
        return NULL;
    }
    ebbi_depot_offer(heap);
    link_heap(heap);
    return heap;
}

struct ebbi_heap *ebbi_heap_create_for(struct ebb_domain *domain, struct ebbi_label *label)
{
    struct ebbi_heap *heap = heap_make(EBBI_TAG_DOMAIN);
    if (heap != NULL) {
        heap->seat.domain = domain;
        heap->label = label;
        link_heap(heap);
    }
    return heap;
}

static void heap_destroy(struct ebbi_heap *heap)
{
    *(heap->previous != NULL ? &heap->previous->next : &all_heaps) = heap->next;
    if (heap->next != NULL) {
        heap->next->previous = heap->previous;
    }
    ebbi_span_free(ebbi_span_of(heap));
}

static struct ebbi_heap *heap_adopt(void)
{
    struct ebbi_heap *heap = abandoned;
    if (heap == NULL) {
        return heap_create();
    }
    abandoned = heap->abandoned_next;
    abandoned_count--;
    return heap;
}

static struct ebbi_heap *attach(void)
{
    static bool fork_watched; // under the registry lock
    if (ebbi_start() != 0) {
        return NULL;
    }
    ebbi_lock_take(&registry);
    struct ebbi_heap *heap = heap_adopt();
    bool watch_fork = heap != NULL && !fork_watched && !WATCH_FORK_AT_START;
    if (heap != NULL) {
        heap->attached = true;
        heap->exit_rounds = EXIT_ROUNDS;
        heap->runs_calls = false;
        ebbi_clock_join(&ebbi_clock, &heap->fast.pin);
        fork_watched = true;
    }
    ebbi_lock_drop(&registry);
    if (heap != NULL) {
        ebb_self = (char *)&heap->fast; // before the next lines, which may allocate
        ebbi_source = &heap->fast;
        if (has_exit_key) {
            (void)pthread_setspecific(exit_key, heap);
        }
    }
    if (watch_fork) {
        (void)pthread_atfork(fork_prepare, fork_parent, fork_child);
    }
    return heap;
}

struct ebbi_heap *ebbi_heap_get(void)
{
    struct ebbi_fast *current = ebbi_current();
    if (EBBI_LIKELY(current != &ebbi_heap_none && current != &ebbi_heap_gone)) {
        return (struct ebbi_heap *)current;
    }
    return current == &ebbi_heap_none ? attach() : NULL;
}

struct ebbi_heap *ebbi_source_get(void)
{
    struct ebbi_fast *source = ebbi_source;
    if (EBBI_LIKELY(source != &ebbi_heap_none && source != &ebbi_heap_gone &&
                    source != &ebbi_heap_scoped)) {
        return (struct ebbi_heap *)source;
    }
    struct ebbi_heap *heap = ebbi_heap_get();
    if (source == &ebbi_heap_none && heap != NULL) {
        ebbi_source = &heap->fast; // attached while another source was put back
    }
    return heap;
}

struct ebbi_heap *ebbi_heap_lock_public(void)
{
    if (ebbi_start() != 0) {
        return NULL;
    }
    ebbi_lock_take(&registry);
    if (public_heap == NULL) {
        public_heap = heap_create();
    }
    struct ebbi_heap *heap = public_heap;
    ebbi_lock_drop(&registry);
    if (heap != NULL) {
        ebbi_lock_take(&heap->lock);
    }
    return heap;
}

static void release_reserves(struct ebbi_heap *heap)
{
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        ebbi_shelf_set_current(heap, c, NULL);
    }
}

static void push_abandoned(struct ebbi_heap *heap)
{
    heap->attached = false;
    heap->abandoned_next = abandoned;
    abandoned = heap;
    abandoned_count++;
}

// Under the heap's lock.
static bool is_empty(const struct ebbi_heap *heap)
{
    return heap->slab_count == 0 && heap->limbo.blocks == 0 && heap->deferred.count == 0 &&
           heap->records == NULL && !heap->is_depot && !heap->had_regions;
}

void ebbi_heap_rest(struct ebbi_heap *heap)
{
    ebbi_flush_all(heap);
    ebbi_lock_take(&heap->lock);
    ebbi_heap_collect(heap);
    if (!heap->is_depot) {
        release_reserves(heap);
    }
    ebbi_purge_abandoned(heap);
    ebbi_lock_drop(&heap->lock);
}

// No thread uses the heap any more: its magazines and reserves go back, what it has retired waits on
// in it, and its pins are over.
static void heap_abandon(struct ebbi_heap *heap)
{
    if (heap->has_regions) {
        ebbi_regions_disown(&heap->fast);
        heap->has_regions = false;
        heap->had_regions = true;
    }
    ebbi_limbo_seal(heap);
    ebbi_lock_take(&registry);
    ebbi_clock_leave(&ebbi_clock, &heap->fast.pin);
    ebbi_records_leave(heap);
    ebbi_seats_leave(heap);
    ebbi_heap_rest(heap);
    ebbi_lock_take(&heap->lock);
    ebbi_records_discard(heap);
    bool empty = is_empty(heap);
    ebbi_lock_drop(&heap->lock);
    if (empty && abandoned_count >= SPARE_HEAPS) {
        heap_destroy(heap);
    } else {
        push_abandoned(heap);
    }
    ebbi_lock_drop(&registry);
    ebbi_helper_kick();
}

static void thread_exit(void *argument)
{
    struct ebbi_heap *heap = argument;
    if (--heap->exit_rounds > 0) {
        (void)pthread_setspecific(exit_key, heap);
        return;
    }
    ebbi_scope_abandon(heap);
    ebb_self = (char *)&ebbi_heap_gone;
    ebbi_source = &ebbi_heap_gone;
    heap_abandon(heap);
}

void ebbi_registry_lock(void) { ebbi_lock_take(&registry); }
void ebbi_registry_unlock(void) { ebbi_lock_drop(&registry); }

void ebbi_heaps_each(void (*visit)(struct ebbi_heap *heap, void *context), void *context)
{
    ebbi_lock_take(&registry);
    for (struct ebbi_heap *heap = all_heaps; heap != NULL; heap = heap->next) {
        ebbi_lock_take(&heap->lock);
        visit(heap, context);
        ebbi_lock_drop(&heap->lock);
    }
    ebbi_lock_drop(&registry);
}

void ebbi_heaps_prune(void)
{
    size_t spare = 0;
    ebbi_lock_take(&registry);
    struct ebbi_heap **link = &abandoned;
    while (*link != NULL) {
        struct ebbi_heap *heap = *link;
        ebbi_lock_take(&heap->lock);
        ebbi_records_discard(heap);
        bool empty = is_empty(heap);
        ebbi_lock_drop(&heap->lock);
        if (empty && ++spare > SPARE_HEAPS) {
            *link = heap->abandoned_next;
            abandoned_count--;
            heap_destroy(heap);
        } else {
            link = &heap->abandoned_next;
        }
    }
    ebbi_lock_drop(&registry);
}

void ebbi_heaps_freeze(void (*visit)(struct ebbi_heap *heap, void *context), void *context)
{
    ebbi_lock_take(&registry);
    for (struct ebbi_heap *heap = all_heaps; heap != NULL; heap = heap->next) {
        ebbi_lock_take(&heap->lock);
    }
    if (visit != NULL) {
        ebbi_heaps_visit(visit, context);
    }
}

void ebbi_heaps_visit(void (*visit)(struct ebbi_heap *heap, void *context), void *context)
{
    for (struct ebbi_heap *heap = all_heaps; heap != NULL; heap = heap->next) {
        visit(heap, context);
    }
}

void ebbi_heaps_thaw(void)
{
    for (struct ebbi_heap *heap = all_heaps; heap != NULL; heap = heap->next) {
        ebbi_lock_drop(&heap->lock);
    }
    ebbi_lock_drop(&registry);
}

// A crash handler may allocate and fork while this thread holds the registry's or a heap's lock:
// it gets a heap of its own, and neither purge nor fork takes those locks any more.
static void enter_abort(void)
{
    struct ebbi_heap *heap = heap_make(0);
    ebbi_store_relaxed(&ebbi_dying, true); // relaxed: for this thread; for others a hint
    ebbi_source = heap != NULL ? &heap->fast : &ebbi_heap_gone;
    ebb_self = (char *)ebbi_source;
    if (heap != NULL) {
        heap->alone = true;
    }
}

// fork(): every lock in rank order, so that the child finds every structure whole.
static void fork_prepare(void)
{
    if (ebbi_load_relaxed(&ebbi_dying)) { // relaxed: set by this thread or of no matter
        return;
    }
    ebbi_lock_take(&start_lock);
    ebbi_heaps_freeze(NULL, NULL);
    ebbi_late_lock();
    ebbi_remains_lock();
    ebbi_regions_lock();
    ebbi_orphans_lock();
    ebbi_labels_lock();
    ebbi_stranded_lock();
    ebbi_hazards_lock();
    ebbi_collectors_lock();
    ebbi_arena_lock();
}

static void fork_parent(void)
{
    if (ebbi_load_relaxed(&ebbi_dying)) { // relaxed: as above
        return;
    }
    ebbi_arena_unlock();
    ebbi_collectors_unlock();
    ebbi_hazards_unlock();
    ebbi_stranded_unlock();
    ebbi_labels_unlock();
    ebbi_orphans_unlock();
    ebbi_regions_unlock();
    ebbi_remains_unlock();
    ebbi_late_unlock();
    ebbi_heaps_thaw();
    ebbi_lock_drop(&start_lock);
}

// What the thread of a heap changes without a lock. fork() copies one page after the other while the
// other threads run on, so these need not agree with each other in the child: a top may be newer than
// the slots below it. The blocks that they held are lost to the child.
static void forget_unlocked(struct ebbi_heap *heap)
{
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        unsigned bin = ebbi_class_bin(c, heap->lane);
        struct ebbi_magazine *m = &heap->magazines[c];
        heap->fast.top[bin] = m->slots != 0 ? m->base + 1 : (void **)&heap->nothing + 1;
        heap->fast.limbo[bin] = (struct ebbi_bag_top){NULL, NULL};
    }
    memset(heap->limbo.filling, 0, sizeof heap->limbo.filling);
    heap->limbo.spare = NULL;
    heap->outbox_count = 0;
}

// The other threads are gone; their heaps, limbo included, are the next threads'.
static void fork_child(void)
{
    struct ebbi_heap *mine = NULL;
    for (struct ebbi_heap *heap = all_heaps; heap != NULL; heap = heap->next) {
        if (&heap->fast == ebbi_current()) {
            mine = heap;
        } else if (heap->seat.domain == NULL && heap->attached) {
            forget_unlocked(heap);
            heap->seats = NULL;
            push_abandoned(heap);
        } else if (heap->seat.thread != NULL && &heap->seat.thread->fast != ebbi_current()) {
            forget_unlocked(heap);
            ebbi_seat_abandon(heap);
        }
    }
    ebbi_collectors_keep_only(mine);
    ebbi_hazards_keep_only(ebb_self);
    ebbi_late_forget();
    ebbi_calls_forget(mine != NULL && mine->runs_calls);
    fork_parent();
    ebbi_regions_keep_only(ebb_self, mine != NULL ? mine->entered : NULL,
                           mine != NULL ? ebbi_min(mine->entered_count, EBBI_ENTERED) : 0);
    ebbi_helper_forget();
}
