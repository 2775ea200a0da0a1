// SPDX-License-Identifier: MIT OR Apache-2.0
// A fenced collector of Ebbtide: each outermost pin makes a full fence, and no advance of
// its clock interrupts a thread.
#ifndef EBB_BENCH_RECLAIM_SCHEME_EBBTIDE_FENCED_H
#define EBB_BENCH_RECLAIM_SCHEME_EBBTIDE_FENCED_H

#include "ebbtide_count.h"
#include "node.h"

enum { SCHEME_COUNTS = 1 };

struct scheme_thread {
    struct ebb_participant *participant;
};

static inline void scheme_open(void)
{
    scheme_collector = ebb_collector_create(EBB_COLLECTOR_FENCED);
    if (scheme_collector == NULL)
        bench_fail("cannot create a collector");
    if (!ebb_collector_is_fenced(scheme_collector))
        bench_fail("the collector is not fenced");
    scheme_live_at_open = scheme_live_blocks();
}

static inline void scheme_enter(struct scheme_thread *me)
{
    me->participant = ebb_collector_attach(scheme_collector);
    if (me->participant == NULL)
        bench_fail("cannot attach to the collector");
}

static inline void scheme_leave(struct scheme_thread *me) { (void)me; }
static inline void scheme_poll(struct scheme_thread *me) { (void)me; }
static inline void scheme_pin(struct scheme_thread *me) { ebb_participant_pin(me->participant); }
static inline void scheme_unpin(struct scheme_thread *me)
{
    ebb_participant_unpin(me->participant);
}

static inline void scheme_retire(struct scheme_thread *me, struct node *node)
{
    if (ebb_participant_retire(me->participant, node) != 0)
        bench_fail("the collector refuses a node");
}

#endif
