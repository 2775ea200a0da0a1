// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer region: how regions begin and end.
#include "region/region.h"
#include "base/list.h"
#include "base/probe.h"

#include <string.h>

#define USERS_CLOSED ((uint32_t)1 << 31) // in `users`: the last one to leave ends the region

static struct {
    uint64_t value __attribute__((aligned(EBBI_CACHE_LINE))); // atomic; alone on its line
} last_id;
uint8_t ebbi_quarantine_mode;

bool ebbi_region_is_over(const struct ebb_region *region)
{
    // relaxed: whoever has it as current is one of its users; to others it has ended
    return ebbi_load_relaxed(&region->state) == EBBI_REGION_CLOSED &&
           ebbi_load_relaxed(&region->users) == USERS_CLOSED; // relaxed: as above
}

void ebbi_region_check(const struct ebb_region *region, const char *what)
{
    // relaxed: a caller's error is none
    if (ebbi_load_relaxed(&region->state) == EBBI_REGION_FREE || ebbi_region_is_over(region)) {
        ebbi_fatal("%s a region that has ended (%p, the last one was \"%s\")", what, (void *)region,
                   region->label != NULL ? region->label->name : "?");
    }
}

static void link_child(struct ebb_region *parent, struct ebb_region *child)
{
    child->parent = parent;
    child->next = child->previous = NULL;
    if (parent == NULL) {
        return;
    }
    EBBI_ASSERT(parent != child);
    (void)ebbi_fetch_add_relaxed(&parent->users, 1u); // relaxed: as in ebbi_region_enter
    ebbi_lock_take(&parent->lock);
    child->next = parent->children;
    if (parent->children != NULL) {
        parent->children->previous = child;
    }
    ebbi_store_relaxed(&parent->children, child); // relaxed: under the lock
    ebbi_lock_drop(&parent->lock);
}

// Its parent, which has one user too many now; NULL: it has none.
static struct ebb_region *unlink_child(struct ebb_region *child)
{
    struct ebb_region *parent = child->parent;
    if (parent == NULL) {
        return NULL;
    }
    ebbi_lock_take(&parent->lock);
    // relaxed: under the lock
    ebbi_store_relaxed(child->previous != NULL ? &child->previous->next : &parent->children,
                       child->next);
    if (child->next != NULL) {
        child->next->previous = child->previous;
    }
    ebbi_lock_drop(&parent->lock);
    return parent;
}

// The label that the handle had before, if it is the one.
static bool same_label(const struct ebb_region *region, const char *label)
{
    return region->label != NULL && strncmp(region->label->name, label, EBBI_LABEL_BYTES - 1) == 0;
}

// Not in debug mode, nor where nobody could take it away again without a second's wait.
static bool may_own(void)
{
    // relaxed: see ebbi_sheet_owner_revoke
    return EBBI_LIKELY(!ebbi_quarantine_is_on() && !ebbi_load_relaxed(&ebbi_sheet_owner_refused));
}

// A handle's first sheet, if any, goes with it.
static void relabel(struct ebb_region *region, struct ebbi_label *label)
{
    struct ebbi_sheet *sheet = region->sheets;
    if (sheet != NULL) {
        ebbi_label_drop(sheet->label, ebbi_sheet_bytes(sheet));
        ebbi_count(&sheet->label->slabs, (uint64_t)-1);
        ebbi_label_hold(label, ebbi_sheet_bytes(sheet));
        ebbi_count(&label->slabs, 1);
        sheet->label = label;
    }
    region->label = label;
}

struct ebb_region *ebbi_region_open(struct ebb_region *parent, const char *label, size_t soft_limit,
                                    size_t hard_limit)
{
    struct ebb_region *region = ebbi_handle_take();
    if (region == NULL) {
        return NULL;
    }
    if (!same_label(region, label)) {
        struct ebbi_label *found = ebbi_label_find(label, false);
        if (found == NULL) {
            (void)ebbi_handle_give(region);
            return NULL;
        }
        relabel(region, found);
    }
    if (region->sheets != NULL && hard_limit != 0 &&
        hard_limit < ebbi_sheet_bytes(region->sheets)) {
        ebbi_handle_cool(region);
    }
    EBBI_ASSERT(region->state == EBBI_REGION_FREE && region->large_count == 0 &&
                region->children == NULL);
    EBBI_ASSERT(region->sheet_count == (region->sheets != NULL) && region->cleanups == NULL);
    region->soft_limit = soft_limit;
    region->hard_limit = hard_limit;
    region->closes = false;
    region->gives_way = NULL;
    region->late = region->refused = region->pressed = 0;
    region->users = 0;
    region->held_bytes = region->sheets != NULL ? ebbi_sheet_bytes(region->sheets) : 0;
    region->peak_bytes = region->held_bytes;
    region->opened_ms = ebbi_os_now_ms();
    // relaxed: a number
    ebbi_store_relaxed(&region->id, ebbi_fetch_add_relaxed(&last_id.value, (uint64_t)1) + 1);
    // relaxed: nobody else has the handle
    ebbi_store_relaxed(&region->front.owner, may_own() ? (const void *)ebb_self : NULL);
    // release[region-open -> region-look]: all of the above
    ebbi_store_release(&region->state, (uint8_t)EBBI_REGION_OPEN);
    ebbi_count(&region->label->open, 1);
    ebbi_count(&region->label->opened, 1);
    link_child(parent, region);
    return region;
}

static void unlink_sheet(struct ebb_region *region, struct ebbi_sheet *sheet)
{
    ebbi_assert_held(&region->lock);
    EBBI_ASSERT(region->sheet_count > 0 && region->held_bytes >= ebbi_sheet_bytes(sheet));
    EBBI_LIST_REMOVE(region->sheets, sheet, next, previous);
    if (region->look == sheet) {
        region->look = sheet->next;
    }
    region->sheet_count--;
    region->held_bytes -= ebbi_sheet_bytes(sheet);
    sheet->next = sheet->previous = NULL;
}

void ebbi_region_shed(struct ebb_region *region)
{
    ebbi_assert_held(&region->lock);
    struct ebbi_sheet *next;
    for (struct ebbi_sheet *sheet = region->sheets; sheet != NULL; sheet = next) {
        next = sheet->next;
        // relaxed: it changes under the lock alone
        if (ebbi_load_relaxed(&sheet->cursor) == NULL && ebbi_sheet_live(sheet) == 0) {
            unlink_sheet(region, sheet);
            ebbi_sheet_destroy(sheet);
        }
    }
}

struct ebb_region *ebbi_region_youngest_child(struct ebb_region *region, bool open_only)
{
    // relaxed: a child that is opened beside its parent's end is in error
    if (ebbi_load_relaxed(&region->children) == NULL) {
        return NULL;
    }
    ebbi_lock_take(&region->lock);
    struct ebb_region *child = region->children;
    while (child != NULL && open_only && !ebbi_region_is_open(child)) {
        child = child->next;
    }
    ebbi_lock_drop(&region->lock);
    return child;
}

// ---- release -------------------------------------------------------------------------------------

// The sheet that the owner's next blocks go to, as new; NULL when there is none to keep.
static struct ebbi_sheet *keep_first(struct ebb_region *region)
{
    ebbi_assert_held(&region->lock);
    struct ebbi_sheet *kept = region->sheets;
    while (kept != NULL && kept->next != NULL) {
        kept = kept->next;
    }
    // relaxed: under the lock
    if (kept == NULL || ebbi_load_relaxed(&kept->owner) != &region->front.owner ||
        ebbi_sheet_bytes(kept) > EBBI_GRANULE) {
        return NULL;
    }
    unlink_sheet(region, kept);
    return kept;
}

static void forget_larges(struct ebb_region *region)
{
    ebbi_assert_held(&region->lock);
    EBBI_ASSERT((region->larges == NULL) == (region->large_count == 0));
    for (void *p = region->larges; p != NULL; p = ebbi_large_note(p)->after) {
        // relaxed: see ebbi_region_forget
        ebbi_store_relaxed(&ebbi_large_note(p)->region, (struct ebb_region *)NULL);
    }
    region->larges = NULL;
    region->large_count = 0;
}

void ebbi_region_seal(struct ebb_region *region)
{
    ebbi_lock_take(&region->lock);
    ebbi_cursor_seal(&region->front.cursor);
    ebbi_cursor_seal(&region->common);
    ebbi_lock_drop(&region->lock);
}

static void drop_user(struct ebb_region *region);

struct ebbi_remains ebbi_region_empty(struct ebb_region *region, bool keep, bool stays_open)
{
    struct ebbi_remains remains = {NULL, NULL, false};
    ebbi_lock_take(&region->lock);
    ebbi_region_check(region, stays_open ? "reset of" : "release of");
    const char *what = stays_open ? "reset" : "release";
    if (region->closes) {
        ebbi_fatal("%s of region \"%s\" (number %llu), which was opened to be closed", what,
                   region->label->name, (unsigned long long)region->id);
    }
    // relaxed: whoever enters beside a release is told so or not
    if ((ebbi_load_relaxed(&region->users) & ~USERS_CLOSED) != 0) {
        ebbi_fatal("%s of region \"%s\" (number %llu), which is current in a thread", what,
                   region->label->name, (unsigned long long)region->id);
    }
    size_t held_bytes = region->held_bytes;
    struct ebbi_sheet *kept = keep ? keep_first(region) : NULL;
    if (kept == NULL || region->front.cursor.sheet != kept) {
        ebbi_cursor_forget(&region->front.cursor);
    }
    ebbi_cursor_forget(&region->common);
    EBBI_ASSERT(region->children == NULL && region->cleanups == NULL);
    remains.sheets = region->sheets;
    remains.larges = region->larges;
    forget_larges(region);
    region->sheets = kept;
    region->sheet_count = kept != NULL;
    region->look = NULL;
    region->held_bytes = kept != NULL ? ebbi_sheet_bytes(kept) : 0;
    if (kept != NULL && region->front.cursor.sheet == kept) {
        ebbi_cursor_rewind(&region->front.cursor);
    } else if (kept != NULL) {
        ebbi_sheet_restart(kept, &region->front.cursor);
    }
    ebbi_count(&region->label->released, 1);
    if (!stays_open) {
        // relaxed: for those who use a handle that has ended
        ebbi_store_relaxed(&region->state, (uint8_t)EBBI_REGION_FREE);
        ebbi_store_relaxed(&region->front.owner, (const void *)NULL); // relaxed: as above
    }
    ebbi_lock_drop(&region->lock);
    EBBI_PROBE3(region_release, region, region->label->name, held_bytes);
    if (!stays_open) {
        struct ebb_region *parent = unlink_child(region);
        ebbi_count(&region->label->open, (uint64_t)-1);
        remains.gave = ebbi_handle_give(region);
        drop_user(parent);
    }
    return remains;
}

// ---- close ---------------------------------------------------------------------------------------

static bool is_drained(const struct ebb_region *region)
{
    ebbi_assert_held(&region->lock);
    // What gave way is not known.
    bool drained = region->larges == NULL && region->gives_way == NULL;
    for (struct ebbi_sheet *s = region->sheets; s != NULL && drained; s = s->next) {
        drained = ebbi_sheet_live(s) == 0;
    }
    return drained;
}

// Under the lock, which it drops: closed, and current nowhere. Its parent, as of unlink_child; NULL too
// where the end has to wait (P4).
static struct ebb_region *finish_close(struct ebb_region *region)
{
    ebbi_assert_held(&region->lock);
    EBBI_ASSERT(region->state == EBBI_REGION_CLOSED);
    struct ebbi_label *label = region->label;
    const void *former = ebbi_load_relaxed(&region->front.owner); // relaxed: revoke looks again
    if (!ebbi_sheet_owner_revoke(&region->front.owner)) {
        ebbi_closing_put(region, former);
        ebbi_lock_drop(&region->lock);
        return NULL;
    }
    ebbi_cursor_seal(&region->front.cursor);
    ebbi_cursor_seal(&region->common);
    bool drained = is_drained(region);
    size_t held_bytes = region->held_bytes;
    struct ebbi_sheet *kept = drained ? keep_first(region) : NULL;
    struct ebbi_sheet *sheets = region->sheets;
    forget_larges(region);
    region->sheets = kept;
    region->sheet_count = kept != NULL;
    region->look = NULL;
    if (kept != NULL) {
        ebbi_sheet_restart(kept, &region->front.cursor);
    }
    // relaxed: for those who use a handle that has ended
    ebbi_store_relaxed(&region->state, (uint8_t)EBBI_REGION_FREE);
    ebbi_store_relaxed(&region->front.owner, (const void *)NULL); // relaxed: as above
    ebbi_lock_drop(&region->lock);
    EBBI_PROBE3(region_close, region, label->name, held_bytes);
    for (struct ebbi_sheet *next; sheets != NULL; sheets = next) {
        next = sheets->next;
        ebbi_sheet_orphan(sheets);
    }
    ebbi_count(&label->closed, 1);
    ebbi_count(&label->drained, drained);
    ebbi_count(&label->open, (uint64_t)-1);
    struct ebb_region *parent = unlink_child(region);
    (void)ebbi_handle_give(region);
    return parent;
}

// Whoever takes the last user away from a closed region ends it, which may be its parent's last, and so
// on.
static void drop_user(struct ebb_region *region)
{
    // release[users-leave -> users-end]: what this thread did in the region
    // acquire[users-leave <- users-end]: the state
    while (region != NULL &&
           ebbi_fetch_add_acq_rel(&region->users, (uint32_t)-1) == (USERS_CLOSED | 1)) {
        ebbi_lock_take(&region->lock);
        region = finish_close(region);
    }
}

void ebbi_region_finish(struct ebb_region *region)
{
    ebbi_lock_take(&region->lock);
    drop_user(finish_close(region));
}

void ebbi_region_close(struct ebb_region *region)
{
    ebbi_lock_take(&region->lock);
    ebbi_region_check(region, "close of");
    if (!ebbi_region_is_open(region)) {
        ebbi_fatal("close of region \"%s\" (number %llu), which is closed already",
                   region->label->name, (unsigned long long)region->id);
    }
    // relaxed: under the lock; users that enter beside it are in error
    ebbi_store_relaxed(&region->state, (uint8_t)EBBI_REGION_CLOSED);
    if (ebbi_load_relaxed(&region->front.owner) == ebb_self) { // relaxed: it knows
        ebbi_cursor_seal(&region->front.cursor);
    }
    // acquire[users-end <- users-leave]: what they did in the region
    // release[users-end -> users-leave]: the state, for the last one to leave
    if (ebbi_fetch_or_acq_rel(&region->users, USERS_CLOSED) == 0) {
        drop_user(finish_close(region));
    } else {
        ebbi_lock_drop(&region->lock);
    }
}

// A child whose end another thread had begun is none any more.
void ebbi_region_recount(struct ebb_region *region)
{
    struct ebb_region *child = region->children;
    struct ebb_region *previous = NULL;
    region->users &= USERS_CLOSED;
    for (region->children = NULL; child != NULL; child = child->next) {
        if (child->state != EBBI_REGION_FREE) {
            *(previous != NULL ? &previous->next : &region->children) = child;
            child->previous = previous;
            previous = child;
            region->users++;
        }
    }
    if (previous != NULL) {
        previous->next = NULL;
    }
}

// ---- current -------------------------------------------------------------------------------------

void ebbi_region_enter(struct ebb_region *region)
{
    const void *nobody = NULL;
    ebbi_region_check(region, "enter of");
    (void)ebbi_fetch_add_relaxed(&region->users, 1u); // relaxed: see ebbi_region_leave
    if (may_own()) {
        // acquire[owner-enter <- owner-leave]: the cursor as the last owner left it
        (void)ebbi_cas_acquire(&region->front.owner, &nobody, (const void *)ebb_self);
    }
}

void ebbi_region_detach(struct ebb_region *region)
{
    const void *me = ebb_self;
    ebbi_region_check(region, "detach of");
    // release[owner-leave -> owner-enter]: the cursor
    (void)ebbi_cas_release(&region->front.owner, &me, (const void *)NULL);
}

void ebbi_region_leave(struct ebb_region *region, bool stays)
{
    const void *me = ebb_self;
    if (!stays) {
        // release[owner-leave -> owner-enter]: the cursor
        (void)ebbi_cas_release(&region->front.owner, &me, (const void *)NULL);
    }
    drop_user(region);
}
