// SPDX-License-Identifier: MIT OR Apache-2.0
#include "debug/guard.h"

#include <stdio.h>
#include <string.h>

#include "base/mix.h"
#include "debug/check.h"
#include "debug/guard_records.h"
#include "report/report.h"

#define BLOCK_ALIGN ((size_t)16)
#define ALIGN_MOST ((size_t)8 << 20) // the block's granule leads back to the span's first
#define MORE_GRANULES 32u            // at most so many are left out between one block and the next

// Of one: what was asked for, and all of it. Set before the records.
static struct {
    size_t bytes, span;
} guard_most;

static size_t page_room(size_t bytes)
{
    return ebbi_align_up(ebbi_max(bytes, 1), ebbi_os_page_size());
}

// What the block's pages lie at a multiple of.
static size_t step_of(size_t align) { return ebbi_max(align, ebbi_os_page_size()); }

// As far as such a multiple, with a page before it, the block's pages, and a page behind them, in granules.
static size_t span_bytes(size_t bytes, size_t align)
{
    return ebbi_align_up(step_of(align) + page_room(bytes) + ebbi_os_page_size(), EBBI_GRANULE);
}

static size_t guard_random(size_t limit)
{
    return (size_t)(ebbi_scramble(ebbi_os_entropy() + ebbi_os_now_ns() * EBBI_GOLDEN_RATIO) >> 16) %
           limit;
}

// ---- reports ---------------------------------------------------------------------------------------------

static struct ebbi_report report_of(const struct ebbi_guard *guard, uintptr_t address,
                                    const struct ebbi_event *now, bool freed)
{
    struct ebbi_report report = {
        .address = address,
        .block = {guard->block, guard->bytes},
        .traces = {ebbi_trace_of("found", now), ebbi_trace_of("allocated", &guard->made)},
    };
    if (freed) {
        report.traces[2] = ebbi_trace_of("freed", &guard->freed);
    }
    return report;
}

static void report_written(const struct ebbi_guard *guard, const struct ebbi_event *found,
                           const char *by, const char *first, size_t before, size_t behind)
{
    char said[128];
    struct ebbi_report report = report_of(guard, (uintptr_t)first, found, false);
    (void)snprintf(said, sizeof said,
                   "%zu bytes were written %s a block of %zu bytes at %p, as %s finds",
                   before + behind,
                   behind == 0   ? "before"
                   : before == 0 ? "behind"
                                 : "before and behind",
                   guard->bytes, (void *)guard->block, by);
    report.kind[0] = behind > 0 ? "overflow" : "underflow";
    report.said = said;
    ebbi_misuse(&report);
}

static const struct ebbi_guard *find_guard(uintptr_t address, uint32_t *state)
{
    uint32_t last = ebbi_guards_last();
    for (uint32_t number = 1; number <= last; number++) {
        const struct ebbi_guard *guard = ebbi_guard_at(number);
        // acquire[guard-found <- guard-made]: the record
        *state = ebbi_load_acquire(&guard->state);
        uintptr_t start = (uintptr_t)ebbi_span_start(guard->span);
        if (*state != EBBI_GUARD_FREE && address >= start &&
            address - start < (size_t)guard->granules << EBBI_GRANULE_SHIFT) {
            return guard;
        }
    }
    return NULL;
}

bool ebbi_guard_report(uintptr_t address, const char *what, const char *more)
{
    uint32_t state;
    const struct ebbi_guard *guard = find_guard(address, &state);
    if (guard == NULL) {
        return false;
    }
    struct ebbi_event now;
    ebbi_event_note(&now);
    bool is_free = strcmp(what, "free") == 0;
    what = strcmp(what, "pointer") == 0 ? "use" : what;
    struct ebbi_report report = report_of(guard, address, &now, state == EBBI_GUARD_HELD);
    report.kind[0] = state == EBBI_GUARD_USED ? "invalid " : is_free ? "double " : what;
    report.kind[1] = state == EBBI_GUARD_USED || is_free ? what : " after free";
    report.more = more;
    ebbi_misuse(&report);
    return true;
}

// In a signal handler: an access at pc.
static void guard_look(uintptr_t address, uintptr_t pc)
{
    struct ebbi_event use;
    uint32_t state;
    const struct ebbi_guard *guard = find_guard(address, &state);
    if (guard == NULL) {
        return;
    }
    ebbi_event_note_fault(&use, pc);
    struct ebbi_report report = report_of(guard, address, &use, state == EBBI_GUARD_HELD);
    report.kind[0] = state == EBBI_GUARD_HELD ? "use after free"
                     : address < guard->block ? "underflow"
                                              : "overflow";
    report.is_fault = true;
    ebbi_report(&report);
}

// ---- blocks ----------------------------------------------------------------------------------------------

static bool begin_guards(bool checks)
{
    guard_most.bytes = checks ? EBBI_HUGE_MIN : EBBI_GRANULE;
    guard_most.span = checks ? span_bytes(guard_most.bytes, ALIGN_MOST) : EBBI_GRANULE;
    if (!ebbi_guards_begin(!checks)) {
        ebbi_message("no memory for the records of guarded allocations: there are none");
        return false;
    }
    ebbi_os_watch_faults(guard_look);
    return true;
}

bool ebbi_guard_begin(size_t rate, bool checks)
{
    bool is_ready = ebbi_guards_last() != 0 || (rate == 0 && !checks) || begin_guards(checks);
    ebbi_store_relaxed(&ebbi_guard_rate, is_ready ? (uint32_t)rate : 0); // relaxed: a number
    return is_ready;
}

// Pages [first, limit) of the span are accessible, all others not. False: refused, some may be closed.
static bool close_around(char *start, size_t bytes, size_t first, size_t limit)
{
    ebbi_dense_split(start, bytes);
    return ebbi_os_fence(start, first) == 0 && ebbi_os_fence(start + limit, bytes - limit) == 0;
}

// The header of the granule where the object lies leads to the span's, if that is another one.
static struct ebbi_span *inside_of(struct ebbi_span *span)
{
    size_t back = ebbi_large_in(span)->shift >> EBBI_GRANULE_SHIFT;
    return back == 0 ? NULL : (struct ebbi_span *)((uintptr_t)span + back * EBBI_HEADER);
}

static void lead_back(struct ebbi_span *span)
{
    struct ebbi_span *inside = inside_of(span);
    if (inside != NULL) {
        inside->back = (uint8_t)(((uintptr_t)inside - (uintptr_t)span) / EBBI_HEADER);
        inside->state = EBBI_SPAN_INSIDE;
    }
}

// Gives it back. False: the kernel refuses, and it stays without access, nobody's.
static bool open_again(struct ebbi_span *span)
{
    size_t bytes = (size_t)span->granules << EBBI_GRANULE_SHIFT;
    struct ebbi_span *inside = inside_of(span);
    if (inside != NULL) {
        inside->state = EBBI_SPAN_NONE;
    }
    bool done = ebbi_os_unfence(ebbi_span_start(span), bytes) == 0;
    if (done) {
        ebbi_span_free(span);
    }
    return done;
}

// What is accessible of a span: the block, and the canaries before and behind it.
struct guard_pages {
    char *first, *limit;
};

// A block of 0 bytes lies at the end of its page.
static struct guard_pages pages_of(const struct ebbi_guard *guard)
{
    uintptr_t first = ebbi_align_down(guard->block - (guard->bytes == 0), ebbi_os_page_size());
    uintptr_t limit = ebbi_align_up(guard->block + guard->bytes, ebbi_os_page_size());
    return (struct guard_pages){(char *)first, (char *)limit};
}

static void shape_guard(struct ebbi_guard *guard, struct ebbi_large *large, struct ebbi_shape shape,
                        const struct ebbi_event *made)
{
    guard->shape = shape;
    guard->bytes = large->bytes = shape.bytes;
    guard->made = *made;
    char *end = (char *)guard->block + shape.bytes;
    memset(end, guard->canary, (size_t)(pages_of(guard).limit - end));
}

static void *begin_block(uint32_t number, struct ebbi_large *large, struct guard_pages pages,
                         struct ebbi_shape shape, const struct ebbi_event *made)
{
    struct ebbi_guard *guard = ebbi_guard_at(number);
    size_t step = ebbi_min(ebbi_max(shape.align, BLOCK_ALIGN), ebbi_os_page_size());
    char *block = pages.limit - ebbi_align_up(shape.bytes, step);
    EBBI_ASSERT((uintptr_t)block % shape.align == 0);
    guard->block = (uintptr_t)block;
    guard->span = &large->head;
    guard->granules = large->head.granules;
    guard->canary = (unsigned char)(ebbi_scramble(guard->block) | 0x80);
    memset(pages.first, guard->canary, (size_t)(block - pages.first));
    shape_guard(guard, large, shape, made);
    EBBI_ASSERT(pages_of(guard).first == pages.first && pages_of(guard).limit == pages.limit);
    large->note = (struct ebbi_note){0};
    large->shift = (uint32_t)(guard->block - (uintptr_t)ebbi_span_start(&large->head));
    large->guard = number;
    lead_back(&large->head);
    // release[guard-made -> guard-found]: the record
    ebbi_store_release(&guard->state, (uint32_t)EBBI_GUARD_USED);
    ebbi_tags_set((void *)ebbi_align_down(guard->block, EBBI_GRANULE), 1, EBBI_TAG_LARGE);
    return block;
}

// Where in a span of so many bytes the accessible pages begin: at no foreseeable one of the places that the alignment leaves
// in the first granule, or where that leaves none, at the first behind it. A block of 0 bytes lies at their end.
static size_t choose_place(uintptr_t start, size_t whole, size_t bytes, size_t align)
{
    size_t page = ebbi_os_page_size(), room = page_room(bytes), step = step_of(align);
    size_t before = bytes == 0 ? room : 0; // of the pages, what lies below the multiple
    size_t first = ebbi_align_up(start + page + before, step) - start;
    size_t most = whole - room - page + before;
    size_t last = ebbi_max(first, ebbi_min(most, EBBI_GRANULE - 1));
    EBBI_ASSERT(first <= most);
    return first + step * guard_random((last - first) / step + 1) - before;
}

// A span of no foreseeable length, as long as there is address space. NULL: refused.
static struct ebbi_span *place_block(size_t bytes, size_t align, struct guard_pages *pages)
{
    size_t room = page_room(bytes);
    size_t least = span_bytes(bytes, align) >> EBBI_GRANULE_SHIFT;
    size_t more = guard_random(ebbi_min(2 * least, MORE_GRANULES) + 1);
    struct ebbi_span *span = ebbi_span_alloc(least + more, 1, EBBI_SPAN_LARGE);
    span = span != NULL || more == 0 ? span : ebbi_span_alloc(least, 1, EBBI_SPAN_LARGE);
    if (span == NULL) {
        return NULL;
    }
    size_t whole = (size_t)span->granules << EBBI_GRANULE_SHIFT;
    size_t first = choose_place((uintptr_t)ebbi_span_start(span), whole, bytes, align);
    if (!close_around(ebbi_span_start(span), whole, first, first + room)) {
        span->state = EBBI_SPAN_QUARANTINE;
        (void)open_again(span);
        return NULL;
    }
    pages->first = (char *)ebbi_span_start(span) + first;
    pages->limit = pages->first + room;
    return span;
}

EBBI_NOINLINE void *ebbi_guard_make(size_t bytes, size_t align, bool zero, ebbi_site site,
                                    bool sample)
{
    if (ebbi_guards_last() == 0 || bytes > guard_most.bytes || align > ALIGN_MOST) {
        return NULL;
    }
    struct ebbi_shape shape = {bytes, align, ebbi_family_of(site)};
    struct ebbi_event made;
    ebbi_event_note(&made);
    uint32_t number =
        span_bytes(bytes, align) <= guard_most.span ? ebbi_guard_take(sample ? &made : NULL) : 0;
    if (number == 0) {
        return NULL;
    }
    struct guard_pages pages;
    struct ebbi_span *span = place_block(bytes, align, &pages);
    if (span == NULL) {
        ebbi_guard_return(number);
        return NULL;
    }
    bool clean = ebbi_large_in(span)->head.zeroed;
    void *block = begin_block(number, ebbi_large_in(span), pages, shape, &made);
    return zero && !clean ? memset(block, 0, bytes) : block;
}

void ebbi_guard_match(const void *p, size_t bytes, size_t align, ebbi_site site)
{
    const struct ebbi_large *large = ebbi_large_of(p);
    if (large == NULL || large->guard == 0) {
        return;
    }
    const struct ebbi_guard *guard = ebbi_guard_at(large->guard);
    struct ebbi_shape said = {bytes, align, ebbi_family_of(site)};
    const char *by = ebbi_check_differs(&guard->shape, &said);
    if (by != NULL) {
        struct ebbi_event now;
        ebbi_event_note(&now);
        struct ebbi_report report = report_of(guard, (uintptr_t)p, &now, false);
        report.kind[0] = "mismatched free";
        report.more = by;
        ebbi_misuse(&report);
    }
}

static bool is_all(const char *from, const char *to, unsigned char canary)
{
    return from == to ||
           ((unsigned char)*from == canary && memcmp(from, from + 1, (size_t)(to - from) - 1) == 0);
}

// How many bytes differ; first: where the first of all does, as long as it is NULL.
static size_t altered(const char *from, const char *to, unsigned char canary, const char **first)
{
    size_t count = 0;
    for (bool same = is_all(from, to, canary); !same && from < to; from++) {
        if ((unsigned char)*from != canary) {
            *first = *first != NULL ? *first : from;
            count++;
        }
    }
    return count;
}

bool ebbi_guard_rest(void)
{
    bool some = false;
    for (struct ebbi_span *span; (span = ebbi_guard_leave(true)) != NULL;) {
        some |= open_again(span);
    }
    return some;
}

// Reports it where somebody has written beside the block.
static void look_beside_block(const struct ebbi_guard *guard, const struct ebbi_event *found,
                              const char *by)
{
    struct guard_pages pages = pages_of(guard);
    const char *first = NULL, *block = (const char *)guard->block;
    size_t before = altered(pages.first, block, guard->canary, &first);
    size_t behind = altered(block + guard->bytes, pages.limit, guard->canary, &first);
    if (before + behind > 0) {
        report_written(guard, found, by, first, before, behind);
    }
}

void ebbi_guards_look(void)
{
    struct ebbi_event now;
    ebbi_event_note(&now);
    uint32_t last = ebbi_guards_last();
    for (uint32_t number = 1; number <= last; number++) {
        // acquire[guard-found <- guard-made]: the record
        if (ebbi_load_acquire(&ebbi_guard_at(number)->state) == EBBI_GUARD_USED) {
            look_beside_block(ebbi_guard_at(number), &now, "the exit");
        }
    }
}

void ebbi_guard_shrink(struct ebbi_large *large, size_t bytes, ebbi_site site)
{
    struct ebbi_guard *guard = ebbi_guard_at(large->guard);
    struct ebbi_event now;
    ebbi_event_note(&now);
    look_beside_block(guard, &now, "its realloc");
    char *limit = pages_of(guard).limit;
    shape_guard(guard, large, (struct ebbi_shape){bytes, 1, ebbi_family_of(site)}, &now);
    char *new_limit = pages_of(guard).limit;
    if (new_limit < limit) {
        (void)ebbi_os_fence(new_limit, (size_t)(limit - new_limit));
    }
}

void ebbi_guard_free(struct ebbi_large *large)
{
    uint32_t number = large->guard;
    struct ebbi_guard *guard = ebbi_guard_at(number);
    struct guard_pages pages = pages_of(guard);
    ebbi_event_note(&guard->freed);
    look_beside_block(guard, &guard->freed, "its free");
    large->head.state = EBBI_SPAN_QUARANTINE;
    // release[guard-made -> guard-found]: the record
    ebbi_store_release(&guard->state, (uint32_t)EBBI_GUARD_HELD);
    struct ebbi_span *leaves = &large->head;
    if (ebbi_os_fence(pages.first, (size_t)(pages.limit - pages.first)) == 0) {
        leaves = ebbi_guard_hold(number);
    } else {
        ebbi_guard_return(number); // from here on it may be another's
    }
    for (; leaves != NULL; leaves = ebbi_guard_leave(false)) {
        (void)open_again(leaves);
    }
}
