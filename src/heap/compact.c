// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: blocks of the program that keep a slab which is mostly free, and their way out of it: past the magazines,
// which would hand out the place that was left, and into a slab that fills up.
#include <string.h>

#include "debug/check.h"
#include "heap/blocks.h"
#include "heap/slabs.h"

// Half of it is free, and it is not the one that its class takes from now. What other threads have freed is taken in first.
static bool slab_is_sparse(const struct ebbi_slab *slab)
{
    ebbi_assert_held(&slab->owner->lock);
    ebbi_owner_tell_time(slab->owner);
    ebbi_owner_collect(slab->owner);
    return slab->free_count * 2u >= ebbi_slab_class(slab)->blocks &&
           slab->owner->shelves[slab->class_number].current != slab;
}

// NULL: of no class, or checked. Reports what is no block.
static struct ebbi_slab *compact_slab(const void *p)
{
    bool has_class = ebbi_usable_size(p) != 0 && ebbi_tag_class(ebbi_tag_of(p)) != 0;
    return has_class && !ebbi_check_is_on() ? ebbi_slab_of(p) : NULL;
}

bool ebbi_block_is_sparse(const void *p)
{
    const struct ebbi_slab *slab = compact_slab(p);
    if (slab == NULL) {
        return false;
    }
    struct ebbi_owner *owner = slab->owner;
    ebbi_lock_take(&owner->lock);
    bool is_sparse = slab_is_sparse(slab);
    ebbi_lock_drop(&owner->lock);
    return is_sparse;
}

// A block of the same owner in another slab; NULL: there is none.
static void *take_elsewhere(const struct ebbi_slab *slab)
{
    void *block = NULL;
    struct ebbi_owner *owner = slab->owner;
    ebbi_lock_take(&owner->lock);
    if (slab_is_sparse(slab) && ebbi_owner_take(owner, slab->class_number, &block, 1, false) == 1 &&
        ebbi_slab_of(block) == slab) {
        ebbi_give_blocks(owner, &block, 1);
        block = NULL;
    }
    ebbi_lock_drop(&owner->lock);
    return block;
}

void *ebbi_block_compact(void *p)
{
    struct ebbi_slab *slab = compact_slab(p);
    void *to = slab != NULL ? take_elsewhere(slab) : NULL;
    if (to == NULL) {
        return p;
    }
    struct ebbi_owner *owner = slab->owner;
    unsigned class_number = slab->class_number; // the slab may end
    memcpy(to, p, ebbi_classes[class_number].size);
    ebbi_lock_take(&owner->lock);
    ebbi_owner_tell_time(owner);
    ebbi_give_blocks(owner, &p, 1);
    owner->freed_bytes += ebbi_classes[class_number].size;
    ebbi_purge_blocks(owner);
    ebbi_lock_drop(&owner->lock);
    ebbi_purge_tick(NULL);
    return to;
}
