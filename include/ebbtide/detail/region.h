// SPDX-License-Identifier: MIT OR Apache-2.0
// The inline half of a region's allocation (src/region has the other): bump allocation by the owner. Not
// part of the API: include <ebbtide/region.h>.
//
// A region begins with its owner and the owner's cursor. Only the owner moves that cursor, so it needs no
// lock; regions that are closed, in debug mode or without an owner have an `owner` that is no thread's. A
// block's end has its bit in the map of starts before the block is handed out (src/region/sheet.h, P1).
#ifndef EBB_DETAIL_REGION_H
#define EBB_DETAIL_REGION_H

#include "ebbtide/detail/pin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EBBI_UNIT 16u // bytes

struct ebb_region;
struct ebbi_sheet;

struct ebbi_cursor {
    uintptr_t next;  // where the next block goes; atomic: others look
    uintptr_t limit; // the last place where a block may end
    uintptr_t bits;  // + address / 1024 * 8: the word of `start`
    uintptr_t from;  // where it began
    // As limit, for the whole hole, which may go on in later granules: a unit before its end, so that
    // `next` never is where a block in use begins.
    uintptr_t stop;
    struct ebbi_sheet *sheet;
};

// What a region begins with.
struct ebbi_region_front {
    const void *owner; // ebb_self of the thread that needs no lock for it; atomic
    struct ebbi_cursor cursor;
};

// Whether the cursor's granule has room, which is a number of whole units, for a block of `bytes`; for
// one of 0 it says no.
EBBI_INLINED bool ebbi_cursor_fits(const struct ebbi_cursor *cursor, size_t bytes)
{
    return bytes - 1 < cursor->limit - cursor->next;
}

// Bump allocation where it fits.
EBBI_INLINED uintptr_t ebbi_cursor_take(struct ebbi_cursor *cursor, size_t bytes)
{
    uintptr_t p = cursor->next;
    uintptr_t end = p + ((bytes + EBBI_UNIT - 1) & ~(size_t)(EBBI_UNIT - 1));
    uint64_t *word = (uint64_t *)(cursor->bits + (end >> 10) * sizeof(uint64_t));
    // relaxed: others look only at bits of blocks that they were handed
    ebbi_store_relaxed(word, *word | (uint64_t)1 << (end / EBBI_UNIT % 64));
    ebbi_store_relaxed(&cursor->next, end); // relaxed: as above
    return p;
}

// Whether this thread may bump for that many bytes: it is the owner, and they fit.
EBBI_INLINED bool ebbi_front_is_easy(const struct ebbi_region_front *front, size_t bytes)
{
    // relaxed: if this thread is the owner, it knows
    return ebbi_load_relaxed(&front->owner) == ebb_self && ebbi_cursor_fits(&front->cursor, bytes);
}

// What is not easy. Exported for the inline half alone.
__attribute__((visibility("default"))) void *ebb_region_alloc_slow(struct ebb_region *region,
                                                                   size_t bytes);

EBBI_INLINED void *ebbi_region_bump(struct ebb_region *region, size_t bytes)
{
    struct ebbi_region_front *front = (struct ebbi_region_front *)region;
    return __builtin_expect(ebbi_front_is_easy(front, bytes), 1)
               ? (void *)ebbi_cursor_take(&front->cursor, bytes)
               : ebb_region_alloc_slow(region, bytes);
}

#ifdef __cplusplus
}
#endif

#endif
