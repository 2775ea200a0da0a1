// SPDX-License-Identifier: MIT OR Apache-2.0
#include "debug/check.h"

#include <string.h>

#include "debug/checked.h"
#include "debug/held.h"
#include "ebbtide/detail/pin.h"
#include "report/report.h"

bool ebbi_check_mode;

void ebbi_check_begin(size_t most_held, bool families)
{
    if (!ebbi_held_begin(most_held)) {
        return;
    }
    ebbi_checked_secret = ebbi_os_entropy() ^ ebbi_os_now_ns();
    ebbi_check_draw_anew();
    ebbi_shapes_begin(families);
    ebbi_check_mode = true;
}

// ---- what lies in a block ------------------------------------------------------------------------------

static uint32_t this_thread(void)
{
    const struct ebb_participant *me = ebbi_self();
    return me->thread != 0 ? me->thread : ebbi_os_thread_number();
}

size_t ebbi_check_room(size_t align, size_t bytes)
{
    return ebbi_align_up(EBBI_CHECKED_OFFSET, align) + bytes + EBBI_CANARY_LEAST;
}

// The canary behind it is that of its new end, which is returned.
static char *shape_block(struct ebbi_checked *h, size_t offset, size_t align, size_t bytes,
                         ebbi_site site)
{
    size_t room = ebbi_checked_room(h), end = offset + bytes;
    EBBI_ASSERT(end + EBBI_CANARY_LEAST <= room);
    size_t limit = ebbi_min(room, ebbi_align_up(end + EBBI_CANARY_MOST, sizeof(uint64_t)));
    ebbi_checked_write(
        h, (struct ebbi_checked_words){
               .shape = ebbi_checked_shape(bytes, limit - end, offset, ebbi_lowest_bit(align),
                                           ebbi_family_of(site)),
               .made = ebbi_caller_of(site),
               .threads = this_thread(),
           });
    struct ebbi_range behind = {(char *)h + end, (char *)h + limit};
    ebbi_canary_put_to_word(behind, ebbi_checked_canary(h));
    return behind.to;
}

void *ebbi_check_make(void *block, size_t align, size_t bytes, ebbi_site site)
{
    struct ebbi_checked *h = block;
    if (h == NULL) {
        return NULL;
    }
    size_t offset = ebbi_align_up(EBBI_CHECKED_OFFSET, align);
    char *made = (char *)block + offset;
    (void)shape_block(h, offset, align, bytes, site);
    ebbi_canary_put_to_word((struct ebbi_range){(char *)block + EBBI_CHECKED_HEADER, made},
                            ebbi_checked_canary(h));
    EBBI_ASSERT((uintptr_t)made % align == 0 && made == ebbi_checked_block(h));
    ebbi_held_count(h, (ptrdiff_t)bytes);
    // relaxed: who gets the block hands it over
    ebbi_store_relaxed(&h->state, (uint32_t)EBBI_CHECKED_USED);
    return made;
}

// The header of the block that p lies in, of any state. NULL, as it has reported: there is none.
static struct ebbi_checked *find_header(const void *p, const char *what)
{
    int64_t tag = ebbi_tag_load(ebbi_tag_at(p));
    struct ebbi_division by = ebbi_division_of(ebbi_tag_class((unsigned)ebbi_tag_bin(tag)));
    uint64_t offset = (uint64_t)((int64_t)((uintptr_t)p % EBBI_GRANULE) + ebbi_tag_ahead(tag));
    uint64_t block = ebbi_division_at(&by, offset);
    if (block >= by.blocks) {
        ebbi_slab_misuse_no_block(ebbi_slab_of(p), p, what);
        return NULL;
    }
    struct ebbi_checked *h = (struct ebbi_checked *)((uintptr_t)p - offset + block * by.size);
    if (h->sum != ebbi_checked_sum(h) || (size_t)h->offset + h->bytes + h->tail > by.size) {
        ebbi_checked_report_none(h, p, what);
        return NULL;
    }
    return h;
}

// p is the block; reports, or.
static bool begins_at(const struct ebbi_checked *h, const void *p, const char *what)
{
    bool begins = p == ebbi_checked_block(h);
    if (!begins) {
        ebbi_checked_report(h, p, "invalid ", what, NULL);
    }
    return begins;
}

static bool lives(uint32_t state)
{
    return state == EBBI_CHECKED_USED || state == EBBI_CHECKED_RETIRED;
}

size_t ebbi_check_bytes(const void *p, const char *what)
{
    const struct ebbi_checked *h = find_header(p, what);
    // relaxed: the caller has the block
    uint32_t state = h != NULL ? ebbi_load_relaxed(&h->state) : 0;
    if (h != NULL && !lives(state)) {
        ebbi_checked_report_state(h, p, state, what);
    }
    if (!lives(state) || !begins_at(h, p, what)) {
        return EBBI_NO_BLOCK;
    }
    (void)ebbi_checked_is_marred(h);
    return h->bytes;
}

void ebbi_check_shrink(void *p, size_t bytes, ebbi_site site)
{
    struct ebbi_checked *h = find_header(p, "realloc");
    if (h != NULL && bytes <= h->bytes) {
        ebbi_held_count(h, (ptrdiff_t)bytes - (ptrdiff_t)h->bytes);
        char *end = ebbi_checked_behind(h).to;
        char *new_end = shape_block(h, h->offset, 1, bytes, site);
        ebbi_canary_put((struct ebbi_range){new_end, end}, EBBI_FILL); // C4
    }
}

bool ebbi_check_retire(void *p)
{
    struct ebbi_checked *h = find_header(p, "retire");
    uint32_t state = EBBI_CHECKED_USED;
    if (h == NULL || !begins_at(h, p, "retire")) {
        return false;
    }
    (void)ebbi_checked_is_marred(h);
    // relaxed: C1, of two threads one is told
    if (!ebbi_cas_relaxed(&h->state, &state, (uint32_t)EBBI_CHECKED_RETIRED)) {
        ebbi_checked_report_state(h, p, state, "retire");
        return false;
    }
    return true;
}

void ebbi_check_keep(void *p)
{
    struct ebbi_checked *h = find_header(p, "retire");
    if (h != NULL) {
        // relaxed: the caller has the block
        ebbi_store_relaxed(&h->state, (uint32_t)EBBI_CHECKED_USED);
    }
}

static void match(const struct ebbi_checked *h, const void *p, size_t bytes, size_t align,
                  ebbi_site site)
{
    struct ebbi_shape made = {h->bytes, (size_t)1 << h->align_log2, (enum ebbi_family)h->family};
    struct ebbi_shape said = {bytes, align, ebbi_family_of(site)};
    const char *by = ebbi_check_differs(&made, &said);
    // relaxed: the caller has the block; what is no block in use free reports
    if (by != NULL && ebbi_load_relaxed(&h->state) == EBBI_CHECKED_USED) {
        ebbi_checked_report(h, p, "mismatched free", NULL, by);
    }
}

bool ebbi_check_match(const void *p, size_t bytes, size_t align, ebbi_site site)
{
    const struct ebbi_checked *h = find_header(p, "free");
    if (h != NULL) {
        match(h, p, bytes, align, site);
    }
    return h != NULL;
}

bool ebbi_held_is_untouched(const void *block)
{
    const struct ebbi_checked *h = block;
    return h->sum == ebbi_checked_sum(h) && ebbi_checked_is_as_left(h);
}

// Nobody else has it, or will have.
static void lose(struct ebbi_checked *h)
{
    if (h->sum != ebbi_checked_sum(h)) {
        memset(h, 0, EBBI_CHECKED_HEADER);
        h->sum = ebbi_checked_sum(h);
    }
    ebbi_store_relaxed(&h->state, (uint32_t)EBBI_CHECKED_LOST); // relaxed: as above
}

void ebbi_held_report(void *block)
{
    struct ebbi_checked *h = block;
    if (h->sum == ebbi_checked_sum(h)) {
        ebbi_checked_report_touched(h);
    } else {
        ebbi_checked_report_none(h, h, "write before a freed block");
    }
    lose(h);
}

// ---- what nobody has ------------------------------------------------------------------------------------

static struct ebbi_range range_of(const char *from, const char *to)
{
    return (struct ebbi_range){(char *)from, (char *)to};
}

static bool is_blank(const char *from, const char *to)
{
    return ebbi_canary_holds(range_of(from, to), 0);
}

// The block was never handed out, or a page of its header was returned since.
static bool has_blank_header(const char *block)
{
    const char *end = block + EBBI_CHECKED_HEADER;
    const char *turn = (const char *)ebbi_align_up((uintptr_t)block + 1, ebbi_os_page_size());
    turn = turn < end ? turn : end;
    return is_blank(block, turn) || (turn < end && is_blank(turn, end));
}

// The first byte that is none of C4; NULL: all are.
static const char *first_written(const char *at, const char *end, uint64_t canary)
{
    uint64_t word = 0;
    while (at < end) {
        bool whole = (uintptr_t)at % sizeof word == 0 && (size_t)(end - at) >= sizeof word;
        if (whole) {
            memcpy(&word, at, sizeof word);
        }
        if (whole && (word == 0 || word == EBBI_FILL || word == canary)) {
            at += sizeof word;
            continue;
        }
        unsigned char byte = (unsigned char)*at;
        if (byte != 0 && byte != EBBI_FILL_BYTE && byte != ebbi_canary_at(canary, at)) {
            return at;
        }
        at++;
    }
    return NULL;
}

// Of a block that nobody else has; 0: it has no header.
static uint32_t state_of(const struct ebbi_checked *h)
{
    return h->sum == ebbi_checked_sum(h) ? ebbi_load_relaxed(&h->state) : 0; // relaxed: as above
}

// NULL: nobody has. What was freed is as it was left, as far as none of its pages can have been returned alone.
static const char *written_in_vacant(const char *block, uint32_t state)
{
    const struct ebbi_checked *h = (const struct ebbi_checked *)block;
    const char *end = block + ebbi_checked_room(block);
    uintptr_t page = ebbi_os_page_size();
    bool freed = state == EBBI_CHECKED_FREED;
    if (state == EBBI_CHECKED_LOST || (freed && ebbi_checked_is_as_left(h))) {
        return NULL;
    }
    if (freed && (uintptr_t)block / page == ((uintptr_t)end - 1) / page) {
        return block;
    }
    if (!freed && !has_blank_header(block)) {
        return block;
    }
    const char *content = block + EBBI_CHECKED_HEADER;
    struct ebbi_range filled = freed ? ebbi_checked_filled(h) : range_of(content, content);
    const char *written = first_written(filled.from, filled.to, EBBI_FILL);
    return written != NULL ? written : first_written(filled.to, end, ebbi_checked_canary(h));
}

bool ebbi_check_is_vacant(const void *block)
{
    struct ebbi_range whole = range_of(block, (const char *)block + ebbi_checked_room(block));
    return ebbi_canary_holds_words(whole, 0) || // most of them
           written_in_vacant(block, state_of(block)) == NULL;
}

bool ebbi_check_is_sound(const void *block)
{
    const struct ebbi_checked *h = block;
    uint32_t state = state_of(h);
    return lives(state) ? ebbi_checked_has_canaries(h) : written_in_vacant(block, state) == NULL;
}

void ebbi_check_report_unsound(const void *block)
{
    const struct ebbi_checked *h = block;
    uint32_t state = state_of(h);
    if (state == EBBI_CHECKED_FREED) {
        ebbi_checked_report_touched(h);
    } else if (lives(state)) {
        (void)ebbi_checked_is_marred(h);
    } else {
        ebbi_checked_report_none(h, written_in_vacant(block, state), "write");
    }
}

void ebbi_check_lose(void *block)
{
    struct ebbi_checked *h = block;
    ebbi_check_report_unsound(block);
    lose(h);
}

bool ebbi_check_claim(void *block)
{
    const struct ebbi_checked *h = block;
    // relaxed: nobody else has the block, which was looked at when it left the held
    if (ebbi_load_relaxed(&h->state) == EBBI_CHECKED_FREED || ebbi_check_is_vacant(block)) {
        return true;
    }
    ebbi_check_lose(block);
    return false;
}

// ---- free -----------------------------------------------------------------------------------------------

// The block is free from here on, for this call alone. NULL, as it has reported: it was none in use.
static struct ebbi_checked *claim_free(void *p, ebbi_site site, bool *marred)
{
    struct ebbi_checked *h = find_header(p, "free");
    // relaxed: C1, of two threads one is told
    uint32_t state = h != NULL ? ebbi_load_relaxed(&h->state) : 0;
    bool was_freed = state == EBBI_CHECKED_FREED || state == EBBI_CHECKED_LOST;
    if (h == NULL || (!was_freed && !begins_at(h, p, "free"))) {
        return NULL;
    }
    *marred = !was_freed && ebbi_checked_is_marred(h);
    if (!was_freed && site != 0) {
        match(h, p, EBBI_UNSAID, 0, site);
    }
    bool wanted = state == EBBI_CHECKED_USED || (state == EBBI_CHECKED_RETIRED && site == 0);
    // relaxed: as above
    if (!wanted || !ebbi_cas_relaxed(&h->state, &state, (uint32_t)EBBI_CHECKED_FREED)) {
        ebbi_checked_report_state(h, p, state, "free");
        return NULL;
    }
    return h;
}

void *ebbi_check_free(void *p, ebbi_site site)
{
    bool marred;
    struct ebbi_checked *h = claim_free(p, site, &marred);
    if (h == NULL) {
        return NULL;
    }
    ebbi_held_count(h, -(ptrdiff_t)h->bytes);
    struct ebbi_checked_words parts = ebbi_checked_words(h);
    parts.freed = ebbi_caller_of(site);
    parts.threads |= (uint64_t)this_thread() << 32; // above who made it
    ebbi_checked_write(h, parts);
    if (marred) {
        ebbi_store_relaxed(&h->state, (uint32_t)EBBI_CHECKED_LOST); // relaxed: nobody else has it
        return NULL;
    }
    struct ebbi_range filled = ebbi_checked_filled(h);
    memset(filled.from, EBBI_FILL_BYTE, (size_t)(filled.to - filled.from));
    return ebbi_held_put(h);
}
