// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: records of huge objects, cut from own granules one after the other, and used again.
#include "arena/huge.h"

// Under the arena's lock.
static struct ebbi_huge_record *unused_records;
static struct ebbi_huge_record *fresh_next, *fresh_end; // have not been used yet

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
    if (record != NULL) {
        return record;
    }
    struct ebbi_huge_record *more = ebbi_own_take();
    if (more == NULL) {
        return NULL;
    }
    ebbi_lock_take(&ebbi_arena_mutex);
    while (fresh_next != fresh_end) { // another thread has got some meanwhile
        ebbi_huge_record_drop(fresh_next++);
    }
    fresh_next = more;
    fresh_end = more + EBBI_GRANULE / sizeof *more;
    record = record_at_hand();
    ebbi_lock_drop(&ebbi_arena_mutex);
    return record;
}

void ebbi_huge_record_give(struct ebbi_huge_record *record)
{
    ebbi_lock_take(&ebbi_arena_mutex);
    ebbi_huge_record_drop(record);
    ebbi_lock_drop(&ebbi_arena_mutex);
}
