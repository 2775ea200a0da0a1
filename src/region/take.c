// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer region: allocating. In the cursor; else in a hole of a sheet of which a quarter of the blocks has
// been freed (holes are refilled by bump allocation after Blackburn and McKinley's Immix, 2008); else in a
// new sheet.
#include "base/list.h"
#include "region/region.h"

#define LOOKS 4 // sheets that are looked at before the region grows

static uintptr_t bump(struct ebbi_cursor *cursor, size_t size, size_t align)
{
    EBBI_ASSERT(size % EBBI_UNIT == 0 && size > 0);
    if (cursor->sheet == NULL || (align > EBBI_UNIT && !ebbi_cursor_align(cursor, align, size))) {
        return 0;
    }
    return ebbi_cursor_fits(cursor, size) ? ebbi_cursor_take(cursor, size)
                                          : ebbi_cursor_cross(cursor, size);
}

// Whether it is worth a walk over its bits: a quarter of the blocks has gone, and a quarter of those
// that were there at the last look. One start is the last seal's marker.
static bool promises(const struct ebbi_sheet *sheet, int64_t live)
{
    return live * 4 <= ((int64_t)sheet->starts - 1) * 3 && live / 3 < sheet->looked / 4;
}

// Of a sheet whose blocks were allocated through cursors of this kind.
static bool reopen(struct ebbi_cursor *cursor, const void **owner, struct ebbi_sheet *sheet,
                   size_t bytes)
{
    EBBI_ASSERT(cursor->sheet == NULL);
    // relaxed: both change under the region's lock alone
    if (ebbi_load_relaxed(&sheet->cursor) != NULL || ebbi_load_relaxed(&sheet->owner) != owner) {
        return false;
    }
    int64_t live = ebbi_sheet_live(sheet);
    if (live == 0 && bytes + EBBI_UNIT <= ebbi_sheet_bytes(sheet)) {
        ebbi_sheet_restart(sheet, cursor);
        return true;
    }
    if (!promises(sheet, live)) {
        return false;
    }
    sheet->looked = live;
    return ebbi_cursor_find(cursor, sheet, bytes);
}

static bool search(struct ebb_region *region, struct ebbi_cursor *cursor, const void **owner,
                   size_t bytes, size_t looks)
{
    ebbi_assert_held(&region->lock);
    struct ebbi_sheet *sheet = region->look;
    for (size_t i = 0; i < looks && i < region->sheet_count; i++) {
        if (sheet == NULL) {
            sheet = region->sheets;
        }
        if (reopen(cursor, owner, sheet, bytes)) {
            region->look = sheet;
            return true;
        }
        sheet = sheet->next;
    }
    region->look = sheet;
    return false;
}

static bool is_owned_here(const struct ebb_region *region)
{
    return ebbi_load_relaxed(&region->front.owner) == ebb_self; // relaxed: if so, it knows
}

static size_t room_left(const struct ebb_region *region)
{
    return region->hard_limit == 0
               ? SIZE_MAX
               : region->hard_limit - ebbi_min(region->hard_limit, region->held_bytes);
}

// The limit refuses: what holds no block goes back first, but for the sheet of another thread's cursor.
static EBBI_NOINLINE void make_way(struct ebb_region *region)
{
    ebbi_assert_held(&region->lock);
    if (is_owned_here(region) && ebbi_cursor_is_drained(&region->front.cursor)) {
        ebbi_cursor_seal(&region->front.cursor);
    }
    if (ebbi_cursor_is_drained(&region->common)) {
        ebbi_cursor_seal(&region->common);
    }
    ebbi_region_shed(region);
}

// Granules for a sheet in which `bytes` fit: more the more the region holds, within its limit. 0: none.
static size_t next_granules(const struct ebb_region *region, size_t bytes)
{
    size_t least = (bytes + EBBI_UNIT + EBBI_GRANULE - 1) >> EBBI_GRANULE_SHIFT;
    size_t half = region->held_bytes >> (EBBI_GRANULE_SHIFT + 1);
    size_t steps = half > 1 ? (size_t)1 << ebbi_highest_bit(half) : 1;
    size_t wanted = ebbi_max(least, ebbi_min(steps, EBBI_SHEET_MOST));
    wanted = ebbi_min(wanted, room_left(region) >> EBBI_GRANULE_SHIFT);
    return wanted >= least ? wanted : 0;
}

static void hold(struct ebb_region *region, size_t bytes)
{
    ebbi_assert_held(&region->lock);
    EBBI_ASSERT(bytes > 0);
    region->held_bytes += bytes;
    region->peak_bytes = ebbi_max(region->peak_bytes, region->held_bytes);
    region->pressed += region->soft_limit != 0 && region->held_bytes > region->soft_limit;
}

// Over the soft limit every sheet is looked at before the region grows.
static bool press(struct ebb_region *region, struct ebbi_cursor *cursor, const void **owner,
                  size_t bytes)
{
    ebbi_assert_held(&region->lock);
    size_t after = region->held_bytes + EBBI_GRANULE;
    if (region->soft_limit == 0 || after <= region->soft_limit) {
        return false;
    }
    return search(region, cursor, owner, bytes, SIZE_MAX);
}

static bool grow(struct ebb_region *region, struct ebbi_cursor *cursor, const void **owner,
                 size_t bytes)
{
    ebbi_assert_held(&region->lock);
    EBBI_ASSERT(cursor->sheet == NULL);
    size_t granules = next_granules(region, bytes);
    if (granules == 0) {
        make_way(region);
        granules = next_granules(region, bytes);
    }
    if (granules == 0) {
        region->refused++;
        ebbi_count(&region->label->refused, 1);
        return false;
    }
    struct ebbi_sheet *sheet = ebbi_sheet_create(granules, owner, region, region->label);
    if (sheet == NULL) {
        return false;
    }
    EBBI_ASSERT(sheet->next == NULL && sheet->previous == NULL && sheet->region == region);
    EBBI_LIST_PUSH(region->sheets, sheet, next, previous);
    region->sheet_count++;
    hold(region, ebbi_sheet_bytes(sheet));
    ebbi_sheet_restart(sheet, cursor);
    return true;
}

// What was refused may have been large: smaller blocks go on in this sheet, unless it was empty and has gone.
static void go_back(struct ebb_region *region, struct ebbi_cursor *cursor,
                    struct ebbi_sheet *before)
{
    ebbi_assert_held(&region->lock);
    struct ebbi_sheet *sheet = region->sheets;
    while (sheet != NULL && sheet != before) {
        sheet = sheet->next;
    }
    if (sheet != NULL) {
        (void)ebbi_cursor_find(cursor, sheet, EBBI_UNIT);
    }
}

static bool make_room(struct ebb_region *region, struct ebbi_cursor *cursor, const void **owner,
                      size_t bytes)
{
    ebbi_assert_held(&region->lock);
    struct ebbi_sheet *before = cursor->sheet;
    ebbi_cursor_seal(cursor);
    bool made = (before != NULL && reopen(cursor, owner, before, bytes)) ||
                search(region, cursor, owner, bytes, LOOKS) ||
                press(region, cursor, owner, bytes) || grow(region, cursor, owner, bytes);
    if (!made && before != NULL) {
        go_back(region, cursor, before);
    }
    return made;
}

void *ebbi_region_take(struct ebb_region *region, size_t bytes, size_t align,
                       enum ebbi_region_refusal *refusal)
{
    EBBI_ASSERT(align != 0 && (align & (align - 1)) == 0 && bytes <= EBBI_SHEET_BLOCK_MOST);
    uintptr_t p = 0;
    size_t size = ebbi_align_up(ebbi_max(bytes, 1), EBBI_UNIT);
    size_t reach = size + (align > EBBI_UNIT ? align - EBBI_UNIT : 0);
    ebbi_lock_take(&region->lock);
    bool mine = is_owned_here(region);
    struct ebbi_cursor *cursor = mine ? &region->front.cursor : &region->common;
    const void **owner = mine ? &region->front.owner : &ebbi_sheet_owner_nobody;
    *refusal = EBBI_REGION_GIVEN;
    ebbi_region_check(region, "allocation in");
    if (!ebbi_region_is_open(region)) {
        *refusal = EBBI_REGION_IS_CLOSED;
        region->late++;
        ebbi_count(&region->label->late, 1);
    } else {
        p = bump(cursor, size, align);
        if (p == 0 && make_room(region, cursor, owner, reach)) {
            p = bump(cursor, size, align);
        }
        *refusal = p == 0 ? EBBI_REGION_NO_MEMORY : EBBI_REGION_GIVEN;
    }
    ebbi_lock_drop(&region->lock);
    return (void *)p;
}

bool ebbi_region_extend(struct ebb_region *region, void *block, size_t bytes)
{
    uintptr_t p = (uintptr_t)block;
    struct ebbi_cursor *cursor = &region->front.cursor;
    size_t size = ebbi_align_up(ebbi_max(bytes, 1), EBBI_UNIT);
    // relaxed: if this thread is the owner, it knows
    if (ebbi_load_relaxed(&region->front.owner) != ebb_self || cursor->sheet == NULL ||
        cursor->sheet != ebbi_sheet_of(block) || p < cursor->from ||
        p + ebbi_sheet_usable(block) != cursor->next || bytes > cursor->stop - p ||
        size > cursor->stop - p) {
        return false;
    }
    ebbi_cursor_move(cursor, p + size);
    return true;
}

// ---- large objects -------------------------------------------------------------------------------

enum ebbi_region_refusal ebbi_region_adopt(struct ebb_region *region, void *p, size_t bytes,
                                           struct ebbi_note *note)
{
    enum ebbi_region_refusal refusal = EBBI_REGION_GIVEN;
    ebbi_lock_take(&region->lock);
    ebbi_region_check(region, "allocation in");
    bool is_open = ebbi_region_is_open(region);
    if (is_open && bytes > room_left(region)) {
        make_way(region);
    }
    if (!is_open) {
        refusal = EBBI_REGION_IS_CLOSED;
        region->late++;
        ebbi_count(&region->label->late, 1);
    } else if (bytes > room_left(region)) {
        refusal = EBBI_REGION_NO_MEMORY;
        region->refused++;
        ebbi_count(&region->label->refused, 1);
    } else {
        EBBI_ASSERT(note->region == NULL && note->label == NULL);
        note->region = region;
        note->label = region->label;
        note->bytes = bytes;
        note->before = NULL;
        note->after = region->larges;
        if (region->larges != NULL) {
            ebbi_large_note(region->larges)->before = p;
        }
        region->larges = p;
        region->large_count++;
        hold(region, bytes);
        ebbi_label_hold(region->label, bytes);
    }
    ebbi_lock_drop(&region->lock);
    return refusal;
}

void ebbi_region_forget(struct ebbi_note *note)
{
    // relaxed: changes under the region's lock alone, and only to NULL
    struct ebb_region *region = ebbi_load_relaxed(&note->region);
    if (region != NULL) {
        ebbi_lock_take(&region->lock);
        if (note->region == region) {
            *(note->before != NULL ? &ebbi_large_note(note->before)->after : &region->larges) =
                note->after;
            if (note->after != NULL) {
                ebbi_large_note(note->after)->before = note->before;
            }
            EBBI_ASSERT(region->large_count > 0 && region->held_bytes >= note->bytes);
            region->large_count--;
            region->held_bytes -= note->bytes;
        }
        ebbi_lock_drop(&region->lock);
    }
    if (note->label != NULL) {
        ebbi_label_drop(note->label, note->bytes);
        note->label = NULL;
    }
}
