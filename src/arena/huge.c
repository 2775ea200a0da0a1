// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: huge objects, each a mapping of its own, anywhere:
//
//     | page with the record | object, whole pages |
//                            ^ at a granule boundary
//
// Found by the number of that granule in a hash of chains, under the arena's lock: on slow paths alone.
//
// The mapping of an object that is freed is kept for the purge delay, in a queue by age, and serves the next one,
// which it is cut or extended for by page tables: what both have room for is not faulted in again.
//
// It begins at a unit, and is asked for in huge pages as a whole (dense.c): one mapping to the kernel with the record's
// page, as it moves no other. Grown, cut or kept it stays so, until a calloc takes it.
#include <string.h>

#include "arena/internal.h"
#include "base/list.h"
#include "base/probe.h"
#include "os/options.h"

#define CHAINS_LOG2 10
#define KEPT_SCAN 16 // looked at for one object

struct huge_record {
    struct huge_record *next;     // of its chain, or of what is kept
    struct huge_record *previous; // of what is kept
    size_t bytes;                 // of the object
    uint64_t freed_ms;
    bool dense; // asked for as huge pages
    struct ebbi_note note;
};

static EBBI_SPARSE struct huge_record *chains[1u << CHAINS_LOG2];
static struct huge_record *kept_first, *kept_last; // oldest first; under the lock

size_t ebbi_huge_total_bytes;
size_t ebbi_huge_total_count;
size_t ebbi_kept_bytes;

static size_t record_bytes(void) { return ebbi_os_page_size(); }

static void *object_of(const struct huge_record *record)
{
    return (void *)((uintptr_t)record + record_bytes());
}

// The link that leads to the record of the object at p, or the end of p's chain. Under the lock.
static struct huge_record **find_link(const void *p)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    uint64_t mixed = ((uint64_t)(uintptr_t)p >> EBBI_GRANULE_SHIFT) * 0x9E3779B97F4A7C15u;
    struct huge_record **link = &chains[mixed >> (64 - CHAINS_LOG2)];
    while (*link != NULL && object_of(*link) != p) {
        link = &(*link)->next;
    }
    return link;
}

static struct huge_record *find_record(const void *p)
{
    ebbi_lock_take(&ebbi_arena_mutex);
    struct huge_record *record = *find_link(p);
    ebbi_lock_drop(&ebbi_arena_mutex);
    return record;
}

// Of bytes, written under the lock and read as a hint.
static void count(size_t *sum, size_t more, size_t less)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    EBBI_ASSERT(*sum + more >= less);
    ebbi_store_relaxed(sum, *sum + more - less); // relaxed: as above
}

static void link_record(struct huge_record *record)
{
    EBBI_ASSERT((uintptr_t)object_of(record) % EBBI_GRANULE == 0);
    EBBI_ASSERT(record->bytes % ebbi_os_page_size() == 0);
    ebbi_lock_take(&ebbi_arena_mutex);
    EBBI_ASSERT(*find_link(object_of(record)) == NULL);
    record->next = NULL;
    *find_link(object_of(record)) = record;
    count(&ebbi_huge_total_bytes, record->bytes, 0);
    ebbi_huge_total_count++;
    ebbi_peak_see(&ebbi_arena_peak, ebbi_used_total());
    ebbi_lock_drop(&ebbi_arena_mutex);
}

// NULL: no object starts at p. Under the lock.
static struct huge_record *unlink_held(const void *p)
{
    struct huge_record **link = find_link(p);
    struct huge_record *record = *link;
    if (record != NULL) {
        EBBI_ASSERT(ebbi_huge_total_count > 0);
        *link = record->next;
        count(&ebbi_huge_total_bytes, 0, record->bytes);
        ebbi_huge_total_count--;
    }
    return record;
}

static struct huge_record *unlink_record(const void *p)
{
    ebbi_lock_take(&ebbi_arena_mutex);
    struct huge_record *record = unlink_held(p);
    ebbi_lock_drop(&ebbi_arena_mutex);
    return record;
}

size_t ebbi_huge_resident(size_t (*measure)(uintptr_t start, size_t bytes))
{
    size_t total = 0;
    ebbi_lock_take(&ebbi_arena_mutex);
    for (size_t i = 0; i < (size_t)1 << CHAINS_LOG2; i++) {
        for (const struct huge_record *r = chains[i]; r != NULL; r = r->next) {
            total += measure((uintptr_t)r, r->bytes + record_bytes());
        }
    }
    ebbi_lock_drop(&ebbi_arena_mutex);
    return total;
}

size_t ebbi_huge_dense_bytes(void)
{
    size_t total = 0;
    ebbi_assert_held(&ebbi_arena_mutex);
    for (size_t i = 0; ebbi_huge_total_count > 0 && i < (size_t)1 << CHAINS_LOG2; i++) {
        for (const struct huge_record *r = chains[i]; r != NULL; r = r->next) {
            total += r->dense ? r->bytes : 0;
        }
    }
    for (const struct huge_record *r = kept_first; r != NULL; r = r->next) {
        total += r->dense ? r->bytes : 0;
    }
    return total;
}

// By `take` (reserve or map), if need be in place of chunks that are free.
static char *take_anywhere(size_t bytes, void *(*take)(void *at, size_t bytes))
{
    char *got = take(NULL, bytes);
    if (got == NULL) {
        ebbi_lock_take(&ebbi_arena_mutex);
        bool more = ebbi_release_free();
        ebbi_lock_drop(&ebbi_arena_mutex);
        got = more ? take(NULL, bytes) : NULL;
    }
    return got;
}

// A reservation or mapping in which [record][bytes] fits with the object at a multiple of align.
// Returns where the record goes; everything around it has been released.
static char *take_range(size_t bytes, size_t align, void *(*take)(void *at, size_t bytes))
{
    size_t total = bytes + record_bytes();
    size_t roomy = total + align;
    EBBI_ASSERT(ebbi_is_power_of_two(align) && align >= EBBI_GRANULE);
    if (roomy < bytes) {
        return NULL;
    }
    char *got = take_anywhere(roomy, take);
    if (got == NULL) {
        return NULL;
    }
    char *object = (char *)ebbi_align_up((uintptr_t)got + record_bytes(), align);
    char *start = object - record_bytes();
    EBBI_ASSERT(start >= got && start + total <= got + roomy);
    if (start > got) {
        ebbi_os_release(got, (size_t)(start - got));
    }
    if (start + total < got + roomy) {
        ebbi_os_release(start + total, (size_t)((got + roomy) - (start + total)));
    }
    return start;
}

// Of an object that may be dense, or not.
static size_t least_align(bool dense)
{
    size_t granules = dense && ebbi_chunk_is_automatic() ? EBBI_UNIT_GRANULES : 1;
    return granules << EBBI_GRANULE_SHIFT;
}

static void *publish(char *start, size_t bytes, bool dense)
{
    struct huge_record *record = (struct huge_record *)start;
    EBBI_ASSERT(ebbi_tag_of(object_of(record)) == EBBI_TAG_NONE);
    *record = (struct huge_record){.bytes = bytes, .dense = dense};
    link_record(record);
    return object_of(record);
}

void *ebbi_huge_alloc(size_t bytes, size_t align, bool zero)
{
    bytes = ebbi_align_up(bytes, ebbi_os_page_size());
    char *start = take_range(bytes, ebbi_max(align, least_align(!zero)), ebbi_os_map);
    if (start == NULL) {
        return NULL;
    }
    size_t total = bytes + record_bytes();
    ebbi_os_advise_huge(start, total, ebbi_arena_advice);
    bool dense = !zero && ebbi_dense_ask(start, total, start + record_bytes());
    return publish(start, bytes, dense);
}

static void release_record(struct huge_record *record)
{
    EBBI_PROBE2(purge, object_of(record), record->bytes);
    ebbi_os_release(record, record->bytes + record_bytes());
}

bool ebbi_huge_free(void *p)
{
    struct huge_record *record = unlink_record(p);
    if (record != NULL) {
        EBBI_PROBE2(large_free, p, record->bytes);
        release_record(record);
    }
    return record != NULL;
}

bool ebbi_huge_is(const void *p) { return find_record(p) != NULL; }

size_t ebbi_huge_bytes(const void *p)
{
    const struct huge_record *record = find_record(p);
    return record != NULL ? record->bytes : 0;
}

struct ebbi_note *ebbi_huge_note(void *p)
{
    struct huge_record *record = find_record(p);
    return record != NULL ? &record->note : NULL;
}

// The pages move, the record among them; NULL when refused. The record is in no list.
static void *move_record(struct huge_record *record, size_t bytes)
{
    bool dense = record->dense;
    char *to = take_range(bytes, least_align(dense), ebbi_os_reserve);
    if (to == NULL) {
        return NULL;
    }
    size_t extra = record_bytes();
    if (ebbi_os_move(record, record->bytes + extra, to, bytes + extra) == NULL) {
        ebbi_os_release(to, bytes + extra);
        return NULL;
    }
    return publish(to, bytes, dense);
}

// Grows it where a limit has no room for the old place beside the new one: the kernel moves the pages to a place of its
// choice, mostly right below. Where no record may lie there they are copied upward. Of what is more then, some is left for
// the next time. NULL when refused. The record is in no list.
static void *move_anywhere(const struct huge_record *record, size_t bytes)
{
    size_t extra = record_bytes(), content = record->bytes;
    size_t spare = EBBI_GRANULE - ebbi_os_page_size();
    bool dense = record->dense;
    size_t length =
        ebbi_align_up(bytes + extra + spare, EBBI_GRANULE); // if right below, a place for a record
    EBBI_ASSERT(bytes > content);
    char *at = ebbi_os_move((void *)(uintptr_t)record, content + extra, NULL, length);
    if (at == NULL) {
        return NULL;
    }
    size_t up = ebbi_align_up((uintptr_t)at + extra, EBBI_GRANULE) - ((uintptr_t)at + extra);
    size_t more = length - up - extra - bytes;
    EBBI_ASSERT(up <= spare);
    if (up > 0) {
        memmove(at + up + extra, at + extra, content);
        ebbi_os_release(at, up);
    }
    if (more > spare) {
        ebbi_os_release(at + length - (more - spare), more - spare);
        more = spare;
    }
    return publish(at + up, bytes + more, dense);
}

// The object gets that size, where it is or elsewhere; NULL when refused. The record is in no list.
static void *fit_record(struct huge_record *record, size_t bytes)
{
    size_t extra = record_bytes();
    bool grows = bytes > record->bytes;
    if (record->bytes == bytes || ebbi_os_resize(record, record->bytes + extra, bytes + extra)) {
        return publish((char *)record, bytes, record->dense);
    }
    void *to = move_record(record, bytes);
    return to != NULL || !grows ? to : move_anywhere(record, bytes);
}

void *ebbi_huge_resize(void *p, size_t bytes)
{
    bytes = ebbi_align_up(bytes, ebbi_os_page_size());
    size_t old_bytes = ebbi_huge_bytes(p);
    if (bytes <= old_bytes && old_bytes - bytes < EBBI_GRANULE) {
        return p;
    }
    struct huge_record *record = unlink_record(p);
    EBBI_ASSERT(record != NULL);
    const struct ebbi_note note = record->note;
    void *resized = fit_record(record, bytes);
    if (resized == NULL) {
        link_record(record);
        return NULL;
    }
    *ebbi_huge_note(resized) = note;
    return resized;
}

// ---- kept ----------------------------------------------------------------------------------------

static void kept_remove(struct huge_record *record)
{
    EBBI_QUEUE_REMOVE(kept_first, kept_last, record, next, previous);
    count(&ebbi_kept_bytes, 0, record->bytes);
}

bool ebbi_huge_keep(void *p)
{
    if (ebbi_os_address_limit() != SIZE_MAX) { // what is limited is the program's as well
        return ebbi_huge_free(p);
    }
    size_t bytes = 0;
    ebbi_lock_take(&ebbi_arena_mutex);
    struct huge_record *record = unlink_held(p);
    if (record != NULL) {
        bytes = record->bytes;
        record->freed_ms = ebbi_os_now_ms();
        EBBI_QUEUE_APPEND(kept_first, kept_last, record, next, previous);
        count(&ebbi_kept_bytes, bytes, 0);
    }
    ebbi_lock_drop(&ebbi_arena_mutex);
    if (record != NULL) {
        EBBI_PROBE2(large_free, p, bytes);
    }
    return record != NULL;
}

// Whether a mapping is a better one for so many bytes than another: the smallest that is large enough, else the
// largest.
static bool fits_better(const struct huge_record *record, const struct huge_record *other,
                        size_t bytes)
{
    if (other == NULL) {
        return true;
    }
    return other->bytes < bytes ? record->bytes > other->bytes
                                : record->bytes >= bytes && record->bytes < other->bytes;
}

// One that is more than twice as long is left for another: most of it would go home. What is to lie at a rounder place than
// a granule has to be long enough: it cannot move.
static struct huge_record *kept_take(size_t bytes, size_t align)
{
    struct huge_record *best = NULL;
    int seen = 0;
    ebbi_lock_take(&ebbi_arena_mutex);
    for (struct huge_record *r = kept_last; r != NULL && seen < KEPT_SCAN; r = r->previous) {
        bool lies_right =
            align <= EBBI_GRANULE || ((uintptr_t)object_of(r) % align == 0 && r->bytes >= bytes);
        if (lies_right && r->bytes / 2 <= bytes && fits_better(r, best, bytes)) {
            best = r;
        }
        seen++;
    }
    if (best != NULL) {
        kept_remove(best);
    }
    ebbi_lock_drop(&ebbi_arena_mutex);
    return best;
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
    struct huge_record *record = kept_take(bytes, align);
    if (record == NULL) {
        return NULL;
    }
    if (zero && record->dense && !ebbi_keeps_freed()) { // what is touched of it may be little
        ebbi_os_advise_huge(record, record->bytes + record_bytes(), EBBI_HUGE_NEVER);
        record->dense = false;
    }
    void *object = fit_record(record, bytes);
    if (object == NULL) {
        release_record(record);
        return NULL;
    }
    if ((uintptr_t)object % align != 0) { // it was moved all the same
        (void)ebbi_huge_free(object);
        return NULL;
    }
    if (zero) {
        make_zero(object, bytes);
    }
    return object;
}

size_t ebbi_kept_release_oldest(uint64_t freed_by_ms)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    struct huge_record *record = kept_first;
    if (record == NULL || record->freed_ms > freed_by_ms) {
        return 0;
    }
    kept_remove(record);
    ebbi_lock_drop(&ebbi_arena_mutex);
    size_t bytes = record->bytes;
    release_record(record);
    ebbi_lock_take(&ebbi_arena_mutex);
    return bytes;
}

bool ebbi_kept_release_all(void)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    bool any = kept_first != NULL;
    for (struct huge_record *record; (record = kept_first) != NULL;) {
        kept_remove(record);
        release_record(record);
    }
    return any;
}

size_t ebbi_kept_resident(size_t (*measure)(uintptr_t start, size_t bytes))
{
    size_t total = 0;
    ebbi_lock_take(&ebbi_arena_mutex);
    for (const struct huge_record *r = kept_first; r != NULL; r = r->next) {
        total += measure((uintptr_t)r, r->bytes + record_bytes());
    }
    ebbi_lock_drop(&ebbi_arena_mutex);
    return total;
}
