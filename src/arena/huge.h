// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: what is noted of a huge object (huge.c), and where notes come from: own granules, so that no write over an
// object's ends reaches one. They stay for further objects.
#ifndef EBB_ARENA_HUGE_H
#define EBB_ARENA_HUGE_H

#include "arena/internal.h"

struct ebbi_huge_record {
    struct ebbi_huge_record *next; // of its chain, of what is kept, or of records without an object
    struct ebbi_huge_record *previous; // of what is kept
    char *object;
    size_t bytes;       // of the object
    size_t front, back; // of the gaps
    uint64_t freed_ms;
    bool linked; // the object is in use, and found
    bool dense;  // asked for as huge pages
    struct ebbi_note note;
};

// Any contents. NULL: refused.
struct ebbi_huge_record *ebbi_huge_record_take(void);
void ebbi_huge_record_give(struct ebbi_huge_record *record);
void ebbi_huge_record_drop(struct ebbi_huge_record *record); // the same under the lock

#endif
