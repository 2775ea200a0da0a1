// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: objects above the largest class. A span of granules each; from EBBI_HUGE_MIN on a
// mapping of their own, which realloc moves by page tables. Also calloc, realloc, usable size.
#include <errno.h>
#include <string.h>

#include "heap/fast.h"
#include "region/quarantine.h"

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

static void *span_alloc(size_t bytes, size_t align, bool zero)
{
    size_t align_granules = ebbi_max(align >> EBBI_GRANULE_SHIFT, 1);
    struct ebbi_span *span = ebbi_span_alloc(granules_for(bytes), align_granules, EBBI_SPAN_LARGE);
    if (span == NULL) {
        return NULL;
    }
    EBBI_ASSERT(span->state == EBBI_SPAN_LARGE && span->granules >= granules_for(bytes));
    void *start = ebbi_span_start(span);
    span->bytes = ebbi_align_up(bytes, ebbi_os_page_size());
    span->note = (struct ebbi_note){0};
    if (zero && !span->zeroed) {
        memset(start, 0, bytes);
    }
    ebbi_tags_set(start, 1, EBBI_TAG_LARGE);
    return start;
}

// Where the one kind is refused, under a limit on address space or on mappings, the other may do.
static void *alloc_either(size_t bytes, size_t align, bool zero)
{
    size_t whole = bytes + (align > EBBI_GRANULE ? align : 0);
    if (whole < EBBI_HUGE_MIN) {
        void *p = span_alloc(bytes, align, zero);
        return p != NULL ? p : ebbi_huge_alloc(bytes, align);
    }
    void *p = ebbi_huge_alloc(bytes, align);
    return p != NULL || whole > EBBI_CHUNK / 2 ? p : span_alloc(bytes, align, zero);
}

// Counted under the domain that is current, if any.
static void note_domain(void *p)
{
    struct ebbi_label *label = ebbi_source_get()->label;
    if (label != NULL) {
        struct ebbi_note *note = ebbi_large_note(p);
        note->label = label;
        note->bytes = ebbi_large_bytes(p);
        ebbi_label_hold(label, note->bytes);
    }
}

void *ebbi_large_alloc(size_t bytes, size_t align, bool zero)
{
    if (bytes > PTRDIFF_MAX || align > PTRDIFF_MAX || ebbi_start() != 0) {
        return refuse();
    }
    bool has_heap = ebbi_heap_get() != NULL; // the first one sets up what fork() needs
    bytes = ebbi_max(bytes, 1);
    void *p = alloc_either(bytes, align, zero);
    if (p != NULL && has_heap) {
        note_domain(p);
    }
    return p != NULL ? p : refuse();
}

void ebbi_report_invalid(const void *p, const char *what)
{
    if (ebbi_escape_report((uintptr_t)p, strcmp(what, "pointer") == 0 ? "use" : what)) {
        ebbi_fatal("invalid %s: %p belongs to a region that has been released", what, p);
    }
    const struct ebbi_chunk *chunk = ebbi_chunk_of(p);
    uintptr_t granule = ((uintptr_t)p & (EBBI_CHUNK - 1)) >> EBBI_GRANULE_SHIFT;
    if (chunk == NULL || granule >= chunk->granules) {
        ebbi_fatal("invalid %s: %p does not come from this allocator", what, p);
    }
    ebbi_fatal("invalid %s: %p is inside a large block, or was freed before, or never handed out",
               what, p);
}

// The span of a large object that starts at p; NULL when none does.
static struct ebbi_span *find_span(const void *p)
{
    bool starts = ebbi_tag_of(p) == EBBI_TAG_LARGE && (uintptr_t)p % EBBI_GRANULE == 0;
    return starts ? ebbi_span_of(p) : NULL;
}

struct ebbi_note *ebbi_large_note(void *p)
{
    struct ebbi_span *span = find_span(p);
    return span != NULL ? &span->note : ebbi_huge_note(p);
}

void ebbi_large_free(void *p)
{
    struct ebbi_span *span = find_span(p);
    struct ebbi_note *note = ebbi_large_note(p);
    // relaxed: for misuse alone
    if (note != NULL && ebbi_load_relaxed(&note->tag) != 0) {
        ebbi_fatal("invalid free: %p has been retired and waits for its grace period", p);
    }
    // Its neighbours in a region's list find it by its tag, so it leaves that first, under the region's lock.
    bool labelled = note != NULL && note->label != NULL;
    bool listed =
        labelled && ebbi_load_relaxed(&note->region) != NULL; // relaxed: only becomes NULL
    if (listed) {
        ebbi_region_forget(note);
    }
    if (span != NULL && !ebbi_tag_take(p, EBBI_TAG_LARGE)) { // another thread frees it as well
        ebbi_report_invalid(p, "free");
    }
    if (labelled && !listed) {
        ebbi_region_forget(note);
    }
    if (span != NULL) {
        EBBI_ASSERT(span->state == EBBI_SPAN_LARGE);
        ebbi_span_free(span);
    } else if (!ebbi_huge_free(p)) {
        ebbi_report_invalid(p, "free");
    }
    ebbi_purge_tick(NULL);
}

size_t ebbi_large_bytes(const void *p)
{
    const struct ebbi_span *span = find_span(p);
    size_t bytes = span != NULL ? span->bytes : ebbi_huge_bytes(p);
    if (bytes == 0) {
        ebbi_report_invalid(p, "pointer");
    }
    return bytes;
}

void *ebbi_large_resize(void *p, size_t bytes)
{
    struct ebbi_span *span = find_span(p);
    const struct ebbi_note *note = ebbi_large_note(p);
    if (note != NULL &&
        note->label != NULL) { // what its label and its region know of it stays right
        size_t old_bytes = ebbi_large_bytes(p);
        return bytes <= old_bytes && bytes > old_bytes / 2 ? p : NULL;
    }
    if (span == NULL) {
        return bytes >= EBBI_HUGE_MIN / 2 ? ebbi_huge_resize(p, bytes) : NULL;
    }
    if (bytes >= EBBI_HUGE_MIN || !ebbi_span_resize(span, granules_for(bytes))) {
        return NULL;
    }
    EBBI_ASSERT(span->granules >= granules_for(bytes));
    span->bytes = ebbi_align_up(bytes, ebbi_os_page_size());
    return p;
}

size_t ebbi_usable_size(const void *p)
{
    unsigned tag = ebbi_tag_of(p);
    if (p == NULL) {
        return 0;
    }
    if (tag == EBBI_TAG_REGION) {
        return ebbi_sheet_usable(p);
    }
    if (ebbi_tag_class(tag) == 0) {
        return ebbi_large_bytes(p);
    }
    const struct ebbi_slab *slab = ebbi_slab_of(p);
    (void)ebbi_slab_block(slab, p);
    return ebbi_slab_class(slab)->size;
}

void *ebbi_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        return refuse();
    }
    if (bytes > EBBI_CLASS_MAX && ebbi_source_now() != &ebbi_heap_scoped) {
        return ebbi_large_alloc(bytes, 1, true);
    }
    void *p = ebbi_malloc(bytes);
    return p != NULL ? memset(p, 0, bytes) : NULL;
}

size_t ebbi_room_to_grow(const struct ebb_region *region, size_t old_bytes, size_t bytes)
{
    bool limited = region != NULL && region->hard_limit != 0;
    return bytes > EBBI_CLASS_MAX && bytes > old_bytes && !limited ? bytes + bytes / 8 : bytes;
}

static void *move_block(void *p, size_t old_bytes, size_t bytes)
{
    const struct ebbi_heap *source = ebbi_source_get();
    const struct ebb_region *region = source != NULL ? source->region : NULL;
    size_t room = ebbi_room_to_grow(region, old_bytes, bytes);
    if (room >= EBBI_HUGE_MIN && region == NULL && (source == NULL || source->label == NULL)) {
        room = bytes; // its pages can be moved
    }
    void *to = ebbi_malloc(room);
    to = to == NULL && room > bytes ? ebbi_malloc(bytes) : to;
    if (to == NULL) {
        return NULL;
    }
    memcpy(to, p, ebbi_min(old_bytes, bytes));
    ebbi_free(p);
    return to;
}

void *ebbi_realloc(void *p, size_t bytes)
{
    if (p == NULL) {
        return ebbi_malloc(bytes);
    }
    if (bytes == 0) {
        ebbi_free(p);
        return NULL;
    }
    if (bytes > PTRDIFF_MAX) {
        return refuse();
    }
    size_t old_bytes = ebbi_usable_size(p);
    if (bytes <= old_bytes && bytes > old_bytes / 2 && old_bytes <= EBBI_CLASS_MAX) {
        return p;
    }
    unsigned tag = ebbi_tag_of(p);
    if (tag == EBBI_TAG_REGION || (ebbi_tag_class(tag) == 0 && bytes > EBBI_CLASS_MAX)) {
        void *same =
            tag == EBBI_TAG_REGION ? ebbi_region_resize(p, bytes) : ebbi_large_resize(p, bytes);
        if (same != NULL) {
            return same;
        }
    }
    int saved = errno;
    void *to = move_block(p, old_bytes, bytes);
    if (to == NULL && bytes <= old_bytes) { // to shrink in place is no failure
        errno = saved;
        return p;
    }
    return to;
}
