// SPDX-License-Identifier: MIT OR Apache-2.0
// What the schemes of Ebbtide share: the end of a run, and the count of what waits.
#ifndef EBB_BENCH_RECLAIM_EBBTIDE_COUNT_H
#define EBB_BENCH_RECLAIM_EBBTIDE_COUNT_H

#include "ebbtide/reclaim.h"

// Blocks that threads of libc and of Ebbtide itself may keep to the end.
enum { FLUSH_TRIES = 100, BLOCKS_KEPT = 256 };

static struct ebb_collector *scheme_collector; // NULL: the default one
static size_t scheme_live_at_open;
static size_t scheme_lost; // blocks still in use at the end that no count admits

static inline size_t scheme_live_blocks(void)
{
    struct ebb_stats stats;
    ebb_stats_get(&stats);
    return stats.live_blocks;
}

static inline uint64_t scheme_unreclaimed(void)
{
    struct ebb_reclaim_stats stats;
    ebb_reclaim_stats_get(scheme_collector, &stats);
    return stats.retired_blocks + stats.destructors + scheme_lost;
}

// The slabs' bitmaps bear witness too: what is free there was reclaimed.
static inline void scheme_flush(void)
{
    for (int i = 0; i < FLUSH_TRIES && scheme_unreclaimed() > 0; i++) {
        ebb_collector_synchronize(scheme_collector);
        ebb_collector_reclaim(scheme_collector);
    }
    ebb_trim();
    size_t live = scheme_live_blocks();
    if (live > scheme_live_at_open + BLOCKS_KEPT)
        scheme_lost = live - scheme_live_at_open;
}

#endif
