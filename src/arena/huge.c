// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: huge objects, each a mapping of its own, anywhere:
//
//     | front: no access | object, whole pages | back: no access |
//                        ^ at a granule boundary
//
// Found by the number of that granule in a hash of chains, under the arena's lock: on slow paths alone. Their records
// are elsewhere, in own granules (own.c). The gaps at both ends are for writes that run over an object, or jump beside it
// by up to a megabyte; where address space is limited there are none.
//
// The mapping of an object that is freed is kept for the purge delay, in a queue by age, and serves the next one,
// which it is cut or extended for by page tables: what both have room for is not faulted in again. What is cut off is kept
// as well, and joined again by who grows before it goes home.
//
// It begins at a unit, and is asked for in huge pages as a whole (dense.c). Grown, cut or kept it stays so, until it
// grows where they come slowly, or a calloc takes it.
#include <string.h>

#include "arena/huge.h"
#include "base/probe.h"
#include "os/options.h"

#define CHAINS_LOG2 10
#define HUGE_GAP ((size_t)2 << 20)

static EBBI_SPARSE struct ebbi_huge_record *chains[1u << CHAINS_LOG2]; // under the lock

// ---- found by their address ----------------------------------------------------------------------

// The link that leads to the record of the object at p, or the end of p's chain. Under the lock.
static struct ebbi_huge_record **find_link(const void *p)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    uint64_t mixed = ((uint64_t)(uintptr_t)p >> EBBI_GRANULE_SHIFT) * 0x9E3779B97F4A7C15u;
    struct ebbi_huge_record **link = &chains[mixed >> (64 - CHAINS_LOG2)];
    while (*link != NULL && (*link)->object != p) {
        link = &(*link)->next;
    }
    return link;
}

static struct ebbi_huge_record *find_record(const void *p)
{
    ebbi_lock_take(&ebbi_arena_mutex);
    struct ebbi_huge_record *record = *find_link(p);
    ebbi_lock_drop(&ebbi_arena_mutex);
    return record;
}

// The object.
static void *link_record(struct ebbi_huge_record *record)
{
    EBBI_ASSERT((uintptr_t)record->object % EBBI_GRANULE == 0);
    EBBI_ASSERT(record->bytes % ebbi_os_page_size() == 0);
    EBBI_ASSERT(ebbi_tag_of(record->object) == EBBI_TAG_NONE);
    ebbi_lock_take(&ebbi_arena_mutex);
    EBBI_ASSERT(*find_link(record->object) == NULL);
    record->next = NULL;
    record->state = EBBI_HUGE_USED;
    *find_link(record->object) = record;
    ebbi_huge_count(&ebbi_huge_total_bytes, record->bytes, 0);
    ebbi_huge_total_count++;
    ebbi_peak_see(&ebbi_arena_peak, ebbi_used_total());
    ebbi_lock_drop(&ebbi_arena_mutex);
    return record->object;
}

// NULL: no object starts at p. Under the lock.
static struct ebbi_huge_record *unlink_held(const void *p)
{
    struct ebbi_huge_record **link = find_link(p);
    struct ebbi_huge_record *record = *link;
    if (record != NULL) {
        EBBI_ASSERT(ebbi_huge_total_count > 0);
        ebbi_filled_gone(EBBI_KIND_HUGE, p);
        *link = record->next;
        record->state = EBBI_HUGE_IN_HAND;
        ebbi_huge_count(&ebbi_huge_total_bytes, 0, record->bytes);
        ebbi_huge_total_count--;
    }
    return record;
}

static struct ebbi_huge_record *unlink_record(const void *p)
{
    ebbi_lock_take(&ebbi_arena_mutex);
    struct ebbi_huge_record *record = unlink_held(p);
    ebbi_lock_drop(&ebbi_arena_mutex);
    return record;
}

// ---- mappings ------------------------------------------------------------------------------------

// If need be in place of chunks that are free.
static char *reserve_anywhere(size_t bytes)
{
    char *got = ebbi_os_reserve_charged(bytes);
    if (got == NULL) {
        ebbi_lock_take(&ebbi_arena_mutex);
        bool more = ebbi_release_free();
        ebbi_lock_drop(&ebbi_arena_mutex);
        got = more ? ebbi_os_reserve_charged(bytes) : NULL;
    }
    return got;
}

// An object below EBBI_HUGE_MIN has none, as there may be so many that the kernel would refuse more mappings.
static size_t gap_for(size_t bytes)
{
    return bytes >= EBBI_HUGE_MIN && ebbi_os_address_limit() == SIZE_MAX ? HUGE_GAP : 0;
}

static void release_if_any(char *start, size_t bytes)
{
    if (bytes > 0) {
        ebbi_os_release(start, bytes);
    }
}

// A place for an object of so many bytes, without access, at a multiple of align, with `gap` bytes at both ends.
// Everything around it has been released.
static char *reserve_object(size_t bytes, size_t align, size_t gap)
{
    size_t total = gap + bytes + gap;
    size_t roomy = total + align;
    EBBI_ASSERT(ebbi_is_power_of_two(align) && align >= EBBI_GRANULE);
    if (roomy < bytes) {
        return NULL;
    }
    char *got = reserve_anywhere(roomy);
    if (got == NULL) {
        return NULL;
    }
    char *object = (char *)ebbi_align_up((uintptr_t)got + gap, align);
    char *start = object - gap;
    EBBI_ASSERT(start >= got && start + total <= got + roomy);
    release_if_any(got, (size_t)(start - got));
    release_if_any(start + total, (size_t)((got + roomy) - (start + total)));
    return object;
}

// Of an object that may be dense, or not.
static size_t least_align(bool dense)
{
    size_t granules = dense && ebbi_chunk_is_automatic() ? EBBI_UNIT_GRANULES : 1;
    return granules << EBBI_GRANULE_SHIFT;
}

// False: refused.
static bool map_object(struct ebbi_huge_record *record, size_t bytes, size_t align, bool zero)
{
    size_t gap = gap_for(bytes);
    char *object = reserve_object(bytes, ebbi_max(align, least_align(!zero)), gap);
    if (object == NULL) {
        return false;
    }
    if (ebbi_os_commit(object, bytes) != 0) {
        ebbi_os_release(object - gap, gap + bytes + gap);
        return false;
    }
    record->object = object;
    record->bytes = bytes;
    record->front = record->back = gap;
    record->note = (struct ebbi_note){0};
    record->rest = NULL;
    ebbi_os_advise_huge(object, bytes, ebbi_arena_advice);
    record->dense = !zero && ebbi_dense_ask(object, bytes);
    return true;
}

// NULL: refused.
static struct ebbi_huge_record *take_record(void)
{
    struct ebbi_huge_record *record = ebbi_huge_record_take();
    void *more;
    while (record == NULL && (more = ebbi_own_take()) != NULL) {
        ebbi_huge_records_more(more);
        record = ebbi_huge_record_take();
    }
    return record;
}

void *ebbi_huge_alloc(size_t bytes, size_t align, bool zero)
{
    bytes = ebbi_align_up(bytes, ebbi_os_page_size());
    struct ebbi_huge_record *record = take_record();
    if (record == NULL) {
        return NULL;
    }
    if (!map_object(record, bytes, align, zero)) {
        ebbi_huge_record_give(record);
        return NULL;
    }
    return link_record(record);
}

bool ebbi_huge_free(void *p)
{
    struct ebbi_huge_record *record = unlink_record(p);
    if (record != NULL) {
        EBBI_PROBE2(large_free, p, record->bytes);
        ebbi_huge_record_unmap(record);
        ebbi_huge_record_give(record);
    }
    return record != NULL;
}

bool ebbi_huge_is(const void *p) { return find_record(p) != NULL; }

size_t ebbi_huge_bytes(const void *p)
{
    const struct ebbi_huge_record *record = find_record(p);
    return record != NULL ? record->bytes : 0;
}

struct ebbi_note *ebbi_huge_note(void *p)
{
    struct ebbi_huge_record *record = find_record(p);
    return record != NULL ? &record->note : NULL;
}

// ---- resized -------------------------------------------------------------------------------------

// The pages are elsewhere, in a mapping of so many bytes with such gaps.
static void move_to(struct ebbi_huge_record *record, char *object, size_t bytes, size_t gap)
{
    release_if_any(record->object - record->front, record->front);
    release_if_any(record->object + record->bytes, record->back);
    record->object = object;
    record->bytes = bytes;
    record->front = record->back = gap;
}

// False: refused. Then, too, somebody may have come into the gap behind it.
static bool resize_there(struct ebbi_huge_record *record, size_t bytes)
{
    size_t gap = record->back > 0 ? record->back : gap_for(bytes);
    release_if_any(record->object + record->bytes, record->back);
    bool done = ebbi_os_resize(record->object, record->bytes, bytes);
    record->bytes = done ? bytes : record->bytes;
    bool has_gap = gap > 0 && ebbi_os_reserve(record->object + record->bytes, gap) != NULL;
    record->back = has_gap ? gap : 0;
    return done;
}

// False: refused.
static bool move_pages(struct ebbi_huge_record *record, size_t bytes)
{
    size_t gap = gap_for(bytes);
    char *to = reserve_object(bytes, least_align(record->dense), gap);
    if (to == NULL) {
        return false;
    }
    if (ebbi_os_move(record->object, record->bytes, to, bytes) == NULL) {
        ebbi_os_release(to - gap, gap + bytes + gap);
        return false;
    }
    move_to(record, to, bytes, gap);
    return true;
}

// Grows it where a limit has no room for the old place beside the new one: the kernel moves the pages to a place of its
// choice, mostly right below. Where no object may lie there they are copied upward. Of what is more then, some is left for
// the next time. False: refused.
static bool move_anywhere(struct ebbi_huge_record *record, size_t bytes)
{
    size_t content = record->bytes;
    size_t spare = EBBI_GRANULE - ebbi_os_page_size();
    size_t length =
        ebbi_align_up(bytes + spare, EBBI_GRANULE); // if right below, a place for an object
    EBBI_ASSERT(bytes > content);
    char *at = ebbi_os_move(record->object, content, NULL, length);
    if (at == NULL) {
        return false;
    }
    size_t up = ebbi_align_up((uintptr_t)at, EBBI_GRANULE) - (uintptr_t)at;
    size_t more = length - up - bytes;
    EBBI_ASSERT(up <= spare);
    if (up > 0) {
        memmove(at + up, at, content);
        ebbi_os_release(at, up);
    }
    if (more > spare) {
        ebbi_os_release(at + length - (more - spare), more - spare);
        more = spare;
    }
    move_to(record, at + up, bytes + more, 0);
    return true;
}

// What is beyond so many bytes, and a part of a granule, is kept. False: it is not, and nothing has changed.
static bool cut_off(struct ebbi_huge_record *record, size_t bytes)
{
    bytes = ebbi_align_up(bytes, EBBI_GRANULE);
    if (bytes >= record->bytes) {
        return true;
    }
    struct ebbi_huge_record *rest = take_record();
    if (rest == NULL) {
        return false;
    }
    rest->object = record->object + bytes;
    rest->bytes = record->bytes - bytes;
    rest->front = 0;
    rest->back = record->back;
    rest->dense = record->dense;
    rest->rest = record->rest;
    rest->freed_ms = ebbi_os_now_ms();
    record->bytes = bytes;
    record->back = 0;
    record->rest = rest;
    ebbi_lock_take(&ebbi_arena_mutex);
    ebbi_kept_add(rest);
    ebbi_lock_drop(&ebbi_arena_mutex);
    return true;
}

// The object gets that size, where it is, or elsewhere as well if somebody has come too close; false when refused. The
// record is in no list.
static bool fit_record(struct ebbi_huge_record *record, size_t bytes, bool keeps_rest)
{
    bool grows = bytes > record->bytes;
    if (grows) {
        ebbi_kept_join(record, bytes);
    }
    if (bytes <= record->bytes && keeps_rest && gap_for(bytes) == 0 && cut_off(record, bytes)) {
        return true;
    }
    bool fits = record->bytes == bytes || resize_there(record, bytes);
    if (fits && (gap_for(bytes) == 0 || (record->front > 0 && record->back > 0))) {
        return true;
    }
    return move_pages(record, bytes) || fits || (grows && move_anywhere(record, bytes));
}

// It had so many bytes, or more.
static void look_at_growth(struct ebbi_huge_record *record, size_t bytes)
{
    if (record->dense && record->bytes > bytes) {
        record->dense = ebbi_dense_goes_on(record->object, bytes, record->bytes - bytes);
    }
}

void *ebbi_huge_resize(void *p, size_t bytes, bool keeps_rest)
{
    bytes = ebbi_align_up(bytes, ebbi_os_page_size());
    size_t old_bytes = ebbi_huge_bytes(p);
    if (bytes <= old_bytes && old_bytes - bytes < EBBI_GRANULE) {
        return p;
    }
    struct ebbi_huge_record *record = unlink_record(p);
    EBBI_ASSERT(record != NULL);
    bool resized = fit_record(record, bytes, keeps_rest);
    if (!resized && record->bytes > old_bytes) { // joined for nothing
        (void)cut_off(record, old_bytes);
    }
    look_at_growth(record, old_bytes);
    void *object = link_record(record);
    return resized ? object : NULL;
}

// ---- kept ----------------------------------------------------------------------------------------

bool ebbi_huge_keep(void *p)
{
    if (ebbi_os_address_limit() != SIZE_MAX) { // what is limited is the program's as well
        return ebbi_huge_free(p);
    }
    size_t bytes = 0;
    ebbi_lock_take(&ebbi_arena_mutex);
    struct ebbi_huge_record *record = unlink_held(p);
    if (record != NULL) {
        bytes = record->bytes;
        record->freed_ms = ebbi_os_now_ms();
        ebbi_kept_add(record);
    }
    ebbi_lock_drop(&ebbi_arena_mutex);
    if (record != NULL) {
        EBBI_PROBE2(large_free, p, bytes);
    }
    return record != NULL;
}

// Pages that nobody will touch stay away, but from who wants no page faults.
static void make_zero(void *object, size_t bytes)
{
    if (ebbi_keeps_freed() || !ebbi_os_purge(object, bytes)) {
        memset(object, 0, bytes);
    }
}

void *ebbi_huge_take(size_t bytes, size_t align, bool zero)
{
    bytes = ebbi_align_up(bytes, ebbi_os_page_size());
    struct ebbi_huge_record *record = ebbi_kept_take(bytes, align);
    if (record == NULL) {
        return NULL;
    }
    if (zero && record->dense && !ebbi_keeps_freed()) { // what is touched of it may be little
        ebbi_os_advise_huge(record->object, record->bytes, EBBI_HUGE_NEVER);
        record->dense = false;
    }
    size_t old_bytes = record->bytes;
    // Moved, it may not lie right.
    if (!fit_record(record, bytes, true) || (uintptr_t)record->object % align != 0) {
        ebbi_huge_record_unmap(record);
        ebbi_huge_record_give(record);
        return NULL;
    }
    look_at_growth(record, old_bytes);
    record->note = (struct ebbi_note){0};
    if (zero) {
        make_zero(record->object, bytes);
    }
    return link_record(record);
}
