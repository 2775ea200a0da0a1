// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: calls that wait for a grace period. Under the lock of the heap they belong to, so that
// any thread can seal and run those of one that sleeps.
#include <string.h>

#include "heap/fast.h"

_Static_assert(sizeof(struct ebbi_calls) <= sizeof(struct ebbi_bag), "one size of block for both");

// Records of calls taken out of their queues and not run to the end. Raised under the lock of the
// queue, so whoever finds a queue empty and this 0 knows that all that was in it has run.
static size_t in_flight; // atomic
static size_t returned;  // atomic: went back to a queue, which may have been found empty before

// They are in one list, of all threads: the child of a fork puts back what the threads that it does not
// have had taken and not begun. A record comes here from its queue, and goes back there, under the lock
// of that; it begins, and ends, under this one: while fork() holds both, nothing of that happens.
static struct {
    struct ebbi_lock lock; // rank: heap; nothing is taken under it
    struct ebbi_calls *first;
} calls_taken;

static void taken_add(struct ebbi_calls *calls)
{
    (void)ebbi_fetch_add_relaxed(&in_flight, 1); // relaxed: under the queue's lock; see in_flight
    calls->taker = ebbi_lock_self();
    calls->runs = false;
    ebbi_lock_take(&calls_taken.lock);
    calls->taken_next = calls_taken.first;
    calls->taken_link = &calls_taken.first;
    if (calls_taken.first != NULL) {
        calls_taken.first->taken_link = &calls->taken_next;
    }
    calls_taken.first = calls;
    ebbi_lock_drop(&calls_taken.lock);
}

static void taken_begin(struct ebbi_calls *calls)
{
    ebbi_lock_take(&calls_taken.lock);
    EBBI_ASSERT(!calls->runs && calls->begun == 0 && calls->taker == ebbi_lock_self());
    calls->runs = true;
    ebbi_lock_drop(&calls_taken.lock);
}

static void taken_remove(struct ebbi_calls *calls)
{
    ebbi_lock_take(&calls_taken.lock);
    EBBI_ASSERT(*calls->taken_link == calls);
    *calls->taken_link = calls->taken_next;
    if (calls->taken_next != NULL) {
        calls->taken_next->taken_link = calls->taken_link;
    }
    ebbi_lock_drop(&calls_taken.lock);
}

// It has run, or is in a queue again.
static void taken_end(void)
{
    // release[calls-run -> calls-done]: what the calls have done, or that they went back
    (void)ebbi_fetch_sub_release(&in_flight, 1);
}

// ---- calls that free a block -------------------------------------------------------------------------
// Their context is its bytes. Those that wait for the default clock are under its limit.

static size_t call_bytes(const struct ebbi_call *call)
{
    bool is_block = call->run == ebbi_free_retired || call->run == ebbi_region_free_retired;
    return is_block ? (size_t)call->context : 0;
}

static void count_in(struct ebbi_deferred *deferred, size_t bytes)
{
    deferred->blocks += bytes != 0;
    deferred->bytes += bytes;
}

// Bytes.
static size_t count_out(struct ebbi_deferred *deferred, const struct ebbi_calls *calls)
{
    size_t bytes = 0;
    size_t most = deferred->blocks > 0 ? calls->count : 0;
    for (size_t i = 0; i < most; i++) {
        size_t more = call_bytes(&calls->calls[i]);
        bytes += more;
        deferred->blocks -= more != 0;
    }
    EBBI_ASSERT(bytes <= deferred->bytes);
    deferred->bytes -= bytes;
    if (bytes > 0 && calls->clock == &ebbi_clock) {
        ebbi_limbo_count(0, bytes);
    }
    return bytes;
}

// ---- in and out ------------------------------------------------------------------------------------

void ebbi_deferred_seal(struct ebbi_clock *clock, struct ebbi_deferred *deferred)
{
    struct ebbi_calls *calls = deferred->filling;
    if (calls == NULL || calls->count == 0) {
        return;
    }
    EBBI_ASSERT(calls->clock == clock && calls->count <= EBBI_CALLS && calls->begun == 0);
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
    EBBI_ASSERT(deferred->filling != NULL && deferred->filling->count < EBBI_CALLS);
    EBBI_ASSERT(deferred->filling->clock == clock);
    struct ebbi_calls *calls = deferred->filling;
    calls->calls[calls->count++] = call;
    deferred->count++;
    calls->bytes += call_bytes(&call);
    count_in(deferred, call_bytes(&call));
    if (calls->count < EBBI_CALLS && calls->bytes < EBBI_LIMBO_BYTES) {
        return false;
    }
    ebbi_deferred_seal(clock, deferred);
    return true;
}

enum ebbi_deferral ebbi_defer(struct ebbi_lock *lock, struct ebbi_clock *clock,
                              struct ebbi_deferred *deferred, struct ebbi_call call)
{
    struct ebbi_calls *fresh = NULL;
    size_t bytes = clock == &ebbi_clock ? call_bytes(&call) : 0;
    if (bytes > 0) { // may call the program, so without a lock, and before they can be counted out
        ebbi_limbo_count(bytes, 0);
    }
    ebbi_lock_take(lock);
    if (deferred->filling == NULL) {
        ebbi_lock_drop(lock);
        fresh = ebbi_alloc_own(sizeof *fresh);
        if (fresh == NULL) {
            ebbi_limbo_count(0, bytes);
            return EBBI_REFUSED;
        }
        fresh->count = fresh->begun = 0;
        fresh->bytes = 0;
        fresh->clock = clock;
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

static bool first_passed(struct ebbi_clock *clock, const struct ebbi_deferred *deferred)
{
    return deferred->first != NULL && ebbi_clock_passed(clock, deferred->first->tag);
}

static EBBI_NOINLINE bool holds_protected(const struct ebbi_calls *calls)
{
    struct ebbi_suspects suspects;
    ebbi_suspects_start(&suspects);
    for (size_t i = 0; i < calls->count; i++) {
        const struct ebbi_call *call = &calls->calls[i];
        if (call->p != NULL) {
            ebbi_suspects_add(&suspects, call->p, ebbi_max(call_bytes(call), 1));
        }
    }
    return ebbi_suspects_any(&suspects);
}

bool ebbi_deferred_take(struct ebbi_clock *clock, struct ebbi_deferred *deferred, size_t most,
                        struct ebbi_expired *expired)
{
    struct ebbi_calls *held_back = NULL;
    while (first_passed(clock, deferred) && deferred->first->count <= most) {
        struct ebbi_calls *calls = deferred->first;
        deferred->first = calls->next;
        if (EBBI_UNLIKELY(ebbi_hazards_count() != 0) && holds_protected(calls)) {
            calls->next = held_back;
            held_back = calls;
            continue;
        }
        most -= calls->count;
        EBBI_ASSERT(deferred->count >= calls->count && deferred->sealed > 0 &&
                    calls->clock == clock);
        deferred->count -= calls->count;
        expired->bytes += count_out(deferred, calls);
        ebbi_store_relaxed(&deferred->sealed, deferred->sealed - 1); // relaxed: a hint outside
        taken_add(calls);
        calls->next = NULL;
        *expired->calls_end = calls;
        expired->calls_end = &calls->next;
    }
    bool more = first_passed(clock, deferred);
    while (held_back != NULL) { // oldest first again; they have passed and are looked at next time
        struct ebbi_calls *calls = held_back;
        held_back = calls->next;
        if (deferred->first == NULL) {
            deferred->last = calls;
        }
        calls->next = deferred->first;
        deferred->first = calls;
    }
    return more;
}

void ebbi_deferred_put(struct ebbi_deferred *deferred, struct ebbi_calls *calls)
{
    EBBI_ASSERT(calls->count > 0 && calls->begun == 0);
    taken_remove(calls);
    deferred->last = deferred->first == NULL ? calls : deferred->last;
    calls->next = deferred->first;
    deferred->first = calls;
    deferred->count += calls->count;
    size_t bytes = 0;
    for (size_t i = 0; i < calls->count; i++) {
        size_t more = call_bytes(&calls->calls[i]);
        bytes += more;
        count_in(deferred, more);
    }
    if (calls->clock == &ebbi_clock) {
        (void)ebbi_fetch_add_relaxed(&ebbi_limbo_waiting_bytes, bytes); // relaxed: a count
    }
    ebbi_store_relaxed(&deferred->sealed, deferred->sealed + 1); // relaxed: a hint outside
}

// The first record of the list, where it stays until all its calls have run.
static void run_record(struct ebbi_calls **list)
{
    struct ebbi_calls *calls = *list;
    EBBI_ASSERT(calls->count <= EBBI_CALLS && calls->begun == 0);
    taken_begin(calls);
    while (calls->begun < calls->count) {
        const struct ebbi_call *call = &calls->calls[calls->begun++];
        call->run(call->p, call->context);
    }
    *list = calls->next;
    taken_remove(calls);
    ebbi_give_one(calls);
    taken_end();
}

// A call may run others (ebb_reclaim): they come first in the list, and are out of it in the end.
static void run_list(struct ebbi_calls **list, struct ebbi_calls *first, struct ebbi_calls **end)
{
    struct ebbi_calls *outer = *list;
    *end = outer;
    *list = first;
    while (*list != outer) {
        run_record(list);
    }
}

void ebbi_calls_run(struct ebbi_calls *first, struct ebbi_calls **end)
{
    struct ebbi_heap *heap = ebbi_heap_get();
    struct ebbi_calls *list = NULL;
    if (heap == NULL) {
        run_list(&list, first, end);
        return;
    }
    bool nested = heap->runs_calls;
    if (!nested) {
        heap->run_frame = __builtin_frame_address(0);
    }
    heap->runs_calls = true;
    run_list(&heap->running, first, end);
    heap->runs_calls = nested;
    if (!nested) {
        ebbi_collectors_bury(heap);
    }
}

// Those that have not begun.
static void put_back(struct ebbi_calls *calls)
{
    EBBI_ASSERT(calls->begun < calls->count && calls->count <= EBBI_CALLS);
    calls->count -= calls->begun;
    memmove(calls->calls, calls->calls + calls->begun, calls->count * sizeof calls->calls[0]);
    calls->begun = 0;
    ebbi_late_put(calls);
    (void)ebbi_fetch_add_relaxed(&returned, 1); // relaxed: before in_flight is lowered
}

void ebbi_calls_attach(struct ebbi_heap *heap)
{
    heap->runs_calls = heap->buries = false;
    heap->running = NULL;
    heap->doomed = NULL;
}

void ebbi_calls_abandon(struct ebbi_heap *heap)
{
    if (heap->running != NULL) {
        ebbi_helper_abandon();
    }
    while (heap->running != NULL) {
        struct ebbi_calls *calls = heap->running;
        heap->running = calls->next;
        if (calls->begun < calls->count) {
            put_back(calls);
        } else {
            taken_remove(calls);
            ebbi_give_one(calls);
        }
        taken_end();
    }
    heap->runs_calls = heap->buries = false;
    ebbi_collectors_bury(heap);
}

bool ebbi_calls_in_flight(void)
{
    // acquire[calls-done <- calls-run]: what the calls have done
    return ebbi_load_acquire(&in_flight) != 0;
}

size_t ebbi_calls_returned(void)
{
    return ebbi_load_relaxed(&returned); // relaxed: ordered by in_flight
}

void ebbi_calls_lock(void) { ebbi_lock_take(&calls_taken.lock); }
void ebbi_calls_unlock(void) { ebbi_lock_drop(&calls_taken.lock); }

void ebbi_calls_forked(void)
{
    size_t own = 0;
    for (struct ebbi_calls *next, *calls = calls_taken.first; calls != NULL; calls = next) {
        next = calls->taken_next;
        if (calls->taker == ebbi_lock_self()) {
            own++;
            continue;
        }
        if (calls->runs) {
            taken_remove(calls);
        } else {
            put_back(calls);
        }
    }
    ebbi_store_relaxed(&in_flight, own); // relaxed: there is no other thread
}
