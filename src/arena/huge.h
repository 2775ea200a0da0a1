// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: what is noted of a huge object (huge.c), and where notes come from: own granules, so that no write over an
// object's ends reaches one. They stay for further objects.
#ifndef EBB_ARENA_HUGE_H
#define EBB_ARENA_HUGE_H

#include "arena/internal.h"

// Changes under the lock alone, so that under it all but the first may be looked at.
enum ebbi_huge_state {
    EBBI_HUGE_IN_HAND, // who has taken it out changes it; or it has not been used yet
    EBBI_HUGE_USED,    // in its chain
    EBBI_HUGE_KEPT,
    EBBI_HUGE_GONE, // tells of the object that it was of
};

struct ebbi_huge_record {
    struct ebbi_huge_record *next; // of its chain, of what is kept, or of records without an object
    struct ebbi_huge_record *previous; // of what is kept
    char *object;
    size_t bytes;       // of the object
    size_t front, back; // of the gaps
    struct ebbi_huge_record
        *rest; // what was cut off, if it is kept, and lies behind it, still; or NULL
    uint64_t freed_ms;
    enum ebbi_huge_state state;
    bool dense; // asked for as huge pages
    struct ebbi_note note;
};

// huge_records.c
// Of any contents but for its state. NULL: there is none at hand; with a granule of own.c there are more.
struct ebbi_huge_record *ebbi_huge_record_take(void);
void ebbi_huge_records_more(void *granule);
void ebbi_huge_record_give(struct ebbi_huge_record *record);
void ebbi_huge_record_drop(struct ebbi_huge_record *record);        // the same under the lock
void ebbi_huge_record_unmap(const struct ebbi_huge_record *record); // object and gaps

// kept.c
void ebbi_kept_add(struct ebbi_huge_record *record); // under the lock
// One that serves for so many bytes, and is to be fitted; NULL: none.
struct ebbi_huge_record *ebbi_kept_take(size_t bytes, size_t align);
// Gives a record in hand what is kept behind it, up to so many bytes in all.
void ebbi_kept_join(struct ebbi_huge_record *record, size_t bytes);

// Of bytes, written under the lock and read as a hint.
EBBI_INLINE void ebbi_huge_count(size_t *sum, size_t more, size_t less)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    EBBI_ASSERT(*sum + more >= less);
    ebbi_store_relaxed(sum, *sum + more - less); // relaxed: as above
}

#endif
