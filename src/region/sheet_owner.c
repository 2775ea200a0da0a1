// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer region: whose frees in a sheet need no atomic operation, and how that ends for a thread that may be amid one.
#include "region/sheet.h"

const void *ebbi_sheet_owner_nobody;
bool ebbi_sheet_owner_refused;

bool ebbi_sheet_owner_revoke(const void **owner)
{
    EBBI_ASSERT(ebb_self != NULL);
    // acquire[owner-enter <- owner-leave]: the frees of the last owner, which may have ended
    const void *who = ebbi_load_acquire(owner);
    if (who == NULL || who == ebb_self) {
        return true;
    }
    ebbi_store_relaxed(owner, (const void *)NULL); // relaxed: the membarrier orders it
    if (!ebbi_os_membarrier_register() || !ebbi_os_membarrier()) {
        // relaxed: who misses it opens one more region that has to wait
        ebbi_store_relaxed(&ebbi_sheet_owner_refused, true);
        return false;
    }
    while (ebbi_sheet_owner_is_busy(who)) {
        ebbi_os_yield();
    }
    return true;
}

bool ebbi_sheet_owner_is_busy(const void *who)
{
    const struct ebb_participant *them =
        (const struct ebb_participant *)((const char *)who + EBB_SELF_PIN);
    // acquire[busy-wait <- busy-end]: what the free has changed
    return ebbi_load_acquire(&them->busy) != 0;
}
