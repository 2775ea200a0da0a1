// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer process: the accounts of the heap, class by class. Added up from counts that owners keep, each owner under its own
// lock in turn: nobody waits for the whole, and no page is looked at.
#include <string.h>

#include "heap/blocks.h"
#include "heap/registry.h"
#include "heap/slabs.h"
#include "process/process.h"
#include "profile/profile.h"
#include "reclaim/reclaim.h"

_Static_assert(EBBI_CLASS_COUNT - 1 <= EBB_SNAPSHOT_CLASSES, "a row for each class");

// Without a page of its own until it is asked for.
EBBI_SPARSE struct ebbi_published ebbi_published;

// The smallest first.
static struct ebb_class_stats *row_of(struct ebb_snapshot *s, unsigned class_number)
{
    return &s->classes[class_number % EBBI_CLASS_EMPTY];
}

// Slabs that have come home whole end here. live_blocks are those that are out of their slabs, until the cached ones are taken off.
static void add_owner(struct ebbi_owner *owner, void *context)
{
    struct ebb_snapshot *s = context;
    ebbi_assert_held(&owner->lock);
    ebbi_owner_tell_time(owner);
    ebbi_owner_collect(owner); // what is on its way there is free
    s->slabs += owner->slab_count;
    s->slab_bytes += owner->held_bytes;
    for (unsigned c = 1; c < EBBI_CLASS_COUNT && owner->slab_count > 0; c++) {
        struct ebb_class_stats *row = row_of(s, c);
        row->slabs += owner->shelves[c].slabs;
        row->live_blocks += owner->shelves[c].out_blocks;
        row->dirty_bytes += owner->shelves[c].dirty_blocks * ebbi_class_bytes(c);
        row->pinned_bytes += (size_t)owner->shelves[c].pinned * EBBI_QUANTUM;
    }
}

// Blocks that the heap's thread has freed, by class; class 0: of none.
static void count_cached(struct ebbi_heap *heap, size_t blocks[EBBI_CLASS_COUNT])
{
    memset(blocks, 0, EBBI_CLASS_COUNT * sizeof *blocks);
    for (unsigned n = 1; n < EBBI_ARRAYS; n++) {
        // relaxed: a hint, as what the count is made of
        unsigned c = ebbi_tag_class(ebbi_load_relaxed(&heap->magazines[n].bin));
        blocks[c] += c != 0 ? ebbi_magazine_count(heap, n) : 0;
    }
    size_t waiting =
        ebbi_min(ebbi_load_relaxed(&heap->outbox_count), EBBI_OUTBOX); // relaxed: a hint
    for (size_t i = 0; i < waiting; i++) {
        // relaxed: a hint, which may be of no block any more
        blocks[ebbi_tag_class(ebbi_tag_of(ebbi_load_relaxed(&heap->outbox[i])))]++;
    }
}

static size_t spare_bytes(const struct ebbi_heap *heap)
{
    return ebbi_spares_granules(&heap->spares) << EBBI_GRANULE_SHIFT;
}

static void add_heap_accounts(struct ebbi_heap *heap, void *context)
{
    struct ebb_snapshot *s = context;
    size_t cached[EBBI_CLASS_COUNT];
    s->heaps++;
    add_owner(&heap->own, context);
    count_cached(heap, cached);
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        row_of(s, c)->cached_blocks += cached[c];
    }
    s->cached_bytes += spare_bytes(heap);
}

// What is held beside samples of a profile is not the program's.
static void add_held(struct ebb_snapshot *s)
{
    void *held[EBBI_LOANS];
    for (uint32_t place = 1; place != 0;) {
        size_t count = ebbi_live_held(held, &place);
        for (size_t i = 0; i < count; i++) {
            unsigned c = ebbi_tag_class(ebbi_tag_of(held[i]));
            row_of(s, c)->cached_blocks += c != 0;
        }
    }
}

static void sum_up(struct ebb_snapshot *s)
{
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        const struct ebbi_class *class = &ebbi_classes[c];
        struct ebb_class_stats *row = row_of(s, c);
        size_t out = row->live_blocks;
        size_t all = row->slabs * class->blocks;
        row->block_bytes = ebbi_class_bytes(c);
        row->cached_blocks = ebbi_min(row->cached_blocks, out);
        row->live_blocks = out - row->cached_blocks;
        row->free_blocks = all - ebbi_min(out, all);
        s->live_bytes += row->live_blocks * row->block_bytes;
        s->cached_bytes += row->cached_blocks * row->block_bytes;
        s->free_bytes += row->free_blocks * row->block_bytes;
        s->dirty_bytes += row->dirty_bytes;
        s->pinned_bytes += row->pinned_bytes;
    }
    s->class_count = EBBI_CLASS_COUNT - 1;
}

void ebbi_snapshot_take(struct ebb_snapshot *s)
{
    struct ebbi_arena_totals totals;
    memset(s, 0, sizeof *s);
    ebbi_heaps_each(add_heap_accounts, s);
    ebbi_depots_each(add_owner, s);
    add_held(s);
    sum_up(s);
    ebbi_arena_totals(&totals);
    s->span_bytes = totals.used_bytes - ebbi_min(totals.used_bytes, s->slab_bytes);
    s->span_bytes -= ebbi_min(s->span_bytes, ebbi_large_samples_rounding());
    s->huge_bytes = totals.huge_bytes;
    s->huge_count = totals.huge_count;
    s->dirty_span_bytes = totals.dirty_bytes;
    s->committed_bytes = totals.committed_bytes;
    s->reserved_bytes = totals.reserved_bytes;
    s->asked_huge_bytes = totals.dense_bytes;
    s->purged_bytes = ebbi_arena_purged_bytes();
    s->purges = totals.purges;
    s->taken_ms = ebbi_os_now_ms();
}

struct thread_accounts {
    struct ebb_thread_stats *rows;
    size_t room, found;
};

static void add_thread(struct ebbi_heap *heap, void *context)
{
    struct thread_accounts *accounts = context;
    // relaxed: a number; 0 where no thread has the heap
    uint32_t thread = ebbi_load_relaxed(&heap->fast.pin.thread);
    if (thread == 0 || accounts->found++ >= accounts->room) {
        return;
    }
    struct ebb_thread_stats *row = &accounts->rows[accounts->found - 1];
    size_t cached[EBBI_CLASS_COUNT];
    count_cached(heap, cached);
    size_t blocks = 0;
    *row = (struct ebb_thread_stats){
        .thread = thread,
        .cached_bytes = spare_bytes(heap),
        .retired_bytes = heap->limbo.bytes + ebbi_limbo_filling(heap, &blocks),
        .taken_bytes = ebbi_load_relaxed(&heap->taken_bytes), // relaxed: a count
    };
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        row->cached_bytes += cached[c] * ebbi_class_bytes(c);
    }
}

size_t ebbi_threads_account(struct ebb_thread_stats *lines, size_t count)
{
    struct thread_accounts accounts = {lines, count, 0};
    ebbi_heaps_each(add_thread, &accounts);
    return accounts.found;
}

void ebbi_snapshot_publish(void)
{
    uint64_t turn = ebbi_published.turn;
    ebbi_store_relaxed(&ebbi_published.turn, turn + 1); // relaxed: the fence orders it
    ebbi_fence_full(); // full[snapshot <-> snapshot]: the other process reads the turn on both sides
    ebbi_snapshot_take(&ebbi_published.taken);
    ebbi_published.unsealed_bytes = ebbi_limbo_unsealed();
    ebbi_published.thread_count =
        ebbi_threads_account(ebbi_published.threads, EBBI_PUBLISHED_THREADS);
    ebbi_fence_full();                                  // full[snapshot <-> snapshot]: as above
    ebbi_store_relaxed(&ebbi_published.turn, turn + 2); // relaxed: behind the fence
}
