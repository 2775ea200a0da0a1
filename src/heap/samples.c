// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: what is held in the stead of a profile's samples (profile/profile.h, P5).
#include "heap/blocks.h"
#include "os/wake.h"

void ebbi_sample_freed(struct ebbi_note *note)
{
    void *held = ebbi_profile_freed(note);
    if (EBBI_UNLIKELY(held != NULL)) {
        ebbi_own_free(held);
    }
}

// Nobody looks into it. A huge page is not split for that.
void ebbi_sample_hold(void *block)
{
    size_t page = ebbi_os_page_size();
    uintptr_t start = (uintptr_t)block;
    uintptr_t from = ebbi_align_up(start, page);
    uintptr_t to = ebbi_align_down(start + ebbi_slab_class(ebbi_slab_of(block))->size, page);
    if (from < to && !ebbi_dense_is((void *)from, to - from)) {
        (void)ebbi_os_purge((void *)from, to - from);
    }
}

// Its slab stays while it is held.
static size_t kept_by(const void *held)
{
    const struct ebbi_slab *slab = ebbi_slab_of(held);
    ebbi_lock_take(&slab->owner->lock);
    size_t keeps = ebbi_slab_kept_by(slab, held);
    ebbi_lock_drop(&slab->owner->lock);
    return keeps;
}

// A fork amid this leaves the child a few blocks that are never freed: those that were lent.
void ebbi_samples_look(void)
{
    struct ebbi_loan loans[EBBI_LOANS];
    uint32_t place = 1;
    while (place != 0) {
        size_t count = ebbi_live_lend(loans, &place);
        for (size_t i = 0; i < count; i++) {
            loans[i].keeps = (uint32_t)kept_by(loans[i].held);
            ebbi_own_free(ebbi_live_return(&loans[i]));
        }
    }
}
