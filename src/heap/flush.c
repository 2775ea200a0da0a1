// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: the slow free. Blocks leave a full magazine, oldest first, as bits: into the local
// bitmaps of our own slabs, and grouped by word into the remote bitmaps of others'.
#include "heap/fast.h"

#define ONLY_FREES 3 // flushes in a row
#define GROUPS 16    // remembered at a time; a power of two

struct group {
    struct ebbi_slab *slab;
    uint64_t mask;
    unsigned word;
};

static void announce(struct ebbi_slab *slab, struct ebbi_heap *owner)
{
    // relaxed: only compared
    struct ebbi_slab *first = ebbi_load_relaxed(&owner->pending);
    EBBI_ASSERT(first != slab);
    do {
        slab->pending_next = first;
        // release[pending-push -> pending-take]: pending_next
    } while (!ebbi_cas_release(&owner->pending, &first, slab));
}

void ebbi_give_word(struct ebbi_slab *slab, unsigned word, uint64_t mask)
{
    EBBI_ASSERT(mask != 0 && word < slab->words);
    struct ebbi_heap *owner = slab->heap; // before the blocks go: the slab may go with them
    if (ebbi_slab_give_remote(slab, word, mask)) {
        announce(slab, owner);
    }
}

static void send(const struct group *group)
{
    EBBI_ASSERT(group->slab != NULL && group->mask != 0);
    ebbi_give_word(group->slab, group->word, group->mask);
}

// Adds a foreign block to its group; another group in the same place is sent first.
static void collect_group(struct group *groups, struct ebbi_slab *slab, void *p)
{
    unsigned block = ebbi_slab_block(slab, p);
    unsigned word = block / 64;
    struct group *group = &groups[(ebbi_span_index((struct ebbi_span *)slab) + word) % GROUPS];
    uint64_t bit = (uint64_t)1 << (block % 64);
    EBBI_ASSERT(word < slab->words);
    if (group->mask != 0 && (group->slab != slab || group->word != word)) {
        send(group);
        group->mask = 0;
    }
    if ((group->mask & bit) != 0) {
        ebbi_slab_report_double_free(p);
    }
    group->slab = slab;
    group->word = word;
    group->mask |= bit;
}

void ebbi_give_blocks(struct ebbi_heap *heap, void **blocks, size_t count)
{
    struct group groups[GROUPS];
    for (size_t i = 0; i < GROUPS; i++) {
        groups[i].mask = 0;
    }
    size_t foreign = 0;
    for (size_t i = 0; i < count; i++) {
        struct ebbi_slab *slab = ebbi_slab_of(blocks[i]);
        if (slab->heap != heap) {
            collect_group(groups, slab, blocks[i]);
            foreign++;
            continue;
        }
        ebbi_assert_held(&heap->lock);
        ebbi_slab_give(slab, blocks[i]);
        heap->idle_bytes += ebbi_slab_class(slab)->size;
        ebbi_heap_count_out(heap, -(int64_t)(ebbi_slab_class(slab)->size));
        slab->touched = heap->clock_ms;
        ebbi_purge_note(heap, slab);
        ebbi_shelf_settle(heap, slab);
    }
    for (size_t i = 0; foreign > 0 && i < GROUPS; i++) {
        if (groups[i].mask != 0) {
            send(&groups[i]);
        }
    }
}

// The oldest blocks leave, the rest move down. Under the owner's lock.
static void flush_oldest(struct ebbi_heap *heap, struct ebbi_heap *owner, unsigned class_number,
                         size_t count)
{
    struct ebbi_magazine *m = &heap->magazines[class_number];
    unsigned bin = ebbi_class_bin(class_number, heap->lane);
    void **first = m->base + 1;
    size_t rest = (size_t)(heap->fast.top[bin] - first) - count;
    ebbi_assert_held(&owner->lock);
    EBBI_ASSERT(m->stolen == 0 && (size_t)(heap->fast.top[bin] - first) == rest + count);
    EBBI_ASSERT(rest < m->slots);
    ebbi_heap_tell_time(owner);
    ebbi_give_blocks(owner, first, count);
    for (size_t i = 0; i < rest; i++) {
        first[i] = first[count + i];
    }
    heap->fast.top[bin] = first + rest;
    owner->freed_bytes += count * ebbi_classes[class_number].size;
}

void ebbi_flush(struct ebbi_heap *heap, unsigned class_number)
{
    struct ebbi_heap *owner = ebbi_lock_owner(heap, class_number);
    struct ebbi_magazine *m = &heap->magazines[class_number];
    if (m->slots == 0) {
        (void)ebbi_magazine_ensure(heap, class_number);
    } else {
        // Blocks that only come in leave all together: nobody here asks for them.
        bool only_frees = m->flushed && m->streak >= ONLY_FREES;
        size_t full = m->slots - 1u;
        EBBI_ASSERT(heap->fast.top[ebbi_class_bin(class_number, heap->lane)] == m->base + m->slots);
        heap->events++;
        flush_oldest(heap, owner, class_number, only_frees ? full : (full + 1) / 2);
        if (only_frees) {
            ebbi_magazine_adapt(heap, class_number, true);
        } else {
            m->streak = m->flushed ? (uint8_t)(m->streak + 1) : 1;
            m->flushed = true;
            m->busy = true;
        }
    }
    ebbi_purge_blocks(owner);
    EBBI_HEAP_AUDIT(owner, heap->events);
    ebbi_lock_drop(&owner->lock);
    EBBI_MAGAZINES_AUDIT(heap, heap->events);
    ebbi_purge_tick(heap);
}

void ebbi_send_outbox(struct ebbi_heap *heap)
{
    ebbi_lock_take(&heap->lock);
    ebbi_heap_tell_time(heap);
    ebbi_give_blocks(heap, heap->outbox, heap->outbox_count);
    EBBI_ASSERT(heap->outbox_count <= EBBI_OUTBOX);
    heap->outbox_count = 0;
    ebbi_lock_drop(&heap->lock);
}

void ebbi_flush_class(struct ebbi_heap *heap, unsigned class_number)
{
    EBBI_ASSERT(heap->magazines[class_number].slots != 0);
    struct ebbi_heap *owner = ebbi_lock_owner(heap, class_number);
    unsigned bin = ebbi_class_bin(class_number, heap->lane);
    size_t count = (size_t)(heap->fast.top[bin] - heap->magazines[class_number].base) - 1;
    flush_oldest(heap, owner, class_number, count);
    ebbi_magazine_reset(heap, class_number);
    ebbi_lock_drop(&owner->lock);
}

void ebbi_flush_largest(struct ebbi_heap *heap)
{
    unsigned largest = 1;
    for (unsigned c = 2; c < EBBI_CLASS_COUNT; c++) {
        if (heap->magazines[c].slots > heap->magazines[largest].slots) {
            largest = c;
        }
    }
    if (heap->magazines[largest].slots != 0) {
        ebbi_flush_class(heap, largest);
    }
}

void ebbi_flush_all(struct ebbi_heap *heap)
{
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        if (heap->magazines[c].slots != 0) {
            ebbi_flush_class(heap, c);
        }
    }
    ebbi_send_outbox(heap);
}

void ebbi_give_one(void *p)
{
    EBBI_ASSERT(p != NULL);
    struct ebbi_slab *slab = ebbi_slab_of(p);
    unsigned block = ebbi_slab_block(slab, p);
    ebbi_give_word(slab, block / 64, (uint64_t)1 << (block % 64));
}

// A block in use starts at p, as far as can be seen: it is not among the `count` blocks that were freed
// before it, of which the newest few are looked at, nor has it gone home to `heap`.
static void check_block(struct ebbi_heap *heap, void *const *freed, size_t count, void *p)
{
    const struct ebbi_slab *slab = ebbi_slab_of(p);
    unsigned block = ebbi_slab_block(slab, p);
    bool is_free = false;
    for (size_t i = 1; i <= ebbi_min(count, EBBI_LATELY); i++) {
        is_free |= freed[count - i] == p;
    }
    if (slab->heap == heap) { // so none of another thread's locks is waited for
        ebbi_lock_take(&heap->lock);
        is_free |= ebbi_slab_is_free(slab, block);
        ebbi_lock_drop(&heap->lock);
    }
    if (is_free) {
        ebbi_slab_report_double_free(p);
    }
}

static void put_in_outbox(struct ebbi_heap *heap, void *p)
{
    check_block(heap, heap->outbox, heap->outbox_count, p);
    if (heap->outbox_count == EBBI_OUTBOX) {
        ebbi_send_outbox(heap);
        heap->events++;
        ebbi_purge_tick(heap);
    }
    EBBI_ASSERT(heap->outbox_count < EBBI_OUTBOX);
    // relaxed: a snapshot reads both meanwhile, as hints
    ebbi_store_relaxed(&heap->outbox[heap->outbox_count], p);
    ebbi_compiler_fence(); // another thread's fork() must not find a count without its block
    ebbi_store_relaxed(&heap->outbox_count, heap->outbox_count + 1); // relaxed: as above
}

// To the magazine of the heap that is current or, if it is not of its kind, of the thread's own; else by
// way of the outbox.
static void free_block(struct ebbi_heap *heap, void *p, unsigned tag)
{
    unsigned class_number = ebbi_tag_class(tag);
    if (ebbi_class_bin(class_number, heap->lane) != tag) {
        heap = (struct ebbi_heap *)ebbi_current();
    }
    if (ebbi_class_bin(class_number, heap->lane) != tag) {
        put_in_outbox(heap, p);
        return;
    }
    const struct ebbi_magazine *m = &heap->magazines[class_number];
    if (m->slots != 0) {
        check_block(heap, m->base + 1, (size_t)(heap->fast.top[tag] - m->base) - 1, p);
    } else {
        check_block(heap, NULL, 0, p);
    }
    if (heap->fast.top[tag] == heap->fast.limit[tag]) {
        ebbi_flush(heap, class_number);
    }
    if (heap->fast.top[tag] == heap->fast.limit[tag]) { // no room for even the smallest array
        ebbi_give_one(p);
        return;
    }
    EBBI_ASSERT(heap->magazines[class_number].slots != 0 &&
                heap->fast.top[tag] < heap->fast.limit[tag]);
    void **top = heap->fast.top[tag];
    ebbi_store_relaxed(top, p);                        // relaxed: as in ebbi_free
    ebbi_compiler_fence();                             // as in ebbi_free
    ebbi_store_relaxed(&heap->fast.top[tag], top + 1); // relaxed: others only count
}

static EBBI_NOINLINE void free_other(void *p, unsigned tag)
{
    if (p == NULL) {
        return;
    }
    if (ebbi_tag_class(tag) == 0) {
        ebbi_large_free(p);
        return;
    }
    struct ebbi_heap *heap = ebbi_source_for_free(); // as in take_class
    struct ebbi_heap *inside = ebbi_inside();
    if (heap == NULL) {
        ebbi_give_one(p);
    } else {
        free_block(heap, p, tag);
    }
    ebbi_outside(inside);
}

EBBI_NOINLINE void ebbi_free_slow(void *p)
{
    unsigned tag = ebbi_tag_of(p);
    if (tag == EBBI_TAG_REGION) {
        ebbi_sheet_free(p);
    } else {
        free_other(p, tag);
    }
}
