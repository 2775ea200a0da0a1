// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: the record of calls that fills; heap/limbo.h has the picture and F1 to F3.
#ifndef EBB_RECLAIM_RECORD_H
#define EBB_RECLAIM_RECORD_H

#include "heap/limbo.h"

// Adds a call of the calling thread's that frees `bytes`, or none, without a lock. False: nothing is done, and the
// slow way is to be taken; so with the first call of a record, since the helper is told of what waits, and the last, and
// with a destructor behind blocks (F4).
EBBI_INLINE bool ebbi_defer_append(struct ebbi_deferred *deferred, struct ebbi_call call,
                                   size_t bytes)
{
    struct ebbi_calls *calls = deferred->filling;
    if (calls == NULL) {
        return false;
    }
    size_t before = deferred->filling_bytes;
    if (bytes == 0 && EBBI_UNLIKELY(before != 0) && calls->clock == &ebbi_clock) {
        return false;
    }
    size_t sum = before + bytes;
    uint32_t count = ebbi_load_relaxed(&calls->state); // relaxed: compared below
    if (count - 1 >= EBBI_CALLS - 2 || (bytes > 0 && sum >= EBBI_LIMBO_BYTES)) {
        return false;
    }
    calls->calls[count] = call;
    if (bytes > 0) {
        ebbi_store_relaxed(&deferred->filling_bytes, sum); // relaxed: the next line's
    }
    // release[call-append -> record-close]: the call, and what it is to be called with
    return ebbi_cas_release(&calls->state, &count, count + 1);
}

// Calls so far; 0 when it is closed, or there is none. Under the lock, as are the next two.
EBBI_INLINE uint32_t ebbi_record_count(const struct ebbi_calls *calls)
{
    // acquire[record-close <- call-append]: these calls
    uint32_t state = calls != NULL ? ebbi_load_acquire(&calls->state) : 0;
    return state < EBBI_CALLS_CLOSED ? state : 0;
}

EBBI_INLINE bool ebbi_record_is_open(const struct ebbi_calls *calls)
{
    return ebbi_load_relaxed(&calls->state) < EBBI_CALLS_CLOSED; // relaxed: closed under the lock
}

// It is open and has calls.
EBBI_INLINE void ebbi_record_close(struct ebbi_calls *calls)
{
    // acquire[record-close <- call-append]: calls that have come since they were counted
    calls->count = (uint8_t)ebbi_fetch_or_acquire(&calls->state, EBBI_CALLS_CLOSED);
}

// LEFT or DONE, of one that is closed. True: the other has been said, and the record is the caller's.
EBBI_INLINE bool ebbi_record_let_go(struct ebbi_calls *calls, uint32_t what)
{
    // release[record-first -> record-second]: what this side has done with it, before the other frees it
    // acquire[record-second <- record-first]: the same, from the other side
    uint32_t before = ebbi_fetch_or_acq_rel(&calls->state, what);
    EBBI_ASSERT((before & EBBI_CALLS_CLOSED) != 0 && (before & what) == 0);
    return (before & (EBBI_CALLS_LEFT | EBBI_CALLS_DONE)) != 0;
}

#endif
