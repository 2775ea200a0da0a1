// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: what is known of each guarded block (guard.h): records by number, taken and given back under one lock.
#ifndef EBB_DEBUG_GUARD_RECORDS_H
#define EBB_DEBUG_GUARD_RECORDS_H

#include "arena/arena.h"
#include "debug/check.h"
#include "debug/site.h"
#include "report/report.h"

enum ebbi_guard_state { EBBI_GUARD_FREE, EBBI_GUARD_USED, EBBI_GUARD_HELD };

struct ebbi_guard {
    uint32_t state; // atomic
    uint32_t next;  // number, of a free or held one; 0: none
    uintptr_t block;
    size_t bytes;
    struct ebbi_span *span;
    uint32_t granules; // of it
    unsigned char canary;
    uint16_t kind;           // 0: no sample
    struct ebbi_shape shape; // as it was asked for
    struct ebbi_event made, freed;
};

// Once; samples: of these fewer may be in use. False: no memory.
bool ebbi_guards_begin(bool samples);

// The highest number that there may be; 0: it has not begun. Numbers are from 1 on.
uint32_t ebbi_guards_last(void);
struct ebbi_guard *ebbi_guard_at(uint32_t number);

// `sampled`: by whom a sample is made, of which fewer may be in use, also by the same calls; NULL: it is none. 0: too many are.
uint32_t ebbi_guard_take(const struct ebbi_event *sampled);
void ebbi_guard_return(uint32_t number);
// It is held from now on. The span of one that leaves for it, or NULL.
struct ebbi_span *ebbi_guard_hold(uint32_t number);
// The span of the oldest that is held, if that is more than may be, or any. NULL: it stays.
struct ebbi_span *ebbi_guard_leave(bool any);

void ebbi_guard_lock(void); // fork()
void ebbi_guard_unlock(void);

#endif
