// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: owners of slabs. A slab has one, for life: a thread's own heap, for classes whose blocks share
// cache lines; a depot, for all others, which every thread takes from (depot.c); a seat, for whatever its
// domain allocates. An owner's fields are under its lock, but for `pending`, which anybody writes.
//
// P1  every slab of the owner with a free block is `current` of its class, in one bucket, or purging; in a
//     bucket it has fewer free blocks than those at which it moves.
// P2  slab_count, held_bytes, dirty_bytes and a shelf's counts are sums over the owner's slabs; full ones have
//     nothing dirty or pinned.
// P3  the purge queue is linked both ways through slabs of the owner that say so.
#ifndef EBB_HEAP_OWNER_H
#define EBB_HEAP_OWNER_H

#include "base/peak.h"
#include "os/lock.h"
#include "os/os.h"
#include "region/label.h"
#include "slab/slab.h"

struct ebbi_shelf { // slabs of one class
    struct ebbi_slab *current;
    struct ebbi_slab *bucket[EBBI_BUCKETS];
    uint32_t slabs;        // of the class
    uint32_t out_blocks;   // of theirs, that are not in them; modulo 2^32, as are the next
    uint32_t dirty_blocks; // free, not looked at since they came back
    uint32_t pinned;       // free, on pages that purges had to leave; EBBI_QUANTUM bytes each
};

struct ebbi_owner {
    struct ebbi_slab *pending __attribute__((aligned(EBBI_CACHE_LINE))); // atomic, any thread
    struct ebbi_lock lock __attribute__((aligned(EBBI_CACHE_LINE)));     // rank: owner
    uint32_t clock_ms;                                                   // about now
    uint16_t lane;                                                       // of its slabs' blocks
    size_t slab_count;
    size_t held_bytes;        // of slabs
    size_t dirty_bytes;       // free blocks of slabs that may hold pages
    size_t freed_bytes;       // since the last purge by amount
    size_t out_bytes;         // of blocks that are not in its slabs
    struct ebbi_peak peak;    // of out_bytes
    uint32_t room_ms;         // when room_bytes last changed
    size_t room_bytes;        // that it has learned to keep (purge_queue.c)
    struct ebbi_label *label; // whose memory it is; NULL: nobody's
    struct ebbi_slab *purge_first, *purge_last;
    struct ebbi_slab *purging; // slabs whose pages are being returned, through `next`
    struct ebbi_shelf shelves[EBBI_CLASS_COUNT];
};

// Under the lock: so no owner's clock goes backward, and no slab was touched in its future.
EBBI_INLINE void ebbi_owner_tell_time(struct ebbi_owner *owner)
{
    owner->clock_ms = (uint32_t)ebbi_os_now_ms();
}

// Under the lock: so many blocks of a class have left their slabs; below 0: came back.
EBBI_INLINE void ebbi_owner_count_out(struct ebbi_owner *owner, unsigned class_number, int64_t more)
{
    struct ebbi_shelf *shelf = &owner->shelves[class_number];
    int64_t bytes = more * (int64_t)ebbi_classes[class_number].size;
    shelf->out_blocks += (uint32_t)more;
    // relaxed: a count, which domain.c reads without the lock
    ebbi_store_relaxed(&owner->out_bytes, owner->out_bytes + (size_t)bytes);
}

// The same: so many free blocks of a slab more are dirty, and so many bytes of the others are pinned.
EBBI_INLINE void ebbi_owner_count_free(struct ebbi_owner *owner, const struct ebbi_slab *slab,
                                       int64_t dirty, int64_t pinned)
{
    struct ebbi_shelf *shelf = &owner->shelves[slab->class_number];
    EBBI_ASSERT(pinned % EBBI_QUANTUM == 0);
    owner->dirty_bytes += (size_t)(dirty * (int64_t)ebbi_slab_class(slab)->size);
    shelf->dirty_blocks += (uint32_t)dirty;
    shelf->pinned += (uint32_t)(pinned / EBBI_QUANTUM);
}

#endif
