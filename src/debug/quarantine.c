// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: the quarantine, a ring of records of what released regions held.
#include "debug/quarantine.h"

#include "os/options.h"

// Each may split a mapping in three, of which Linux allows 65,530.
#define PIECES ((size_t)1 << 14)

enum piece_kind { PIECE_GONE, PIECE_SHEET, PIECE_LARGE, PIECE_HUGE };

struct piece {
    uint8_t kind;
    uint8_t guarded; // atomic
    uintptr_t start;
    size_t bytes;
    size_t block_bytes; // of a large object
    const struct ebbi_label *label;
    struct ebbi_release release;
};

static struct piece *pieces;            // [PIECES]
static size_t oldest_piece, next_piece; // numbers of the ring's ends; modulo PIECES an index
static size_t first_waiting;            // none below it waits
static size_t latest_piece;             // the first of the latest release
static size_t guarded_bytes;

static bool set_up(void)
{
    pieces = ebbi_os_map(NULL, PIECES * sizeof *pieces);
    if (pieces == NULL || !ebbi_stacks_begin()) {
        ebbi_message("EBB_REGION_DEBUG: no memory for its tables: off");
        return false;
    }
    ebbi_os_watch_faults(ebbi_escape_look);
    return true;
}

void ebbi_quarantine_set_up(void)
{
    uint8_t mode = EBBI_QUARANTINE_UNKNOWN;
    // relaxed: who begins needs nothing from before
    if (!ebbi_cas_relaxed(&ebbi_quarantine_mode, &mode, (uint8_t)EBBI_QUARANTINE_BEGINS)) {
        return;
    }
    bool on = ebbi_option(EBBI_OPTION_REGION_DEBUG) != 0 && set_up();
    // release[debug-on -> debug-read]: the tables
    ebbi_store_release(&ebbi_quarantine_mode,
                       (uint8_t)(on ? EBBI_QUARANTINE_ON : EBBI_QUARANTINE_OFF));
}

void ebbi_quarantine_forget(void)
{
    uint8_t mode = EBBI_QUARANTINE_BEGINS;
    // relaxed: there is no other thread
    (void)ebbi_cas_relaxed(&ebbi_quarantine_mode, &mode, (uint8_t)EBBI_QUARANTINE_UNKNOWN);
}

static struct piece *piece_at(size_t number) { return &pieces[number % PIECES]; }

static struct ebbi_span *span_of(const struct piece *piece)
{
    return ebbi_span_of((const void *)piece->start);
}

static struct ebbi_sheet *sheet_of(const struct piece *piece)
{
    return ebbi_sheet_in(span_of(piece));
}

// ---- out -----------------------------------------------------------------------------------------

// Accessible again, and free. False: the kernel refuses.
static bool let_out(const struct piece *piece)
{
    void *start = (void *)piece->start;
    if (piece->kind == PIECE_GONE) {
        return true;
    }
    if (piece->kind == PIECE_HUGE) {
        ebbi_os_release(start, piece->bytes);
    } else if (ebbi_os_commit(start, piece->bytes) != 0) {
        return false;
    } else if (piece->kind == PIECE_SHEET) {
        ebbi_sheet_discard(sheet_of(piece));
    } else {
        ebbi_span_free(span_of(piece));
    }
    ebbi_stack_forget(piece->start, piece->bytes);
    return true;
}

static bool drop_oldest(void)
{
    struct piece *piece = piece_at(oldest_piece);
    // relaxed: written under the lock
    if (oldest_piece == next_piece || !ebbi_load_relaxed(&piece->guarded) || !let_out(piece)) {
        return false;
    }
    // relaxed: a handler that reads it now reports an access that is wrong anyway
    ebbi_store_relaxed(&piece->guarded, (uint8_t)0);
    guarded_bytes -= piece->bytes;
    oldest_piece++;
    return true;
}

// The latest release stays.
static void keep_to_budget(void)
{
    while (guarded_bytes > ebbi_option(EBBI_OPTION_REGION_DEBUG) && oldest_piece < latest_piece &&
           drop_oldest()) {
    }
}

// ---- in ------------------------------------------------------------------------------------------

static bool guard_sheet(const struct piece *piece)
{
    struct ebbi_sheet *sheet = sheet_of(piece);
    ebbi_sheet_withdraw(sheet);
    if (ebbi_os_guard((void *)piece->start, piece->bytes) != 0) {
        ebbi_sheet_discard(sheet);
        return false;
    }
    sheet->head.state = EBBI_SPAN_QUARANTINE;
    return true;
}

static bool guard_large(const struct piece *piece)
{
    struct ebbi_span *span = span_of(piece);
    ebbi_tags_set((void *)piece->start, 1, EBBI_TAG_NONE);
    if (ebbi_os_guard((void *)piece->start, piece->bytes) != 0) {
        ebbi_span_free(span);
        return false;
    }
    span->state = EBBI_SPAN_QUARANTINE;
    return true;
}

// Its mapping ends, and its place is taken, unless another mapping gets there first.
static bool guard_huge(const struct piece *piece)
{
    void *start = (void *)piece->start;
    EBBI_CHECK(ebbi_huge_free(start));
    return ebbi_os_reserve(start, piece->bytes) != NULL;
}

static void guard_piece(struct piece *piece)
{
    bool done = piece->kind == PIECE_SHEET   ? guard_sheet(piece)
                : piece->kind == PIECE_LARGE ? guard_large(piece)
                                             : guard_huge(piece);
    if (!done) {
        piece->kind = PIECE_GONE;
        piece->bytes = 0;
    }
    guarded_bytes += piece->bytes;
    // release[guard-set -> guard-read]: the record
    ebbi_store_release(&piece->guarded, (uint8_t)1);
}

// NULL: the ring is full of what cannot leave.
static struct piece *add_piece(const struct ebbi_release *release)
{
    if (next_piece - oldest_piece == PIECES && !drop_oldest()) {
        return NULL;
    }
    struct piece *piece = piece_at(next_piece++);
    piece->release = *release;
    return piece;
}

static void piece_entered(struct piece *piece)
{
    if (piece->release.stamp == 0) {
        guard_piece(piece);
    }
    keep_to_budget();
}

static bool put_sheet(struct ebbi_sheet *sheet, const struct ebbi_release *release)
{
    struct piece *piece = add_piece(release);
    if (piece == NULL) {
        return false;
    }
    piece->kind = PIECE_SHEET;
    piece->start = ebbi_sheet_start(sheet);
    piece->bytes = ebbi_sheet_bytes(sheet);
    piece->label = sheet->label;
    piece_entered(piece);
    return true;
}

static bool put_large(void *p, const struct ebbi_release *release)
{
    struct ebbi_note *note = ebbi_large_note(p);
    struct piece *piece = add_piece(release);
    if (piece == NULL) {
        return false;
    }
    bool huge = ebbi_huge_is(p);
    piece->kind = huge ? PIECE_HUGE : PIECE_LARGE;
    piece->start = (uintptr_t)p;
    piece->block_bytes = note->bytes;
    piece->bytes = huge ? note->bytes : ebbi_align_up(note->bytes, EBBI_GRANULE);
    piece->label = note->label;
    ebbi_region_forget(note);
    // relaxed: so that a free of it while it waits is told
    ebbi_store_relaxed(&note->stamp, release->stamp);
    piece_entered(piece);
    return true;
}

struct ebbi_remains ebbi_quarantine_put(struct ebbi_remains remains,
                                        const struct ebbi_release *release)
{
    struct ebbi_remains left = {NULL, NULL, remains.gave};
    if (remains.sheets != NULL || remains.larges != NULL) {
        latest_piece = next_piece;
    }
    for (struct ebbi_sheet *next; remains.sheets != NULL; remains.sheets = next) {
        next = remains.sheets->next;
        if (!put_sheet(remains.sheets, release)) {
            remains.sheets->next = left.sheets;
            left.sheets = remains.sheets;
        }
    }
    for (void *next; remains.larges != NULL; remains.larges = next) {
        struct ebbi_note *note = ebbi_large_note(remains.larges);
        next = note->after;
        if (!put_large(remains.larges, release)) {
            note->after = left.larges;
            left.larges = remains.larges;
        }
    }
    return left;
}

void ebbi_quarantine_settle(bool (*may_go)(uintptr_t start, size_t bytes, uint64_t stamp),
                            bool *waiting)
{
    size_t still = next_piece;
    for (size_t i = ebbi_max(first_waiting, oldest_piece); i < next_piece; i++) {
        struct piece *piece = piece_at(i);
        if (ebbi_load_relaxed(&piece->guarded)) { // relaxed: written under the lock
            continue;
        }
        if (may_go(piece->start, piece->bytes, piece->release.stamp)) {
            guard_piece(piece);
        } else {
            still = ebbi_min(still, i);
            *waiting = true;
        }
    }
    first_waiting = still;
    keep_to_budget();
}

// ---- what lies where -----------------------------------------------------------------------------

static void find_block(const struct piece *piece, uintptr_t address, struct ebbi_escape *escape)
{
    if (piece->kind == PIECE_SHEET) {
        const struct ebbi_sheet *sheet = sheet_of(piece);
        escape->block = ebbi_sheet_block(sheet, address, &escape->bytes);
        escape->freed = !ebbi_sheet_has((const void *)escape->block);
    } else {
        escape->block = piece->start;
        escape->bytes = piece->block_bytes;
        escape->freed = false;
    }
}

bool ebbi_quarantine_find(uintptr_t address, struct ebbi_escape *escape)
{
    if (!ebbi_quarantine_is_on()) {
        return false;
    }
    for (size_t i = 0; i < PIECES; i++) {
        const struct piece *piece = &pieces[i];
        // acquire[guard-read <- guard-set]: the record
        if (ebbi_load_acquire(&piece->guarded) && address - piece->start < piece->bytes) {
            escape->label = piece->label->name;
            escape->number = piece->release.number;
            escape->released_by = piece->release.stack;
            find_block(piece, address, escape);
            return true;
        }
    }
    return false;
}
