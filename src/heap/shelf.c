// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: which slab the next refill takes from. Under the owner's lock.
//
// A slab is current (its class's refills come from it), full (no free block: in no list), part-full
// (in the bucket of its share of free blocks), or purging (its pages are being returned). A slab whose
// blocks are all free and that is neither current nor purging is destroyed.
//
// Between two refills a slab only gains free blocks, so it keeps the count at which it next moves:
// settling it takes one comparison until then.
#include "base/list.h"
#include "debug/check.h"
#include "heap/slabs.h"

#define NEVER UINT16_MAX // the current slab stays, and one that is purging

// The least free blocks for bucket b of these shares, rounded up: 0, 1/8, 1/4, 1/2, and all.
static unsigned least_free(const struct ebbi_slab *slab, unsigned bucket)
{
    static const unsigned char eighths[EBBI_BUCKETS + 1] = {0, 1, 2, 4, 8};
    return (ebbi_slab_class(slab)->blocks * eighths[bucket] + 7u) / 8u;
}

static unsigned bucket_for(const struct ebbi_slab *slab)
{
    unsigned bucket = 0;
    while (slab->free_count >= least_free(slab, bucket + 1)) {
        bucket++;
    }
    return bucket;
}

static void push(struct ebbi_shelf *shelf, struct ebbi_slab *slab, unsigned bucket)
{
    EBBI_ASSERT(slab->bucket == EBBI_NO_BUCKET && !slab->purging && slab != shelf->current);
    EBBI_ASSERT(bucket < EBBI_BUCKETS && slab->free_count < ebbi_slab_class(slab)->blocks);
    slab->bucket = (uint8_t)bucket;
    slab->moves_at = (uint16_t)least_free(slab, bucket + 1);
    EBBI_LIST_PUSH(shelf->bucket[bucket], slab, next, previous);
}

static void shelf_remove(struct ebbi_owner *owner, struct ebbi_slab *slab)
{
    ebbi_assert_held(&owner->lock);
    EBBI_ASSERT(slab->owner == owner);
    if (slab->bucket == EBBI_NO_BUCKET) {
        return;
    }
    struct ebbi_slab **bucket = owner->shelves[slab->class_number].bucket;
    EBBI_LIST_REMOVE(bucket[slab->bucket], slab, next, previous);
    slab->bucket = EBBI_NO_BUCKET;
}

void ebbi_shelf_send_away(struct ebbi_owner *owner, struct ebbi_slab *slab)
{
    struct ebbi_shelf *shelf = &owner->shelves[slab->class_number];
    ebbi_assert_held(&owner->lock);
    EBBI_ASSERT(!slab->purging && slab->owner == owner);
    shelf_remove(owner, slab);
    if (shelf->current == slab) {
        shelf->current = NULL;
    }
    slab->purging = true;
    slab->moves_at = NEVER;
    EBBI_LIST_PUSH(owner->purging, slab, next, previous);
}

void ebbi_shelf_return(struct ebbi_owner *owner, struct ebbi_slab *slab)
{
    ebbi_assert_held(&owner->lock);
    EBBI_ASSERT(slab->purging && slab->owner == owner && slab->bucket == EBBI_NO_BUCKET);
    EBBI_LIST_REMOVE(owner->purging, slab, next, previous);
    slab->purging = false;
    slab->moves_at = 1;
    ebbi_shelf_settle(owner, slab);
}

static void destroy(struct ebbi_owner *owner, struct ebbi_slab *slab)
{
    const struct ebbi_class *c = ebbi_slab_class(slab);
    shelf_remove(owner, slab);
    ebbi_purge_unnote(owner, slab);
    owner->slab_count--;
    owner->shelves[slab->class_number].slabs--;
    ebbi_owner_count_free(owner, slab, -(int64_t)slab->dirty_blocks, -(int64_t)slab->pinned_bytes);
    owner->held_bytes -= (size_t)c->granules << EBBI_GRANULE_SHIFT;
    if (owner->label != NULL) {
        ebbi_label_drop(owner->label, (size_t)c->granules << EBBI_GRANULE_SHIFT);
        ebbi_count(&owner->label->slabs, (uint64_t)-1);
    }
    EBBI_ASSERT(!slab->purging && owner->shelves[slab->class_number].current != slab);
    EBBI_ASSERT(owner->slab_count < SIZE_MAX / 2 && owner->held_bytes < SIZE_MAX / 2 &&
                owner->dirty_bytes <= owner->held_bytes);
    ebbi_slab_destroy(slab);
}

void ebbi_shelf_count_taken(struct ebbi_owner *owner, const struct ebbi_slab *slab, size_t count,
                            struct ebbi_slab_free before)
{
    struct ebbi_slab_free now = ebbi_slab_free_now(slab);
    EBBI_ASSERT(now.dirty <= before.dirty && now.early <= before.early &&
                owner->dirty_bytes >= (before.dirty - now.dirty) * ebbi_slab_class(slab)->size);
    if (EBBI_UNLIKELY(now.early != before.early)) {
        ebbi_purge_regret(owner, slab, before.early - now.early);
    }
    ebbi_owner_count_free(owner, slab, (int64_t)now.dirty - (int64_t)before.dirty,
                          (int64_t)now.pinned - (int64_t)before.pinned);
    ebbi_owner_count_out(owner, slab->class_number, (int64_t)count);
    EBBI_ASSERT(owner->out_bytes >= count * ebbi_slab_class(slab)->size);
}

void ebbi_shelf_take_one(struct ebbi_owner *owner, struct ebbi_slab *slab, unsigned block)
{
    struct ebbi_slab_free before = ebbi_slab_free_now(slab);
    ebbi_assert_held(&owner->lock);
    ebbi_slab_take_one(slab, block);
    ebbi_shelf_count_taken(owner, slab, 1, before);
}

void ebbi_shelf_drop_full(struct ebbi_owner *owner, struct ebbi_slab *slab)
{
    if (slab->free_count == 0 && slab->bucket != EBBI_NO_BUCKET) {
        shelf_remove(owner, slab);
        slab->moves_at = 1;
    }
}

void ebbi_shelf_move(struct ebbi_owner *owner, struct ebbi_slab *slab)
{
    unsigned blocks = ebbi_slab_class(slab)->blocks;
    ebbi_assert_held(&owner->lock);
    EBBI_ASSERT(!slab->purging && slab->moves_at != NEVER);
    if (slab->free_count == blocks && ebbi_check_is_on() &&
        slab->class_number != EBBI_CLASS_EMPTY) {
        ebbi_vacant_look_in(owner, slab); // before its memory is another's
    }
    if (slab->free_count == blocks) {
        destroy(owner, slab);
        return;
    }
    shelf_remove(owner, slab);
    slab->moves_at = 1;
    if (slab->free_count > 0) {
        push(&owner->shelves[slab->class_number], slab, bucket_for(slab));
    }
}

void ebbi_shelf_set_current(struct ebbi_owner *owner, unsigned class_number, struct ebbi_slab *slab)
{
    ebbi_assert_held(&owner->lock);
    EBBI_ASSERT(slab == NULL || (slab->bucket == EBBI_NO_BUCKET && !slab->purging &&
                                 slab->class_number == class_number));
    struct ebbi_slab *before = owner->shelves[class_number].current;
    if (before == slab) { // mostly none: the shelf's line is let be
        return;
    }
    owner->shelves[class_number].current = slab;
    if (slab != NULL) {
        slab->moves_at = NEVER;
    }
    if (before != NULL) {
        before->moves_at = 1;
        ebbi_shelf_settle(owner, before);
    }
}

// Slabs with few free blocks come last: a refill should not have to visit many.
static struct ebbi_slab *part_full(const struct ebbi_shelf *shelf)
{
    for (unsigned b = 1; b < EBBI_BUCKETS; b++) {
        if (shelf->bucket[b] != NULL) {
            return shelf->bucket[b];
        }
    }
    return shelf->bucket[0];
}

struct ebbi_slab *ebbi_shelf_next(struct ebbi_owner *owner, unsigned class_number)
{
    ebbi_assert_held(&owner->lock);
    struct ebbi_shelf *shelf = &owner->shelves[class_number];
    struct ebbi_slab *slab = part_full(shelf);
    if (slab != NULL) {
        EBBI_ASSERT(slab->class_number == class_number && slab->free_count > 0);
        shelf_remove(owner, slab);
        ebbi_shelf_set_current(owner, class_number, slab);
    }
    return slab;
}
