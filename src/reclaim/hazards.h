// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: what hazard pointers hold back.
#ifndef EBB_RECLAIM_HAZARDS_H
#define EBB_RECLAIM_HAZARDS_H

#include "heap/heap.h"

struct ebb_hazard;

// ---- hazard.c ------------------------------------------------------------------------------------
struct ebb_hazard *ebbi_hazard_open(const void *owner); // NULL: refused
void ebbi_hazard_close(struct ebb_hazard *hazard);
// Whether a hazard pointer points into [p, p + bytes). Behind the stamp of p. O(hazard pointers in use).
bool ebbi_hazard_protects(const void *p, size_t bytes);
// Calls found(held, context) for each that points there, until it says true. Behind the stamps.
bool ebbi_hazards_find(uintptr_t start, size_t bytes,
                       bool (*found)(const void *held, void *context), void *context);
size_t ebbi_hazards_count(void);
void ebbi_hazards_lock(void); // fork()
void ebbi_hazards_unlock(void);
void ebbi_hazards_keep_only(const void *owner); // in the child of a fork

// ---- suspects.c ----------------------------------------------------------------------------------
#define EBBI_SUSPECTS 128
#define EBBI_SUSPECT_BITS 9 // of the table's places
struct ebbi_suspect {
    uintptr_t start;
    size_t bytes;
};

// Blocks, whose stamps have passed; all but the list and what ebbi_suspects_mark leaves is its own.
struct ebbi_suspects {
    size_t count;
    uintptr_t first, end; // where they lie
    bool odd;             // some are no slabs' blocks
    bool hashed, any_will_do;
    struct ebbi_suspect list[EBBI_SUSPECTS];
    bool marks[EBBI_SUSPECTS];                // a hazard pointer points into it
    uint8_t table[1 << EBBI_SUSPECT_BITS];    // by start: number in the list, 0: none
    uint8_t granules[1 << EBBI_SUSPECT_BITS]; // by granule
};

EBBI_INLINE void ebbi_suspects_start(struct ebbi_suspects *suspects)
{
    suspects->count = 0;
    suspects->odd = suspects->hashed = suspects->any_will_do = false;
}
// A block, or a pointer that is none (of one byte). At most EBBI_SUSPECTS.
void ebbi_suspects_add(struct ebbi_suspects *suspects, const void *p, size_t bytes);
bool ebbi_suspects_any(struct ebbi_suspects *suspects);  // whether one is pointed into
void ebbi_suspects_mark(struct ebbi_suspects *suspects); // all that are

#endif
