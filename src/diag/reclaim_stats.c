// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer diag: what waits for a grace period, and for whom.
#include "diag/load.h"
#include "diag/stats.h"

#define EBB_RECLAIM_NO_INLINE
#include <ebbtide/reclaim.h>

#include "reclaim/reclaim.h"

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
