// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: the queues of limbo, and how blocks leave them.
#include <string.h>

#include "heap/blocks.h"
#include "reclaim/queues.h"

struct ebbi_waiting_part ebbi_limbo_waiting[EBBI_WAITING_PARTS];
static size_t limit_bytes;                                // atomic; 0: nobody asked
static struct ebbi_lock limit_lock = EBBI_LOCK(OWNER);    // nothing is taken under it
static void (*limit_notify)(size_t bytes, void *context); // set under limit_lock, as is the next
static void *limit_context;
static bool limit_exceeded;

static size_t block_bytes(const struct ebbi_bag *bag, size_t i)
{
    return bag->queue != EBBI_MIXED
               ? ebbi_classes[bag->queue].size
               : ebbi_classes[ebbi_tag_class(ebbi_tag_of(bag->blocks[i]))].size;
}

static size_t bytes_from(const struct ebbi_bag *bag, size_t from, size_t count)
{
    if (bag->queue != EBBI_MIXED) {
        return count * ebbi_classes[bag->queue].size;
    }
    size_t bytes = 0;
    for (size_t i = from; i < from + count; i++) {
        bytes += block_bytes(bag, i);
    }
    return bytes;
}

size_t ebbi_bag_bytes(const struct ebbi_bag *bag) { return bytes_from(bag, 0, bag->count); }

static void note_limit(size_t bytes)
{
    ebbi_lock_take(&limit_lock);
    void (*notify)(size_t, void *) = limit_notify;
    void *context = limit_context;
    bool news = !limit_exceeded && notify != NULL;
    limit_exceeded = true;
    ebbi_lock_drop(&limit_lock);
    if (news) {
        notify(bytes, context);
    }
}

// Amid changes one part may be seen without another: at worst less than nothing.
static size_t waiting_bytes(void)
{
    size_t bytes = 0;
    for (size_t i = 0; i < EBBI_WAITING_PARTS; i++) {
        bytes += ebbi_load_relaxed(&ebbi_limbo_waiting[i].bytes); // relaxed: a count
    }
    return bytes <= PTRDIFF_MAX ? bytes : 0;
}

void ebbi_limbo_add(size_t more)
{
    struct ebbi_waiting_part *part = &ebbi_limbo_waiting[ebbi_os_cpu() % EBBI_WAITING_PARTS];
    (void)ebbi_fetch_add_relaxed(&part->bytes, more); // relaxed: a count
}

void ebbi_limbo_count(size_t more, size_t less)
{
    ebbi_limbo_add(more - less);
    size_t limit = ebbi_load_relaxed(&limit_bytes); // relaxed: a count
    if (EBBI_LIKELY(limit == 0)) {
        return;
    }
    size_t bytes = waiting_bytes();
    if (more > 0 && bytes > limit) {
        note_limit(bytes);
    } else if (bytes <= limit) {
        ebbi_store_relaxed(&limit_exceeded, false); // relaxed: at worst told once too often
    }
}

void ebbi_limbo_set_limit(size_t limit, void (*notify)(size_t bytes, void *context), void *context)
{
    ebbi_lock_take(&limit_lock);
    limit_notify = notify;
    limit_context = context;
    limit_exceeded = false;
    ebbi_store_relaxed(&limit_bytes, notify != NULL ? ebbi_max(limit, 1) : 0); // relaxed: a hint
    ebbi_lock_drop(&limit_lock);
}

void ebbi_limit_lock(void) { ebbi_lock_take(&limit_lock); }
void ebbi_limit_unlock(void) { ebbi_lock_drop(&limit_lock); }

static void check_one(const struct ebbi_bag *bag, size_t i)
{
    EBBI_ASSERT(i < bag->count);
    (void)ebbi_slab_block(ebbi_slab_of(bag->blocks[i]), bag->blocks[i]);
    for (size_t j = 0; j < i; j++) {
        if (bag->blocks[j] == bag->blocks[i]) {
            ebbi_slab_report_double_retire(bag->blocks[i]);
        }
    }
}

// A bag that goes home is checked there, block by block. This is for those that refill malloc: no
// block is in it twice, and at each a block begins. Blocks that meet in one
// place of a small table, rarely, are compared one by one. The table is not cleared between bags: it
// holds the number of the check, in a byte.
void ebbi_bag_check(struct ebbi_limbo *limbo, const struct ebbi_bag *bag)
{
    EBBI_ASSERT(bag->queue != EBBI_MIXED && bag->count <= EBBI_BAG_BLOCKS);
    unsigned shift = ebbi_lowest_bit(ebbi_classes[bag->queue].align);
    uint64_t factor = ebbi_place_factor[ebbi_class_bin(bag->queue, 0)];
    uint64_t places = 0; // of all
    if (++limbo->check == 0) {
        memset(limbo->seen, 0, sizeof limbo->seen);
        limbo->check = 1;
    }
    for (size_t i = 0; i < bag->count; i++) {
        const void *p = bag->blocks[i];
        uint8_t *seen = &limbo->seen[((uintptr_t)p >> shift) % EBBI_SEEN];
        places |= ebbi_slab_place(p, ebbi_tag_load(ebbi_tag_at(p)), factor);
        if (EBBI_UNLIKELY(*seen == limbo->check)) {
            check_one(bag, i);
        }
        *seen = limbo->check;
    }
    for (size_t i = 0; EBBI_UNLIKELY(places >> EBBI_PLACE_BITS != 0) && i < bag->count; i++) {
        check_one(bag, i);
    }
}

void ebbi_bag_enqueue(struct ebbi_heap *heap, struct ebbi_bag *bag)
{
    ebbi_assert_held(&heap->own.lock);
    EBBI_ASSERT(bag->queue < EBBI_CLASS_COUNT && bag->count > 0 && bag->count <= EBBI_BAG_BLOCKS);
    struct ebbi_bag_queue *queue = &heap->limbo.queues[bag->queue];
    bag->stamp = ebbi_clock_stamp(&ebbi_clock);
    bag->next = NULL;
    if (queue->first == NULL) {
        ebbi_store_relaxed(&queue->first, bag); // relaxed: under the lock but for a look at NULL
    } else {
        queue->last->next = bag;
    }
    queue->last = bag;
    bag->is_free = false;
}

static EBBI_NOINLINE bool is_protected(const struct ebbi_bag *bag)
{
    struct ebbi_suspects suspects;
    ebbi_suspects_start(&suspects);
    for (size_t i = 0; i < bag->count; i++) {
        ebbi_suspects_add(&suspects, bag->blocks[i], block_bytes(bag, i));
    }
    return ebbi_suspects_any(&suspects);
}

static bool is_free(struct ebbi_bag *bag)
{
    bag->is_free = bag->is_free || ebbi_hazards_count() == 0 || !is_protected(bag);
    return bag->is_free;
}

bool ebbi_bag_has_surplus(const struct ebbi_heap *heap, unsigned queue)
{
    const struct ebbi_bag *bag = heap->limbo.queues[queue].first;
    return bag != NULL && (queue == EBBI_MIXED || (bag->next != NULL && bag->next->next != NULL));
}

struct ebbi_bag *ebbi_bag_dequeue(struct ebbi_bag_queue *queue)
{
    struct ebbi_bag *bag = queue->first;
    ebbi_store_relaxed(&queue->first, bag->next); // relaxed: as in ebbi_bag_enqueue
    return bag;
}

bool ebbi_bag_first_passed(struct ebbi_heap *heap, unsigned queue_number)
{
    struct ebbi_bag_queue *queue = &heap->limbo.queues[queue_number];
    while (queue->first != NULL && ebbi_clock_passed(&ebbi_clock, queue->first->stamp)) {
        if (is_free(queue->first)) {
            return true;
        }
        ebbi_bag_enqueue(heap, ebbi_bag_dequeue(queue)); // with a new stamp: the loop ends
    }
    return false;
}

void ebbi_bag_forget(struct ebbi_heap *heap, const struct ebbi_bag *bag, size_t count)
{
    ebbi_assert_held(&heap->own.lock);
    EBBI_ASSERT(bag->count + count <= EBBI_BAG_BLOCKS && heap->limbo.blocks >= count);
    size_t bytes = bytes_from(bag, bag->count, count);
    EBBI_ASSERT(heap->limbo.bytes >= bytes);
    heap->limbo.blocks -= count;
    heap->limbo.bytes -= bytes;
    ebbi_limbo_count(0, bytes);
}

struct ebbi_bag *ebbi_bag_take_passed(struct ebbi_heap *heap, unsigned queue_number)
{
    if (!ebbi_bag_first_passed(heap, queue_number)) {
        return NULL;
    }
    struct ebbi_bag *bag = ebbi_bag_dequeue(&heap->limbo.queues[queue_number]);
    size_t bytes = ebbi_bag_bytes(bag);
    EBBI_ASSERT(bag->queue == queue_number && bag->is_free);
    EBBI_ASSERT(heap->limbo.bags > 0 && heap->limbo.blocks >= bag->count &&
                heap->limbo.bytes >= bytes);
    heap->limbo.bags--;
    heap->limbo.blocks -= bag->count;
    heap->limbo.bytes -= bytes;
    ebbi_limbo_count(0, bytes);
    return bag;
}

void ebbi_bag_release(struct ebbi_heap *heap, struct ebbi_bag *bag)
{
    if (heap == NULL || bag->queue == EBBI_MIXED) {
        ebbi_give_blocks(NULL, bag->blocks, bag->count);
        return;
    }
    struct ebbi_owner *owner = ebbi_lock_owner(heap, bag->queue);
    ebbi_owner_tell_time(owner);
    ebbi_give_blocks(owner, bag->blocks, bag->count);
    owner->freed_bytes += ebbi_bag_bytes(bag);
    ebbi_purge_blocks(owner);
    ebbi_unlock_owner(heap, owner);
}

static bool large_passed(const void *p)
{
    // relaxed: under the lock, but for claims
    return ebbi_clock_passed(&ebbi_clock, ebbi_load_relaxed(&ebbi_large_note((void *)p)->stamp));
}

void ebbi_large_enqueue(struct ebbi_heap *heap, void *p)
{
    ebbi_assert_held(&heap->own.lock);
    struct ebbi_limbo *limbo = &heap->limbo;
    ebbi_large_note(p)->next = NULL;
    // relaxed: under the lock, but for claims
    ebbi_store_relaxed(&ebbi_large_note(p)->stamp, ebbi_clock_stamp(&ebbi_clock));
    if (limbo->large_first == NULL) {
        limbo->large_first = p;
    } else {
        ebbi_large_note(limbo->large_last)->next = p;
    }
    limbo->large_last = p;
}

static void large_push(struct ebbi_limbo *limbo, void *p)
{
    EBBI_ASSERT(ebbi_large_note(p) != NULL);
    ebbi_large_note(p)->next = limbo->large_first;
    limbo->large_last = limbo->large_first == NULL ? p : limbo->large_last;
    limbo->large_first = p;
}

// The first of the chain that have passed, up to a number, are looked for in one go. Those that are
// held go to its end.
static EBBI_NOINLINE size_t large_look(struct ebbi_heap *heap)
{
    struct ebbi_limbo *limbo = &heap->limbo;
    struct ebbi_suspects suspects;
    void *p = limbo->large_first;
    ebbi_suspects_start(&suspects);
    for (; p != NULL && suspects.count < EBBI_SUSPECTS && large_passed(p);
         p = ebbi_large_note(p)->next) {
        ebbi_suspects_add(&suspects, p, ebbi_large_bytes(p));
    }
    ebbi_suspects_mark(&suspects);
    size_t held = 0;
    limbo->large_first = p;
    for (size_t i = suspects.count; i-- > 0;) {
        p = (void *)suspects.list[i].start;
        held += suspects.marks[i];
        if (suspects.marks[i]) {
            ebbi_large_enqueue(heap, p);
        } else {
            large_push(limbo, p);
        }
    }
    return suspects.count - held;
}

void *ebbi_large_take_passed(struct ebbi_heap *heap)
{
    ebbi_assert_held(&heap->own.lock);
    struct ebbi_limbo *limbo = &heap->limbo;
    void *p = limbo->large_first;
    if (p == NULL || !large_passed(p)) {
        return NULL;
    }
    if (limbo->large_free == 0) {
        limbo->large_free = ebbi_hazards_count() == 0 ? 1 : large_look(heap);
    }
    if (limbo->large_free == 0) {
        return NULL;
    }
    p = limbo->large_first;
    size_t bytes = ebbi_large_bytes(p);
    EBBI_ASSERT(p != NULL && limbo->blocks > 0 && limbo->bytes >= bytes);
    limbo->large_free--;
    limbo->large_first = ebbi_large_note(p)->next;
    limbo->blocks--;
    limbo->bytes -= bytes;
    ebbi_limbo_count(0, bytes);
    return p;
}

void ebbi_large_reclaim(void *p)
{
    ebbi_store_relaxed(&ebbi_large_note(p)->stamp, (uint64_t)0); // relaxed: nobody else's any more
    ebbi_large_free(p);
}
