// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer region: whether a sheet's counts and bits agree. For debug builds and tests.
#include "region/sheet.h"

#if EBBI_HAVE_ASSERT || defined(EBB_NO_OVERRIDE) // not in the library that is installed

enum { AUDIT_START, AUDIT_GONE, AUDIT_REMOTE };

struct audit {
    const struct ebbi_sheet *sheet;
    const struct ebbi_cursor *cursor;
    uintptr_t start, last;
    uintptr_t hole, hole_end; // the open cursor's; empty where there is none
    int64_t most;             // blocks that live + shared leave in use, as of before the walk
    size_t outside;           // bits of start outside of the hole
    size_t inside;            // ... in it, up to the cursor
    int64_t used;             // blocks in use
};

static EBBI_COLD EBBI_NORETURN void audit_fail(const struct audit *audit, int property,
                                               const char *what, int64_t counted, int64_t found)
{
    ebbi_fatal("sheet P%d: %s: %lld, found %lld (sheet at %p)", property, what, (long long)counted,
               (long long)found, (void *)audit->start);
}

static bool audit_bit(uintptr_t p, size_t map)
{
    const uint64_t *word =
        ebbi_sheet_room(p) + map * EBBI_UNIT_WORDS + p % EBBI_GRANULE / EBBI_UNIT / 64;
    // acquire[hole-find <- bit-set]: as a look for holes has it
    return (ebbi_load_acquire(word) >> (p / EBBI_UNIT % 64) & 1) != 0;
}

// Of the 64 units from p on, nothing is said.
static bool audit_blank(uintptr_t p)
{
    const uint64_t *word = ebbi_sheet_room(p) + p % EBBI_GRANULE / EBBI_UNIT / 64;
    // relaxed: what is set meanwhile is not in need of a look
    return p / EBBI_UNIT % 64 == 0 &&
           (ebbi_load_relaxed(&word[AUDIT_START * EBBI_UNIT_WORDS]) |
            ebbi_load_relaxed(&word[AUDIT_GONE * EBBI_UNIT_WORDS]) |
            ebbi_load_relaxed(&word[AUDIT_REMOTE * EBBI_UNIT_WORDS])) == 0;
}

static void audit_unit(struct audit *audit, uintptr_t p)
{
    bool starts = audit_bit(p, AUDIT_START);
    bool dead = audit_bit(p, AUDIT_GONE) || audit_bit(p, AUDIT_REMOTE);
    bool in_hole = p >= audit->hole && p < audit->hole_end;
    if (dead && !starts) {
        audit_fail(audit, 3, "freed, and no block begins there, at unit",
                   (int64_t)((p - audit->start) / EBBI_UNIT), 0);
    }
    if (starts && in_hole && p > audit->cursor->next) {
        audit_fail(audit, 1, "a block begins behind the cursor, at unit",
                   (int64_t)((p - audit->start) / EBBI_UNIT), 1);
    }
    bool is_next = in_hole && p == audit->cursor->next;
    audit->outside += starts && !in_hole;
    audit->inside += starts && in_hole && !is_next;
    audit->used += starts && !dead && !is_next;
}

static void audit_ends(const struct audit *audit)
{
    const struct ebbi_cursor *cursor = audit->cursor;
    if (cursor != NULL && (cursor->sheet != audit->sheet || cursor->next < cursor->from ||
                           cursor->next > cursor->stop || cursor->stop > audit->last)) {
        audit_fail(audit, 2, "an open cursor lies within its hole, at unit",
                   ((int64_t)cursor->next - (int64_t)audit->start) / (int64_t)EBBI_UNIT, 0);
    }
    if (cursor != NULL && !audit_bit(cursor->next, AUDIT_START)) {
        audit_fail(audit, 1, "the cursor's bit of start", 1, 0);
    }
    if (!audit_bit(audit->last, AUDIT_START) || !audit_bit(audit->last, AUDIT_GONE)) {
        audit_fail(audit, 2, "the last unit is a start, gone", 1, 0);
    }
}

static void audit_counts(const struct audit *audit)
{
    int64_t counted = audit->most + (int64_t)audit->inside;
    // Bits are set before counts are lowered: too few are counted never, too many while another
    // thread frees, and for ever in the child of a fork that came between.
    if (counted < audit->used || (counted > audit->used && !ebbi_os_is_threaded())) {
        audit_fail(audit, 3, "blocks in use, by the counts", counted, audit->used);
    }
    if (audit->sheet->starts != audit->outside) {
        audit_fail(audit, 5, "starts", audit->sheet->starts, (int64_t)audit->outside);
    }
}

void ebbi_sheet_audit(const struct ebbi_sheet *sheet)
{
    struct audit audit = {.sheet = sheet};
    // relaxed: the cursor is the caller's, or there is none
    audit.cursor = ebbi_load_relaxed(&sheet->cursor);
    audit.start = ebbi_sheet_start(sheet);
    audit.last = audit.start + ebbi_sheet_bytes(sheet) - EBBI_UNIT;
    audit.most = ebbi_sheet_live(sheet);
    if (audit.most > INT32_MAX / 2) {
        return; // forgotten
    }
    audit_ends(&audit);
    if (audit.cursor != NULL) {
        audit.hole = audit.cursor->from;
        audit.hole_end = ebbi_min(audit.cursor->stop + EBBI_UNIT, audit.last);
    }
    for (uintptr_t p = audit.start; p < audit.last; p += EBBI_UNIT) {
        if (audit_blank(p)) {
            p += (uintptr_t)63 * EBBI_UNIT;
        } else {
            audit_unit(&audit, p);
        }
    }
    audit_counts(&audit);
}

#endif
