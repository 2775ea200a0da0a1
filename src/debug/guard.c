// SPDX-License-Identifier: MIT OR Apache-2.0
#include "debug/guard.h"

#include <stdio.h>
#include <string.h>

#include "base/mix.h"
#include "debug/check.h"
#include "report/report.h"

#define SAMPLES_USED 512u      // by time
#define KINDS 1024u            // of samples: a number from the calls that made one
#define OF_A_KIND 8u           // once half of the samples are in use: others' turn
#define MOST_USED 8192u        // with EBB_CHECK
#define MOST_HELD 512u         // where each may split a mapping, of which Linux allows 65,530
#define MOST_HELD_MARKED 4096u // where none does: they take up to 1 GB of address space
#define BLOCK_ALIGN ((size_t)16)
#define MORE_GRANULES 32u // at most so many are left out between one block and the next

enum guard_state { GUARD_FREE, GUARD_USED, GUARD_HELD };

struct guard {
    uint32_t state; // atomic
    uint32_t next;  // number, of a free or held one; 0: none
    uintptr_t block;
    size_t bytes;
    uint32_t granules; // of the span
    unsigned char canary;
    uint16_t kind;           // 0: no sample
    struct ebbi_shape shape; // as it was asked for
    struct ebbi_event made, freed;
};

static struct {
    struct ebbi_lock lock; // rank: arena, as it is taken with no other below
    struct guard *
        records; // [most_used + most_held + 1], number 0 is nobody's; set once, atomic, behind the sizes
    uint32_t most_used, most_held;
    size_t most_bytes;
    uint32_t fresh,
        unused; // the first number that was never used; the chain of others that are free
    uint32_t used, held, samples; // samples: of those that are used
    uint32_t held_first, held_last;
} guards = {.lock = EBBI_LOCK(ARENA), .fresh = 1};
static uint16_t used_of[KINDS]; // how many of each kind are in use; under the lock

void ebbi_guard_lock(void) { ebbi_lock_take(&guards.lock); }
void ebbi_guard_unlock(void) { ebbi_lock_drop(&guards.lock); }

// ---- records ---------------------------------------------------------------------------------------------

static struct guard *records(void)
{
    // acquire[guards-seen <- guards-begun]: how many there are, and how large they may be
    return ebbi_load_acquire(&guards.records);
}

static struct guard *guard_at(uint32_t number)
{
    EBBI_ASSERT(number > 0 && number <= guards.most_used + guards.most_held);
    return &records()[number];
}

static uint16_t sample_kind(const struct ebbi_event *made)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < made->depth; i++) {
        sum = ebbi_scramble(sum ^ made->calls[i]);
    }
    return (uint16_t)(1 + sum % (KINDS - 1));
}

// Under the lock. What lives for long is not to take the place of all else.
static bool has_room(uint16_t kind)
{
    return guards.used < guards.most_used &&
           (kind == 0 || (guards.samples < SAMPLES_USED &&
                          (guards.samples < SAMPLES_USED / 2 || used_of[kind] < OF_A_KIND)));
}

static uint32_t take_record(uint16_t kind)
{
    uint32_t number = 0;
    ebbi_lock_take(&guards.lock);
    if (has_room(kind)) {
        number = guards.unused;
        if (number != 0) {
            guards.unused = guard_at(number)->next;
        } else {
            number = guards.fresh++;
        }
        guards.used++;
        guards.samples += kind != 0;
        used_of[kind]++;
        guard_at(number)->kind = kind;
    }
    ebbi_lock_drop(&guards.lock);
    return number;
}

// Under the lock.
static void record_is_free(uint32_t number)
{
    struct guard *guard = guard_at(number);
    ebbi_assert_held(&guards.lock);
    ebbi_store_relaxed(&guard->state, (uint32_t)GUARD_FREE); // relaxed: G1
    guard->next = guards.unused;
    guards.unused = number;
}

// Under the lock.
static void end_use(uint32_t number)
{
    uint16_t kind = guard_at(number)->kind;
    ebbi_assert_held(&guards.lock);
    guards.used--;
    guards.samples -= kind != 0;
    used_of[kind]--;
}

static void return_record(uint32_t number)
{
    ebbi_lock_take(&guards.lock);
    end_use(number);
    record_is_free(number);
    ebbi_lock_drop(&guards.lock);
}

// The oldest of those that are held leaves, if there are more than `most`: the span that it had, or NULL.
static struct ebbi_span *take_oldest(uint32_t most)
{
    uint32_t number = guards.held_first;
    ebbi_assert_held(&guards.lock);
    if (guards.held <= most) {
        return NULL;
    }
    guards.held_first = guard_at(number)->next;
    guards.held_last = guards.held_first != 0 ? guards.held_last : 0;
    guards.held--;
    record_is_free(number);
    return ebbi_span_of((const void *)guard_at(number)->block);
}

// What address space is limited to is the program's as well.
static uint32_t most_held(void)
{
    return ebbi_os_address_limit() == SIZE_MAX ? guards.most_held : MOST_HELD;
}

// The span of the one that leaves for it, or NULL.
static struct ebbi_span *hold_record(uint32_t number)
{
    uint32_t most = most_held();
    ebbi_lock_take(&guards.lock);
    end_use(number);
    guards.held++;
    guard_at(number)->next = 0;
    *(guards.held_last != 0 ? &guard_at(guards.held_last)->next : &guards.held_first) = number;
    guards.held_last = number;
    struct ebbi_span *leaves = take_oldest(most);
    ebbi_lock_drop(&guards.lock);
    return leaves;
}

static size_t page_room(size_t bytes)
{
    return ebbi_align_up(ebbi_max(bytes, 1), ebbi_os_page_size());
}

// Of a page before it, the block's pages, and a page behind them, in granules.
static size_t span_bytes(size_t bytes)
{
    return ebbi_align_up(page_room(bytes) + 2 * ebbi_os_page_size(), EBBI_GRANULE);
}

static size_t guard_random(size_t limit)
{
    return (size_t)(ebbi_scramble(ebbi_os_entropy() + ebbi_os_now_ns() * EBBI_GOLDEN_RATIO) >> 16) %
           limit;
}

// ---- reports ---------------------------------------------------------------------------------------------

static struct ebbi_report report_of(const struct guard *guard, uintptr_t address,
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

static void report_written(const struct guard *guard, const struct ebbi_event *found,
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

static const struct guard *find_guard(uintptr_t address, uint32_t *state)
{
    uint32_t most = records() != NULL ? guards.most_used + guards.most_held : 0;
    for (uint32_t number = 1; number <= most; number++) {
        const struct guard *guard = guard_at(number);
        // acquire[guard-found <- guard-made]: the record
        *state = ebbi_load_acquire(&guard->state);
        uintptr_t start = ebbi_align_down(guard->block, EBBI_GRANULE);
        if (*state != GUARD_FREE && address >= start &&
            address - start < (size_t)guard->granules << EBBI_GRANULE_SHIFT) {
            return guard;
        }
    }
    return NULL;
}

bool ebbi_guard_report(uintptr_t address, const char *what, const char *more)
{
    uint32_t state;
    const struct guard *guard = find_guard(address, &state);
    if (guard == NULL) {
        return false;
    }
    struct ebbi_event now;
    ebbi_event_note(&now);
    bool is_free = strcmp(what, "free") == 0;
    what = strcmp(what, "pointer") == 0 ? "use" : what;
    struct ebbi_report report = report_of(guard, address, &now, state == GUARD_HELD);
    report.kind[0] = state == GUARD_USED ? "invalid " : is_free ? "double " : what;
    report.kind[1] = state == GUARD_USED || is_free ? what : " after free";
    report.more = more;
    ebbi_misuse(&report);
    return true;
}

// In a signal handler: an access at pc.
static void guard_look(uintptr_t address, uintptr_t pc)
{
    struct ebbi_event use;
    uint32_t state;
    const struct guard *guard = find_guard(address, &state);
    if (guard == NULL) {
        return;
    }
    ebbi_event_note_fault(&use, pc);
    struct ebbi_report report = report_of(guard, address, &use, state == GUARD_HELD);
    report.kind[0] = state == GUARD_HELD      ? "use after free"
                     : address < guard->block ? "underflow"
                                              : "overflow";
    report.is_fault = true;
    ebbi_report(&report);
}

// ---- blocks ----------------------------------------------------------------------------------------------

static bool take_records(bool checks)
{
    guards.most_used = checks ? MOST_USED : SAMPLES_USED;
    guards.most_bytes = checks ? EBBI_HUGE_MIN : EBBI_GRANULE;
    guards.most_held = ebbi_os_fences_begin() ? MOST_HELD_MARKED : MOST_HELD;
    size_t bytes = (guards.most_used + guards.most_held + 1) * sizeof *guards.records;
    struct guard *made = ebbi_os_map(NULL, ebbi_align_up(bytes, ebbi_os_page_size()));
    if (made == NULL) {
        ebbi_message("no memory for the records of guarded allocations: there are none");
        return false;
    }
    // release[guards-begun -> guards-seen]: the sizes
    ebbi_store_release(&guards.records, made);
    ebbi_os_watch_faults(guard_look);
    return true;
}

bool ebbi_guard_begin(size_t rate, bool checks)
{
    bool is_ready = records() != NULL || (rate == 0 && !checks) || take_records(checks);
    ebbi_store_relaxed(&ebbi_guard_rate, is_ready ? (uint32_t)rate : 0); // relaxed: a number
    return is_ready;
}

// Pages [first, limit) of the span are accessible, all others not. False: refused, some may be closed.
static bool close_around(char *start, size_t bytes, size_t first, size_t limit)
{
    ebbi_dense_split(start, bytes);
    return ebbi_os_fence(start, first) == 0 && ebbi_os_fence(start + limit, bytes - limit) == 0;
}

// Gives it back. False: the kernel refuses, and it stays without access, nobody's.
static bool open_again(struct ebbi_span *span)
{
    size_t bytes = (size_t)span->granules << EBBI_GRANULE_SHIFT;
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

static struct guard_pages pages_of(const struct guard *guard)
{
    char *limit = (char *)ebbi_align_up(guard->block + guard->bytes, ebbi_os_page_size());
    return (struct guard_pages){limit - page_room(guard->bytes), limit};
}

static void *begin_block(uint32_t number, struct ebbi_large *large, struct guard_pages pages,
                         struct ebbi_shape shape, const struct ebbi_event *made)
{
    struct guard *guard = guard_at(number);
    size_t bytes = shape.bytes;
    char *block = pages.limit - ebbi_align_up(bytes, ebbi_max(shape.align, BLOCK_ALIGN));
    guard->shape = shape;
    guard->block = (uintptr_t)block;
    guard->bytes = bytes;
    guard->granules = large->head.granules;
    guard->canary = (unsigned char)(ebbi_scramble(guard->block) | 0x80);
    memset(pages.first, guard->canary, (size_t)(block - pages.first));
    memset(block + bytes, guard->canary, (size_t)(pages.limit - (block + bytes)));
    large->bytes = bytes;
    large->note = (struct ebbi_note){0};
    large->shift = (uint32_t)(guard->block % EBBI_GRANULE);
    large->guard = number;
    guard->made = *made;
    // release[guard-made -> guard-found]: the record
    ebbi_store_release(&guard->state, (uint32_t)GUARD_USED);
    ebbi_tags_set(ebbi_span_start(&large->head), 1, EBBI_TAG_LARGE);
    return block;
}

// A span of no foreseeable length, as long as there is address space, the block's pages at no foreseeable place of it: in
// its first granule, where others look for it. NULL: refused.
static struct ebbi_span *place_block(size_t bytes, struct guard_pages *pages)
{
    size_t page = ebbi_os_page_size();
    size_t room = page_room(bytes);
    size_t least = span_bytes(bytes) >> EBBI_GRANULE_SHIFT;
    size_t more = guard_random(ebbi_min(2 * least, MORE_GRANULES) + 1);
    struct ebbi_span *span = ebbi_span_alloc(least + more, 1, EBBI_SPAN_LARGE);
    span = span != NULL || more == 0 ? span : ebbi_span_alloc(least, 1, EBBI_SPAN_LARGE);
    if (span == NULL) {
        return NULL;
    }
    size_t whole = (size_t)span->granules << EBBI_GRANULE_SHIFT;
    size_t most = EBBI_GRANULE / page - 1 - (bytes == 0); // that one lies at the end of its page
    size_t places = ebbi_min((whole - room) / page - 1, most);
    size_t first = page * (1 + guard_random(places));
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
    size_t page = ebbi_os_page_size();
    if (records() == NULL || bytes > guards.most_bytes || align > page) {
        return NULL;
    }
    struct ebbi_shape shape = {bytes, align, ebbi_family_of(site)};
    struct ebbi_event made;
    ebbi_event_note(&made);
    uint32_t number =
        span_bytes(bytes) <= guards.most_bytes ? take_record(sample ? sample_kind(&made) : 0) : 0;
    if (number == 0) {
        return NULL;
    }
    struct guard_pages pages;
    struct ebbi_span *span = place_block(bytes, &pages);
    if (span == NULL) {
        return_record(number);
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
    const struct guard *guard = guard_at(large->guard);
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
    for (bool more = records() != NULL; more;) {
        ebbi_lock_take(&guards.lock);
        struct ebbi_span *span = take_oldest(0);
        ebbi_lock_drop(&guards.lock);
        more = span != NULL;
        some |= more && open_again(span);
    }
    return some;
}

// Reports it where somebody has written beside the block.
static void look_beside_block(const struct guard *guard, const struct ebbi_event *found,
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
    uint32_t most = records() != NULL ? guards.most_used + guards.most_held : 0;
    for (uint32_t number = 1; number <= most; number++) {
        // acquire[guard-found <- guard-made]: the record
        if (ebbi_load_acquire(&guard_at(number)->state) == GUARD_USED) {
            look_beside_block(guard_at(number), &now, "the exit");
        }
    }
}

void ebbi_guard_free(struct ebbi_large *large)
{
    uint32_t number = large->guard;
    struct guard *guard = guard_at(number);
    struct guard_pages pages = pages_of(guard);
    ebbi_event_note(&guard->freed);
    look_beside_block(guard, &guard->freed, "its free");
    large->head.state = EBBI_SPAN_QUARANTINE;
    // release[guard-made -> guard-found]: the record
    ebbi_store_release(&guard->state, (uint32_t)GUARD_HELD);
    struct ebbi_span *leaves = &large->head;
    if (ebbi_os_fence(pages.first, (size_t)(pages.limit - pages.first)) == 0) {
        leaves = hold_record(number);
    } else {
        return_record(number); // from here on it may be another's
    }
    if (leaves != NULL) {
        (void)open_again(leaves);
    }
}
