// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer lifetime: regions above their sheets: large blocks, what happens where a region cannot serve, and
// ends that have to wait.
#include <errno.h>

#include "debug/callstack.h"
#include "debug/quarantine.h"
#include "heap/blocks.h"
#include "lifetime/domain.h"
#include "lifetime/lifetime.h"
#include "os/wake.h"
#include "reclaim/reclaim.h"

#define TOLD_LEAST ((size_t)1 << 20)    // free bytes that are worth a look at the clock
#define PINNED_MOST ((uint64_t)1 << 20) // by survivors, before regions of the label give way

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

// ---- allocating ----------------------------------------------------------------------------------

static void *take_large(struct ebb_region *region, size_t align, size_t bytes,
                        enum ebbi_region_refusal *refusal)
{
    void *p = ebbi_large_alloc(bytes, align, false, NULL); // no domain counts it
    *refusal = EBBI_REGION_NO_MEMORY;
    if (p != NULL) {
        EBBI_ASSERT(ebbi_large_note(p) != NULL && ebbi_large_bytes(p) >= bytes);
        *refusal = ebbi_region_adopt(region, p, ebbi_large_bytes(p), ebbi_large_note(p));
        if (*refusal != EBBI_REGION_GIVEN) {
            ebbi_large_free(p);
            p = NULL;
        }
    }
    return p;
}

// In debug mode every block's stack is kept: no region has an owner then, so all come this way.
static void *noted(void *p, ebbi_site site)
{
    if (EBBI_UNLIKELY(ebbi_quarantine_is_on())) {
        ebbi_stack_note(p, ebbi_stack_take((const void *)ebbi_caller_of(site)));
    }
    return p;
}

// A region that is closed passes on to its parent, the last one to the heap.
void *ebbi_region_alloc(struct ebbi_heap *heap, struct ebb_region *region, size_t align,
                        size_t bytes, ebbi_site site)
{
    if (bytes > PTRDIFF_MAX || align > PTRDIFF_MAX) {
        return no_memory();
    }
    // A thread that is ending has no heap: it owns no region, and all that follows works without.
    if (region->gives_way != NULL && heap != NULL && ebbi_region_is_open(region)) {
        return ebbi_domain_alloc(heap, region->gives_way, align, bytes, site);
    }
    bool large = bytes > EBBI_SHEET_BLOCK_MOST || align > EBBI_GRANULE ||
                 (align > EBBI_UNIT && bytes + align > EBBI_SHEET_BLOCK_MOST);
    for (struct ebb_region *r = region; r != NULL; r = r->parent) {
        enum ebbi_region_refusal refusal;
        void *p = large ? take_large(r, align, bytes, &refusal)
                        : ebbi_region_take(r, bytes, align, &refusal);
        if (refusal != EBBI_REGION_IS_CLOSED) {
            return p != NULL ? noted(p, site) : no_memory();
        }
    }
    return ebbi_heap_alloc(heap, align, bytes, site);
}

struct ebb_region *ebbi_region_of(const void *p)
{
    unsigned tag = ebbi_tag_of(p);
    if (tag == EBBI_TAG_REGION) {
        // relaxed: a region that ends beside this call may be found or not
        return ebbi_sheet_has(p) ? ebbi_load_relaxed(&ebbi_sheet_of(p)->region) : NULL;
    }
    const struct ebbi_note *note = ebbi_tag_class(tag) == 0 ? ebbi_large_note((void *)p) : NULL;
    return note != NULL ? ebbi_load_relaxed(&note->region) : NULL; // relaxed: as above
}

void *ebbi_region_resize(void *p, size_t bytes)
{
    struct ebb_region *region = ebbi_region_of(p);
    return region != NULL && ebbi_region_extend(region, p, bytes) ? p : NULL;
}

void ebbi_region_promise_close(struct ebb_region *region)
{
    region->closes = true;
    // relaxed: a few sheets more or less do not matter
    if (ebbi_load_relaxed(&region->label->demoted_bytes) > PINNED_MOST) {
        region->gives_way = ebbi_domain_of_label(region->label);
    }
    if (region->gives_way != NULL && region->sheets != NULL) {
        ebbi_handle_cool(region);
        region->held_bytes = 0;
        ebbi_helper_kick();
    }
}

int ebbi_region_cleanup(struct ebb_region *region, void (*call)(void *argument), void *argument)
{
    if (!ebbi_region_is_open(region)) {
        ebbi_region_check(region, "cleanup of");
        return -EINVAL;
    }
    struct ebbi_cleanup *cleanup =
        ebbi_region_alloc(ebbi_heap_mine(), region, 1, sizeof *cleanup, 0);
    if (cleanup == NULL) {
        return -ENOMEM;
    }
    *cleanup = (struct ebbi_cleanup){.call = call, .argument = argument};
    ebbi_lock_take(&region->lock);
    cleanup->next = region->cleanups;
    ebbi_store_relaxed(&region->cleanups, cleanup); // relaxed: under the lock
    ebbi_lock_drop(&region->lock);
    return 0;
}

// ---- ends ----------------------------------------------------------------------------------------

static void free_larges(void *first, bool retire)
{
    EBBI_ASSERT(first == NULL || ebbi_large_note(first) != NULL);
    for (void *next; first != NULL; first = next) {
        next = ebbi_large_note(first)->after;
        if (retire) {
            ebbi_retire_to(ebbi_heap_mine(), first);
        } else {
            ebbi_large_free(first);
        }
    }
}

// Free spans have come up. With a helper no end of a region waits for the kernel.
static void tell_purge(void)
{
    if (ebbi_helper_is_there()) {
        ebbi_helper_kick();
    } else if (ebbi_arena_dirty_bytes() >= TOLD_LEAST) {
        ebbi_purge_tick(NULL);
    }
}

static void give_remains(struct ebbi_remains left, bool waits)
{
    if (EBBI_UNLIKELY(waits)) {
        free_larges(left.larges, true);
        ebbi_remains_put(left.sheets);
        ebbi_pin_attend_later();
        tell_purge();
    } else if (EBBI_UNLIKELY(left.gave || left.sheets != NULL || left.larges != NULL)) {
        free_larges(left.larges, false);
        (void)ebbi_remains_destroy(left.sheets);
        tell_purge();
    } else {
        ebbi_helper_kick(); // the handle keeps a sheet, which is to go if nobody wants it
    }
}

// In debug mode: only what the quarantine has no room for is given back.
static EBBI_NOINLINE void release_watched(struct ebb_region *region, bool waits, bool stays_open)
{
    struct ebbi_release release = {.number = region->id, .stack = ebbi_stack_take(NULL)};
    ebbi_region_seal(region);
    struct ebbi_remains left = ebbi_region_empty(region, false, stays_open);
    release.stamp = waits ? ebbi_clock_stamp(&ebbi_clock) : 0;
    ebbi_remains_lock();
    left = ebbi_quarantine_put(left, &release);
    ebbi_remains_unlock();
    give_remains(left, waits);
}

// From a slab, where the region had given way.
static void free_cleanup(struct ebbi_cleanup *cleanup)
{
    if (ebbi_tag_of(cleanup) == EBBI_TAG_REGION) {
        (void)ebbi_sheet_free(cleanup);
    } else {
        ebbi_class_free(cleanup, EBBI_SITE(EBBI_BY_ANY));
    }
}

static void run_cleanups(struct ebb_region *region)
{
    // relaxed: a cleanup that is added beside the end is in error
    while (ebbi_load_relaxed(&region->cleanups) != NULL) {
        ebbi_lock_take(&region->lock);
        struct ebbi_cleanup *cleanup = region->cleanups;
        ebbi_store_relaxed(&region->cleanups, cleanup->next); // relaxed: under the lock
        ebbi_lock_drop(&region->lock);
        struct ebbi_cleanup copy = *cleanup;
        free_cleanup(cleanup);
        copy.call(copy.argument);
    }
}

static void release_one(struct ebb_region *region, bool stays_open)
{
    if (EBBI_UNLIKELY(ebbi_region_is_over(region))) {
        ebbi_closing_wait(region); // a child that was closed: its blocks stay
        return;
    }
    run_cleanups(region);
    // relaxed: whoever retires beside a release is in error
    bool waits =
        ebbi_clock_is_used(&ebbi_clock) || ebbi_hazards_count() != 0 || ebbi_regions_may_wait();
    if (EBBI_UNLIKELY(ebbi_quarantine_is_on())) {
        release_watched(region, waits, stays_open);
        return;
    }
    give_remains(ebbi_region_empty(region, !waits, stays_open), waits);
}

// Ends all regions below `region` and then itself: no recursion, they may be nested deeply.
static void end_tree(struct ebb_region *region, bool open_only,
                     void (*end)(struct ebb_region *region, bool stays_open), bool stays_open)
{
    struct ebb_region *at = region;
    for (;;) {
        struct ebb_region *child = ebbi_region_youngest_child(at, open_only);
        if (child != NULL) {
            at = child;
            continue;
        }
        struct ebb_region *parent = at->parent;
        bool last = at == region;
        end(at, last && stays_open);
        if (last) {
            return;
        }
        at = parent;
    }
}

void ebbi_region_release(struct ebb_region *region, bool stays_open)
{
    ebbi_region_check(region, stays_open ? "reset of" : "release of");
    end_tree(region, false, release_one, stays_open);
}

static void close_one(struct ebb_region *region, bool stays_open)
{
    (void)stays_open;
    run_cleanups(region);
    ebbi_region_close(region);
}

void ebbi_region_end(struct ebb_region *region)
{
    ebbi_region_check(region, "close of");
    end_tree(region, true, close_one, false);
    if (EBBI_UNLIKELY(ebbi_closings_any())) {
        (void)ebbi_closing_finish(ebbi_os_now_ms());
    }
    tell_purge();
}
