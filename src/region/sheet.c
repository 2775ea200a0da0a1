// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer region: sheets while their region lives: cursors, holes, what is in use.
#include "region/sheet.h"

#include <string.h>

#include "report/report.h"

enum { START = 0, GONE = EBBI_UNIT_WORDS, REMOTE = 2 * EBBI_UNIT_WORDS };

#define WORD_BYTES ((size_t)EBBI_UNIT * 64) // that a word of a bitmap stands for

static uint64_t *word_of(uintptr_t p, size_t map)
{
    return ebbi_sheet_room(p) + map + (p % EBBI_GRANULE >> 10);
}

static uint64_t bit_of(uintptr_t p) { return (uint64_t)1 << (p / EBBI_UNIT % 64); }

// In a map that only the owner writes.
static void mark(uintptr_t p, size_t map)
{
    EBBI_ASSERT(p >= EBBI_GRANULE && p % EBBI_UNIT == 0);
    uint64_t *word = word_of(p, map);
    // relaxed: the owner alone writes; others look only at bits of blocks that they were handed
    ebbi_store_relaxed(word, *word | bit_of(p));
}

// The bits of [from, to) in all three maps, but for the start at `from`: the block before ends there, and
// whoever has it may be looking for its end.
static void clear(uintptr_t from, uintptr_t to)
{
    EBBI_ASSERT(from < to && from % EBBI_UNIT == 0 && to % EBBI_UNIT == 0);
    uint64_t kept = bit_of(from);
    for (uintptr_t p = from; p < to;) {
        uintptr_t end = ebbi_min(to, ebbi_align_up(p + 1, WORD_BYTES));
        uint64_t *word = word_of(p, START);
        uint64_t keep = ~ebbi_bits_mask(0, p / EBBI_UNIT % 64, (end - p) / EBBI_UNIT);
        // relaxed: the owner's, and what others look at is not among these
        ebbi_store_relaxed(&word[START], word[START] & (keep | kept));
        ebbi_store_relaxed(&word[GONE], word[GONE] & keep); // relaxed: as above
        // relaxed: bits beside these may be set meanwhile
        if ((ebbi_load_relaxed(&word[REMOTE]) & ~keep) != 0) {
            (void)ebbi_fetch_and_relaxed(&word[REMOTE], keep); // relaxed: as above
        }
        kept = 0;
        p = end;
    }
}

// The last place of a sheet where a block may end.
static uintptr_t last_end(const struct ebbi_sheet *sheet)
{
    return ebbi_sheet_start(sheet) + ebbi_sheet_bytes(sheet) - EBBI_UNIT;
}

// `next` goes to p, in the granule of p.
static void cursor_set(struct ebbi_cursor *cursor, uintptr_t p)
{
    EBBI_ASSERT(p % EBBI_UNIT == 0 && p <= cursor->stop);
    uintptr_t granule = ebbi_align_down(p, EBBI_GRANULE);
    cursor->limit = ebbi_min(cursor->stop, granule + EBBI_GRANULE - EBBI_UNIT);
    cursor->bits = (uintptr_t)ebbi_sheet_room(p) - (granule >> 10) * sizeof(uint64_t);
    ebbi_store_relaxed(&cursor->next, p); // relaxed: a look at it only tells it from blocks in use
}

static void cursor_open(struct ebbi_cursor *cursor, struct ebbi_sheet *sheet, uintptr_t from,
                        uintptr_t stop)
{
    EBBI_ASSERT(from >= ebbi_sheet_start(sheet) && from <= stop && stop <= last_end(sheet));
    cursor->sheet = sheet;
    cursor->from = from;
    cursor->stop = stop;
    cursor_set(cursor, from);
    // relaxed: as in cursor_set
    ebbi_store_relaxed(&sheet->cursor, (const struct ebbi_cursor *)cursor);
}

struct ebbi_sheet *ebbi_sheet_create(size_t granules, const void **owner, struct ebb_region *region,
                                     struct ebbi_label *label)
{
    EBBI_ASSERT(granules > 0 && label != NULL);
    struct ebbi_span *span = ebbi_span_alloc(granules, 1, EBBI_SPAN_SHEET);
    if (span == NULL) {
        return NULL;
    }
    struct ebbi_sheet *sheet = ebbi_sheet_in(span);
    for (size_t g = 1; g < granules; g++) {
        sheet[g].head.state = EBBI_SPAN_INSIDE;
        sheet[g].head.back = (uint8_t)g;
    }
    sheet->owner = owner;
    sheet->region = region;
    sheet->label = label;
    sheet->next = sheet->previous = NULL;
    uintptr_t start = ebbi_sheet_start(sheet);
    sheet->maps =
        (uintptr_t)ebbi_sheet_room(start) - (start >> EBBI_GRANULE_SHIFT) * EBBI_BITMAP_ROOM;
    sheet->since_ms = (uint32_t)ebbi_os_now_ms();
    sheet->retired = 0;
    ebbi_tags_set(ebbi_span_start(span), granules, EBBI_TAG_REGION);
    ebbi_label_hold(label, ebbi_sheet_bytes(sheet));
    ebbi_count(&label->slabs, 1);
    return sheet;
}

void ebbi_sheet_withdraw(struct ebbi_sheet *sheet)
{
    EBBI_ASSERT(sheet->head.state == EBBI_SPAN_SHEET);
    size_t granules = ebbi_sheet_bytes(sheet) >> EBBI_GRANULE_SHIFT;
    ebbi_label_drop(sheet->label, ebbi_sheet_bytes(sheet));
    ebbi_count(&sheet->label->slabs, (uint64_t)-1);
    ebbi_tags_set((void *)ebbi_sheet_start(sheet), granules, EBBI_TAG_NONE);
}

void ebbi_sheet_discard(struct ebbi_sheet *sheet)
{
    EBBI_ASSERT(sheet->head.state == EBBI_SPAN_SHEET || sheet->head.state == EBBI_SPAN_QUARANTINE);
    size_t granules = ebbi_sheet_bytes(sheet) >> EBBI_GRANULE_SHIFT;
    for (size_t g = 1; g < granules; g++) {
        sheet[g].head.state = EBBI_SPAN_NONE;
    }
    ebbi_span_free(&sheet->head);
}

void ebbi_sheet_destroy(struct ebbi_sheet *sheet)
{
    ebbi_sheet_withdraw(sheet);
    ebbi_sheet_discard(sheet);
}

void ebbi_sheet_restart(struct ebbi_sheet *sheet, struct ebbi_cursor *cursor)
{
    EBBI_ASSERT(cursor->sheet == NULL || cursor->sheet == sheet);
    uintptr_t start = ebbi_sheet_start(sheet);
    uintptr_t last = last_end(sheet);
    for (uintptr_t g = start; g < last; g += EBBI_GRANULE) {
        memset(ebbi_sheet_room(g), 0, EBBI_BITMAP_ROOM);
    }
    sheet->starts = 0;
    ebbi_store_relaxed(&sheet->live, (int64_t)0);   // relaxed: nobody has a block in it
    ebbi_store_relaxed(&sheet->shared, (int64_t)0); // relaxed: as above
    mark(start, START);
    mark(last, START);
    mark(last, GONE);
    cursor_open(cursor, sheet, start, last);
    EBBI_AUDIT(sheet);
}

void ebbi_cursor_rewind(struct ebbi_cursor *cursor)
{
    EBBI_ASSERT(cursor->sheet != NULL && cursor->sheet->cursor == cursor);
    struct ebbi_sheet *sheet = cursor->sheet;
    uintptr_t start = ebbi_sheet_start(sheet);
    // No block outside of the cursor's hole (P5), which is the whole sheet then, and none in it freed (P3).
    bool plain = sheet->starts == 0 && sheet->live == 0 && ebbi_sheet_live(sheet) == 0;
    if (!plain || ebbi_sheet_bytes(sheet) > EBBI_GRANULE) {
        ebbi_sheet_restart(sheet, cursor);
        return;
    }
    memset(word_of(start, START), 0, ((cursor->next - start) / WORD_BYTES + 1) * sizeof(uint64_t));
    mark(start, START);
    mark(last_end(sheet), START);
    cursor_set(cursor, start);
    EBBI_AUDIT(sheet);
}

// By the owner, or under the region's lock where there is none.
static void live_add(struct ebbi_sheet *sheet, int64_t more)
{
    // release[sheet-free -> sheet-empty]: this thread is done with the block
    ebbi_store_release(&sheet->live, sheet->live + more);
}

uintptr_t ebbi_cursor_cross(struct ebbi_cursor *cursor, size_t size)
{
    uintptr_t p = cursor->next;
    EBBI_ASSERT(size % EBBI_UNIT == 0 && cursor->next <= cursor->stop);
    if (size > cursor->stop - p) {
        return 0;
    }
    mark(p + size, START);
    cursor_set(cursor, p + size);
    return p;
}

bool ebbi_cursor_align(struct ebbi_cursor *cursor, size_t align, size_t bytes)
{
    EBBI_ASSERT((align & (align - 1)) == 0 && cursor->sheet != NULL);
    uintptr_t gap = cursor->next;
    uintptr_t p = ebbi_align_up(gap, align);
    if (p < gap || p > cursor->stop || bytes > cursor->stop - p) {
        return false;
    }
    if (p > gap) {
        mark(gap, GONE); // as if allocated and freed
        live_add(cursor->sheet, -1);
        mark(p, START);
        cursor_set(cursor, p);
    }
    return true;
}

// Bits of `start` in [from, to).
static size_t count_starts(uintptr_t from, uintptr_t to)
{
    size_t total = 0;
    while (from < to) {
        uintptr_t granule = ebbi_align_down(from, EBBI_GRANULE);
        uintptr_t end = ebbi_min(to, granule + EBBI_GRANULE);
        total += ebbi_bits_count(ebbi_sheet_room(from) + START, (from - granule) / EBBI_UNIT,
                                 (end - from) / EBBI_UNIT);
        from = end;
    }
    return total;
}

bool ebbi_cursor_is_drained(const struct ebbi_cursor *cursor)
{
    return cursor->sheet != NULL &&
           ebbi_sheet_live(cursor->sheet) + (int64_t)count_starts(cursor->from, cursor->next) == 0;
}

void ebbi_cursor_seal(struct ebbi_cursor *cursor)
{
    struct ebbi_sheet *sheet = cursor->sheet;
    if (sheet == NULL) {
        return;
    }
    EBBI_ASSERT(sheet->cursor == cursor && cursor->next >= cursor->from &&
                cursor->next <= last_end(sheet));
    mark(cursor->next, GONE);
    size_t blocks = count_starts(cursor->from, cursor->next);
    size_t end_marker = cursor->next != last_end(sheet); // that one is there anyway
    sheet->starts += (uint32_t)(blocks + end_marker);
    live_add(sheet, (int64_t)blocks);
    sheet->looked = INT64_MAX;
    // relaxed: as in cursor_set
    ebbi_store_relaxed(&sheet->cursor, (const struct ebbi_cursor *)NULL);
    cursor->sheet = NULL;
    cursor->limit = cursor->stop = cursor->next;
    EBBI_AUDIT(sheet);
}

void ebbi_cursor_move(struct ebbi_cursor *cursor, uintptr_t p)
{
    EBBI_ASSERT(cursor->sheet != NULL && p >= cursor->from && p <= cursor->stop);
    if (cursor->next != last_end(cursor->sheet)) { // P2
        uint64_t *word = word_of(cursor->next, START);
        ebbi_store_relaxed(word, *word & ~bit_of(cursor->next)); // relaxed: as in mark
    }
    mark(p, START);
    cursor_set(cursor, p);
}

void ebbi_cursor_forget(struct ebbi_cursor *cursor)
{
    if (cursor->sheet != NULL) {
        // relaxed: more than it can have
        ebbi_store_relaxed(&cursor->sheet->live, (int64_t)INT32_MAX);
        // relaxed: as in cursor_set
        ebbi_store_relaxed(&cursor->sheet->cursor, (const struct ebbi_cursor *)NULL);
    }
    cursor->sheet = NULL;
    cursor->limit = cursor->stop = cursor->next;
}

// ---- what is in use ------------------------------------------------------------------------------

// Of the 64 units whose word of `start` this is: those in which a block in use begins.
static uint64_t live_word(const uint64_t *word)
{
    // relaxed: frees that are on their way are found the next time
    uint64_t gone = ebbi_load_relaxed(&word[GONE]);
    // acquire[hole-find <- bit-set]: others are done with their blocks
    uint64_t dead = gone | ebbi_load_acquire(&word[REMOTE]);
    return ebbi_load_relaxed(&word[START]) & ~dead; // relaxed: as above
}

// The first p in [from, to) where a block begins, in use if `live`; `to` when there is none.
EBBI_INLINE uintptr_t find(uintptr_t from, uintptr_t to, bool live)
{
    while (from < to) {
        const uint64_t *word = word_of(from, START);
        uintptr_t end = ebbi_min(to, ebbi_align_down(from, EBBI_GRANULE) + EBBI_GRANULE);
        unsigned skip = from / EBBI_UNIT % 64;
        for (uintptr_t at = from - (uintptr_t)skip * EBBI_UNIT; at < end;
             at += WORD_BYTES, word++, skip = 0) {
            // relaxed: as in live_word
            uint64_t found = (live ? live_word(word) : ebbi_load_relaxed(word)) >> skip << skip;
            if (found != 0) {
                return ebbi_min(at + (uintptr_t)ebbi_lowest_bit(found) * EBBI_UNIT, to);
            }
        }
        from = end;
    }
    return to;
}

// The last p below `to` where a block has begun; one has at `start`.
static uintptr_t find_last(uintptr_t start, uintptr_t to)
{
    uintptr_t at = ebbi_align_down(to - EBBI_UNIT, WORD_BYTES);
    uint64_t below = ~(uint64_t)0 >> (63 - (to - EBBI_UNIT) / EBBI_UNIT % 64);
    // relaxed: as in live_word
    uint64_t found = ebbi_load_relaxed(word_of(at, START)) & below;
    while (found == 0 && at > start) {
        at -= WORD_BYTES;
        found = ebbi_load_relaxed(word_of(at, START)); // relaxed: as above
    }
    if (found == 0) {
        return start;
    }
    return at + (uintptr_t)ebbi_highest_bit(found) * EBBI_UNIT;
}

static uintptr_t block_end(const struct ebbi_sheet *sheet, uintptr_t p)
{
    return find(p + EBBI_UNIT, last_end(sheet), false);
}

bool ebbi_cursor_find(struct ebbi_cursor *cursor, struct ebbi_sheet *sheet, size_t bytes)
{
    EBBI_ASSERT(cursor->sheet == NULL && bytes > 0);
    size_t wanted = ebbi_max(bytes, EBBI_HOLE_LEAST);
    uintptr_t last = last_end(sheet);
    uintptr_t from = ebbi_sheet_start(sheet);
    for (;;) {
        uintptr_t live = find(from, last, true);
        if (live - from >= wanted + EBBI_UNIT) {
            sheet->starts -= (uint32_t)count_starts(from, live);
            EBBI_ASSERT((*word_of(from, START) & bit_of(from)) != 0);
            clear(from, live);
            cursor_open(cursor, sheet, from, live - EBBI_UNIT);
            EBBI_AUDIT(sheet);
            return true;
        }
        if (live == last) {
            return false;
        }
        from = block_end(sheet, live);
    }
}

// The place that the next block of an open cursor gets is no block.
static bool is_next(const struct ebbi_sheet *sheet, uintptr_t p)
{
    // relaxed: whoever was handed p sees a later next, or a cursor that has gone elsewhere
    const struct ebbi_cursor *cursor = ebbi_load_relaxed(&sheet->cursor);
    return cursor != NULL && ebbi_load_relaxed(&cursor->next) == p; // relaxed: as above
}

void ebbi_sheet_each(const struct ebbi_sheet *sheet,
                     void (*visit)(uintptr_t start, size_t bytes, void *context), void *context)
{
    uintptr_t last = last_end(sheet);
    for (uintptr_t p = find(ebbi_sheet_start(sheet), last, true); p < last;) {
        uintptr_t end = block_end(sheet, p);
        if (!is_next(sheet, p)) {
            visit(p, end - p, context);
        }
        p = find(end, last, true);
    }
}

bool ebbi_sheet_uses(const struct ebbi_sheet *sheet, uintptr_t from, uintptr_t to)
{
    to = ebbi_min(to, last_end(sheet));
    if (from >= to) {
        return false;
    }
    uintptr_t before = find_last(ebbi_sheet_start(sheet), from + EBBI_UNIT);
    return (live_word(word_of(before, START)) & bit_of(before)) != 0 || find(from, to, true) < to;
}

// ---- free ----------------------------------------------------------------------------------------
//
// fork() comes between any two instructions of other threads. A free sets its bit, in the bitmap room, and
// lowers its count then, in the header. Where the child has the lower count it has the bit: a store
// that misses the child's copy of its page has faulted, and waits until all is copied, the rest of its
// thread with it; and where a page is copied at once, the header at the lower address is before the bits.
// So in the child a block may stay counted that is free, and its sheet for as long as the region, or for
// ever if that is closed; never does a sheet end, or is begun anew, that has a block in use.

static EBBI_COLD EBBI_NORETURN void report(const struct ebbi_sheet *sheet, uintptr_t p)
{
    const char *label = sheet->label->name;
    struct ebbi_report facts = {.kind = {"invalid free"}, .address = p, .label = label};
    // relaxed: for a message
    bool begins = (ebbi_load_relaxed(word_of(p, START)) & bit_of(p)) != 0;
    if (p % EBBI_UNIT == 0 && begins && !is_next(sheet, p)) {
        facts.kind[0] = "double free";
        ebbi_report_said(facts, "%p, a block of region \"%s\", is free already", (void *)p, label);
    }
    ebbi_report_said(facts, "%p lies inside or behind a block of region \"%s\"", (void *)p, label);
}

// p's word of `start`, after a look that a block in use begins at p.
EBBI_INLINE uint64_t *check(const struct ebbi_sheet *sheet, uintptr_t p)
{
    uint64_t *word = (uint64_t *)(sheet->maps + (p >> EBBI_GRANULE_SHIFT) * EBBI_BITMAP_ROOM) +
                     (p % EBBI_GRANULE >> 10);
    if (EBBI_UNLIKELY(p % EBBI_UNIT != 0 || (live_word(word) & bit_of(p)) == 0 ||
                      is_next(sheet, p))) {
        report(sheet, p);
    }
    return word;
}

// True: its sheet has ended with it.
static EBBI_NOINLINE bool free_shared(struct ebbi_sheet *sheet, uintptr_t p)
{
    uint64_t *word = check(sheet, p);
    // release[bit-set -> hole-find]: this thread is done with the block
    if ((ebbi_fetch_or_release(&word[REMOTE], bit_of(p)) & bit_of(p)) != 0) {
        report(sheet, p);
    }
    // release[sheet-free -> sheet-empty]: this thread is done with the block
    // acquire[sheet-free <- sheet-free]: the last one finds the sheet an orphan, and all others done
    bool last = ebbi_fetch_add_acq_rel(&sheet->shared, (int64_t)-1) == 1;
    if (last) {
        ebbi_orphan_end(sheet);
    }
    return last;
}

EBBI_INLINE bool is_mine(const struct ebbi_sheet *sheet)
{
    // relaxed: if this thread is the owner, it knows
    return ebbi_load_relaxed(ebbi_load_relaxed(&sheet->owner)) == ebb_self;
}

bool ebbi_sheet_free(void *block)
{
    uintptr_t p = (uintptr_t)block;
    struct ebbi_sheet *sheet = ebbi_sheet_of(block);
    if (EBBI_UNLIKELY(!is_mine(sheet))) {
        return free_shared(sheet, p);
    }
    struct ebb_participant *me = (struct ebb_participant *)(ebb_self + EBB_SELF_PIN);
    ebbi_store_relaxed(&me->busy, 1u); // relaxed: before the next line; see ebbi_sheet_owner_revoke
    ebbi_compiler_fence();
    if (EBBI_UNLIKELY(!is_mine(sheet))) {
        ebbi_store_relaxed(&me->busy, 0u); // relaxed: nothing was done
        return free_shared(sheet, p);
    }
    uint64_t *word = check(sheet, p);
    // relaxed: the owner alone writes
    ebbi_store_relaxed(&word[GONE], word[GONE] | bit_of(p));
    live_add(sheet, -1);
    // release[busy-end -> busy-wait]: the lines above
    ebbi_store_release(&me->busy, 0u);
    return false;
}

bool ebbi_sheet_has(const void *block)
{
    uintptr_t p = (uintptr_t)block;
    return p % EBBI_UNIT == 0 && (live_word(word_of(p, START)) & bit_of(p)) != 0 &&
           !is_next(ebbi_sheet_of(block), p);
}

uintptr_t ebbi_sheet_block(const struct ebbi_sheet *sheet, uintptr_t p, size_t *bytes)
{
    uintptr_t start = ebbi_sheet_start(sheet);
    uintptr_t at = find_last(start, ebbi_align_down(p, EBBI_UNIT) + EBBI_UNIT);
    *bytes = ebbi_max(block_end(sheet, at) - at, EBBI_UNIT);
    return at;
}

size_t ebbi_sheet_usable(const void *block)
{
    uintptr_t p = (uintptr_t)block;
    const struct ebbi_sheet *sheet = ebbi_sheet_of(block);
    (void)check(sheet, p);
    return block_end(sheet, p) - p;
}
