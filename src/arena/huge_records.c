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
    if (record != NULL) {
        record->state = EBBI_HUGE_IN_HAND;
    }
    return record;
}

void ebbi_huge_record_drop(struct ebbi_huge_record *record)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    record->state = EBBI_HUGE_GONE;
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

// ---- looked at one after the other ---------------------------------------------------------------

// Of those that have been used; of NULL the first. NULL: there is none. Under the lock.
static const struct ebbi_huge_record *record_after(const struct ebbi_huge_record *record)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    record = record != NULL ? record : newest;
    if (record == NULL) {
        return NULL;
    }
    const struct ebbi_huge_record *granule =
        (const void *)ebbi_align_down((uintptr_t)record, EBBI_GRANULE);
    if (record + 1 < granule + RECORDS && record + 1 != fresh_next) {
        return record + 1;
    }
    return granule->next != NULL ? granule->next + 1 : NULL;
}

bool ebbi_huge_around(const void *p, struct ebbi_huge_place *place)
{
    const struct ebbi_huge_record *found = NULL, *r = NULL;
    ebbi_lock_take(&ebbi_arena_mutex);
    while ((r = record_after(r)) != NULL) {
        bool known = r->state != EBBI_HUGE_IN_HAND;
        bool lies_in = known && (uintptr_t)p - (uintptr_t)r->object < r->bytes;
        if (lies_in && (found == NULL || r->state == EBBI_HUGE_USED)) {
            found = r;
        }
    }
    if (found != NULL) {
        *place = (struct ebbi_huge_place){(uintptr_t)found->object, found->bytes,
                                          found->state != EBBI_HUGE_USED};
    }
    ebbi_lock_drop(&ebbi_arena_mutex);
    return found != NULL;
}

static size_t resident_of(enum ebbi_huge_state state, ebbi_measure measure,
                          struct ebbi_os_pages *pages)
{
    const struct ebbi_huge_record *r = NULL;
    size_t total = 0;
    ebbi_lock_take(&ebbi_arena_mutex);
    while ((r = record_after(r)) != NULL) {
        total += r->state == state ? measure(pages, (uintptr_t)r->object, r->bytes) : 0;
    }
    ebbi_lock_drop(&ebbi_arena_mutex);
    return total;
}

size_t ebbi_huge_resident(ebbi_measure measure, struct ebbi_os_pages *pages)
{
    return resident_of(EBBI_HUGE_USED, measure, pages);
}

size_t ebbi_kept_resident(ebbi_measure measure, struct ebbi_os_pages *pages)
{
    return resident_of(EBBI_HUGE_KEPT, measure, pages);
}

void ebbi_huge_each(void (*visit)(uintptr_t start, size_t bytes, const struct ebbi_note *note,
                                  void *context),
                    void *context)
{
    const struct ebbi_huge_record *r = NULL;
    ebbi_lock_take(&ebbi_arena_mutex);
    while ((r = record_after(r)) != NULL) {
        if (r->state == EBBI_HUGE_USED) {
            visit((uintptr_t)r->object, r->bytes, &r->note, context);
        }
    }
    ebbi_lock_drop(&ebbi_arena_mutex);
}

size_t ebbi_huge_dense_bytes(void)
{
    const struct ebbi_huge_record *r = NULL;
    size_t total = 0;
    while ((r = record_after(r)) != NULL) {
        bool is_there = r->state == EBBI_HUGE_USED || r->state == EBBI_HUGE_KEPT;
        total += is_there && r->dense ? r->bytes : 0;
    }
    return total;
}
