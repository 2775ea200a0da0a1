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
