// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer process: gives back at once all that is free.
#include "heap/blocks.h"
#include "lifetime/domain.h"
#include "process/process.h"

size_t ebbi_trim(struct ebbi_heap *heap)
{
    struct ebbi_arena_totals before;
    struct ebbi_arena_totals after;
    ebbi_arena_totals(&before);
    struct ebbi_heap *inside = ebbi_inside();
    if (heap != NULL) {
        ebbi_flush_all(heap);
        ebbi_seats_flush(heap);
    }
    struct ebbi_pass pass = {.delay_ms = 0, .parks = ebbi_threads_any()};
    if (pass.parks) {
        size_t came_home; // nothing yet: the pass then empties what sleeps
        (void)ebbi_park_pass(&came_home);
    }
    ebbi_purge_pass(&pass);
    ebbi_outside(inside);
    ebbi_arena_totals(&after);
    return after.purged_bytes - before.purged_bytes + pass.bytes;
}
