// SPDX-License-Identifier: MIT OR Apache-2.0
// The inline half of hazard pointers (src/reclaim/hazard.c has the other). Not part of the API: include
// <ebbtide/reclaim.h>.
#ifndef EBB_DETAIL_HAZARD_H
#define EBB_DETAIL_HAZARD_H

#include "ebbtide/detail/pin.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebbi_hazards;

struct ebb_hazard {
    EBBI_ATOMIC(void *) held;     // NULL: nothing
    struct ebbi_hazards *row;     // that it is one of
    struct ebb_hazard *next_free; // of those that are closed
    const void *owner;            // the thread that opened it, as ebbi_thread_mark; NULL: closed
    const void *user; // the one that has set it last, if any has: it may have been handed on
} __attribute__((aligned(64)));

// Protects p, which counts only if it can still be reached after this call.
static inline void ebb_hazard_set(struct ebb_hazard *hazard, void *p)
{
#ifndef EBB_MODEL
    hazard->user = ebbi_thread_mark(); // the child of its fork() keeps the protection
#endif
    // full[hazard-set <-> stamp]: either the reclaimer sees the hazard, or this thread sees that the
    // block is unlinked
    // release[hazard-set -> hazard-scan]: what this thread read of the block before
    ebbi_store_full(&hazard->held, p);
}

// Loads *source and protects the block, which is safe to use until the next call for this hazard
// pointer. Lock-free: repeats while *source changes.
static inline void *ebb_hazard_protect(struct ebb_hazard *hazard, EBBI_ATOMIC(void *) const *source)
{
    void *p = ebbi_load_relaxed(source); // relaxed: a guess, checked below
    for (;;) {
        ebb_hazard_set(hazard, p);
        // acquire[hazard-protect <- program]: the contents, from whoever linked the block
        void *again = ebbi_load_acquire(source);
        if (again == p) {
            return p;
        }
        p = again;
    }
}

// Ends the protection.
static inline void ebb_hazard_clear(struct ebb_hazard *hazard)
{
    // release[hazard-clear -> hazard-scan]: this thread has done with the block
    ebbi_store_release(&hazard->held, (void *)0);
}

#ifdef __cplusplus
}
#endif

#endif
