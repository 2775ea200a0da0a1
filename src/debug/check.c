// SPDX-License-Identifier: MIT OR Apache-2.0
#include "debug/check.h"

#include <stdio.h>
#include <string.h>

#include "base/mix.h"
#include "debug/canary.h"
#include "debug/held.h"
#include "ebbtide/detail/pin.h"
#include "report/report.h"

#define FRONT_LEAST 8u   // of the canary in front
#define CANARY_LEAST 16u // behind
#define CANARY_MOST 128u // behind
#define FILL_BYTE 0xDBu  // of what is freed: as an address it is none
#define FILL (FILL_BYTE * 0x0101010101010101u)

enum check_state {
    CHECK_USED = 0x5E1F5E1F,
    CHECK_RETIRED = 0x2E712E71,
    CHECK_FREED = 0x0FEEDF0E,
    CHECK_LOST = 0x10571057,
};

struct check_header {
    uint32_t state; // atomic
    uint32_t sum;
    // What was asked for; of the canary behind it; from the header to it.
    uint32_t bytes : 24, tail : 8;
    uint32_t offset : 24, align_log2 : 5, family : 3;
    uintptr_t made, freed; // called from here
    uint32_t made_by, freed_by;
};
#define HEADER sizeof(struct check_header)
_Static_assert((HEADER + FRONT_LEAST) % 16 == 0, "blocks are aligned to 16");

static uint64_t secret; // constant

bool ebbi_check_mode;

void ebbi_check_begin(size_t most_held, bool families)
{
    if (!ebbi_held_begin(most_held)) {
        return;
    }
    secret = ebbi_os_entropy() ^ ebbi_os_now_ns();
    ebbi_check_draw_anew();
    ebbi_shapes_begin(families);
    ebbi_check_mode = true;
}

// ---- what lies in a block ------------------------------------------------------------------------------

// Of two halves, which a processor adds up beside each other.
static uint32_t sum_of(const struct check_header *h)
{
    uint32_t shape = (uint32_t)h->offset << 8 | (uint32_t)h->align_log2 << 3 | (uint32_t)h->family;
    uint64_t made = secret ^ ((uint64_t)h->bytes << 40 | (uint64_t)h->tail << 32 | shape);
    uint64_t freed = secret + (uintptr_t)h;
    made = ebbi_mix(ebbi_mix(made, h->made), h->made_by);
    freed = ebbi_mix(ebbi_mix(freed, h->freed), h->freed_by);
    return (uint32_t)ebbi_mix(made, freed);
}

static char *block_in(const struct check_header *h) { return (char *)h + h->offset; }

// Of a block: no two have the same. No byte is 0, what is written beside a block most.
static uint64_t canary_of(const struct check_header *h)
{
    return ebbi_mix(~secret, (uintptr_t)h) | 0x0101010101010101u;
}

static struct ebbi_range canary_before(const struct check_header *h)
{
    return (struct ebbi_range){(char *)h + HEADER, block_in(h)};
}

static struct ebbi_range canary_behind(const struct check_header *h)
{
    char *from = block_in(h) + h->bytes;
    return (struct ebbi_range){from, from + h->tail};
}

static uint32_t this_thread(void)
{
    const struct ebb_participant *me = ebbi_self();
    return me->thread != 0 ? me->thread : ebbi_os_thread_number();
}

size_t ebbi_check_room(size_t align, size_t bytes)
{
    return ebbi_align_up(HEADER + FRONT_LEAST, align) + bytes + CANARY_LEAST;
}

void *ebbi_check_make(void *block, size_t align, size_t bytes, ebbi_site site)
{
    struct check_header *h = block;
    if (h == NULL) {
        return NULL;
    }
    size_t offset = ebbi_align_up(HEADER + FRONT_LEAST, align);
    size_t room = ebbi_checked_room(block);
    EBBI_ASSERT(offset + bytes + CANARY_LEAST <= room);
    h->bytes = (uint32_t)bytes & 0xFFFFFFu;
    h->tail = (uint32_t)ebbi_min(room - offset - bytes, CANARY_MOST) & 0xFFu;
    h->offset = (uint32_t)offset & 0xFFFFFFu;
    h->align_log2 = ebbi_lowest_bit(align) & 0x1Fu;
    h->family = ebbi_family_of(site) & 7u;
    h->made = ebbi_caller_of(site);
    h->made_by = this_thread();
    h->freed = h->freed_by = 0;
    h->sum = sum_of(h);
    EBBI_ASSERT((uintptr_t)block_in(h) % align == 0);
    ebbi_canary_put(canary_before(h), canary_of(h));
    ebbi_canary_put(canary_behind(h), canary_of(h));
    (void)ebbi_fetch_add_relaxed(&ebbi_checked_bytes, bytes); // relaxed: a number
    // relaxed: who gets the block hands it over
    ebbi_store_relaxed(&h->state, (uint32_t)CHECK_USED);
    return block_in(h);
}

// ---- reports -------------------------------------------------------------------------------------------

static struct ebbi_event event_of(uint32_t thread, uintptr_t caller)
{
    return (struct ebbi_event){.thread = thread, .depth = caller != 0, .calls = {caller - 1}};
}

static struct ebbi_extent extent_of(const struct check_header *h)
{
    return (struct ebbi_extent){(uintptr_t)block_in(h), h->bytes};
}

static void report_block(const struct check_header *h, const void *p, const char *kind,
                         const char *more_kind, const char *more)
{
    struct ebbi_event now, made = event_of(h->made_by, h->made),
                           freed = event_of(h->freed_by, h->freed);
    ebbi_event_note(&now);
    struct ebbi_report report = {
        .kind = {kind, more_kind},
        .more = more,
        .address = (uintptr_t)p,
        .block = extent_of(h),
        .traces = {ebbi_trace_of("found", &now), ebbi_trace_of("allocated", &made)},
    };
    if (h->freed_by != 0) {
        report.traces[2] = ebbi_trace_of("freed", &freed);
    }
    ebbi_misuse(&report);
}

// Of memory whose header says nothing that can be trusted.
static void report_no_header(const struct ebbi_slab *slab, const struct check_header *h,
                             const void *p, const char *what)
{
    size_t size = ebbi_slab_class(slab)->size;
    const struct check_header *left = (const struct check_header *)((uintptr_t)h - size);
    char said[192];
    struct ebbi_event now, made;
    (void)snprintf(said, sizeof said,
                   "%p lies in a block of the allocator's, of %zu bytes at %p, that was not handed "
                   "out, or what lies before it was overwritten",
                   p, size, (const void *)h);
    ebbi_event_note(&now);
    struct ebbi_report report = {
        .kind = {"invalid ", what},
        .said = said,
        .address = (uintptr_t)p,
        .traces = {ebbi_trace_of("found", &now)},
    };
    if ((uintptr_t)left >= slab->first_block && (uintptr_t)left < (uintptr_t)h &&
        left->sum == sum_of(left)) {
        made = event_of(left->made_by, left->made);
        report.before = extent_of(left);
        report.traces[1] = ebbi_trace_of("allocated", &made);
    }
    ebbi_misuse(&report);
}

// The header of the block that p lies in, of any state. NULL, as it has reported: there is none.
static struct check_header *find_header(const void *p, const char *what)
{
    int64_t tag = ebbi_tag_load(ebbi_tag_at(p));
    struct ebbi_division by = ebbi_division_of(ebbi_tag_class((unsigned)ebbi_tag_bin(tag)));
    uint64_t offset = (uint64_t)((int64_t)((uintptr_t)p % EBBI_GRANULE) + ebbi_tag_ahead(tag));
    uint64_t block = ebbi_division_at(&by, offset);
    if (block >= by.blocks) {
        ebbi_slab_misuse_no_block(ebbi_slab_of(p), p);
        return NULL;
    }
    struct check_header *h = (struct check_header *)((uintptr_t)p - offset + block * by.size);
    if (h->sum != sum_of(h) || (size_t)h->offset + h->bytes + h->tail > by.size) {
        report_no_header(ebbi_slab_of(p), h, p, what);
        return NULL;
    }
    return h;
}

static void report_state(const struct check_header *h, const void *p, uint32_t state,
                         const char *what)
{
    bool is_free = strcmp(what, "free") == 0;
    if (state == CHECK_FREED || state == CHECK_LOST) {
        report_block(h, p, is_free ? "double free" : "use after free", NULL, NULL);
    } else if (state == CHECK_RETIRED) {
        report_block(h, p, is_free ? "free of what was retired" : "double retire", NULL, NULL);
    } else {
        report_no_header(ebbi_slab_of(p), h, p, what);
    }
}

// p is the block; reports, or.
static bool begins_at(const struct check_header *h, const void *p, const char *what)
{
    if (p != block_in(h)) {
        report_block(h, p, "invalid ", what, NULL);
    }
    return p == block_in(h);
}

// Whether something beside it was written, which it reports.
static bool is_marred(const struct check_header *h)
{
    const char *before = ebbi_canary_changed(canary_before(h), canary_of(h));
    const char *behind = ebbi_canary_changed(canary_behind(h), canary_of(h));
    if (before != NULL) {
        report_block(h, before, "underflow", NULL, "written before the block");
    } else if (behind != NULL) {
        report_block(h, behind, "overflow", NULL, "written behind the block");
    }
    return before != NULL || behind != NULL;
}

static bool lives(uint32_t state) { return state == CHECK_USED || state == CHECK_RETIRED; }

size_t ebbi_check_bytes(const void *p, const char *what)
{
    const struct check_header *h = find_header(p, what);
    // relaxed: the caller has the block
    uint32_t state = h != NULL ? ebbi_load_relaxed(&h->state) : 0;
    if (h != NULL && !lives(state)) {
        report_state(h, p, state, what);
    }
    if (!lives(state) || !begins_at(h, p, what)) {
        return EBBI_NO_BLOCK;
    }
    (void)is_marred(h);
    return h->bytes;
}

bool ebbi_check_retire(void *p)
{
    struct check_header *h = find_header(p, "retire");
    uint32_t state = CHECK_USED;
    if (h == NULL || !begins_at(h, p, "retire")) {
        return false;
    }
    (void)is_marred(h);
    // relaxed: C1, of two threads one is told
    if (!ebbi_cas_relaxed(&h->state, &state, (uint32_t)CHECK_RETIRED)) {
        report_state(h, p, state, "retire");
        return false;
    }
    return true;
}

void ebbi_check_keep(void *p)
{
    struct check_header *h = find_header(p, "retire");
    if (h != NULL) {
        ebbi_store_relaxed(&h->state, (uint32_t)CHECK_USED); // relaxed: the caller has the block
    }
}

static void match(const struct check_header *h, const void *p, size_t bytes, size_t align,
                  ebbi_site site)
{
    struct ebbi_shape made = {h->bytes, (size_t)1 << h->align_log2, (enum ebbi_family)h->family};
    struct ebbi_shape said = {bytes, align, ebbi_family_of(site)};
    const char *by = ebbi_check_differs(&made, &said);
    // relaxed: the caller has the block; what is no block in use free reports
    if (by != NULL && ebbi_load_relaxed(&h->state) == CHECK_USED) {
        report_block(h, p, "mismatched free", NULL, by);
    }
}

bool ebbi_check_match(const void *p, size_t bytes, size_t align, ebbi_site site)
{
    const struct check_header *h = find_header(p, "free");
    if (h != NULL) {
        match(h, p, bytes, align, site);
    }
    return h != NULL;
}

static struct ebbi_range filled_in(const struct check_header *h)
{
    return (struct ebbi_range){block_in(h), block_in(h) + h->bytes};
}

// Nobody has written beside it.
static bool has_canaries(const struct check_header *h)
{
    return ebbi_canary_changed(canary_before(h), canary_of(h)) == NULL &&
           ebbi_canary_changed(canary_behind(h), canary_of(h)) == NULL;
}

static bool is_as_left(const struct check_header *h)
{
    return ebbi_canary_changed(filled_in(h), FILL) == NULL && has_canaries(h);
}

bool ebbi_checked_is_untouched(const void *block)
{
    const struct check_header *h = block;
    return h->sum == sum_of(h) && is_as_left(h);
}

// Nobody else has it, or will have.
static void lose(struct check_header *h)
{
    if (h->sum != sum_of(h)) {
        memset(h, 0, HEADER);
        h->sum = sum_of(h);
    }
    ebbi_store_relaxed(&h->state, (uint32_t)CHECK_LOST); // relaxed: as above
}

// Of a block with a header.
static void report_touched(const struct check_header *h)
{
    const char *changed = ebbi_canary_changed(filled_in(h), FILL);
    if (changed != NULL) {
        report_block(h, changed, "use after free", NULL, "written since it was freed");
    } else {
        (void)is_marred(h);
    }
}

void ebbi_checked_report(void *block)
{
    struct check_header *h = block;
    if (h->sum == sum_of(h)) {
        report_touched(h);
    } else {
        report_no_header(ebbi_slab_of(h), h, h, "write before a freed block");
    }
    lose(h);
}

// ---- what nobody has ------------------------------------------------------------------------------------

static bool is_blank(const char *from, const char *to)
{
    return ebbi_canary_changed((struct ebbi_range){(char *)from, (char *)to}, 0) == NULL;
}

// The block was never handed out, or a page of its header was returned since.
static bool has_blank_header(const char *block)
{
    const char *end = block + HEADER;
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
        if (whole && (word == 0 || word == FILL || word == canary)) {
            at += sizeof word;
            continue;
        }
        unsigned char byte = (unsigned char)*at;
        if (byte != 0 && byte != FILL_BYTE && byte != ebbi_canary_at(canary, at)) {
            return at;
        }
        at++;
    }
    return NULL;
}

// Of a block that nobody else has; 0: it has no header.
static uint32_t state_of(const struct check_header *h)
{
    return h->sum == sum_of(h) ? ebbi_load_relaxed(&h->state) : 0; // relaxed: as above
}

// NULL: nobody has. What was freed is as it was left, as far as none of its pages can have been returned alone.
static const char *written_in_vacant(const char *block, uint32_t state)
{
    const struct check_header *h = (const struct check_header *)block;
    const char *end = block + ebbi_checked_room(block);
    uintptr_t page = ebbi_os_page_size();
    bool freed = state == CHECK_FREED;
    if (state == CHECK_LOST || (freed && is_as_left(h))) {
        return NULL;
    }
    if (freed && (uintptr_t)block / page == ((uintptr_t)end - 1) / page) {
        return block;
    }
    return freed || has_blank_header(block) ? first_written(block + HEADER, end, canary_of(h))
                                            : block;
}

bool ebbi_check_is_vacant(const void *block)
{
    return written_in_vacant(block, state_of(block)) == NULL;
}

bool ebbi_check_is_sound(const void *block)
{
    const struct check_header *h = block;
    uint32_t state = state_of(h);
    return lives(state) ? has_canaries(h) : written_in_vacant(block, state) == NULL;
}

void ebbi_check_report_unsound(const void *block)
{
    const struct check_header *h = block;
    uint32_t state = state_of(h);
    if (state == CHECK_FREED) {
        report_touched(h);
    } else if (lives(state)) {
        (void)is_marred(h);
    } else {
        report_no_header(ebbi_slab_of(h), h, written_in_vacant(block, state), "write");
    }
}

void ebbi_check_lose(void *block)
{
    struct check_header *h = block;
    ebbi_check_report_unsound(block);
    lose(h);
}

bool ebbi_check_claim(void *block)
{
    const struct check_header *h = block;
    // relaxed: nobody else has the block, which was looked at when it left the held
    if (ebbi_load_relaxed(&h->state) == CHECK_FREED || ebbi_check_is_vacant(block)) {
        return true;
    }
    ebbi_check_lose(block);
    return false;
}

// ---- free -----------------------------------------------------------------------------------------------

// The block is free from here on, for this call alone. NULL, as it has reported: it was none in use.
static struct check_header *claim_free(void *p, ebbi_site site, bool *marred)
{
    struct check_header *h = find_header(p, "free");
    // relaxed: C1, of two threads one is told
    uint32_t state = h != NULL ? ebbi_load_relaxed(&h->state) : 0;
    bool was_freed = state == CHECK_FREED || state == CHECK_LOST;
    if (h == NULL || (!was_freed && !begins_at(h, p, "free"))) {
        return NULL;
    }
    *marred = !was_freed && is_marred(h);
    if (!was_freed && site != 0) {
        match(h, p, EBBI_UNSAID, 0, site);
    }
    bool wanted = state == CHECK_USED || (state == CHECK_RETIRED && site == 0);
    // relaxed: as above
    if (!wanted || !ebbi_cas_relaxed(&h->state, &state, (uint32_t)CHECK_FREED)) {
        report_state(h, p, state, "free");
        return NULL;
    }
    return h;
}

void *ebbi_check_free(void *p, ebbi_site site)
{
    bool marred;
    struct check_header *h = claim_free(p, site, &marred);
    if (h == NULL) {
        return NULL;
    }
    (void)ebbi_fetch_sub_relaxed(&ebbi_checked_bytes, h->bytes); // relaxed: a number
    h->freed = ebbi_caller_of(site);
    h->freed_by = this_thread();
    h->sum = sum_of(h);
    if (marred) {
        ebbi_store_relaxed(&h->state, (uint32_t)CHECK_LOST); // relaxed: nobody else has it
        return NULL;
    }
    memset(block_in(h), FILL_BYTE, h->bytes);
    return ebbi_held_put(h);
}
