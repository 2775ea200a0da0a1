// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer region: sheets that outlive their region because blocks in them do. They take no new blocks,
// so what is free in them stays free: whole pages of it go back, and the sheet with its last block.
#include "region/sheet.h"

static struct ebbi_lock orphans_lock; // rank: label; not with a label's
static struct ebbi_sheet *oldest, *youngest;

// After a change: the oldest of the label's.
static void tell_age(struct ebbi_label *label)
{
    const struct ebbi_sheet *sheet = oldest;
    while (sheet != NULL && sheet->label != label) {
        sheet = sheet->next;
    }
    // relaxed: a figure
    ebbi_store_relaxed(&label->oldest_ms, sheet != NULL ? sheet->orphan_ms : (uint64_t)0);
}

void ebbi_sheet_orphan(struct ebbi_sheet *sheet)
{
    if (ebbi_sheet_live(sheet) == 0) {
        ebbi_sheet_destroy(sheet);
        return;
    }
    int64_t live = sheet->live;
    ebbi_store_relaxed(&sheet->live, (int64_t)0); // relaxed: all of it is in `shared` below
    sheet->looked = INT64_MAX;
    for (size_t w = 0; w < EBBI_SHEET_PAGES / 64; w++) {
        sheet->purged[w] = 0;
    }
    sheet->looked_ms = sheet->orphan_ms = ebbi_os_now_ms();
    ebbi_store_relaxed(&sheet->owner, &ebbi_owner_nobody); // relaxed: nobody was it, or this
    ebbi_store_relaxed(&sheet->region, (struct ebb_region *)NULL); // relaxed: a look finds either
    ebbi_count(&sheet->label->demoted, 1);
    ebbi_count(&sheet->label->demoted_bytes, ebbi_sheet_bytes(sheet));
    ebbi_lock_take(&orphans_lock);
    sheet->next = NULL;
    sheet->previous = youngest;
    *(youngest != NULL ? &youngest->next : &oldest) = sheet;
    youngest = sheet;
    tell_age(sheet->label);
    ebbi_lock_drop(&orphans_lock);
    // release[sheet-free -> sheet-free]: whoever frees the last block finds all of the above
    // acquire[sheet-free <- sheet-free]: those who have freed are done
    if (ebbi_fetch_add_acq_rel(&sheet->shared, live) == -live) {
        ebbi_orphan_end(sheet);
    }
}

void ebbi_orphan_end(struct ebbi_sheet *sheet)
{
    ebbi_lock_take(&orphans_lock);
    *(sheet->previous != NULL ? &sheet->previous->next : &oldest) = sheet->next;
    *(sheet->next != NULL ? &sheet->next->previous : &youngest) = sheet->previous;
    tell_age(sheet->label);
    ebbi_lock_drop(&orphans_lock);
    ebbi_count(&sheet->label->demoted, (uint64_t)-1);
    ebbi_count(&sheet->label->demoted_bytes, -(uint64_t)ebbi_sheet_bytes(sheet));
    ebbi_sheet_destroy(sheet);
}

// Pieces, at least a page, that no block in use touches and that still hold something.
static size_t purge_sheet(struct ebbi_sheet *sheet)
{
    size_t piece = ebbi_max(ebbi_os_page_size(), EBBI_GRANULE / 16);
    uintptr_t start = ebbi_sheet_start(sheet);
    size_t total = 0;
    for (size_t i = 0; i < ebbi_sheet_bytes(sheet) / piece; i++) {
        uintptr_t at = start + i * piece;
        if (!ebbi_bits_test(sheet->purged, i) && !ebbi_sheet_uses(sheet, at, at + piece) &&
            ebbi_os_purge((void *)at, piece)) {
            ebbi_bits_put(sheet->purged, i, true);
            total += piece;
        }
    }
    return total;
}

size_t ebbi_orphans_purge(uint64_t now_ms, uint64_t delay_ms, bool *waiting)
{
    size_t total = 0;
    ebbi_lock_take(&orphans_lock);
    for (struct ebbi_sheet *sheet = oldest; sheet != NULL; sheet = sheet->next) {
        int64_t live = ebbi_sheet_live(sheet);
        if (live == sheet->looked) {
            continue; // nothing has happened
        }
        if (now_ms - sheet->looked_ms < delay_ms) {
            *waiting = true;
            continue;
        }
        total += purge_sheet(sheet);
        sheet->looked = live;
        sheet->looked_ms = now_ms;
    }
    ebbi_lock_drop(&orphans_lock);
    return total;
}

void ebbi_orphans_each(void (*visit)(struct ebbi_sheet *sheet, void *context), void *context)
{
    ebbi_lock_take(&orphans_lock);
    for (struct ebbi_sheet *sheet = oldest; sheet != NULL; sheet = sheet->next) {
        visit(sheet, context);
    }
    ebbi_lock_drop(&orphans_lock);
}

void ebbi_orphans_lock(void) { ebbi_lock_take(&orphans_lock); }
void ebbi_orphans_unlock(void) { ebbi_lock_drop(&orphans_lock); }
