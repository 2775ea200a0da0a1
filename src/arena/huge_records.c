// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: records of huge objects, cut from own granules one after the other, and used again. The first of a granule
// leads to the granule before it.
#include "arena/huge.h"
#include "base/probe.h"

#define RECORDS (EBBI_GRANULE / sizeof(struct ebbi_huge_record))

// Under the arena's lock.
static struct ebbi_huge_record *unused_records;
static struct ebbi_huge_record *fresh_next, *fresh_end; // have not been used yet
static struct ebbi_huge_record *newest;                 // granule

// Of objects in use.
size_t ebbi_huge_total_bytes;
size_t ebbi_huge_total_count;

// NULL: there is none. Under the lock.
static struct ebbi_huge_record *record_at_hand(void)
{
    struct ebbi_huge_record *record = unused_records;
    ebbi_assert_held(&ebbi_arena_mutex);
    if (record != NULL) {
        unused_records = record->next;
    } else if (fresh_next != fresh_end) {
        record = fresh_next++;
    }
    return record;
}

void ebbi_huge_record_drop(struct ebbi_huge_record *record)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    record->next = unused_records;
    unused_records = record;
}

struct ebbi_huge_record *ebbi_huge_record_take(void)
{
    ebbi_lock_take(&ebbi_arena_mutex);
    struct ebbi_huge_record *record = record_at_hand();
    ebbi_lock_drop(&ebbi_arena_mutex);
    return record;
}

void ebbi_huge_records_more(void *granule)
{
    struct ebbi_huge_record *more = granule;
    ebbi_lock_take(&ebbi_arena_mutex);
    while (fresh_next != fresh_end) { // another thread has got some meanwhile
        ebbi_huge_record_drop(fresh_next++);
    }
    more->next = newest;
    newest = more;
    fresh_next = more + 1;
    fresh_end = more + RECORDS;
    ebbi_lock_drop(&ebbi_arena_mutex);
}

void ebbi_huge_record_unmap(const struct ebbi_huge_record *record)
{
    EBBI_PROBE2(purge, record->object, record->bytes);
    ebbi_os_release(record->object - record->front, record->front + record->bytes + record->back);
}

void ebbi_huge_record_give(struct ebbi_huge_record *record)
{
    ebbi_lock_take(&ebbi_arena_mutex);
    ebbi_huge_record_drop(record);
    ebbi_lock_drop(&ebbi_arena_mutex);
}

static bool lies_in(const struct ebbi_huge_record *record, uintptr_t p)
{
    return record->object != NULL && p - (uintptr_t)record->object < record->bytes;
}

bool ebbi_huge_around(const void *p, struct ebbi_huge_place *place)
{
    const struct ebbi_huge_record *found = NULL;
    ebbi_lock_take(&ebbi_arena_mutex);
    for (const struct ebbi_huge_record *granule = newest; granule != NULL;
         granule = granule->next) {
        for (const struct ebbi_huge_record *r = granule + 1; r < granule + RECORDS; r++) {
            if (lies_in(r, (uintptr_t)p) && (found == NULL || r->linked)) {
                found = r;
            }
        }
    }
    if (found != NULL) {
        *place = (struct ebbi_huge_place){(uintptr_t)found->object, found->bytes, !found->linked};
    }
    ebbi_lock_drop(&ebbi_arena_mutex);
    return found != NULL;
}
