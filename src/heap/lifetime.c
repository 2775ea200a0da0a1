// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: regions above their sheets: large blocks, what happens where a region cannot serve, and
// ends that have to wait.
#include <errno.h>
#include <string.h>

#include "heap/fast.h"
#include "region/quarantine.h"

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
    struct ebbi_fast *before = ebbi_source_swap(ebbi_current()); // no domain counts it
    void *p = ebbi_large_alloc(bytes, align, false);
    ebbi_source = before;
    *refusal = EBBI_REGION_NO_MEMORY;
    if (p != NULL) {
        *refusal = ebbi_region_adopt(region, p, ebbi_large_bytes(p), ebbi_large_note(p));
        if (*refusal != EBBI_REGION_GIVEN) {
            ebbi_large_free(p);
            p = NULL;
        }
    }
    return p;
}

// In debug mode every block's stack is kept: no region has an owner then, so all come this way.
static void *noted(void *p, const void *caller)
{
    if (EBBI_UNLIKELY(ebbi_quarantine_is_on())) {
        ebbi_stack_note(p, ebbi_stack_take(caller));
    }
    return p;
}

// A region that is closed passes on to its parent, the last one to the heap.
static EBBI_NOINLINE void *take_slow(struct ebb_region *region, size_t align, size_t bytes)
{
    if (bytes > PTRDIFF_MAX || align > PTRDIFF_MAX || ebbi_heap_get() == NULL) {
        return no_memory();
    }
    if (region->gives_way != NULL && ebbi_region_is_open(region)) {
        return ebbi_domain_alloc(region->gives_way, align, bytes);
    }
    bool large = bytes > EBBI_SHEET_BLOCK_MOST || align > EBBI_GRANULE ||
                 (align > EBBI_UNIT && bytes + align > EBBI_SHEET_BLOCK_MOST);
    for (struct ebb_region *r = region; r != NULL; r = r->parent) {
        enum ebbi_region_refusal refusal;
        void *p = large ? take_large(r, align, bytes, &refusal)
                        : ebbi_region_take(r, bytes, align, &refusal);
        if (refusal != EBBI_REGION_IS_CLOSED) {
            return p != NULL ? noted(p, __builtin_return_address(0)) : no_memory();
        }
    }
    struct ebbi_fast *before = ebbi_source_swap(ebbi_current());
    void *p = align <= EBBI_UNIT ? ebbi_malloc(bytes) : ebbi_aligned(align, bytes);
    ebbi_source = before;
    return p;
}

void *ebbi_region_malloc(struct ebb_region *region, size_t bytes)
{
    if (EBBI_UNLIKELY(!ebbi_region_is_easy(region, bytes))) {
        return take_slow(region, 1, bytes);
    }
    return (void *)ebbi_cursor_take(&region->own, bytes);
}

void *ebbi_region_aligned(struct ebb_region *region, size_t align, size_t bytes)
{
    return align <= EBBI_UNIT ? ebbi_region_malloc(region, bytes) : take_slow(region, align, bytes);
}

void *ebbi_scoped_aligned(size_t align, size_t bytes)
{
    return ebbi_region_aligned(((struct ebbi_heap *)ebbi_current())->region, align, bytes);
}

void *ebbi_scoped_malloc(size_t bytes)
{
    return ebbi_region_malloc(((struct ebbi_heap *)ebbi_current())->region, bytes);
}

struct ebb_region *ebbi_region_of(const void *p)
{
    unsigned tag = ebbi_tag_of(p);
    if (tag == EBBI_TAG_REGION) {
        // relaxed: a region that ends beside this call may be found or not
        return ebbi_sheet_has(p) ? ebbi_load_relaxed(&ebbi_sheet_of(p)->region) : NULL;
    }
    const struct ebbi_note *note =
        tag == EBBI_TAG_LARGE || tag == EBBI_TAG_HUGE ? ebbi_large_note((void *)p) : NULL;
    return note != NULL ? ebbi_load_relaxed(&note->region) : NULL; // relaxed: as above
}

void *ebbi_region_resize(void *p, size_t bytes)
{
    struct ebb_region *region = ebbi_region_of(p);
    return region != NULL && ebbi_region_extend(region, p, bytes) ? p : NULL;
}

void *ebbi_region_realloc(struct ebb_region *region, void *p, size_t bytes)
{
    if (p == NULL) {
        return ebbi_region_malloc(region, bytes);
    }
    if (bytes == 0) {
        ebbi_free(p);
        return NULL;
    }
    size_t old_bytes = ebbi_usable_size(p);
    const struct ebb_region *in = ebbi_region_of(p);
    bool same = in != NULL && in == region;
    if (same && ((bytes <= old_bytes && bytes > old_bytes / 2) ||
                 (ebbi_tag_of(p) == EBBI_TAG_REGION && ebbi_region_extend(region, p, bytes)))) {
        return p;
    }
    void *to = ebbi_region_malloc(region, bytes);
    if (to != NULL) {
        memcpy(to, p, ebbi_min(old_bytes, bytes));
        ebbi_free(p);
    }
    return to != NULL || bytes > old_bytes || !same ? to : p; // to shrink in place is no failure
}

void *ebbi_promote(const void *p, struct ebb_region *to)
{
    size_t bytes = ebbi_usable_size(p);
    if (p == NULL) {
        ebbi_report_invalid(p, "promote");
    }
    if (to != NULL) {
        void *copy = ebbi_region_malloc(to, bytes);
        return copy != NULL ? memcpy(copy, p, bytes) : NULL;
    }
    (void)ebbi_heap_get(); // a thread's first call sets its source
    struct ebbi_fast *before = ebbi_source_swap(ebbi_current());
    void *copy = ebbi_malloc(bytes);
    ebbi_source = before;
    return copy != NULL ? memcpy(copy, p, bytes) : NULL;
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
    }
}

int ebbi_region_cleanup(struct ebb_region *region, void (*call)(void *argument), void *argument)
{
    if (!ebbi_region_is_open(region)) {
        ebbi_region_check(region, "cleanup of");
        return -EINVAL;
    }
    struct ebbi_cleanup *cleanup = ebbi_region_malloc(region, sizeof *cleanup);
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

// Released while threads use pins: sheets that wait for the grace period, youngest first; the tag of
// each lies in its `looked`. (Large objects wait as retired ones do.)
static struct {
    struct ebbi_lock lock; // rank: heap
    struct ebbi_sheet *first;
} remains;

static bool any_retired; // atomic: a block of a region has been retired

static void free_larges(void *first, bool retire)
{
    for (void *next; first != NULL; first = next) {
        next = ebbi_large_note(first)->after;
        if (retire) {
            ebbi_retire_slow(first);
        } else {
            ebbi_large_free(first);
        }
    }
}

static void wait_for_pins(struct ebbi_sheet *sheets)
{
    uint64_t tag = ebbi_clock_tag(&ebbi_clock);
    ebbi_lock_take(&remains.lock);
    for (struct ebbi_sheet *next; sheets != NULL; sheets = next) {
        next = sheets->next;
        sheets->looked = (int64_t)tag;
        sheets->next = remains.first;
        remains.first = sheets;
    }
    ebbi_lock_drop(&remains.lock);
    (void)ebbi_clock_advance(&ebbi_clock, true);
    bool some_wait = false;
    (void)ebbi_remains_purge(&some_wait);
    if (some_wait) {
        ebbi_helper_kick();
    }
}

static bool remains_may_go(uintptr_t start, size_t bytes, uint64_t tag)
{
    const void *p = (const void *)start;
    // relaxed: under the lock
    bool retired =
        ebbi_tag_of(p) == EBBI_TAG_REGION && ebbi_load_relaxed(&ebbi_sheet_of(p)->retired) != 0;
    return !retired && ebbi_clock_passed(&ebbi_clock, tag) && !ebbi_hazard_protects(p, bytes);
}

size_t ebbi_remains_purge(bool *some_wait)
{
    size_t bytes = 0;
    ebbi_lock_take(&remains.lock);
    for (struct ebbi_sheet **link = &remains.first; *link != NULL;) {
        struct ebbi_sheet *sheet = *link;
        size_t sheet_bytes = ebbi_sheet_bytes(sheet);
        if (remains_may_go(ebbi_sheet_start(sheet), sheet_bytes, (uint64_t)sheet->looked)) {
            *link = sheet->next;
            bytes += sheet_bytes;
            ebbi_sheet_destroy(sheet);
        } else {
            link = &sheet->next;
            *some_wait = true;
        }
    }
    if (ebbi_quarantine_is_on()) {
        ebbi_quarantine_settle(remains_may_go, some_wait);
    }
    ebbi_lock_drop(&remains.lock);
    return bytes;
}

void ebbi_remains_lock(void) { ebbi_lock_take(&remains.lock); }
void ebbi_remains_unlock(void) { ebbi_lock_drop(&remains.lock); }

static void give_remains(struct ebbi_remains left, bool waits)
{
    if (EBBI_UNLIKELY(waits)) {
        free_larges(left.larges, true);
        wait_for_pins(left.sheets);
    } else if (EBBI_UNLIKELY(left.sheets != NULL || left.larges != NULL)) {
        free_larges(left.larges, false);
        for (struct ebbi_sheet *next; left.sheets != NULL; left.sheets = next) {
            next = left.sheets->next;
            ebbi_sheet_destroy(left.sheets);
        }
        ebbi_helper_kick();
    }
}

// In debug mode: only what the quarantine has no room for is given back.
static EBBI_NOINLINE void release_watched(struct ebb_region *region, bool waits, bool stays_open)
{
    struct ebbi_release release = {.number = region->id, .stack = ebbi_stack_take(NULL)};
    ebbi_region_seal(region);
    struct ebbi_remains left = ebbi_region_empty(region, false, stays_open);
    release.tag = waits ? ebbi_clock_tag(&ebbi_clock) : 0;
    ebbi_lock_take(&remains.lock);
    left = ebbi_quarantine_put(left, &release);
    ebbi_lock_drop(&remains.lock);
    give_remains(left, waits);
}

static void release_one(struct ebb_region *region, bool stays_open)
{
    ebbi_region_run_cleanups(region);
    // relaxed: whoever retires beside a release is in error
    bool waits = ebbi_clock_is_used(&ebbi_clock) || ebbi_hazards_count() != 0 ||
                 ebbi_load_relaxed(&any_retired);
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
    ebbi_region_check(region, "release of");
    end_tree(region, false, release_one, stays_open);
}

static void close_one(struct ebb_region *region, bool stays_open)
{
    (void)stays_open;
    ebbi_region_run_cleanups(region);
    ebbi_region_close(region);
}

void ebbi_region_end(struct ebb_region *region)
{
    ebbi_region_check(region, "close of");
    end_tree(region, true, close_one, false);
    ebbi_helper_kick();
}

// ---- retired blocks ------------------------------------------------------------------------------

// Its sheet waits for this, even where its region has been released since.
static void free_retired(void *p, void *context)
{
    (void)context;
    ebbi_lock_take(&remains.lock);
    // relaxed: looked at under the lock
    (void)ebbi_fetch_sub_relaxed(&ebbi_sheet_of(p)->retired, 1u);
    ebbi_sheet_free(p);
    ebbi_lock_drop(&remains.lock);
}

void ebbi_region_retire(void *p)
{
    int saved = errno;
    (void)ebbi_sheet_usable(p);             // no block in use: abort
    ebbi_store_relaxed(&any_retired, true); // relaxed: see release_one
    // relaxed: as in free_retired; a release beside this is in error
    (void)ebbi_fetch_add_relaxed(&ebbi_sheet_of(p)->retired, 1u);
    if (!ebbi_retire_with(NULL, (struct ebbi_call){free_retired, p, NULL})) {
        // relaxed: no memory for the call: the block stays in its region until that ends
        (void)ebbi_fetch_sub_relaxed(&ebbi_sheet_of(p)->retired, 1u);
    }
    errno = saved;
}
