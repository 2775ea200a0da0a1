// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer region: sheets that outlive their region because blocks in them do. They take no new blocks,
// so what is free in them stays free: whole pages of it go back, and the sheet with its last block.
//
// The pass that gives pages back holds the lock for a few sheets at a time, and not while it works on
// one. It claims the sheet where it is by a phantom block, one more in `shared`, as long as there are real
// ones: so the sheet stays, and stays in the list. Taking the phantom away may end it, like a free.
#include "base/list.h"
#include "base/probe.h"
#include "region/sheet.h"

#define SHEETS_AT_ONCE 64 // looked at under the lock

static struct ebbi_lock orphans_lock = EBBI_LOCK(LABEL); // not with a label's
static struct ebbi_sheet *oldest, *youngest;
static struct ebbi_sheet *claimed_orphan;                 // has a phantom; under the lock
static struct ebbi_lock orphan_pass = EBBI_LOCK(PARKING); // one pass at a time; held over madvise

// Under the lock, as is the next. The oldest of a label: when it becomes one, exact; when it ends, the
// next one's time, which may be another label's and earlier; the pass makes it exact again.
static void list(struct ebbi_sheet *sheet)
{
    ebbi_assert_held(&orphans_lock);
    struct ebbi_label *label = sheet->label;
    sheet->looked_ms = sheet->orphan_ms = ebbi_os_now_ms(); // the list is in its order
    EBBI_QUEUE_APPEND(oldest, youngest, sheet, next, previous);
    // relaxed: a figure, written under the lock, as is the next
    if (ebbi_load_relaxed(&label->oldest_ms) == 0) {
        ebbi_store_relaxed(&label->oldest_ms, sheet->orphan_ms); // relaxed: as above
    }
    ebbi_count(&label->demoted, 1);
    ebbi_count(&label->demoted_bytes, ebbi_sheet_bytes(sheet));
}

static void unlist(struct ebbi_sheet *sheet)
{
    ebbi_assert_held(&orphans_lock);
    EBBI_ASSERT(sheet != claimed_orphan);
    struct ebbi_label *label = sheet->label;
    EBBI_QUEUE_REMOVE(oldest, youngest, sheet, next, previous);
    ebbi_count(&label->demoted, (uint64_t)-1);
    ebbi_count(&label->demoted_bytes, -(uint64_t)ebbi_sheet_bytes(sheet));
    if (ebbi_load_relaxed(&label->demoted) == 0) {          // relaxed: changes under the lock alone
        ebbi_store_relaxed(&label->oldest_ms, (uint64_t)0); // relaxed: as in list
        // relaxed: as above
    } else if (sheet->next != NULL && ebbi_load_relaxed(&label->oldest_ms) == sheet->orphan_ms) {
        ebbi_store_relaxed(&label->oldest_ms, sheet->next->orphan_ms); // relaxed: as in list
    }
}

void ebbi_sheet_orphan(struct ebbi_sheet *sheet)
{
    EBBI_ASSERT(sheet->cursor == NULL);
    if (ebbi_sheet_live(sheet) == 0) {
        ebbi_sheet_destroy(sheet);
        return;
    }
    EBBI_AUDIT(sheet);
    int64_t live = sheet->live;
    ebbi_store_relaxed(&sheet->live, (int64_t)0); // relaxed: all of it is in `shared` below
    sheet->looked = INT64_MAX;
    for (size_t w = 0; w < EBBI_SHEET_PAGES / 64; w++) {
        sheet->purged[w] = 0;
    }
    ebbi_store_relaxed(&sheet->owner, &ebbi_sheet_owner_nobody); // relaxed: nobody was it, or this
    ebbi_store_relaxed(&sheet->region, (struct ebb_region *)NULL); // relaxed: a look finds either
    ebbi_lock_take(&orphans_lock);
    list(sheet);
    ebbi_lock_drop(&orphans_lock);
    // release[sheet-free -> sheet-free]: whoever frees the last block finds all of the above
    // acquire[sheet-free <- sheet-free]: those who have freed are done
    if (ebbi_fetch_add_acq_rel(&sheet->shared, live) == -live) {
        ebbi_orphan_end(sheet);
    }
}

void ebbi_orphan_end(struct ebbi_sheet *sheet)
{
    EBBI_ASSERT(sheet->region == NULL && sheet->cursor == NULL);
    ebbi_lock_take(&orphans_lock);
    unlist(sheet);
    ebbi_lock_drop(&orphans_lock);
    ebbi_sheet_destroy(sheet);
}

// ---- purge ---------------------------------------------------------------------------------------

// Pieces, at least a page, that no block in use touches and that still hold something.
static void purge_sheet(struct ebbi_sheet *sheet)
{
    size_t piece = ebbi_max(ebbi_os_page_size(), EBBI_GRANULE / 16);
    uintptr_t start = ebbi_sheet_start(sheet);
    for (size_t i = 0; i < ebbi_sheet_bytes(sheet) / piece; i++) {
        uintptr_t at = start + i * piece;
        if (ebbi_bits_test(sheet->purged, i) || ebbi_sheet_uses(sheet, at, at + piece)) {
            continue;
        }
        ebbi_dense_split((void *)at, piece);
        if (ebbi_os_purge((void *)at, piece)) {
            EBBI_PROBE2(purge, at, piece);
            ebbi_bits_put(sheet->purged, i, true);
            ebbi_arena_count_purged(piece);
        }
    }
}

struct orphan_walk {
    uint64_t now_ms, delay_ms;
    int64_t live;                 // of the sheet that was claimed_orphan, without the phantom
    bool waiting;                 // some are too young
    bool seen[EBBI_BOARD_LABELS]; // labels whose oldest orphan has come by
};

static void tell_age(struct orphan_walk *walk, const struct ebbi_sheet *sheet)
{
    size_t row = (size_t)(sheet->label - ebbi_labels.row);
    if (row < EBBI_BOARD_LABELS && !walk->seen[row]) { // others are not looked at from outside
        walk->seen[row] = true;
        ebbi_store_relaxed(&sheet->label->oldest_ms, sheet->orphan_ms); // relaxed: as in list
    }
}

// Whether there is work in the sheet now.
static bool orphan_is_due(struct orphan_walk *walk, const struct ebbi_sheet *sheet)
{
    if (ebbi_sheet_live(sheet) == sheet->looked) {
        return false; // nothing has happened
    }
    bool is_old = walk->now_ms - sheet->looked_ms >= walk->delay_ms;
    walk->waiting |= !is_old;
    return is_old;
}

// Under the lock, as are the next two. False: its end has begun, or its beginning is not over.
static bool claim_orphan(struct orphan_walk *walk, struct ebbi_sheet *sheet)
{
    ebbi_assert_held(&orphans_lock);
    EBBI_ASSERT(claimed_orphan == NULL);
    int64_t blocks = ebbi_load_relaxed(&sheet->shared); // relaxed: looked at again
    // relaxed: the bits are read with orders of their own
    while (blocks > 0 && !ebbi_cas_relaxed(&sheet->shared, &blocks, blocks + 1)) {
    }
    walk->live = blocks;
    claimed_orphan = blocks > 0 ? sheet : claimed_orphan;
    return blocks > 0;
}

// The sheet if that was the last block of it; it has to be destroyed then.
static struct ebbi_sheet *drop_claim(void)
{
    ebbi_assert_held(&orphans_lock);
    struct ebbi_sheet *sheet = claimed_orphan;
    claimed_orphan = NULL;
    // release[sheet-free -> sheet-free]: the pages have been given back
    // acquire[sheet-free <- sheet-free]: the last one finds all others done
    if (sheet == NULL || ebbi_fetch_add_acq_rel(&sheet->shared, (int64_t)-1) != 1) {
        return NULL;
    }
    unlist(sheet);
    return sheet;
}

// The next sheet, claimed_orphan: the first that is due, or a place to go on from later. NULL: the end.
// *ended: as of drop_claim, the sheet where the walk has been.
static struct ebbi_sheet *step(struct orphan_walk *walk, struct ebbi_sheet **ended, bool *due)
{
    ebbi_lock_take(&orphans_lock);
    struct ebbi_sheet *sheet = claimed_orphan != NULL ? claimed_orphan->next : oldest;
    *ended = drop_claim();
    *due = false;
    for (size_t n = 1; sheet != NULL; sheet = sheet->next, n++) {
        tell_age(walk, sheet);
        *due = orphan_is_due(walk, sheet);
        if ((*due || n >= SHEETS_AT_ONCE) && claim_orphan(walk, sheet)) {
            break;
        }
    }
    ebbi_lock_drop(&orphans_lock);
    return sheet;
}

// Who wants all of it now waits for the pass of another thread; others leave the rest to that one.
static bool enter_pass(uint64_t delay_ms)
{
    if (delay_ms != 0) {
        return ebbi_lock_try(&orphan_pass);
    }
    ebbi_lock_take(&orphan_pass);
    return true;
}

void ebbi_orphans_purge(uint64_t now_ms, uint64_t delay_ms, bool *waiting)
{
    struct orphan_walk walk = {.now_ms = now_ms, .delay_ms = delay_ms};
    struct ebbi_sheet *sheet;
    struct ebbi_sheet *ended;
    bool due;
    if (!enter_pass(delay_ms)) {
        *waiting = true;
        return;
    }
    do {
        sheet = step(&walk, &ended, &due);
        if (ended != NULL) {
            ebbi_sheet_destroy(ended);
        }
        if (sheet != NULL && due) {
            purge_sheet(sheet);
            sheet->looked = walk.live;
            sheet->looked_ms = now_ms;
        }
    } while (sheet != NULL);
    ebbi_lock_drop(&orphan_pass);
    *waiting |= walk.waiting;
}

void ebbi_orphans_lock(void) { ebbi_lock_take(&orphans_lock); }
void ebbi_orphans_unlock(void) { ebbi_lock_drop(&orphans_lock); }

// The pass of another thread does not go on: its phantom goes, and the lock that it held.
void ebbi_orphans_keep_only(void)
{
    ebbi_lock_reset(&orphan_pass);
    ebbi_lock_take(&orphans_lock);
    struct ebbi_sheet *ended = drop_claim();
    ebbi_lock_drop(&orphans_lock);
    if (ended != NULL) {
        ebbi_sheet_destroy(ended);
    }
}
