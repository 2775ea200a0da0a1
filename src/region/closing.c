// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer region: closed regions whose end has to wait, where the kernel has no membarrier.
//
// An owner frees without atomic operations: it stores `busy`, looks at the region's owner again, changes
// bits and counts, and ends `busy`. Whoever closes the region has stored NULL as its owner, and a
// membarrier would say that the owner sees that from now on, or shows `busy`. Without one, time does:
//
//     CLOSING_MS after a store every processor finds it.
//
// That is an assumption about the machine. No manual gives a bound, but store buffers are emptied by each
// interrupt and change of context, and Linux has a tick or an idle entry for every processor many times a
// second; of itself a buffer empties within microseconds. So a second after the NULL, with S seconds for
// its way: an owner that looked before S and found itself has shown `busy` before 2 S, and a look at
// `busy` finds it, or its end; one that looks later finds NULL. S is below CLOSING_MS / 2.
//
// The former owner may have ended: its heap stays one (heap.h, had_regions), and a `busy` of the next
// thread in it is waited for in vain, which is harmless.
#include "os/wake.h"
#include "region/region.h"

#define CLOSING_MS 1000u
#define CLOSING_NAP_MS 10u

static struct {
    struct ebbi_lock lock; // rank: region, after any region's
    struct ebb_region *first, *last;
} closings = {.lock = EBBI_LOCK(REGION)};

// Under the lock.
static void closing_add(struct ebb_region *region)
{
    ebbi_assert_held(&closings.lock);
    region->closing_next = NULL;
    region->opened_ms = ebbi_os_now_ms();
    if (closings.first != NULL) {
        closings.last->closing_next = region;
    } else {
        ebbi_store_relaxed(&closings.first, region); // relaxed: see ebbi_closings_any
    }
    closings.last = region;
}

// Under the lock: the first one, if its time has come and its owner is not busy. One that is goes to the end.
static struct ebb_region *closing_take(uint64_t now_ms)
{
    ebbi_assert_held(&closings.lock);
    struct ebb_region *region = closings.first;
    if (region == NULL || now_ms - region->opened_ms < CLOSING_MS || now_ms < region->opened_ms) {
        return NULL;
    }
    ebbi_store_relaxed(&closings.first, region->closing_next); // relaxed: see ebbi_closings_any
    if (ebbi_sheet_owner_is_busy(region->former_owner)) {
        closing_add(region);
        return NULL;
    }
    return region;
}

void ebbi_closing_put(struct ebb_region *region, const void *former_owner)
{
    ebbi_assert_held(&region->lock);
    EBBI_ASSERT(former_owner != NULL);
    region->former_owner = former_owner;
    ebbi_lock_take(&closings.lock);
    closing_add(region);
    ebbi_lock_drop(&closings.lock);
}

bool ebbi_closings_any(void)
{
    return ebbi_load_relaxed(&closings.first) != NULL; // relaxed: a hint
}

bool ebbi_closing_finish(uint64_t now_ms)
{
    ebbi_lock_take(&closings.lock);
    struct ebb_region *region = closing_take(now_ms);
    ebbi_lock_drop(&closings.lock);
    if (region != NULL) {
        ebbi_region_finish(region);
    }
    return region != NULL;
}

void ebbi_closing_wait(const struct ebb_region *region)
{
    uint64_t id = region->id;
    // relaxed: an end is under a lock that the caller takes next; a handle that is used again has another id
    while (ebbi_region_is_over(region) && ebbi_load_relaxed(&region->id) == id) {
        if (!ebbi_closing_finish(ebbi_os_now_ms())) {
            ebbi_nap(CLOSING_NAP_MS);
        }
    }
}

void ebbi_closings_forget(void)
{
    ebbi_lock_reset(&closings.lock);
    closings.first = NULL;
}
