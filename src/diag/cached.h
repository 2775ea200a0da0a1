// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer diag: which blocks are free in magazines, trays and outboxes. Their slabs know nothing of that, so a
// snapshot collects the addresses while all heaps are frozen, sorts them, and asks slab by slab.
//
// Threads go on meanwhile without locks: they push and pop. So an address is a hint until the slab's
// bitmaps confirm it, and no address is followed. Blocks that were retired are in bags, not here: they
// count as live until their grace period is over.
#ifndef EBB_DIAG_CACHED_H
#define EBB_DIAG_CACHED_H

#include "heap/blocks.h"

struct ebbi_cached {
    uintptr_t *blocks; // ascending; NULL: nothing is known
    size_t count, room;
};

// The blocks of a slab, one bit each: in use by the program, and free in a magazine, tray or outbox.
struct ebbi_slab_use {
    uint64_t live[EBBI_ROOM_WORDS], cached[EBBI_ROOM_WORDS];
    size_t live_blocks, cached_blocks;
};

// All heaps are frozen until the drop. False when memory is refused: every slab is all live then.
bool ebbi_cached_collect(struct ebbi_cached *cached);
void ebbi_cached_drop(struct ebbi_cached *cached);
void ebbi_slab_measure(const struct ebbi_slab *slab, const struct ebbi_cached *cached,
                       struct ebbi_slab_use *use);

#endif
