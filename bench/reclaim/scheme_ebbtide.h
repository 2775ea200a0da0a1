// SPDX-License-Identifier: MIT OR Apache-2.0
// Ebbtide's default collector, pins inline: a full fence only when its clock has moved on.
// (Where the kernel knows no membarrier, or with EBB_PIN_FENCE=1, one in every pin.)
#ifndef EBB_BENCH_RECLAIM_SCHEME_EBBTIDE_H
#define EBB_BENCH_RECLAIM_SCHEME_EBBTIDE_H

#include "ebbtide_count.h"
#include "node.h"

enum { SCHEME_COUNTS = 1 };

struct scheme_thread {
    char nothing;
};

static inline void scheme_open(void) { scheme_live_at_open = scheme_live_blocks(); }
static inline void scheme_enter(struct scheme_thread *me) { (void)me; }
static inline void scheme_leave(struct scheme_thread *me) { (void)me; }
static inline void scheme_poll(struct scheme_thread *me) { (void)me; }

static inline void scheme_pin(struct scheme_thread *me)
{
    (void)me;
    ebb_pin();
}

static inline void scheme_unpin(struct scheme_thread *me)
{
    (void)me;
    ebb_unpin();
}

static inline void scheme_retire(struct scheme_thread *me, struct node *node)
{
    (void)me;
    ebb_retire(node);
}

#endif
