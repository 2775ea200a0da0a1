// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: the free that finds its magazine full, or of another kind. The oldest blocks leave first.
#include "base/probe.h"
#include "debug/check.h"
#include "heap/blocks.h"
#include "heap/lately.h"

#define ONLY_FREES 3    // flushes in a row
#define QUIET_FOREIGN 2 // times in a row, when others' blocks go, too
#define QUIET_MOST 8    // arrays at once

// Behind the lock. Class 0: of several.
static void tell_flush(unsigned class_number, size_t count)
{
    if (count > 0) {
        EBBI_PROBE2(flush, ebbi_classes[class_number].size, count);
    }
}

// The oldest blocks leave, the rest move down. Under the owner's lock.
static void flush_oldest(struct ebbi_heap *heap, struct ebbi_owner *owner, unsigned class_number,
                         size_t count)
{
    struct ebbi_magazine *m = &heap->magazines[class_number];
    unsigned bin = ebbi_class_bin(class_number, heap->lane);
    void **first = m->base + 1;
    size_t rest = (size_t)(heap->fast.top[bin] - first) - count;
    ebbi_assert_held(&owner->lock);
    EBBI_ASSERT(m->stolen == 0 && (size_t)(heap->fast.top[bin] - first) == rest + count);
    EBBI_ASSERT(rest < m->slots);
    ebbi_owner_tell_time(owner);
    ebbi_give_blocks(owner, first, count);
    for (size_t i = 0; i < rest; i++) {
        first[i] = first[count + i];
    }
    ebbi_store_relaxed(&heap->fast.top[bin], first + rest); // relaxed: others only count
    owner->freed_bytes += count * ebbi_classes[class_number].size;
}

static void flush_class(struct ebbi_heap *heap, unsigned class_number)
{
    struct ebbi_owner *owner = ebbi_lock_owner(heap, class_number);
    unsigned bin = ebbi_class_bin(class_number, heap->lane);
    size_t count = (size_t)(heap->fast.top[bin] - heap->magazines[class_number].base) - 1;
    flush_oldest(heap, owner, class_number, count);
    ebbi_array_close(heap, class_number);
    ebbi_unlock_owner(heap, owner);
    tell_flush(class_number, count);
}

void ebbi_flush_turn(struct ebbi_heap *heap)
{
    unsigned class_number = ebbi_magazines_turn(heap);
    if (class_number != 0) {
        flush_class(heap, class_number);
    }
}

// The magazine is full, or has no array. Where it gets none, the block goes home at once: false.
static bool flush(struct ebbi_heap *heap, unsigned class_number, void *p)
{
    struct ebbi_owner *owner = ebbi_lock_owner(heap, class_number);
    struct ebbi_magazine *m = &heap->magazines[class_number];
    size_t count = 0;
    bool has_array = true;
    ebbi_owner_tell_time(owner);
    ebbi_magazines_tell_time(heap, owner->clock_ms);
    if (m->slots == 0) {
        has_array = ebbi_magazine_ensure(heap, class_number);
        if (!has_array) {
            ebbi_give_blocks(owner, &p, 1);
            owner->freed_bytes += ebbi_classes[class_number].size;
        }
    } else {
        // Blocks that only come in leave all together: nobody here asks for them.
        bool only_frees = m->flushed && m->streak >= ONLY_FREES;
        size_t full = m->slots - 1u;
        EBBI_ASSERT(heap->fast.top[ebbi_class_bin(class_number, heap->lane)] == m->base + m->slots);
        count = only_frees ? full : (full + 1) / 2;
        flush_oldest(heap, owner, class_number, count);
        if (only_frees) {
            ebbi_magazine_adapt(heap, class_number, true);
        } else {
            m->streak = m->flushed ? (uint8_t)(m->streak + 1) : 1;
            m->flushed = true;
            m->busy = true;
        }
    }
    ebbi_heap_count_event(heap, count);
    ebbi_purge_blocks(owner);
    EBBI_OWNER_AUDIT(owner, heap->events);
    ebbi_unlock_owner(heap, owner);
    tell_flush(class_number, count);
    if (!has_array) {
        ebbi_flush_turn(heap);
    }
    if (EBBI_UNLIKELY(heap->lacks_slots)) {
        ebbi_magazines_extend(heap);
    }
    EBBI_MAGAZINES_AUDIT(heap, heap->events);
    ebbi_purge_tick(heap);
    return has_array;
}

static void send_outbox(struct ebbi_heap *heap)
{
    ebbi_lock_take(&heap->own.lock);
    size_t count = heap->outbox_count;
    ebbi_give_blocks(NULL, heap->outbox, count);
    EBBI_ASSERT(count <= EBBI_OUTBOX);
    heap->outbox_count = 0;
    ebbi_lock_drop(&heap->own.lock);
    tell_flush(0, count);
}

// Under the lock, as what is amid such a change must not be seen by a fork. How many blocks.
static size_t send_tray(struct ebbi_heap *heap, const struct ebbi_magazine *tray)
{
    void **first = tray->base + 1;
    ebbi_assert_held(&heap->own.lock);
    EBBI_ASSERT(tray->stolen == 0 && heap->fast.top[tray->bin] <= heap->fast.limit[tray->bin]);
    size_t count = (size_t)(heap->fast.top[tray->bin] - first);
    ebbi_give_blocks(NULL, first, count);
    heap->fast.top[tray->bin] = first;
    return count;
}

static void end_tray(struct ebbi_heap *heap, unsigned number)
{
    ebbi_lock_take(&heap->own.lock);
    unsigned class_number = ebbi_tag_class(heap->magazines[number].bin);
    size_t count = send_tray(heap, &heap->magazines[number]);
    ebbi_array_close(heap, number);
    ebbi_lock_drop(&heap->own.lock);
    tell_flush(class_number, count);
}

static void flush_array(struct ebbi_heap *heap, unsigned number)
{
    EBBI_ASSERT(number < EBBI_ARRAYS && heap->magazines[number].slots != 0);
    if (number < EBBI_CLASS_COUNT) {
        flush_class(heap, number);
    } else {
        end_tray(heap, number);
    }
}

static void flush_from(struct ebbi_heap *heap, unsigned from)
{
    for (unsigned n = from; n < EBBI_ARRAYS; n++) {
        if (heap->magazines[n].slots != 0) {
            flush_array(heap, n);
        }
    }
    send_outbox(heap);
}

void ebbi_flush_all(struct ebbi_heap *heap) { flush_from(heap, 1); }

void ebbi_flush_foreign(struct ebbi_heap *heap) { flush_from(heap, EBBI_CLASS_COUNT); }

// Without a refill or flush since the last time its arrays are more than enough, or just so: one array
// goes, then two, and so on. Where more than half as many were wanted back it begins anew.
void ebbi_flush_quiet(struct ebbi_heap *heap)
{
    uint32_t wanted = heap->events - heap->quiet_events;
    heap->quiet_events = heap->events;
    if (wanted == 0) {
        heap->quiet = (uint8_t)ebbi_min(heap->quiet + 1u, QUIET_MOST);
    } else if (wanted > heap->quiet / 2u) {
        heap->quiet = 0;
    }
    if (heap->quiet == QUIET_FOREIGN) {
        ebbi_flush_foreign(heap);
    }
    unsigned class_number = 1;
    for (unsigned i = 0; i < heap->quiet && class_number != 0; i++) {
        class_number = ebbi_magazines_hand(heap);
        if (class_number != 0) {
            flush_class(heap, class_number);
        }
    }
}

void ebbi_flush_idle(struct ebbi_heap *heap, unsigned from)
{
    for (unsigned n = from; n < EBBI_ARRAYS; n++) {
        struct ebbi_magazine *m = &heap->magazines[n];
        if (m->slots != 0 && !m->busy) {
            flush_array(heap, n);
        }
        m->busy = false;
    }
}

static void release_reserves(struct ebbi_owner *owner)
{
    ebbi_assert_held(&owner->lock);
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        ebbi_shelf_set_current(owner, c, NULL);
    }
}

void ebbi_heap_rest(struct ebbi_heap *heap)
{
    EBBI_ASSERT(heap->attached || heap->seat.domain != NULL);
    ebbi_flush_all(heap);
    ebbi_lock_take(&heap->own.lock);
    ebbi_owner_collect(&heap->own);
    release_reserves(&heap->own);
    ebbi_purge_ended(&heap->own);
    ebbi_lock_drop(&heap->own.lock);
}

// A block in use starts at p, as far as can be seen: it is not among the `count` blocks that were freed
// before it, of which the newest few are looked at, nor on its way home, nor has it got there where the owner can be asked.
static void check_block(struct ebbi_heap *heap, void *const *freed, size_t count, void *p)
{
    const struct ebbi_slab *slab = ebbi_slab_of(p);
    unsigned block = ebbi_slab_block(slab, p);
    bool is_free = ebbi_slab_is_given(slab, block);
    for (size_t i = 1; i <= EBBI_LATELY && i <= count; i++) {
        is_free |= freed[count - i] == p;
    }
    struct ebbi_owner *owner = ebbi_lock_owner_of(heap, slab);
    if (owner != NULL) {
        is_free |= ebbi_slab_is_free(slab, block);
        ebbi_lock_drop(&owner->lock);
    }
    if (is_free) {
        ebbi_slab_report_double_free(p);
    }
}

// Of what one magazine or tray holds.
static void check_in(struct ebbi_heap *heap, const struct ebbi_magazine *m, void *p)
{
    if (m->slots != 0) {
        check_block(heap, m->base + 1, (size_t)(heap->fast.top[m->bin] - m->base) - 1, p);
    } else {
        check_block(heap, NULL, 0, p);
    }
}

static void put_in_outbox(struct ebbi_heap *heap, void *p)
{
    check_block(heap, heap->outbox, heap->outbox_count, p);
    if (heap->outbox_count == EBBI_OUTBOX) {
        send_outbox(heap);
        ebbi_flush_idle(heap, EBBI_CLASS_COUNT); // their places may be for others
        ebbi_heap_count_event(heap, EBBI_OUTBOX);
        ebbi_gather_alone();
        ebbi_purge_tick(heap);
    }
    EBBI_ASSERT(heap->outbox_count < EBBI_OUTBOX);
    // relaxed: a snapshot reads both meanwhile, as hints
    ebbi_store_relaxed(&heap->outbox[heap->outbox_count], p);
    ebbi_compiler_fence(); // another thread's fork() must not find a count without its block
    ebbi_store_relaxed(&heap->outbox_count, heap->outbox_count + 1); // relaxed: as above
}

static void magazine_push(struct ebbi_heap *heap, void *p, unsigned tag)
{
    void **top = heap->fast.top[tag];
    EBBI_ASSERT(top < heap->fast.limit[tag]);
    ebbi_store_relaxed(top, p);                        // relaxed: as in ebbi_free
    ebbi_compiler_fence();                             // as in ebbi_free
    ebbi_store_relaxed(&heap->fast.top[tag], top + 1); // relaxed: others only count
}

// The tray of a bin that the heap has no magazine for. NULL: another bin has its place.
static struct ebbi_magazine *tray_for(struct ebbi_heap *heap, unsigned bin)
{
    struct ebbi_magazine *tray = &heap->magazines[ebbi_tray_number(bin)];
    if (tray->slots == 0) {
        ebbi_lock_take(&heap->own.lock);
        ebbi_tray_open(heap, bin);
        ebbi_lock_drop(&heap->own.lock);
    }
    return tray->slots != 0 && tray->bin == bin ? tray : NULL;
}

static void free_foreign(struct ebbi_heap *heap, void *p, unsigned bin)
{
    struct ebbi_magazine *tray = tray_for(heap, bin);
    if (tray == NULL) {
        put_in_outbox(heap, p);
        return;
    }
    check_in(heap, tray, p);
    if (heap->fast.top[bin] == heap->fast.limit[bin]) {
        ebbi_lock_take(&heap->own.lock);
        size_t count = send_tray(heap, tray);
        ebbi_tray_adapt(heap, ebbi_tray_number(bin));
        ebbi_lock_drop(&heap->own.lock);
        tell_flush(ebbi_tag_class(bin), count);
        ebbi_heap_count_event(heap, count);
        ebbi_gather_alone();
        ebbi_purge_tick(heap);
    }
    EBBI_ASSERT(tray->slots != 0);
    magazine_push(heap, p, bin);
}

// Where a free of a block of that bin goes: to the heap that is current, if it is of its kind, or else the thread's own.
static struct ebbi_heap *heap_for(struct ebbi_heap *current, unsigned bin)
{
    bool is_own = ebbi_class_bin(ebbi_tag_class(bin), current->lane) == bin;
    return is_own ? current : (struct ebbi_heap *)ebbi_current();
}

// To the magazine of the heap that is current or, if it is not of its kind, of the thread's own; else by
// way of a tray or the outbox.
void ebbi_heap_free(struct ebbi_heap *heap, void *p)
{
    unsigned tag = ebbi_tag_of(p);
    unsigned class_number = ebbi_tag_class(tag);
    // Another thread has freed it, and its slab has gone, since free looked.
    if (EBBI_UNLIKELY(class_number == 0)) {
        ebbi_slab_report_no_block(ebbi_slab_of(p), p);
    }
    heap = heap_for(heap, tag);
    if (ebbi_class_bin(class_number, heap->lane) != tag) {
        free_foreign(heap, p, tag);
        return;
    }
    check_in(heap, &heap->magazines[class_number], p);
    if (heap->fast.top[tag] == heap->fast.limit[tag] && !flush(heap, class_number, p)) {
        return;
    }
    EBBI_ASSERT(heap->magazines[class_number].slots != 0);
    magazine_push(heap, p, tag);
}

void ebbi_heap_check(struct ebbi_heap *heap, void *p)
{
    unsigned bin = ebbi_tag_of(p);
    unsigned class_number = ebbi_tag_class(bin);
    heap = heap_for(heap, bin);
    bool is_own = ebbi_class_bin(class_number, heap->lane) == bin;
    const struct ebbi_magazine *m = &heap->magazines[is_own ? class_number : ebbi_tray_number(bin)];
    if (m->slots != 0 && m->bin == bin) {
        check_in(heap, m, p);
    } else { // what has been freed went home at once, or by the outbox
        check_block(heap, heap->outbox, heap->outbox_count, p);
    }
}

// As the fast free (front/fast.h) does; false: it would not do.
static bool push_easily(struct ebbi_heap *heap, void *p)
{
    int64_t tag = ebbi_tag_load(ebbi_tag_at(p));
    unsigned bin = (unsigned)ebbi_tag_bin(tag);
    ebbi_slot *top = heap->fast.top[bin];
    bool is_easy = top != heap->fast.limit[bin] && ebbi_slab_has_place(p, tag) &&
                   !ebbi_was_freed_lately(top, p);
    if (is_easy) {
        magazine_push(heap, p, bin);
    }
    return is_easy;
}

// Of a class; not inside.
static void free_block(void *p)
{
    struct ebbi_heap *heap = ebbi_heap_mine();
    struct ebbi_heap *inside = ebbi_inside();
    if (heap == NULL) {
        ebbi_give_one(p);
    } else if (!push_easily(heap, p)) {
        ebbi_heap_free(heap, p);
    }
    ebbi_outside(inside);
}

void ebbi_class_free(void *p, ebbi_site site)
{
    void *block = ebbi_check_is_on() ? ebbi_check_free(p, site) : p;
    for (; block != NULL; block = ebbi_check_is_on() ? ebbi_check_release() : NULL) {
        free_block(block);
    }
}

bool ebbi_held_rest(void)
{
    void *first = ebbi_check_is_on() ? ebbi_check_rest() : NULL;
    for (void *block = first; block != NULL; block = ebbi_check_rest()) {
        free_block(block);
    }
    return first != NULL;
}

void ebbi_own_free(void *p)
{
    if (p != NULL) {
        ebbi_class_free(p, 0);
    }
}

void ebbi_own_send(void *p)
{
    void *block = ebbi_check_is_on() ? ebbi_check_free(p, 0) : p;
    for (; block != NULL; block = ebbi_check_is_on() ? ebbi_check_release() : NULL) {
        ebbi_give_one(block);
    }
}
