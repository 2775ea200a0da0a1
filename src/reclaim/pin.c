// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: what pin and unpin do when one comparison is not enough, and the calls that a thread
// runs as it leaves a pin.
#include "heap/blocks.h"
#include "os/wake.h"
#include "reclaim/queues.h"

#define PRESSING_RECORDS 16
#define CALLS_AT_ONCE ((size_t)2 * EBBI_CALLS) // of a collector, by one unpin
#define RECORDS_KEPT 4                         // too young, that are no reason to come back
#define BAGS_AT_ONCE 16                        // and large objects
#define PATIENCE 8

// Attention is for NOW when it was noted in this pin: a signal handler's pins lie within this one, so
// the unpin that ends it is the program's. It is for LATER when an earlier unpin left some of the work:
// then the next pin may be a signal handler's, which must not do any. Such a handler runs with its
// own signal blocked.
enum due { NOTHING, LATER, NOW };

// The first pin of a record; or one as deep as can be, or within one that has work to do.
static void pin_attentive(struct ebb_participant *me)
{
    uint64_t state = ebbi_pin_state(me);
    if (ebbi_pin_depth(me) == 0) {
        if (me->now == &ebbi_clock.now) {
            ebbi_clock_choose();
        }
        ebbi_announce(me, me->due != NOTHING ? EBB_PIN_ATTENTION : 0);
    } else if (ebbi_pin_depth(me) < EBB_PIN_DEEPEST - 1) {
        ebbi_store_relaxed(&me->state, state + 1); // relaxed: the epoch stays as it is
    } else {
        ebbi_fatal("pins nested more than %d deep", (int)EBB_PIN_DEEPEST - 1);
    }
}

void ebbi_pin_slow(struct ebb_participant *me)
{
    if (!ebbi_pin_is_none(me)) {
        pin_attentive(me);
    } else if (ebbi_heap_mine() != NULL) {
        pin_attentive(&ebbi_current()->pin);
    } else {
        ebbi_late_pin();
    }
}

struct own {
    struct ebbi_heap *heap;
    struct ebbi_clock *clock;
    struct ebbi_deferred *deferred;
};

static bool is_default(const struct ebb_participant *me) { return me->now == &ebbi_clock.now; }

// What belongs to a participant of the calling thread, which has a heap.
static struct own own_of(struct ebb_participant *me)
{
    EBBI_ASSERT(ebbi_current() != &ebbi_heap_none && ebbi_current() != &ebbi_heap_gone);
    struct ebbi_heap *heap = (struct ebbi_heap *)ebbi_current();
    struct ebbi_record *record = (struct ebbi_record *)me;
    return is_default(me) ? (struct own){heap, &ebbi_clock, &heap->deferred}
                          : (struct own){heap, &record->collector->clock, &record->deferred};
}

// ---- work of unpins ------------------------------------------------------------------------------
struct turn {
    struct ebbi_expired expired;
    bool alone; // no helper will come
    bool more;  // some could go now
    bool waits; // some is too young
    size_t blocks_left;
};

static void attend_at(struct ebb_participant *me, enum due due)
{
    me->due = due;
    // release[unpin -> scan]: this may lie over what an unpin stored
    ebbi_store_release(&me->state, ebbi_pin_state(me) | EBB_PIN_ATTENTION);
}

// Under the heap's lock.
static void turn_to_calls(struct ebbi_clock *clock, struct ebbi_deferred *deferred,
                          struct turn *turn)
{
    // Twice what has come since the last time, if that is more: what waits shrinks again.
    uint32_t turns = ebbi_deferred_turns(deferred);
    uint32_t fresh = turns - deferred->turns_seen;
    size_t most = ebbi_max(CALLS_AT_ONCE, (size_t)2 * fresh);
    turn->more |= ebbi_deferred_take(clock, deferred, most, &turn->expired);
    // The last few wait for the next ones, or a helper; sealed for those who wait for what they free.
    if (turn->alone && deferred->first == NULL && deferred->hooked.sealed == 0 && fresh == 0) {
        ebbi_deferred_seal(clock, deferred);
    }
    deferred->turns_seen = turns;
    turn->waits |= ebbi_deferred_records(deferred) > RECORDS_KEPT;
}

// As above: of the collectors in which the thread is not pinned.
static void turn_to_records(struct ebbi_heap *heap, struct turn *turn)
{
    ebbi_assert_held(&heap->own.lock);
    for (struct ebbi_record *r = heap->records; r != NULL; r = r->next_of_heap) {
        if (ebbi_deferred_count(&r->deferred) > 0 && ebbi_pin_depth(&r->participant) == 0) {
            (void)ebbi_clock_advance(&r->collector->clock, turn->alone);
            turn_to_calls(&r->collector->clock, &r->deferred, turn);
        }
    }
}

// As above. What malloc will come for stays.
static void turn_to_bags(struct ebbi_heap *heap, struct turn *turn)
{
    ebbi_assert_held(&heap->own.lock);
    for (unsigned q = 0; q < EBBI_CLASS_COUNT && heap->limbo.bags > 0; q++) {
        struct ebbi_bag *bag = NULL;
        while (turn->blocks_left > 0 && ebbi_bag_has_surplus(heap, q) &&
               (bag = ebbi_bag_take_passed(heap, q)) != NULL) {
            bag->next = turn->expired.bags;
            turn->expired.bags = bag;
            turn->blocks_left--;
        }
        turn->waits |= ebbi_bag_has_surplus(heap, q);
    }
}

static void turn_to_large(struct ebbi_heap *heap, struct turn *turn)
{
    ebbi_assert_held(&heap->own.lock);
    void *p;
    while (turn->blocks_left > 0 && (p = ebbi_large_take_passed(heap)) != NULL) {
        ebbi_large_note(p)->next = turn->expired.large;
        turn->expired.large = p;
        turn->blocks_left--;
    }
    turn->waits |= heap->limbo.large_first != NULL;
}

static void turn_to_all(const struct own *own, bool with_blocks, struct turn *turn)
{
    ebbi_lock_take(&own->heap->own.lock);
    turn_to_calls(own->clock, own->deferred, turn);
    if (own->clock == &ebbi_clock) {
        turn_to_records(own->heap, turn);
    }
    if (with_blocks) {
        turn_to_bags(own->heap, turn);
        turn_to_large(own->heap, turn);
        turn->more |= turn->blocks_left == 0 && turn->waits;
    }
    ebbi_lock_drop(&own->heap->own.lock);
}

// True if there were any.
static bool send_home(struct ebbi_heap *heap, struct turn *turn)
{
    bool any = turn->expired.bags != NULL || turn->expired.large != NULL;
    for (struct ebbi_bag *bag; (bag = turn->expired.bags) != NULL;) {
        turn->expired.bags = bag->next;
        ebbi_bag_release(heap, bag);
        ebbi_own_send(bag);
    }
    for (void *p; (p = turn->expired.large) != NULL;) {
        turn->expired.large = ebbi_large_note(p)->next;
        ebbi_large_reclaim(p);
    }
    if (any) {
        ebbi_gather_alone();
        ebbi_purge_spans(); // not ebbi_purge_tick: that may take home all at once
    }
    return any | (ebbi_remains_purge(&turn->waits) > 0);
}

// Without a helper all that is too young keeps attention, unless it is something else than the clock
// that holds it back: a hazard pointer may last.
static bool wants_another(struct ebb_participant *me, const struct turn *turn, bool found)
{
    uint64_t now = ebbi_load_relaxed(me->now); // relaxed: a hint
    me->in_vain = found || me->looked == now ? 0 : me->in_vain + 1;
    me->looked = turn->more ? 0 : now;
    return turn->more || (turn->alone && turn->waits && me->in_vain < PATIENCE);
}

// A bounded part of what waits. What the calls pin and retire is left to the next unpins, and nothing
// of the participant is touched any more: a call may end its collector.
static void work(struct ebb_participant *me)
{
    EBBI_ASSERT(ebbi_pin_depth(me) == 0);
    struct own own = own_of(me);
    struct turn turn = {.alone = !ebbi_helper_is_there(), .blocks_left = BAGS_AT_ONCE};
    turn.expired.calls_end = &turn.expired.calls;
    bool press = turn.alone || ebbi_deferred_records(own.deferred) >= PRESSING_RECORDS;
    bool with_blocks = turn.alone && is_default(me);
    (void)ebbi_clock_advance(own.clock, press);
    turn_to_all(&own, with_blocks, &turn);
    bool found = turn.expired.calls != NULL || turn.expired.hooks > 0;
    found |= with_blocks && send_home(own.heap, &turn);
    if (wants_another(me, &turn, found)) {
        attend_at(me, LATER);
    }
    ebbi_limbo_release(&turn.expired);
}

// Nothing can have come about: somebody holds up the clock.
static bool is_stuck(struct ebb_participant *me)
{
    return me->due == LATER && me->looked != 0 && !ebbi_clock_advance(own_of(me).clock, true) &&
           me->looked == ebbi_load_relaxed(me->now); // relaxed: a hint
}

// True: it has done some of the work.
static bool leave_attentive(struct ebb_participant *me)
{
    EBBI_ASSERT(ebbi_pin_depth(me) == 1);
    struct ebbi_heap *heap = (struct ebbi_heap *)ebbi_current();
    uint64_t left = ebbi_pin_state(me) - 1;
    bool later =
        heap->runs_calls || is_stuck(me) || (me->due == LATER && ebbi_os_may_handle_signal());
    me->due = later ? LATER : NOTHING;
    left &= later ? ~(uint64_t)0 : ~EBB_PIN_ATTENTION;
    // release[unpin -> scan]: as in ebbi_unpin
    ebbi_store_release(&me->state, left);
    if (!later && ebbi_is_pinned(NULL)) {
        attend_at(&heap->fast.pin, NOW); // of another collector: when that pin ends
        return false;
    }
    if (!later) {
        work(me);
    }
    return !later;
}

bool ebbi_unpin_slow(struct ebb_participant *me)
{
    if (me == &ebbi_heap_gone.pin) {
        ebbi_late_unpin();
    } else if (ebbi_pin_is_none(me) || ebbi_pin_depth(me) == 0) {
        ebbi_fatal("unpin without a pin");
    } else if (ebbi_pin_depth(me) == 1) {
        return leave_attentive(me);
    } else {
        ebbi_store_relaxed(&me->state, ebbi_pin_state(me) - 1); // relaxed: still pinned
    }
    return false;
}

// Calls wait. They are looked at when the outermost pin ends, or now.
static void attend(struct ebb_participant *me, const struct own *own)
{
    if (ebbi_pin_depth(me) != 0) {
        attend_at(me, NOW);
    } else if (ebbi_is_pinned(NULL)) {
        attend_at(&own->heap->fast.pin, NOW);
    } else if (own->heap->runs_calls) {
        attend_at(me, LATER);
    } else {
        work(me);
    }
}

void ebbi_pin_attend_later(void)
{
    struct ebb_participant *me = &ebbi_current()->pin;
    if (!ebbi_pin_is_none(me) && !ebbi_helper_is_there()) {
        attend_at(me, ebbi_pin_depth(me) != 0 ? NOW : LATER);
    }
}

// The last few, of no full record, are left to the helper, or wait for the next ones.
static void look_after(struct ebb_participant *me, const struct own *own,
                       enum ebbi_deferral deferral)
{
    if (deferral == EBBI_SEALED) {
        attend(me, own);
    }
    ebbi_helper_kick();
}

bool ebbi_retire_with(struct ebbi_heap *heap, struct ebb_participant *me, struct ebbi_call call)
{
    // Its collector's pins would not hold the call back.
    if (heap == NULL && me != NULL && !is_default(me)) {
        ebbi_fatal("record %p of a collector used behind the end of its thread", (void *)me);
    }
    if (heap == NULL) {
        return ebbi_defer_late(call);
    }
    me = me != NULL ? me : &heap->fast.pin;
    struct own own = own_of(me);
    enum ebbi_deferral deferral = ebbi_defer(&heap->own.lock, own.clock, own.deferred, call);
    look_after(me, &own, deferral);
    return deferral != EBBI_REFUSED;
}

void ebbi_retire_hooked(struct ebbi_heap *heap, struct ebb_hook *hook)
{
    if (heap == NULL) {
        ebbi_defer_hook_late(hook);
        return;
    }
    struct ebb_participant *me = &heap->fast.pin;
    struct own own = own_of(me);
    look_after(me, &own, ebbi_defer_hook(&heap->own.lock, own.clock, own.deferred, hook));
}
