// SPDX-License-Identifier: MIT OR Apache-2.0
#include "debug/check.h"

#include <stdio.h>
#include <string.h>

#include "base/mix.h"
#include "debug/canary.h"
#include "ebbtide/detail/pin.h"
#include "report/report.h"
#include "slab/slab.h"

#define FRONT_LEAST 8u   // of the canary in front
#define CANARY_LEAST 16u // behind
#define CANARY_MOST 128u // behind
#define FILL_BYTE 0xDBu  // of what is freed: as an address it is none
#define FILL (FILL_BYTE * 0x0101010101010101u)
#define MOST_HELD_COUNT ((size_t)1 << 17)
#define LOOKS_A_FREE ((size_t)2)
// One of so many, the oldest, leaves: what was freed together lies together.
#define LEAVES_FIRST ((size_t)256)
#define HELD_LEAST ((size_t)1 << 20)  // bytes, however little is in use
#define HELD_COUNT_LEAST ((size_t)64) // however long they are

enum check_state {
    CHECK_USED = 0x5E1F5E1F,
    CHECK_RETIRED = 0x2E712E71,
    CHECK_FREED = 0x0FEEDF0E,
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

static struct {
    struct ebbi_lock lock;      // rank: arena, as it is taken with no other below
    struct check_header **held; // [MOST_HELD_COUNT], a ring; constant
    size_t first, count;
    size_t turn; // number of the one to be looked at next
    size_t bytes, most_bytes;
    uint64_t secret; // constant
    size_t in_use;   // bytes of blocks that were asked for; atomic
} held_blocks = {.lock = EBBI_LOCK(ARENA)};

bool ebbi_check_mode;

void ebbi_check_lock(void) { ebbi_lock_take(&held_blocks.lock); }
void ebbi_check_unlock(void) { ebbi_lock_drop(&held_blocks.lock); }

void ebbi_check_begin(size_t most_held, bool families)
{
    if (held_blocks.held != NULL) {
        return; // the start has failed once
    }
    held_blocks.held = ebbi_os_map(NULL, MOST_HELD_COUNT * sizeof(void *));
    if (held_blocks.held == NULL) {
        ebbi_message("EBB_CHECK: no memory for its tables: off");
        return;
    }
    held_blocks.secret = ebbi_os_entropy() ^ ebbi_os_now_ns();
    ebbi_check_draw_anew();
    held_blocks.most_bytes = most_held;
    ebbi_shapes_begin(families);
    ebbi_check_mode = true;
}

// ---- what lies in a block ------------------------------------------------------------------------------

static uint32_t sum_of(const struct check_header *h)
{
    uint64_t sum = ebbi_mix(held_blocks.secret, (uintptr_t)h);
    uint32_t shape = (uint32_t)h->offset << 8 | (uint32_t)h->align_log2 << 3 | (uint32_t)h->family;
    sum = ebbi_mix(sum, (uint64_t)h->bytes << 40 | (uint64_t)h->tail << 32 | shape);
    sum = ebbi_mix(sum, h->made);
    sum = ebbi_mix(sum, h->freed);
    return (uint32_t)ebbi_mix(sum, (uint64_t)h->made_by << 32 | h->freed_by);
}

static char *block_in(const struct check_header *h) { return (char *)h + h->offset; }

// Of a block: no two have the same. No byte is 0, what is written beside a block most.
static uint64_t canary_of(const struct check_header *h)
{
    return ebbi_mix(~held_blocks.secret, (uintptr_t)h) | 0x0101010101010101u;
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
    size_t room = ebbi_slab_class(ebbi_slab_of(block))->size;
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
    (void)ebbi_fetch_add_relaxed(&held_blocks.in_use, bytes); // relaxed: a number
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
    const struct ebbi_slab *slab = ebbi_slab_of(p);
    const struct ebbi_class *c = ebbi_slab_class(slab);
    uint64_t block = ebbi_slab_block_around(slab, p);
    if (!ebbi_slab_lives(slab) || block >= c->blocks) {
        ebbi_slab_misuse_no_block(slab, p);
        return NULL;
    }
    struct check_header *h = (struct check_header *)(slab->first_block + block * c->size);
    if (h->sum != sum_of(h) || (size_t)h->offset + h->bytes + h->tail > c->size) {
        report_no_header(slab, h, p, what);
        return NULL;
    }
    return h;
}

static void report_state(const struct check_header *h, const void *p, uint32_t state,
                         const char *what)
{
    bool is_free = strcmp(what, "free") == 0;
    if (state == CHECK_FREED) {
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

size_t ebbi_check_bytes(const void *p, const char *what)
{
    const struct check_header *h = find_header(p, what);
    // relaxed: the caller has the block
    uint32_t state = h != NULL ? ebbi_load_relaxed(&h->state) : 0;
    bool lives = state == CHECK_USED || state == CHECK_RETIRED;
    if (h != NULL && !lives) {
        report_state(h, p, state, what);
    }
    if (!lives || !begins_at(h, p, what)) {
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

// ---- what is held --------------------------------------------------------------------------------------

static struct check_header **held_at(size_t number)
{
    return &held_blocks.held[(held_blocks.first + number) % MOST_HELD_COUNT];
}

static struct ebbi_range filled_in(const struct check_header *h)
{
    return (struct ebbi_range){block_in(h), block_in(h) + h->bytes};
}

static bool is_untouched(const struct check_header *h)
{
    return h->sum == sum_of(h) && ebbi_canary_changed(filled_in(h), FILL) == NULL &&
           ebbi_canary_changed(canary_before(h), canary_of(h)) == NULL &&
           ebbi_canary_changed(canary_behind(h), canary_of(h)) == NULL;
}

static void report_touched(const struct check_header *h)
{
    bool is_whole = h->sum == sum_of(h);
    const char *changed = is_whole ? ebbi_canary_changed(filled_in(h), FILL) : NULL;
    if (!is_whole) {
        report_no_header(ebbi_slab_of(h), h, h, "write before a freed block");
    } else if (changed != NULL) {
        report_block(h, changed, "use after free", NULL, "written since it was freed");
    } else {
        (void)is_marred(h);
    }
}

// Under the lock. A few are held however long they are, within what the program allows.
static bool holds_too_much(void)
{
    size_t in_use = ebbi_load_relaxed(&held_blocks.in_use); // relaxed: a number
    size_t most = ebbi_min(held_blocks.most_bytes, ebbi_max(in_use / 4, HELD_LEAST));
    bool few = held_blocks.count <= HELD_COUNT_LEAST && held_blocks.bytes <= held_blocks.most_bytes;
    return held_blocks.bytes > most && !few;
}

// Whatever its header says by now.
static size_t held_bytes(const struct check_header *h)
{
    return ebbi_slab_class(ebbi_slab_of(h))->size;
}

// Under the lock. What is behind it has its number, less one.
static struct check_header *drop_held(size_t number)
{
    ebbi_assert_held(&held_blocks.lock);
    struct check_header **place = held_at(number);
    struct check_header *h = *place;
    *place = *held_at(0);
    held_blocks.first = (held_blocks.first + 1) % MOST_HELD_COUNT;
    held_blocks.count--;
    held_blocks.turn -= held_blocks.turn > 0;
    held_blocks.bytes -= held_bytes(h);
    return h;
}

// Of the older half, so that what has just been freed stays, however few are held.
static struct check_header *take_held(void)
{
    size_t older = ebbi_max(held_blocks.count / 2, 1);
    return drop_held(ebbi_check_random(ebbi_min(older, LEAVES_FIRST)));
}

// What was written to since its free is nobody's from then on: somebody writes there.
static void *release(bool all)
{
    for (;;) {
        ebbi_lock_take(&held_blocks.lock);
        bool any = held_blocks.count > 0 && (all || holds_too_much());
        struct check_header *h = any ? take_held() : NULL;
        ebbi_lock_drop(&held_blocks.lock);
        if (h == NULL || is_untouched(h)) {
            return h;
        }
        report_touched(h);
    }
}

void *ebbi_check_release(void) { return release(false); }
void *ebbi_check_rest(void) { return release(true); }

// One that was written to, from this number on, which is held no longer; NULL: there is none.
static struct check_header *take_touched(size_t *number)
{
    struct check_header *touched = NULL;
    ebbi_lock_take(&held_blocks.lock);
    for (; *number < held_blocks.count && touched == NULL; ++*number) {
        touched = is_untouched(*held_at(*number)) ? NULL : drop_held(*number);
        *number -= touched != NULL;
    }
    ebbi_lock_drop(&held_blocks.lock); // what a handler of SIGABRT frees takes it
    return touched;
}

void ebbi_check_look(void)
{
    size_t number = 0;
    for (const struct check_header *h; (h = take_touched(&number)) != NULL;) {
        report_touched(h);
    }
}

// As long as none leaves, where it would be looked at, each free looks at two of those that are held, in turn. NULL: nobody has
// written there; else it is held no longer. Under the lock.
static const struct check_header *look_at_next(void)
{
    const struct check_header *touched = NULL;
    ebbi_assert_held(&held_blocks.lock);
    size_t looks = !holds_too_much() && held_blocks.count < MOST_HELD_COUNT ? LOOKS_A_FREE : 0;
    for (size_t i = 0; i < looks && touched == NULL; i++) {
        held_blocks.turn = held_blocks.turn < held_blocks.count ? held_blocks.turn : 0;
        size_t number = held_blocks.turn++;
        touched = is_untouched(*held_at(number)) ? NULL : drop_held(number);
    }
    return touched;
}

// The block is free from here on, for this call alone. NULL, as it has reported: it was none in use.
static struct check_header *claim_free(void *p, ebbi_site site, bool *marred)
{
    struct check_header *h = find_header(p, "free");
    // relaxed: C1, of two threads one is told
    uint32_t state = h != NULL ? ebbi_load_relaxed(&h->state) : 0;
    bool was_freed = state == CHECK_FREED;
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
    (void)ebbi_fetch_sub_relaxed(&held_blocks.in_use, h->bytes); // relaxed: a number
    h->freed = ebbi_caller_of(site);
    h->freed_by = this_thread();
    h->sum = sum_of(h);
    if (marred) {
        return NULL; // nobody's from now on
    }
    memset(block_in(h), FILL_BYTE, h->bytes);
    ebbi_lock_take(&held_blocks.lock);
    struct check_header *leaves = held_blocks.count == MOST_HELD_COUNT ? take_held() : NULL;
    *held_at(held_blocks.count++) = h;
    held_blocks.bytes += held_bytes(h);
    const struct check_header *touched = look_at_next();
    ebbi_lock_drop(&held_blocks.lock);
    if (touched != NULL) {
        report_touched(touched);
    }
    if (leaves != NULL && is_untouched(leaves)) {
        return leaves;
    }
    if (leaves != NULL) {
        report_touched(leaves);
    }
    return ebbi_check_release();
}
