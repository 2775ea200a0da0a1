// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: where blocks come from. The current slab, a part-full one, what other threads freed, a new
// one, in this order; under the lock of the owner whose slabs they are. What others freed waits as long as there is
// anything else: the headers of its slabs are in their processors' caches, and a visit to one costs as much for a block as for many.
#include <string.h>

#include "debug/check.h"
#include "heap/slabs.h"

#define STEADY 2 // slabs of a class one after the other: it grows, and will fill the next
#define MUCH ((size_t)2 << 20) // of blocks: half of what one huge page may cost too much
#define LONG_BLOCK 8192u       // may be touched in part, and its slab without some pages

void ebbi_owner_collect(struct ebbi_owner *owner)
{
    ebbi_assert_held(&owner->lock);
    // relaxed: an early look, the exchange decides
    if (ebbi_load_relaxed(&owner->pending) == NULL) {
        return;
    }
    // acquire[pending-take <- pending-push]: pending_next of every slab on the list
    struct ebbi_slab *slab = ebbi_exchange_acquire(&owner->pending, (struct ebbi_slab *)NULL);
    while (slab != NULL) {
        struct ebbi_slab *next = slab->pending_next; // before collect, which ends our hold on it
        if (next != NULL) {
            ebbi_slab_fetch(next);
        }
        size_t count = ebbi_slab_lives(slab) && slab->owner == owner ? ebbi_slab_collect(slab) : 0;
        if (EBBI_UNLIKELY(count == 0)) {
            ebbi_slab_report_late_free(slab); // it ended, and may have begun again, on the list
        }
        ebbi_owner_count_free(owner, slab, (int64_t)count, 0);
        ebbi_owner_count_out(owner, slab->class_number, -(int64_t)count);
        owner->freed_bytes += count * ebbi_slab_class(slab)->size;
        slab->touched = owner->clock_ms;
        ebbi_purge_note(owner, slab);
        ebbi_shelf_settle(owner, slab);
        slab = next;
    }
}

static bool is_probe(unsigned streak)
{
    return streak >= STEADY && streak % EBBI_PROBE_PART == 0 && ebbi_os_may_look();
}

// The first slabs of a class may stay empty for the most part, unless their blocks are small, and so many.
static enum ebbi_fill fill_of(const struct ebbi_owner *owner, unsigned class_number,
                              unsigned streak, uint8_t missing)
{
    const struct ebbi_class *c = &ebbi_classes[class_number];
    if (class_number == EBBI_CLASS_EMPTY) {
        return EBBI_FILL_UNKNOWN; // by nobody
    }
    bool is_long = c->size >= LONG_BLOCK;
    if (streak < STEADY) {
        return is_long ? EBBI_FILL_FEW : c->granules == 1 ? EBBI_FILL_LIKELY : EBBI_FILL_UNKNOWN;
    }
    if (is_long && ((missing & EBBI_MISSING_MUCH) != 0 || is_probe(streak))) {
        return EBBI_FILL_FEW;
    }
    return owner->out_bytes >= MUCH ? EBBI_FILL_MUCH : EBBI_FILL_GROWS;
}

// As the program has touched the slab before it, which is full.
static uint8_t missing_after(const struct ebbi_slab *before)
{
    if (ebbi_slab_class(before)->size < LONG_BLOCK) {
        return 0;
    }
    unsigned of = is_probe(before->streak) ? 2 : 4;
    return ebbi_missing_after(before->missing, ebbi_span_missing(&before->head), of);
}

// C4 of debug/check.h.
static void clear_if_checked(struct ebbi_slab *slab)
{
    if (ebbi_check_is_on() && !slab->head.zeroed && slab->class_number != EBBI_CLASS_EMPTY) {
        memset(ebbi_span_start(&slab->head), 0, (size_t)slab->head.granules << EBBI_GRANULE_SHIFT);
    }
}

static struct ebbi_slab *new_slab(struct ebbi_owner *owner, unsigned class_number)
{
    unsigned bin = ebbi_class_bin(class_number, owner->lane);
    const struct ebbi_slab *before = owner->shelves[class_number].current;
    unsigned streak = before != NULL ? before->streak + 1u : 0;
    uint8_t missing = before != NULL ? missing_after(before) : 0;
    enum ebbi_fill fill = fill_of(owner, class_number, streak, missing);
    struct ebbi_slab *slab = ebbi_slab_create(class_number, bin, owner, fill);
    if (slab != NULL) {
        clear_if_checked(slab);
        slab->streak = (uint8_t)(streak <= UINT8_MAX ? streak : STEADY);
        slab->missing = missing;
        const struct ebbi_class *c = &ebbi_classes[class_number];
        EBBI_ASSERT(slab->owner == owner && slab->bucket == EBBI_NO_BUCKET && !slab->purging);
        owner->slab_count++;
        owner->shelves[class_number].slabs++;
        owner->held_bytes += (size_t)c->granules << EBBI_GRANULE_SHIFT;
        ebbi_owner_count_free(owner, slab, slab->dirty_blocks, 0);
        if (slab->dirty_blocks > 0) {
            ebbi_purge_note(owner, slab);
        }
        if (owner->label != NULL) {
            ebbi_label_hold(owner->label, (size_t)c->granules << EBBI_GRANULE_SHIFT);
            ebbi_count(&owner->label->slabs, 1);
        }
        ebbi_shelf_set_current(owner, class_number, slab);
    }
    return slab;
}

// The slab to take from next; a new one only when `may_grow`.
static struct ebbi_slab *next_slab(struct ebbi_owner *owner, unsigned class_number, bool may_grow)
{
    ebbi_assert_held(&owner->lock);
    struct ebbi_slab *current = owner->shelves[class_number].current;
    if (current != NULL && current->free_count > 0) {
        return current;
    }
    struct ebbi_slab *slab = ebbi_shelf_next(owner, class_number);
    if (slab != NULL) {
        return slab;
    }
    ebbi_owner_collect(owner);
    if (current != NULL && current->free_count > 0) {
        return current;
    }
    slab = ebbi_shelf_next(owner, class_number);
    return slab != NULL || !may_grow ? slab : new_slab(owner, class_number);
}

// Fills slots[0..got) so that the lowest addresses of each slab are taken first from the end.
size_t ebbi_owner_take(struct ebbi_owner *owner, unsigned class_number, void **slots, size_t wanted,
                       bool may_grow)
{
    ebbi_assert_held(&owner->lock);
    EBBI_ASSERT(ebbi_is_class(class_number) && wanted > 0);
    size_t got = 0;
    while (got < wanted) {
        struct ebbi_slab *slab = next_slab(owner, class_number, may_grow && got == 0);
        if (slab == NULL) {
            break;
        }
        size_t part = ebbi_min(wanted - got, slab->free_count);
        EBBI_ASSERT(part > 0 && slab->class_number == class_number && !slab->purging);
        slab->touched = owner->clock_ms;
        struct ebbi_slab_free before = ebbi_slab_free_now(slab);
        part = ebbi_slab_take(slab, slots + got, part);
        ebbi_shelf_count_taken(owner, slab, part, before);
        got += part;
    }
    return got;
}
