// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: objects above the largest class. A span of granules each; from EBBI_HUGE_MIN on, or a part of a limit on
// address space, a mapping of their own, which realloc moves by page tables; so has what realloc has moved before.
#include <errno.h>
#include <string.h>

#include "base/probe.h"
#include "base/sparse.h"
#include "debug/check.h"
#include "debug/guard.h"
#include "heap/blocks.h"
#include "report/report.h"

#define LIMITED_LEAST ((size_t)1 << 20)
#define LIMITED_PART 64 // of the limit

static void *refuse(void)
{
    errno = ENOMEM;
    return NULL;
}

static size_t granules_for(size_t bytes)
{
    EBBI_ASSERT(bytes > 0);
    return (bytes + EBBI_GRANULE - 1) >> EBBI_GRANULE_SHIFT;
}

// By which spans of samples are longer than these; wraps around.
static size_t samples_bytes; // atomic

static size_t rounding_of(const struct ebbi_large *large)
{
    return ((size_t)large->head.granules << EBBI_GRANULE_SHIFT) - large->bytes;
}

void ebbi_large_sampled(void *p)
{
    struct ebbi_large *large = ebbi_tag_of(p) == EBBI_TAG_LARGE ? ebbi_large_of(p) : NULL;
    if (large != NULL && large->guard == 0 && large->bytes <= EBBI_CLASS_MAX) {
        large->sampled = true;
        (void)ebbi_fetch_add_relaxed(&samples_bytes, rounding_of(large)); // relaxed: a sum
    }
}

static void sampled_no_more(struct ebbi_large *large)
{
    if (EBBI_UNLIKELY(large->sampled)) {
        large->sampled = false;
        (void)ebbi_fetch_sub_relaxed(&samples_bytes, rounding_of(large)); // relaxed: a sum
    }
}

size_t ebbi_large_samples_rounding(void)
{
    return ebbi_load_relaxed(&samples_bytes); // relaxed: a sum
}

static void *begin_object(struct ebbi_large *large, size_t bytes, bool zero)
{
    EBBI_ASSERT(large->head.state == EBBI_SPAN_LARGE);
    EBBI_ASSERT(large->head.granules >= granules_for(bytes));
    void *start = ebbi_span_start(&large->head);
    large->bytes = bytes;
    large->note.stamp = 0; // what these four do not name is not looked at
    large->note.label = NULL;
    large->note.region = NULL;
    large->note.sample = large->note.sample_live = 0;
    large->shift = large->guard = 0;
    large->sampled = false;
    if (zero && !large->head.zeroed) {
        memset(start, 0, bytes);
    }
    ebbi_tags_set(start, 1, EBBI_TAG_LARGE);
    return start;
}

EBBI_INLINE struct ebbi_large *take_spare(struct ebbi_heap *heap, size_t bytes)
{
    if (bytes > (size_t)EBBI_SPARES << EBBI_GRANULE_SHIFT) {
        return NULL;
    }
    size_t granules = granules_for(bytes);
    struct ebbi_large *last = ebbi_spare_last(heap, granules);
    return EBBI_LIKELY(last != NULL) ? last : ebbi_spare_take(heap, granules);
}

void *ebbi_large_again(struct ebbi_heap *heap, size_t bytes)
{
    struct ebbi_large *large = take_spare(heap, bytes);
    if (large == NULL) {
        return NULL;
    }
    void *p = begin_object(large, bytes, false);
    EBBI_PROBE2(large_alloc, p, bytes);
    return p;
}

// What does not fill half of its span, as a sample of a profile, is no reason for a huge page.
static void *span_alloc(size_t bytes, size_t align, bool zero)
{
    size_t align_granules = ebbi_max(align >> EBBI_GRANULE_SHIFT, 1);
    size_t granules = granules_for(bytes);
    bool fills = bytes >= (granules << EBBI_GRANULE_SHIFT) / 2;
    struct ebbi_span *span =
        align_granules == 1 && fills
            ? ebbi_span_alloc_dense(granules, EBBI_SPAN_LARGE, EBBI_FILL_OBJECT)
            : ebbi_span_alloc(granules, align_granules, EBBI_SPAN_LARGE);
    return span != NULL ? begin_object(ebbi_large_in(span), bytes, zero) : NULL;
}

static void *huge_alloc(size_t bytes, size_t align, bool zero)
{
    void *p = ebbi_huge_take(bytes, align, zero);
    return p != NULL ? p : ebbi_huge_alloc(bytes, align, zero);
}

static size_t mapping_least = EBBI_HUGE_MIN; // since the start

bool ebbi_large_is_limited(void) { return mapping_least < EBBI_HUGE_MIN; }

// Under a limit on address space what is large beside it has a mapping that is as long as it is: of a chunk it might take a
// part, and leave one that is too short for the next.
void ebbi_large_begin(void)
{
    size_t limited = ebbi_max(ebbi_os_address_limit() / LIMITED_PART, LIMITED_LEAST);
    mapping_least = ebbi_min(limited, EBBI_HUGE_MIN);
}

// Where the one kind is refused, under a limit on address space or on mappings, the other may do.
static void *alloc_either(size_t bytes, size_t align, bool zero)
{
    size_t whole = bytes + (align > EBBI_GRANULE ? align : 0);
    if (whole < mapping_least) {
        void *p = span_alloc(bytes, align, zero);
        return p != NULL ? p : huge_alloc(bytes, align, zero);
    }
    void *p = huge_alloc(bytes, align, zero);
    return p != NULL || whole > EBBI_CHUNK / 2 ? p : span_alloc(bytes, align, zero);
}

// A spare one, or memory from the arena; where that is refused, the spare ones first go to it.
static void *alloc_any(size_t bytes, size_t align, bool zero)
{
    struct ebbi_heap *heap = ebbi_heap_mine();
    if (heap != NULL && align <= EBBI_GRANULE) {
        struct ebbi_large *large = take_spare(heap, bytes);
        if (large != NULL) {
            return begin_object(large, bytes, zero);
        }
    }
    void *p = alloc_either(bytes, align, zero);
    if (p == NULL && ((heap != NULL && ebbi_spares_rest(heap)) || ebbi_guard_rest())) {
        p = alloc_either(bytes, align, zero);
    }
    ebbi_purge_spans();
    return p;
}

static void note_label(void *p, struct ebbi_label *label)
{
    struct ebbi_note *note = ebbi_large_note(p);
    note->label = label;
    note->bytes = ebbi_large_bytes(p);
    ebbi_label_hold(label, note->bytes);
}

void *ebbi_large_alloc(size_t bytes, size_t align, bool zero, struct ebbi_label *label)
{
    if (bytes > PTRDIFF_MAX || align > PTRDIFF_MAX) {
        return refuse();
    }
    void *p = alloc_any(ebbi_max(bytes, 1), align, zero);
    if (p == NULL) {
        return refuse();
    }
    if (label != NULL) {
        note_label(p, label);
    }
    EBBI_PROBE2(large_alloc, p, bytes);
    return p;
}

static void give_span(struct ebbi_large *large)
{
    struct ebbi_heap *heap = ebbi_heap_mine();
    if (heap == NULL || !ebbi_spare_put(heap, large)) {
        ebbi_span_free(&large->head);
        ebbi_purge_tick(NULL);
    }
}

static EBBI_NOINLINE void report_retired(const void *p, const char *what)
{
    if (!ebbi_guard_report((uintptr_t)p, what, "retired, waits for its grace period")) {
        ebbi_misuse_said((struct ebbi_report){.kind = {"invalid ", what}, .address = (uintptr_t)p},
                         "%p has been retired and waits for its grace period", p);
    }
}

bool ebbi_large_check_retired(const void *p, const struct ebbi_note *note, const char *what)
{
    if (EBBI_LIKELY(ebbi_load_relaxed(&note->stamp) == 0)) { // relaxed: for misuse alone
        return true;
    }
    report_retired(p, what);
    return false;
}

static EBBI_NOINLINE void huge_free(void *p)
{
    struct ebbi_note *note = ebbi_huge_note(p);
    if (note != NULL) {
        if (!ebbi_large_check_retired(p, note, "free")) {
            return;
        }
        if (note->label != NULL) {
            ebbi_region_forget(note);
        }
        ebbi_sample_freed(note);
    }
    // Not asked for once more: a filter of system calls may end who does.
    if (ebbi_large_is_limited() ? ebbi_huge_free(p) : ebbi_huge_keep(p)) {
        ebbi_purge_tick(NULL);
    } else {
        ebbi_report_invalid(p, "free");
    }
}

void ebbi_large_free(void *p)
{
    if (ebbi_tag_of(p) == EBBI_TAG_LARGE) {
        ebbi_large_free_tagged(p);
    } else {
        huge_free(p);
    }
}

void ebbi_large_free_tagged(void *p)
{
    struct ebbi_large *large = ebbi_large_in(ebbi_span_of(p));
    if (((uintptr_t)p - large->shift) % EBBI_GRANULE != 0) {
        ebbi_report_invalid(p, "free");
        return;
    }
    struct ebbi_note *note = &large->note;
    if (!ebbi_large_check_retired(p, note, "free")) {
        return;
    }
    // Its neighbours in a region's list find it by its tag, so it leaves that first, under the region's lock.
    bool labelled = EBBI_UNLIKELY(note->label != NULL);
    bool listed =
        labelled && ebbi_load_relaxed(&note->region) != NULL; // relaxed: only becomes NULL
    if (listed) {
        ebbi_region_forget(note);
    }
    if (!ebbi_tag_take(p, EBBI_TAG_LARGE)) { // another thread frees it as well
        ebbi_report_invalid(p, "free");
        return;
    }
    if (labelled && !listed) {
        ebbi_region_forget(note);
    }
    ebbi_sample_freed(note);
    if (large->guard != 0) {
        ebbi_guard_free(large);
        return;
    }
    EBBI_PROBE2(large_free, p, large->bytes);
    sampled_no_more(large);
    give_span(large);
}

size_t ebbi_large_bytes(const void *p)
{
    const struct ebbi_large *large = ebbi_large_of(p);
    size_t bytes = large != NULL ? ebbi_large_room(large) : ebbi_huge_bytes(p);
    if (large == NULL && bytes == 0) {
        ebbi_report_invalid(p, "pointer");
        return EBBI_NO_BLOCK;
    }
    return bytes;
}

// What lies behind a mapping's object may be accessible, and is address space that nobody else wants.
static bool may_lie_behind(void) { return !ebbi_large_is_limited() && !ebbi_check_is_on(); }

// Of a mapping that has grown: not each step takes system calls, and what nobody touches is address space alone.
static size_t room_behind(size_t bytes)
{
    return bytes < EBBI_HUGE_MIN && may_lie_behind() ? bytes / 8 : 0;
}

void *ebbi_large_grow_out(const void *p, size_t old_bytes, size_t bytes)
{
    if (bytes < EBBI_MOVED_MIN || bytes <= old_bytes) {
        return NULL;
    }
    size_t room = bytes + room_behind(bytes);
    void *to = ebbi_huge_take(room, EBBI_GRANULE, false);
    if (to != NULL) {
        return memcpy(to, p, old_bytes);
    }
    to = ebbi_huge_alloc(room, EBBI_GRANULE, false);
    if (to != NULL) {
        ebbi_copy_to_zeros(to, p, old_bytes);
    }
    return to;
}

void ebbi_large_copy(void *to, const void *from, size_t bytes)
{
    const struct ebbi_large *large = ebbi_tag_of(to) == EBBI_TAG_LARGE ? ebbi_large_of(to) : NULL;
    if (large != NULL && large->head.zeroed) {
        ebbi_copy_to_zeros(to, from, bytes);
    } else {
        memcpy(to, from, bytes);
    }
}

static void *resize_huge(void *p, size_t bytes)
{
    size_t old_bytes = ebbi_huge_bytes(p), room = room_behind(bytes);
    if (bytes <= old_bytes && old_bytes - bytes <= room) {
        return p;
    }
    return ebbi_huge_resize(p, bytes > old_bytes ? bytes + room : bytes, may_lie_behind());
}

static void *resize_large(void *p, size_t bytes)
{
    struct ebbi_large *large = ebbi_large_of(p);
    const struct ebbi_note *note = ebbi_large_note(p);
    if (note != NULL &&
        note->label != NULL) { // what its label and its region know of it stays right
        size_t old_bytes = ebbi_large_bytes(p);
        return bytes <= old_bytes && bytes > old_bytes / 2 ? p : NULL;
    }
    if (large == NULL) {
        return resize_huge(p, bytes);
    }
    if (large->guard != 0 || large->sampled || bytes >= EBBI_HUGE_MIN ||
        !ebbi_span_resize(&large->head, granules_for(bytes))) {
        return NULL;
    }
    EBBI_ASSERT(large->head.granules >= granules_for(bytes));
    large->bytes = bytes;
    return p;
}

void *ebbi_large_resize(void *p, size_t bytes)
{
    void *to = resize_large(p, bytes);
    if (to != NULL) {
        EBBI_PROBE3(large_resize, p, to, bytes);
        // As a free: what is resized again and again may be all that is called.
        ebbi_purge_tick(NULL);
    }
    return to;
}
