// SPDX-License-Identifier: MIT OR Apache-2.0
// No reclamation at all: a retired node is freed at once, whoever may still read it.
// Unsafe by design, a floor: no scheme on top of this malloc can be cheaper.
#ifndef EBB_BENCH_RECLAIM_SCHEME_FREE_H
#define EBB_BENCH_RECLAIM_SCHEME_FREE_H

#include "node.h"

enum { SCHEME_COUNTS = 0 };

struct scheme_thread {
    char nothing;
};

static inline void scheme_open(void) {}
static inline void scheme_enter(struct scheme_thread *me) { (void)me; }
static inline void scheme_leave(struct scheme_thread *me) { (void)me; }
static inline void scheme_pin(struct scheme_thread *me) { (void)me; }
static inline void scheme_unpin(struct scheme_thread *me) { (void)me; }
static inline void scheme_poll(struct scheme_thread *me) { (void)me; }
static inline void scheme_flush(void) {}
static inline uint64_t scheme_unreclaimed(void) { return 0; }

static inline void scheme_retire(struct scheme_thread *me, struct node *node)
{
    (void)me;
    free(node);
}

#endif
