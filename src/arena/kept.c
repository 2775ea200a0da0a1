// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: mappings of huge objects that were freed, and what was cut off from such, in a queue by age. They serve the next
// ones, or go home.
#include "arena/huge.h"
#include "base/list.h"

#define KEPT_SCAN 16 // looked at for one object

static struct ebbi_huge_record *kept_first, *kept_last; // oldest first; under the lock

size_t ebbi_kept_bytes;

void ebbi_kept_add(struct ebbi_huge_record *record)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    record->state = EBBI_HUGE_KEPT;
    EBBI_QUEUE_APPEND(kept_first, kept_last, record, next, previous);
    ebbi_huge_count(&ebbi_kept_bytes, record->bytes, 0);
}

static void kept_remove(struct ebbi_huge_record *record)
{
    record->state = EBBI_HUGE_IN_HAND;
    EBBI_QUEUE_REMOVE(kept_first, kept_last, record, next, previous);
    ebbi_huge_count(&ebbi_kept_bytes, 0, record->bytes);
}

// Whether a mapping is a better one for so many bytes than another: the smallest that is large enough, else the
// largest.
static bool fits_better(const struct ebbi_huge_record *record, const struct ebbi_huge_record *other,
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
struct ebbi_huge_record *ebbi_kept_take(size_t bytes, size_t align)
{
    struct ebbi_huge_record *best = NULL;
    int seen = 0;
    ebbi_lock_take(&ebbi_arena_mutex);
    for (struct ebbi_huge_record *r = kept_last; r != NULL && seen < KEPT_SCAN; r = r->previous) {
        bool lies_right =
            align <= EBBI_GRANULE || ((uintptr_t)r->object % align == 0 && r->bytes >= bytes);
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

// What is left of it is as old as before.
static void kept_shorten(struct ebbi_huge_record *kept, size_t bytes)
{
    kept->object += bytes;
    kept->bytes -= bytes;
    ebbi_huge_count(&ebbi_kept_bytes, 0, bytes);
}

void ebbi_kept_join(struct ebbi_huge_record *record, size_t bytes)
{
    ebbi_lock_take(&ebbi_arena_mutex);
    struct ebbi_huge_record *rest;
    while (record->bytes < bytes && record->back == 0 && (rest = record->rest) != NULL &&
           rest->state == EBBI_HUGE_KEPT && rest->object == record->object + record->bytes) {
        size_t more = ebbi_align_up(bytes - record->bytes, EBBI_GRANULE);
        if (more < rest->bytes) {
            kept_shorten(rest, more);
            record->bytes += more;
        } else {
            kept_remove(rest);
            record->bytes += rest->bytes;
            record->back = rest->back;
            record->rest = rest->rest;
            ebbi_huge_record_drop(rest);
        }
    }
    ebbi_lock_drop(&ebbi_arena_mutex);
}

size_t ebbi_kept_release_oldest(uint64_t freed_by_ms)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    struct ebbi_huge_record *record = kept_first;
    if (record == NULL || record->freed_ms > freed_by_ms) {
        return 0;
    }
    kept_remove(record);
    ebbi_lock_drop(&ebbi_arena_mutex);
    size_t bytes = record->bytes;
    ebbi_huge_record_unmap(record);
    ebbi_lock_take(&ebbi_arena_mutex);
    ebbi_huge_record_drop(record);
    return bytes;
}

bool ebbi_kept_release_all(void)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    bool any = kept_first != NULL;
    for (struct ebbi_huge_record *record; (record = kept_first) != NULL;) {
        kept_remove(record);
        ebbi_huge_record_unmap(record);
        ebbi_huge_record_drop(record);
    }
    return any;
}
