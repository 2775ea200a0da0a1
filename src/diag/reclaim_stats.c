// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer diag: what waits for a grace period, and for whom.
#include "diag/load.h"
#include "diag/stats.h"

#define EBB_RECLAIM_NO_INLINE
#include <ebbtide/reclaim.h>

#include "reclaim/reclaim.h"

// For a look at the default collector from outside of the process, which needs its memory and the
// symbol ebb_reclaim_board: `ebb doctor --pid`. Changes go with `version`.
struct board {
    uint64_t magic; // "1MLCRBBE" in memory
    uint32_t version;
    uint32_t parts;           // of what waits
    const void *now;          // uint64_t: epoch << 16, its low bit 1 in a fenced clock
    const void *participants; // struct ebb_participant *: the first, linked by `next`
    const void *changed_ms;   // uint64_t: CLOCK_MONOTONIC when `now` changed
    const void *
        retired; // size_t: bytes that wait; one in each of so many lines of 64 bytes, to be added up
};
extern __attribute__((visibility("default"))) const struct board ebb_reclaim_board;
EBBI_KEPT const struct board ebb_reclaim_board = {
    .magic = 0x45424252434C4D31,
    .version = 2,
    .parts = EBBI_WAITING_PARTS,
    .now = &ebbi_clock.now,
    .participants = &ebbi_clock.participants,
    .changed_ms = &ebbi_clock.changed_ms,
    .retired = ebbi_limbo_waiting,
};

void ebb_reclaim_stats_get(struct ebb_collector *collector, struct ebb_reclaim_stats *stats)
{
    struct ebbi_collector *inner = (struct ebbi_collector *)collector;
    struct ebbi_clock *clock = inner != NULL ? &inner->clock : &ebbi_clock;
    struct ebbi_clock_state now;
    struct ebbi_limbo_totals totals;
    ebbi_late_sweep();
    (void)ebbi_clock_advance(clock, false); // a pin that stays is an old one from now on
    ebbi_clock_state(clock, &now);
    ebbi_limbo_totals(inner, &totals);
    *stats = (struct ebb_reclaim_stats){.retired_bytes = totals.bytes,
                                        .retired_blocks = totals.blocks,
                                        .destructors = totals.calls - totals.calls_for_blocks,
                                        .epoch = now.epoch,
                                        .participants = now.participants,
                                        .pinned = now.pinned,
                                        .oldest_pin_ms = now.oldest_ms,
                                        .oldest_pin_thread = now.oldest_thread,
                                        .hazards = ebbi_hazards_count(),
                                        .fenced = ebbi_clock_is_fenced(clock)};
}
