// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: the lock, and the lists and sums of what lies under it.
#include "arena/internal.h"

struct ebbi_lock ebbi_arena_mutex = EBBI_LOCK(ARENA);
struct ebbi_free_span *ebbi_dirty_first, *ebbi_dirty_last;
size_t ebbi_dirty_granules;
size_t ebbi_used_granules;
struct ebbi_peak ebbi_arena_peak;
size_t ebbi_given_granules, ebbi_clean_granules;
struct ebbi_free_span *ebbi_bins[EBBI_BINS];
uint64_t ebbi_bins_used[2];
