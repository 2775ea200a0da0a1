// SPDX-License-Identifier: MIT OR Apache-2.0
// Ebbtide's hazard pointers: a reader protects the one node that it reads. A writer
// owns what it has unlinked, so it needs neither pin nor hazard.
#ifndef EBB_BENCH_RECLAIM_SCHEME_EBBTIDE_HAZARD_H
#define EBB_BENCH_RECLAIM_SCHEME_EBBTIDE_HAZARD_H

#include "ebbtide_count.h"
#include "node.h"

#define SCHEME_PROTECTS 1
enum { SCHEME_COUNTS = 1 };

struct scheme_thread {
    struct ebb_hazard *hazard;
};

static inline void scheme_open(void) { scheme_live_at_open = scheme_live_blocks(); }

static inline void scheme_enter(struct scheme_thread *me)
{
    me->hazard = ebb_hazard_open();
    if (me->hazard == NULL)
        bench_fail("cannot open a hazard pointer");
}

static inline void scheme_leave(struct scheme_thread *me) { ebb_hazard_close(me->hazard); }
static inline void scheme_pin(struct scheme_thread *me) { (void)me; }
static inline void scheme_unpin(struct scheme_thread *me) { (void)me; }
static inline void scheme_poll(struct scheme_thread *me) { (void)me; }

static inline struct node *scheme_protect(struct scheme_thread *me, struct node **source)
{
    return ebb_hazard_protect(me->hazard, (void *const *)source);
}

static inline void scheme_release(struct scheme_thread *me) { ebb_hazard_clear(me->hazard); }

static inline void scheme_retire(struct scheme_thread *me, struct node *node)
{
    (void)me;
    ebb_retire(node);
}

#endif
