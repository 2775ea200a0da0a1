// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: checked blocks that were freed and are held back: in a ring, oldest first, under one lock. What lies in a block,
// and whether somebody has written there since, check.c knows.
//
//     put --too much is held--> a random one of the older half leaves, looked at
//     looked at, in the ring: by frees, as long as none leaves; by passes; at the exit
#ifndef EBB_DEBUG_HELD_H
#define EBB_DEBUG_HELD_H

#include "debug/check.h"

// At the process's start. False: it has begun before, or there is no memory for the ring, which a message says.
bool ebbi_held_begin(size_t most_bytes);

// So many more bytes of it are in use, as asked for, or less: as much as a quarter of all may be held.
void ebbi_held_count(const void *block, ptrdiff_t bytes);

// A block that was freed: it begins there. Returns what ebbi_check_release does.
void *ebbi_held_put(void *block);

// Of a block that is held, by check.c.
bool ebbi_held_is_untouched(const void *block);
void ebbi_held_report(void *block); // that it was written to

#endif
