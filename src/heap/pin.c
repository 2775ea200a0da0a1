// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: what pin and unpin do when one comparison is not enough, and the calls that a thread
// runs as it leaves a pin.
//
// A thread that has no heap for good (its last destructors run, or memory was refused to its first
// pin) shares one participant with the others of its kind: that is pinned while any of them is. A
// thread that joins an older pin is as safe as if it had been pinned all along.
#include "heap/fast.h"
#include "os/options.h"

#define TURNS 16
#define PRESSING_RECORDS 16

static struct {
    struct ebbi_lock lock; // rank: heap
    struct ebb_participant participant;
    bool joined;
    size_t pins;
    struct ebbi_deferred deferred;
} late;

static uint64_t state_of(const struct ebb_participant *me)
{
    return ebbi_load_relaxed(&me->state); // relaxed: its own
}

static bool is_none(const struct ebb_participant *me)
{
    return (state_of(me) & EBB_PIN_DEPTH) == EBB_PIN_NONE;
}

static uint64_t depth_of(const struct ebb_participant *me)
{
    return state_of(me) & EBB_PIN_DEPTH & ~EBB_PIN_ATTENTION;
}

static void decide(void)
{
    ebbi_clock_decide(&ebbi_clock, ebbi_option(EBBI_OPTION_PIN_FENCE) != 0);
}

static void late_pin(void)
{
    ebb_self = (char *)&ebbi_heap_gone; // for good: unpin has to find the way back here
    ebbi_lock_take(&late.lock);
    if (!late.joined) {
        late.joined = true;
        ebbi_clock_join(&ebbi_clock, &late.participant);
        decide();
    }
    if (late.pins++ == 0) {
        ebbi_announce(&late.participant, 0);
    }
    ebbi_lock_drop(&late.lock);
}

static void late_unpin(void)
{
    ebbi_lock_take(&late.lock);
    bool pinned = late.pins > 0;
    if (pinned && --late.pins == 0) {
        // release[unpin -> scan]: as in ebbi_unpin
        ebbi_store_release(&late.participant.state, state_of(&late.participant) - 1);
    }
    ebbi_lock_drop(&late.lock);
    if (!pinned) {
        ebbi_fatal("unpin without a pin");
    }
}

// Which of its kind is pinned is not known.
static bool late_is_pinned(void)
{
    ebbi_lock_take(&late.lock);
    bool pinned = late.pins > 0;
    ebbi_lock_drop(&late.lock);
    return pinned;
}

void ebbi_late_lock(void) { ebbi_lock_take(&late.lock); }
void ebbi_late_unlock(void) { ebbi_lock_drop(&late.lock); }

struct ebb_participant *ebbi_late_participant(void)
{
    return ebbi_current() == &ebbi_heap_gone && late.joined ? &late.participant : NULL;
}

void ebbi_late_forget(void)
{
    if (ebbi_late_participant() == NULL) {
        late.joined = false;
        late.pins = 0;
    }
}

void ebbi_late_take(struct ebbi_expired *expired)
{
    ebbi_lock_take(&late.lock);
    ebbi_deferred_seal(&ebbi_clock, &late.deferred);
    ebbi_deferred_take(&ebbi_clock, &late.deferred, expired);
    expired->waiting |= late.deferred.count > 0;
    ebbi_lock_drop(&late.lock);
}

// The first pin of a record; or one as deep as can be, or within one that has work to do.
static void pin_attentive(struct ebb_participant *me)
{
    uint64_t state = state_of(me);
    if (depth_of(me) == 0) {
        if (me->now == &ebbi_clock.now) {
            decide();
        }
        ebbi_announce(me, 0);
    } else if (depth_of(me) < EBB_PIN_DEEPEST - 1) {
        ebbi_store_relaxed(&me->state, state + 1); // relaxed: the epoch stays as it is
    } else {
        ebbi_fatal("pins nested more than %d deep", (int)EBB_PIN_DEEPEST - 1);
    }
}

void ebb_pin_slow(struct ebb_participant *me)
{
    if (!is_none(me)) {
        pin_attentive(me);
    } else if (ebbi_heap_get() != NULL) {
        pin_attentive(&ebbi_current()->pin);
    } else {
        late_pin();
    }
}

struct own {
    struct ebbi_heap *heap;
    struct ebbi_clock *clock;
    struct ebbi_deferred *deferred;
};

// What belongs to a participant of the calling thread, which has a heap.
static struct own own_of(struct ebb_participant *me)
{
    struct ebbi_heap *heap = (struct ebbi_heap *)ebbi_current();
    struct ebbi_record *record = (struct ebbi_record *)me;
    return me == &heap->fast.pin ? (struct own){heap, &ebbi_clock, &heap->deferred}
                                 : (struct own){heap, &record->collector->clock, &record->deferred};
}

// Calls whose time has come. What a call pins and retires is left to the loop outside.
static void run_own(const struct own *own)
{
    struct ebbi_expired expired;
    if (own->heap->runs_calls) {
        return;
    }
    expired = (struct ebbi_expired){.calls_end = &expired.calls};
    // relaxed: a hint
    bool press = ebbi_load_relaxed(&own->deferred->sealed) >= PRESSING_RECORDS;
    (void)ebbi_clock_advance(own->clock, press);
    ebbi_lock_take(&own->heap->lock);
    ebbi_deferred_take(own->clock, own->deferred, &expired);
    ebbi_lock_drop(&own->heap->lock);
    ebbi_limbo_release(&expired);
}

// The flag goes before anything is run: a signal handler that pins from here on has no work to do.
static void leave_attentive(struct ebb_participant *me)
{
    struct own own = own_of(me);
    // release[unpin -> scan]: as in ebbi_unpin
    ebbi_store_release(&me->state, (state_of(me) & ~EBB_PIN_ATTENTION) - 1);
    if (!ebbi_is_pinned(NULL)) { // of another collector, within a pin of the default one: later
        run_own(&own);
    }
}

void ebb_unpin_slow(struct ebb_participant *me)
{
    if (me == &ebbi_heap_gone.pin) {
        late_unpin();
    } else if (is_none(me) || depth_of(me) == 0) {
        ebbi_fatal("unpin without a pin");
    } else if (depth_of(me) == 1) {
        leave_attentive(me);
    } else {
        ebbi_store_relaxed(&me->state, state_of(me) - 1); // relaxed: still pinned
    }
}

bool ebbi_is_pinned(struct ebbi_collector *collector)
{
    struct ebb_participant *me = &ebbi_current()->pin;
    if (me == &ebbi_heap_gone.pin) {
        return collector == NULL && late_is_pinned();
    }
    if (is_none(me)) {
        return false;
    }
    if (collector != NULL) {
        struct ebbi_record *record =
            ebbi_record_of_mine((struct ebbi_heap *)ebbi_current(), collector);
        return record != NULL && depth_of(&record->participant) != 0;
    }
    return depth_of(me) != 0;
}

// Calls wait. They are looked at when the outermost pin ends, or now.
static void attend(struct ebb_participant *me, const struct own *own)
{
    if (depth_of(me) != 0) {
        // relaxed: for this thread
        ebbi_store_relaxed(&me->state, state_of(me) | EBB_PIN_ATTENTION);
    } else if (!ebbi_is_pinned(NULL)) {
        run_own(own);
    }
}

// The last few, of no full record, are left to the helper. Without one they are sealed every n-th
// time, so that they go on with the others.
static bool is_due(const struct own *own, enum ebbi_deferral deferral)
{
    if (deferral == EBBI_SEALED || ebbi_helper_wanted() || ++own->deferred->turns % TURNS != 0) {
        return deferral == EBBI_SEALED;
    }
    ebbi_lock_take(&own->heap->lock);
    ebbi_deferred_seal(own->clock, own->deferred);
    ebbi_lock_drop(&own->heap->lock);
    return true;
}

bool ebbi_retire_with(struct ebb_participant *me, struct ebbi_call call)
{
    struct ebbi_heap *heap = ebbi_heap_get();
    if (heap == NULL) {
        return ebbi_defer(&late.lock, &ebbi_clock, &late.deferred, call) != EBBI_REFUSED;
    }
    me = me != NULL ? me : &heap->fast.pin;
    struct own own = own_of(me);
    enum ebbi_deferral deferral = ebbi_defer(&heap->lock, own.clock, own.deferred, call);
    if (deferral != EBBI_REFUSED && is_due(&own, deferral)) {
        attend(me, &own);
    }
    ebbi_helper_kick();
    return deferral != EBBI_REFUSED;
}
