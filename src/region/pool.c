// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer region: handles. They lie in granules that stay theirs. A handle belongs to the shelf of the
// thread for which it was made: while it is free it waits there, newest first, perhaps with its first
// sheet, so that to open a region is to take the handle that was ended last; from its taking to its
// giving back it is in that shelf's list of live ones, which is all that anybody walks.

#include "region/region.h"

#define SHELVES 64
#define WARM 8 // handles with a sheet a shelf
#define FIRST_HANDLE EBBI_CACHE_LINE
#define HANDLES_A_GRANULE ((EBBI_GRANULE - FIRST_HANDLE) / sizeof(struct ebb_region))
#define LIVE_AT_ONCE 64 // visited under a shelf's lock, which is dropped then

// Somebody who walks a shelf's live handles, and drops its lock meanwhile.
struct live_walk {
    struct ebb_region *at; // the next one; whoever takes it from the list moves this on
    struct live_walk *next;
};

struct shelf {
    struct ebbi_lock lock; // rank: region, before any region's
    unsigned warm;
    struct ebb_region *first; // free ones, through pool_next
    struct ebb_region *live;  // the others, through pool_next and pool_previous, the newest first
    struct live_walk *walks;
} __attribute__((aligned(EBBI_CACHE_LINE)));

struct handles {
    struct handles *next;
};

static struct shelf shelves[SHELVES] = {EBBI_8_TIMES(EBBI_8_TIMES({.lock = EBBI_LOCK(REGION)}))};
static struct ebbi_lock handles_lock = EBBI_LOCK(REGION); // after the shelves'
static struct handles *all_handles; // under the lock, the newest granule first
static size_t handle_count;         // in the newest; under the lock

static size_t my_shelf(void) { return ((uintptr_t)ebb_self >> EBBI_GRANULE_SHIFT) % SHELVES; }

// Under its lock.
static void count_warm(struct shelf *shelf, int more)
{
    ebbi_assert_held(&shelf->lock);
    EBBI_ASSERT(more >= 0 || shelf->warm > 0);
    ebbi_store_relaxed(&shelf->warm, shelf->warm + (unsigned)more); // relaxed: a hint for others
}

static struct ebb_region *handle_at(struct handles *part, size_t index)
{
    return (struct ebb_region *)((uintptr_t)part + FIRST_HANDLE) + index;
}

// Out of *granule where the others are used up: then it is NULL afterwards. NULL: and there is none.
static struct ebb_region *handle_make(size_t home, struct handles **granule)
{
    ebbi_assert_held(&shelves[home].lock);
    struct ebb_region *region = NULL;
    ebbi_lock_take(&handles_lock);
    if ((all_handles == NULL || handle_count == HANDLES_A_GRANULE) && *granule != NULL) {
        (*granule)->next = all_handles;
        handle_count = 0;
        all_handles = *granule;
        *granule = NULL;
    }
    if (all_handles != NULL && handle_count < HANDLES_A_GRANULE) {
        region = handle_at(all_handles, handle_count);
        ebbi_lock_rank(&region->lock, EBBI_RANK_REGION);
        region->home = (uint8_t)home;
        handle_count++;
    }
    ebbi_lock_drop(&handles_lock);
    return region;
}

// Under the shelf's lock, as is the next.
static void live_link(struct shelf *shelf, struct ebb_region *region)
{
    ebbi_assert_held(&shelf->lock);
    EBBI_ASSERT(&shelves[region->home] == shelf);
    region->pool_previous = NULL;
    region->pool_next = shelf->live;
    if (shelf->live != NULL) {
        shelf->live->pool_previous = region;
    }
    ebbi_store_relaxed(&shelf->live, region); // relaxed: see regions_each
}

static void live_unlink(struct shelf *shelf, struct ebb_region *region)
{
    ebbi_assert_held(&shelf->lock);
    EBBI_ASSERT(region->pool_previous != NULL || shelf->live == region);
    struct ebb_region *next = region->pool_next;
    struct ebb_region *previous = region->pool_previous;
    // relaxed: see regions_each
    ebbi_store_relaxed(previous != NULL ? &previous->pool_next : &shelf->live, next);
    if (next != NULL) {
        next->pool_previous = previous;
    }
    for (struct live_walk *walk = shelf->walks; EBBI_UNLIKELY(walk != NULL); walk = walk->next) {
        walk->at = walk->at == region ? next : walk->at;
    }
}

static struct ebb_region *take_handle(size_t home, struct handles **granule)
{
    struct shelf *shelf = &shelves[home];
    ebbi_lock_take(&shelf->lock);
    struct ebb_region *region = shelf->first;
    if (region != NULL) {
        EBBI_ASSERT(region->state == EBBI_REGION_FREE && region->home == home);
        shelf->first = region->pool_next;
        count_warm(shelf, region->sheets != NULL ? -1 : 0);
    } else {
        region = handle_make(home, granule);
    }
    if (region != NULL) {
        live_link(shelf, region);
    }
    ebbi_lock_drop(&shelf->lock);
    return region;
}

struct ebb_region *ebbi_handle_take(void)
{
    size_t home = my_shelf();
    struct handles *granule = NULL;
    struct ebb_region *region = take_handle(home, &granule);
    if (region == NULL && (granule = ebbi_own_take()) != NULL) {
        region = take_handle(home, &granule);
        if (granule != NULL) { // another thread was faster
            ebbi_own_give(granule);
        }
    }
    return region;
}

void ebbi_handle_cool(struct ebb_region *region)
{
    EBBI_ASSERT(region->sheets != NULL && region->sheets->next == NULL);
    struct ebbi_sheet *sheet = region->sheets;
    region->sheets = NULL;
    region->sheet_count = 0;
    region->front.cursor = (struct ebbi_cursor){0};
    ebbi_sheet_destroy(sheet);
}

bool ebbi_handle_give(struct ebb_region *region)
{
    EBBI_ASSERT(region->state == EBBI_REGION_FREE && region->sheet_count <= 1);
    struct shelf *shelf = &shelves[region->home];
    ebbi_lock_take(&shelf->lock);
    live_unlink(shelf, region);
    bool too_many = region->sheets != NULL && shelf->warm == WARM;
    count_warm(shelf, region->sheets != NULL && !too_many ? 1 : 0);
    if (too_many) {
        ebbi_handle_cool(region);
    }
    region->pool_next = shelf->first;
    shelf->first = region;
    ebbi_lock_drop(&shelf->lock);
    return too_many;
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

static void live_walk_begin(struct shelf *shelf, struct live_walk *walk)
{
    ebbi_assert_held(&shelf->lock);
    walk->at = shelf->live;
    walk->next = shelf->walks;
    shelf->walks = walk;
}

static void live_walk_end(struct shelf *shelf, const struct live_walk *walk)
{
    ebbi_assert_held(&shelf->lock);
    EBBI_ASSERT(walk->at == NULL);
    struct live_walk **link = &shelf->walks;
    while (*link != walk) {
        link = &(*link)->next;
    }
    *link = walk->next;
}

static void each_of(struct shelf *shelf, void (*visit)(struct ebb_region *region, void *context),
                    void *context)
{
    struct live_walk walk;
    ebbi_lock_take(&shelf->lock);
    live_walk_begin(shelf, &walk);
    for (size_t n = 1; walk.at != NULL; n++) {
        struct ebb_region *region = walk.at;
        walk.at = region->pool_next;
        visit(region, context);
        if (n % LIVE_AT_ONCE == 0) {
            ebbi_lock_drop(&shelf->lock);
            ebbi_lock_take(&shelf->lock);
        }
    }
    live_walk_end(shelf, &walk);
    ebbi_lock_drop(&shelf->lock);
}

// Every live handle, a region's from its opening to its end; under a lock of its shelf.
static void regions_each(void (*visit)(struct ebb_region *region, void *context), void *context)
{
    for (size_t i = 0; i < SHELVES; i++) {
        // relaxed: whoever wants a region to be visited knows that it is open
        if (ebbi_load_relaxed(&shelves[i].live) != NULL) {
            each_of(&shelves[i], visit, context);
        }
    }
}

// A drained sheet is found here if its owner does not come for it.
static void purge_region(struct ebb_region *region, void *context)
{
    (void)context;
    // acquire[region-look <- region-open]: the sheet that the handle came with, or its going
    if (ebbi_load_acquire(&region->state) != EBBI_REGION_OPEN || !ebbi_lock_try(&region->lock)) {
        return;
    }
    ebbi_region_shed(region);
    ebbi_lock_drop(&region->lock);
}

void ebbi_regions_purge(uint64_t now_ms, uint64_t delay_ms, bool *waiting)
{
    while (ebbi_closings_any() && ebbi_closing_finish(now_ms)) {
    }
    *waiting |= ebbi_closings_any();
    for (size_t i = 0; i < SHELVES; i++) {
        // relaxed: a hint
        if (ebbi_load_relaxed(&shelves[i].warm) != 0) {
            purge_shelf(&shelves[i], now_ms, delay_ms, waiting);
        }
    }
    regions_each(purge_region, NULL);
}

static void disown(struct ebb_region *region, void *context)
{
    const void *expected = context;
    // relaxed: the thread that ends knows what it owns
    if (ebbi_load_relaxed(&region->front.owner) == expected) {
        // release[owner-leave -> owner-enter]: the cursor
        (void)ebbi_cas_release(&region->front.owner, &expected, (const void *)NULL);
    }
}

void ebbi_regions_disown(const void *owner) { regions_each(disown, (void *)owner); }

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

// Under all shelves' locks.
static void each_live(void (*visit)(struct ebb_region *region, void *context))
{
    for (size_t i = 0; i < SHELVES; i++) {
        for (struct ebb_region *r = shelves[i].live; r != NULL; r = r->pool_next) {
            visit(r, NULL);
        }
    }
}

void ebbi_regions_lock(void)
{
    for (size_t i = 0; i < SHELVES; i++) {
        ebbi_lock_take(&shelves[i].lock);
    }
    ebbi_lock_take(&handles_lock);
    each_live(lock_region);
}

void ebbi_regions_unlock(void)
{
    each_live(unlock_region);
    ebbi_lock_drop(&handles_lock);
    for (size_t i = 0; i < SHELVES; i++) {
        ebbi_lock_drop(&shelves[i].lock);
    }
}

// What a thread that is gone was about to retire stays the region's: it has not left the list yet.
static void unclaim_larges(struct ebb_region *region)
{
    struct ebbi_note *note = ebbi_large_note(region->larges); // of NULL there is none
    for (; note != NULL; note = ebbi_large_note(note->after)) {
        ebbi_store_relaxed(&note->stamp, (uint64_t)0); // relaxed: there is no other thread
    }
}

// The owner may have been anywhere: its sheet only goes with the region. It has no cursor any more.
static void keep_only(struct ebb_region *region, void *context)
{
    unclaim_larges(region);
    if (region->front.owner != NULL && region->front.owner != context) {
        ebbi_cursor_forget(&region->front.cursor);
        region->front.owner = NULL;
    }
    ebbi_region_recount(region);
}

// Closed, and all that had it as current are gone, or the one that was about to end it.
static void note_over(struct ebb_region *region, void *context)
{
    struct ebb_region **first = context;
    if (ebbi_region_is_over(region)) {
        region->closing_next = *first;
        *first = region;
    }
}

void ebbi_regions_keep_only(const void *owner, struct ebb_region **entered, size_t count)
{
    struct ebb_region *over = NULL;
    for (size_t i = 0; i < SHELVES; i++) {
        shelves[i].walks = NULL; // of threads that are gone
    }
    ebbi_orphans_keep_only();
    ebbi_closings_forget();
    regions_each(keep_only, (void *)owner);
    for (size_t i = 0; i < count; i++) {
        entered[i]->users++;
    }
    regions_each(note_over, (void *)&over);
    for (struct ebb_region *next; over != NULL; over = next) {
        next = over->closing_next;
        ebbi_region_finish(over);
    }
}
