// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: what is free and may be returned. A slab into which blocks came back joins its owner's queue;
// once nothing has happened to it for the delay, its wholly free pages are returned. Whatever the time, an owner's
// slabs and the whole arena each keep to
//
//     in use + free   <=   most in use lately + the larger of a part of that and a constant      with a helper
//              free   <=   the larger of a part of what is in use and a constant, + room         without
//
// oldest first. What swings between two sizes would fault its pages in again at each swing; its memory was
// resident at the peak, so the peak grows by nothing. "Lately" is since the pass before the last (base/peak.h).
// Without a helper the free that ends a burst may be the last call for long. So its bound is not of the peak, and
// what swings above it would fault pages in all the same: what goes before the delay is over and is taken again
// within it makes as much room, up to the constant once more; purges that cost nothing take the room away again.
#include <limits.h>

#include "base/list.h"
#include "debug/check.h"
#include "heap/blocks.h"
#include "os/options.h"
#include "os/wake.h"

#define RETRY_MS 4000u // beyond the delay, until what the OS has refused to take is offered again
#define SLABS_AT_ONCE 128 // per visit of a pass
#define SLABS_A_CALL 4    // by amount: a free does not take long
#define SPANS_KEPT ((size_t)32 << 20)
#define SPANS_KEPT_ALONE ((size_t)48 << 20)
#define BLOCKS_KEPT ((size_t)8 << 20)
#define BLOCKS_KEPT_AMONG                                                                          \
    ((size_t)2 << 20) // without a helper, of several threads: there are several owners
#define SPANS_PART 2  // of the peak, what may stay beyond it
#define BLOCKS_PART 2 // the same, and of what is in use
#define ROOM_PART 4   // that goes, of what is there
#define MOST_LOST 3   // of the peak, without a helper: in use is less than one in so many
#define AMOUNT_STEP ((size_t)64 << 10) // freed between two looks at the amounts

void ebbi_purge_note(struct ebbi_owner *owner, struct ebbi_slab *slab)
{
    ebbi_assert_held(&owner->lock);
    EBBI_ASSERT(slab->owner == owner);
    if (slab->purge_queued ||
        (size_t)slab->free_count * ebbi_slab_class(slab)->size < ebbi_os_page_size()) {
        return;
    }
    slab->purge_queued = true;
    EBBI_QUEUE_APPEND(owner->purge_first, owner->purge_last, slab, purge_next, purge_previous);
}

void ebbi_purge_unnote(struct ebbi_owner *owner, struct ebbi_slab *slab)
{
    ebbi_assert_held(&owner->lock);
    EBBI_ASSERT(slab->owner == owner);
    if (!slab->purge_queued) {
        return;
    }
    slab->purge_queued = false;
    EBBI_QUEUE_REMOVE(owner->purge_first, owner->purge_last, slab, purge_next, purge_previous);
}

// With huge pages, only whole ones are returned: to split one costs the program more.
static size_t purge_stride(void)
{
    static size_t known;
    size_t stride = ebbi_load_relaxed(&known); // relaxed: every writer stores the same value
    if (stride == 0) {
        stride = ebbi_dense_everywhere() ? (size_t)2 << 20 : ebbi_os_page_size();
        ebbi_store_relaxed(&known, stride); // relaxed: as above
    }
    return stride;
}

static uint32_t delay_of_purges(void) { return (uint32_t)ebbi_option(EBBI_OPTION_PURGE_DELAY); }

// Behind a purge, whatever came of it.
static void note_pinned(struct ebbi_owner *owner, struct ebbi_slab *slab)
{
    size_t pinned = ebbi_slab_pinned(slab);
    ebbi_owner_count_free(owner, slab, 0, (int64_t)pinned - (int64_t)slab->pinned_bytes);
    slab->pinned_bytes = (uint32_t)pinned;
}

// Of a slab that nothing was returned of, as whole huge pages are more than it has. Without blocks it is current: the
// arena may have what is around it, too.
static void end_if_empty(struct ebbi_owner *owner, struct ebbi_slab *slab)
{
    if (slab->free_count == ebbi_slab_class(slab)->blocks) {
        ebbi_shelf_set_current(owner, slab->class_number, NULL);
    }
}

// The lock is not held while the kernel works: the slab is `purging`, in no bucket, meanwhile, so that its
// blocks only come back.
static void purge_slab(struct ebbi_owner *owner, struct ebbi_slab *slab)
{
    ebbi_assert_held(&owner->lock);
    EBBI_ASSERT(!slab->purging && slab->purge_queued);
    struct ebbi_slab_plan plan;
    ebbi_purge_unnote(owner, slab);
    if (ebbi_check_is_on() && slab->class_number != EBBI_CLASS_EMPTY) {
        ebbi_vacant_look_in(owner, slab); // before what was written there goes
        ebbi_shelf_drop_full(owner, slab);
    }
    EBBI_ASSERT(owner->dirty_bytes >= (size_t)slab->dirty_blocks * ebbi_slab_class(slab)->size);
    bool early = owner->clock_ms - slab->touched < delay_of_purges();
    size_t dirty = slab->dirty_blocks;
    ebbi_owner_count_free(owner, slab, -(int64_t)dirty, 0);
    slab->dirty_blocks = 0;
    ebbi_slab_plan(slab, purge_stride(), &plan);
    if (plan.count == 0) {
        note_pinned(owner, slab);
        end_if_empty(owner, slab);
        return;
    }
    ebbi_shelf_send_away(owner, slab);
    ebbi_lock_drop(&owner->lock);
    size_t bytes = ebbi_slab_carry_out(&plan);
    ebbi_arena_count_purged(bytes);
    ebbi_lock_take(&owner->lock);
    EBBI_ASSERT(slab->purging && slab->owner == owner);
    bool all = ebbi_slab_carried_out(slab, &plan);
    if (early) {
        size_t gone = ebbi_min(dirty, bytes / ebbi_slab_class(slab)->size);
        slab->early_blocks = (uint16_t)(slab->early_blocks + gone);
        slab->early_ms = owner->clock_ms;
    }
    note_pinned(owner, slab);
    if (!all) {
        slab->touched = owner->clock_ms + RETRY_MS;
        ebbi_purge_note(owner, slab);
    }
    ebbi_shelf_return(owner, slab);
}

void ebbi_purge_forked(struct ebbi_owner *owner, void *context)
{
    ebbi_assert_held(&owner->lock);
    (void)context;
    while (owner->purging != NULL) {
        ebbi_shelf_return(owner, owner->purging);
    }
}

// Looks at the queue once around, at most at so many slabs. True: slabs have left it, and there are others that were not
// looked at.
static bool purge_queue(struct ebbi_owner *owner, size_t delay_ms, int most)
{
    ebbi_assert_held(&owner->lock);
    struct ebbi_slab *last = owner->purge_last;
    bool once_around = false, leaves = false;
    for (int i = 0; i < most && owner->purge_first != NULL && !once_around; i++) {
        struct ebbi_slab *slab = owner->purge_first;
        once_around = slab == last;
        if (slab->purging) {
            ebbi_purge_unnote(owner, slab); // its next free block notes it again
        } else if ((int32_t)(owner->clock_ms - slab->touched) < (int32_t)delay_ms) {
            ebbi_purge_unnote(owner, slab); // to the end
            ebbi_purge_note(owner, slab);
        } else {
            purge_slab(owner, slab);
            leaves = true;
        }
    }
    return leaves && !once_around && owner->purge_first != NULL;
}

void ebbi_owner_turn_peak(struct ebbi_owner *owner)
{
    ebbi_assert_held(&owner->lock);
    ebbi_peak_turn(&owner->peak, owner->out_bytes);
}

// Slabs that had nothing to give leave the queue as well: what lies behind them does not wait for the next pass.
bool ebbi_purge_old(struct ebbi_owner *owner, size_t delay_ms)
{
    return purge_queue(owner, delay_ms, SLABS_AT_ONCE);
}

void ebbi_purge_ended(struct ebbi_owner *owner)
{
    if (!ebbi_helper_is_there() && !ebbi_keeps_freed()) {
        (void)purge_queue(owner, 0, INT_MAX);
    }
}

static size_t rooms; // of all owners; atomic

static void set_room(struct ebbi_owner *owner, size_t bytes)
{
    (void)ebbi_fetch_add_relaxed(&rooms, bytes - owner->room_bytes); // relaxed: a number
    owner->room_bytes = bytes;
    owner->room_ms = owner->clock_ms;
}

void ebbi_purge_rest(struct ebbi_owner *owner) { set_room(owner, 0); }

static size_t below_peak(size_t peak, size_t used, size_t part, size_t least)
{
    size_t most = peak + ebbi_max(peak / part, least);
    return most > used ? most - used : 0;
}

// Somebody comes later, or nobody is to come: then what was in use within the delay bounds what stays.
static bool goes_by_peak(void) { return ebbi_helper_is_there() || ebbi_keeps_freed(); }

// A program that replaces large objects one by one has holes as large as half of what it uses. Without a helper
// nobody may come later: what has lost most of its peak keeps no more than it uses, owners' rooms not counted.
static size_t spans_kept(size_t peak, size_t used)
{
    size_t kept = below_peak(peak, used, SPANS_PART, SPANS_KEPT);
    if (goes_by_peak()) {
        return kept;
    }
    used -= ebbi_min(used, ebbi_load_relaxed(&rooms)); // relaxed: a number
    size_t alone = ebbi_max(used, SPANS_KEPT_ALONE);
    return used < peak / MOST_LOST ? alone : ebbi_max(kept, SPANS_KEPT_ALONE);
}

void ebbi_purge_spans(void)
{
    size_t dirty = ebbi_arena_dirty_bytes();
    size_t used = ebbi_arena_used_bytes();
    size_t allowed = spans_kept(ebbi_arena_peak_bytes(), used);
    // relaxed: set by this thread, which may hold the arena's lock, or of no matter
    if (EBBI_UNLIKELY(dirty > allowed) && !ebbi_load_relaxed(&ebbi_dying)) {
        (void)ebbi_arena_purge(ebbi_os_now_ms(), 0, dirty - allowed + allowed / 4);
    }
}

static size_t least_kept(void)
{
    return ebbi_os_is_threaded() && !ebbi_helper_is_there() ? BLOCKS_KEPT_AMONG : BLOCKS_KEPT;
}

void ebbi_purge_regret(struct ebbi_owner *owner, const struct ebbi_slab *slab, size_t blocks)
{
    ebbi_assert_held(&owner->lock);
    if (owner->clock_ms - slab->early_ms < delay_of_purges()) {
        size_t room = owner->room_bytes + blocks * ebbi_slab_class(slab)->size;
        set_room(owner, ebbi_min(room, least_kept()));
    }
}

static void forget_room(struct ebbi_owner *owner)
{
    if (owner->clock_ms - owner->room_ms >= delay_of_purges()) {
        set_room(owner, owner->room_bytes - owner->room_bytes / ROOM_PART);
    }
}

// Bytes that may be free.
static size_t blocks_kept(const struct ebbi_owner *owner)
{
    size_t least = least_kept();
    if (goes_by_peak()) {
        return below_peak(ebbi_peak_bytes(&owner->peak), owner->out_bytes, BLOCKS_PART, least);
    }
    return ebbi_max(owner->out_bytes / BLOCKS_PART, least) + owner->room_bytes;
}

void ebbi_purge_blocks(struct ebbi_owner *owner)
{
    ebbi_assert_held(&owner->lock);
    if (owner->freed_bytes < AMOUNT_STEP) {
        return;
    }
    owner->freed_bytes = 0;
    ebbi_peak_see(&owner->peak, owner->out_bytes);
    if (owner->dirty_bytes > blocks_kept(owner)) {
        forget_room(owner);
        (void)purge_queue(owner, 0, SLABS_A_CALL);
    }
}
