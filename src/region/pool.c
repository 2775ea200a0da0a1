// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer region: handles. They lie in granules that stay theirs, and wait, newest first, on a shelf of
// the threads that use the same one, some with their first sheet: to open a region is then to take
// the handle that this thread released last.
#include <string.h>

#include "region/region.h"

#define SHELVES 64
#define WARM 8 // handles with a sheet a shelf
#define FIRST_HANDLE EBBI_CACHE_LINE
#define HANDLES_A_GRANULE ((EBBI_GRANULE - FIRST_HANDLE) / sizeof(struct ebb_region))

struct shelf {
    struct ebbi_lock lock; // rank: region
    struct ebb_region *first;
    unsigned warm;
} __attribute__((aligned(EBBI_CACHE_LINE)));

struct handles {
    struct handles *next;
};

static struct shelf shelves[SHELVES];
static struct ebbi_lock handles_lock; // rank: region, after the shelves'
static struct handles *all_handles;   // under the lock, the newest granule first
static size_t handle_count;           // in the newest; under the lock

static struct shelf *my_shelf(void)
{
    return &shelves[((uintptr_t)ebb_self >> EBBI_GRANULE_SHIFT) % SHELVES];
}

// Under its lock.
static void count_warm(struct shelf *shelf, int more)
{
    ebbi_store_relaxed(&shelf->warm, shelf->warm + (unsigned)more); // relaxed: a hint for others
}

static struct ebb_region *handle_at(struct handles *part, size_t index)
{
    return (struct ebb_region *)((uintptr_t)part + FIRST_HANDLE) + index;
}

static struct ebb_region *handle_make(void)
{
    struct ebb_region *region = NULL;
    ebbi_lock_take(&handles_lock);
    if (all_handles == NULL || handle_count == HANDLES_A_GRANULE) {
        struct ebbi_span *span = ebbi_span_alloc(1, 1, EBBI_SPAN_HEAP);
        if (span != NULL) {
            struct handles *part = ebbi_span_start(span);
            part->next = all_handles;
            handle_count = 0;
            all_handles = part;
        }
    }
    if (all_handles != NULL && handle_count < HANDLES_A_GRANULE) {
        region = handle_at(all_handles, handle_count);
        memset(region, 0, sizeof *region);
        handle_count++;
    }
    ebbi_lock_drop(&handles_lock);
    return region;
}

struct ebb_region *ebbi_handle_take(void)
{
    struct shelf *shelf = my_shelf();
    ebbi_lock_take(&shelf->lock);
    struct ebb_region *region = shelf->first;
    if (region != NULL) {
        shelf->first = region->pool_next;
        count_warm(shelf, region->sheets != NULL ? -1 : 0);
    }
    ebbi_lock_drop(&shelf->lock);
    return region != NULL ? region : handle_make();
}

void ebbi_handle_cool(struct ebb_region *region)
{
    struct ebbi_sheet *sheet = region->sheets;
    region->sheets = NULL;
    region->sheet_count = 0;
    region->own = (struct ebbi_cursor){0};
    ebbi_sheet_destroy(sheet);
}

void ebbi_handle_give(struct ebb_region *region)
{
    struct shelf *shelf = my_shelf();
    ebbi_lock_take(&shelf->lock);
    bool too_many = region->sheets != NULL && shelf->warm == WARM;
    count_warm(shelf, region->sheets != NULL && !too_many ? 1 : 0);
    if (too_many) {
        ebbi_handle_cool(region);
    }
    region->pool_next = shelf->first;
    shelf->first = region;
    ebbi_lock_drop(&shelf->lock);
}

static void purge_shelf(struct shelf *shelf, uint64_t now_ms, uint64_t delay_ms, bool *waiting)
{
    ebbi_lock_take(&shelf->lock);
    for (struct ebb_region *r = shelf->first; r != NULL && shelf->warm > 0; r = r->pool_next) {
        if (r->sheets == NULL) {
            continue;
        }
        if (now_ms - r->opened_ms < delay_ms) {
            *waiting = true;
        } else {
            ebbi_handle_cool(r);
            count_warm(shelf, -1);
        }
    }
    ebbi_lock_drop(&shelf->lock);
}

static void each(struct handles *part, size_t count,
                 void (*visit)(struct ebb_region *region, void *context), void *context)
{
    for (; part != NULL; part = part->next, count = HANDLES_A_GRANULE) {
        for (size_t i = 0; i < count; i++) {
            visit(handle_at(part, i), context);
        }
    }
}

void ebbi_regions_each(void (*visit)(struct ebb_region *region, void *context), void *context)
{
    ebbi_lock_take(&handles_lock);
    struct handles *part = all_handles;
    size_t count = handle_count;
    ebbi_lock_drop(&handles_lock); // handles only get more
    each(part, count, visit, context);
}

// A drained sheet is found here if its owner does not come for it.
static void purge_region(struct ebb_region *region, void *context)
{
    (void)context;
    if (!ebbi_region_is_open(region) || !ebbi_lock_try(&region->lock)) {
        return;
    }
    struct ebbi_sheet *next;
    for (struct ebbi_sheet *sheet = region->sheets; sheet != NULL; sheet = next) {
        next = sheet->next;
        // relaxed: it changes under the lock alone
        if (ebbi_load_relaxed(&sheet->cursor) == NULL && ebbi_sheet_live(sheet) == 0) {
            ebbi_region_unlink(region, sheet);
            ebbi_sheet_destroy(sheet);
        }
    }
    ebbi_lock_drop(&region->lock);
}

void ebbi_regions_purge(uint64_t now_ms, uint64_t delay_ms, bool *waiting)
{
    for (size_t i = 0; i < SHELVES; i++) {
        // relaxed: a hint
        if (ebbi_load_relaxed(&shelves[i].warm) != 0) {
            purge_shelf(&shelves[i], now_ms, delay_ms, waiting);
        }
    }
    ebbi_regions_each(purge_region, NULL);
}

static void disown(struct ebb_region *region, void *context)
{
    const void *expected = context;
    // release[owner-leave -> owner-enter]: the cursor
    (void)ebbi_cas_release(&region->owner, &expected, (const void *)NULL);
}

void ebbi_regions_disown(const void *owner) { ebbi_regions_each(disown, (void *)owner); }

static void lock_region(struct ebb_region *region, void *context)
{
    (void)context;
    ebbi_lock_take(&region->lock);
}

static void unlock_region(struct ebb_region *region, void *context)
{
    (void)context;
    ebbi_lock_drop(&region->lock);
}

void ebbi_regions_lock(void)
{
    for (size_t i = 0; i < SHELVES; i++) {
        ebbi_lock_take(&shelves[i].lock);
    }
    ebbi_lock_take(&handles_lock);
    each(all_handles, handle_count, lock_region, NULL);
}

void ebbi_regions_unlock(void)
{
    each(all_handles, handle_count, unlock_region, NULL);
    ebbi_lock_drop(&handles_lock);
    for (size_t i = 0; i < SHELVES; i++) {
        ebbi_lock_drop(&shelves[i].lock);
    }
}

// The owner may have been anywhere: its sheet only goes with the region. It has no cursor any more.
static void keep_only(struct ebb_region *region, void *context)
{
    if (region->owner != NULL && region->owner != context) {
        ebbi_cursor_forget(&region->own);
        region->owner = NULL;
    }
    ebbi_region_recount(region);
}

void ebbi_regions_keep_only(const void *owner, struct ebb_region **entered, size_t count)
{
    ebbi_regions_each(keep_only, (void *)owner);
    for (size_t i = 0; i < count; i++) {
        entered[i]->users++;
    }
}
