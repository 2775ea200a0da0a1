// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer process: memory goes home by itself, what was retired and has waited long enough included. A pass
// visits every owner, the limbo, the regions and the arena. In a process with threads a sleeping helper makes
// it (helper.c), woken when there is something to return; otherwise the thread that leaves a slow free or a call
// of ebb_* (os/wake.h), by time.
#include "debug/check.h"
#include "heap/blocks.h"
#include "heap/registry.h"
#include "lifetime/domain.h"
#include "os/options.h"
#include "os/wake.h"
#include "process/process.h"
#include "reclaim/reclaim.h"

static void purge_owner(struct ebbi_owner *owner, void *context)
{
    struct ebbi_pass *pass = context;
    ebbi_owner_tell_time(owner);
    ebbi_owner_collect(owner);
    pass->more |= ebbi_purge_old(owner, pass->delay_ms);
    ebbi_owner_turn_peak(owner);
    pass->waiting |= owner->purge_first != NULL;
    EBBI_OWNER_AUDIT(owner, 0);
}

static void purge_heap(struct ebbi_heap *heap, void *context)
{
    struct ebbi_pass *pass = context;
    purge_owner(&heap->own, context);
    ebbi_limbo_take_expired(heap, &pass->expired);
    if (pass->heap_for_calls != NULL) {
        ebbi_limbo_take_calls(heap, &pass->expired);
    }
}

static void pass_spares(struct ebbi_heap *heap, void *context)
{
    (void)context;
    ebbi_spares_give(heap);
}

// What destructors have freed and retired in the helper would stay with it: it does nothing else.
static void clear_own(struct ebbi_pass *pass)
{
    struct ebbi_heap *heap = ebbi_inside();
    if (heap != NULL) {
        ebbi_limbo_seal(heap);
        ebbi_flush_all(heap);
        ebbi_seats_flush(heap);
        ebbi_lock_take(&heap->own.lock);
        pass->waiting |= heap->limbo.bags > 0;
        ebbi_lock_drop(&heap->own.lock);
    }
    ebbi_outside(heap);
}

// Until nothing more is old enough. Leaves in pass->waiting whether something is too young.
void ebbi_purge_pass(struct ebbi_pass *pass)
{
    pass->expired = (struct ebbi_expired){.calls_end = &pass->expired.calls};
    size_t came_home = 0;
    bool newly_parked = pass->parks && ebbi_park_pass(&came_home);
    ebbi_late_sweep();
    bool all_looked_at = !ebbi_check_is_on() || ebbi_look_again();
    ebbi_clocks_advance();
    do {
        pass->more = pass->waiting = pass->expired.waiting = false;
        ebbi_heaps_each(purge_heap, pass);
        ebbi_depots_each(purge_owner, pass);
        if (pass->heap_for_calls != NULL) {
            ebbi_late_take(&pass->expired);
        }
        if (pass->heap_for_calls != NULL &&
            (pass->expired.calls != NULL || pass->expired.hooks > 0)) {
            (void)pass->heap_for_calls();
        }
        ebbi_limbo_release(&pass->expired);
    } while (pass->more);
    pass->waiting |= pass->expired.waiting | ebbi_stranded_release();
    if (pass->heap_for_calls != NULL) {
        clear_own(pass);
    }
    (void)ebbi_remains_purge(&pass->waiting); // to the arena, which comes next
    ebbi_regions_purge(ebbi_os_now_ms(), pass->delay_ms, &pass->waiting);
    ebbi_orphans_purge(ebbi_os_now_ms(), pass->delay_ms, &pass->waiting);
    ebbi_heaps_prune(ebbi_records_discard);
    ebbi_heaps_each(pass_spares, NULL); // what came home by now included
    ebbi_arena_turn_peak();
    pass->waiting |= ebbi_arena_purge(ebbi_os_now_ms(), pass->delay_ms, SIZE_MAX);
    pass->waiting |= came_home > 0 || newly_parked || !all_looked_at;
}

void ebbi_pass_serve(void)
{
    // relaxed: set by this thread, which may hold locks that a pass takes, or of no matter
    if (!ebbi_load_relaxed(&ebbi_dying) && ebbi_pass_claim()) {
        struct ebbi_pass pass = {.delay_ms = ebbi_option(EBBI_OPTION_PURGE_DELAY)};
        ebbi_purge_pass(&pass);
    }
}

size_t ebbi_trim(struct ebbi_heap *heap, bool parks)
{
    size_t before = ebbi_arena_purged_bytes();
    (void)ebbi_held_rest();
    struct ebbi_heap *inside = ebbi_inside();
    if (heap != NULL) {
        ebbi_flush_all(heap);
        ebbi_seats_flush(heap);
    }
    struct ebbi_pass pass = {.delay_ms = 0, .parks = parks};
    if (parks) {
        size_t came_home; // nothing yet: the pass then empties what sleeps
        (void)ebbi_park_pass(&came_home);
    }
    ebbi_purge_pass(&pass);
    ebbi_outside(inside);
    return ebbi_arena_purged_bytes() - before;
}
