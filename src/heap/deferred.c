// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: calls that wait for a grace period. Under the lock of the heap they belong to, so that
// any thread can seal and run those of one that sleeps.
#include "heap/fast.h"

_Static_assert(sizeof(struct ebbi_calls) <= sizeof(struct ebbi_bag), "one size of block for both");

// Records of calls taken out of their queues and not run to the end. Raised under the lock of the
// queue, so whoever finds a queue empty and this 0 knows that all that was in it has run.
static size_t in_flight; // atomic

void ebbi_deferred_seal(struct ebbi_clock *clock, struct ebbi_deferred *deferred)
{
    struct ebbi_calls *calls = deferred->filling;
    if (calls == NULL || calls->count == 0) {
        return;
    }
    calls->tag = ebbi_clock_tag(clock);
    calls->next = NULL;
    *(deferred->first == NULL ? &deferred->first : &deferred->last->next) = calls;
    deferred->last = calls;
    deferred->filling = NULL;
    ebbi_store_relaxed(&deferred->sealed, deferred->sealed + 1); // relaxed: a hint outside
}

// Whether the record is full now and has been sealed.
static bool add(struct ebbi_clock *clock, struct ebbi_deferred *deferred, struct ebbi_call call)
{
    struct ebbi_calls *calls = deferred->filling;
    calls->calls[calls->count++] = call;
    deferred->count++;
    if (calls->count < EBBI_CALLS) {
        return false;
    }
    ebbi_deferred_seal(clock, deferred);
    return true;
}

enum ebbi_deferral ebbi_defer(struct ebbi_lock *lock, struct ebbi_clock *clock,
                              struct ebbi_deferred *deferred, struct ebbi_call call)
{
    struct ebbi_calls *fresh = NULL;
    ebbi_lock_take(lock);
    if (deferred->filling == NULL) {
        ebbi_lock_drop(lock);
        fresh = ebbi_alloc_own(sizeof *fresh);
        if (fresh == NULL) {
            return EBBI_REFUSED;
        }
        fresh->count = 0;
        ebbi_lock_take(lock);
    }
    if (deferred->filling == NULL) { // no other thread of its kind was faster
        deferred->filling = fresh;
        fresh = NULL;
    }
    bool sealed = add(clock, deferred, call);
    ebbi_lock_drop(lock);
    ebbi_free(fresh);
    return sealed ? EBBI_SEALED : EBBI_ADDED;
}

static bool holds_protected(const struct ebbi_calls *calls)
{
    for (size_t i = 0; i < calls->count; i++) {
        const struct ebbi_call *call = &calls->calls[i];
        size_t bytes = call->run == NULL ? ebbi_usable_size(call->p) : 1; // else not our block
        if (ebbi_hazard_protects(call->p, bytes)) {
            return true;
        }
    }
    return false;
}

void ebbi_deferred_take(struct ebbi_clock *clock, struct ebbi_deferred *deferred,
                        struct ebbi_expired *expired)
{
    struct ebbi_calls *held_back = NULL;
    while (deferred->first != NULL && ebbi_clock_passed(clock, deferred->first->tag)) {
        struct ebbi_calls *calls = deferred->first;
        deferred->first = calls->next;
        if (EBBI_UNLIKELY(ebbi_hazards_count() != 0) && holds_protected(calls)) {
            calls->next = held_back;
            held_back = calls;
            continue;
        }
        deferred->count -= calls->count;
        ebbi_store_relaxed(&deferred->sealed, deferred->sealed - 1); // relaxed: a hint outside
        (void)ebbi_fetch_add_relaxed(&in_flight, 1); // relaxed: under the lock; see in_flight
        calls->next = NULL;
        *expired->calls_end = calls;
        expired->calls_end = &calls->next;
    }
    while (held_back != NULL) { // oldest first again; they have passed and are looked at next time
        struct ebbi_calls *calls = held_back;
        held_back = calls->next;
        if (deferred->first == NULL) {
            deferred->last = calls;
        }
        calls->next = deferred->first;
        deferred->first = calls;
    }
}

void ebbi_calls_run(struct ebbi_calls *calls)
{
    struct ebbi_heap *heap = ebbi_heap_get();
    bool nested = heap != NULL && heap->runs_calls;
    if (heap != NULL) {
        heap->runs_calls = true;
    }
    for (size_t i = 0; i < calls->count; i++) {
        const struct ebbi_call *call = &calls->calls[i];
        if (call->run != NULL) {
            call->run(call->p, call->context);
        } else {
            ebbi_free(call->p);
        }
    }
    if (heap != NULL) {
        heap->runs_calls = nested;
    }
    ebbi_give_one(calls);
    // release[calls-run -> calls-done]: what the calls have done
    (void)ebbi_fetch_sub_release(&in_flight, 1);
}

bool ebbi_calls_in_flight(void)
{
    // acquire[calls-done <- calls-run]: what the calls have done
    return ebbi_load_acquire(&in_flight) != 0;
}

void ebbi_calls_forget(bool mine)
{
    ebbi_store_relaxed(&in_flight, (size_t)mine); // relaxed: there is no other thread
}
