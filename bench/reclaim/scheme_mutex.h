// SPDX-License-Identifier: MIT OR Apache-2.0
// One mutex around all that reads and writes: a pin holds it, so nobody else can still see
// what is retired inside one, and it is freed at once. Safe, and what a scheme is to beat.
#ifndef EBB_BENCH_RECLAIM_SCHEME_MUTEX_H
#define EBB_BENCH_RECLAIM_SCHEME_MUTEX_H

#include "node.h"

#include <pthread.h>

enum { SCHEME_COUNTS = 0 };

struct scheme_thread {
    unsigned depth; // a pin inside a pin holds the mutex already
};

static pthread_mutex_t scheme_mutex = PTHREAD_MUTEX_INITIALIZER;

static inline void scheme_open(void) {}
static inline void scheme_enter(struct scheme_thread *me) { me->depth = 0; }
static inline void scheme_leave(struct scheme_thread *me) { (void)me; }
static inline void scheme_poll(struct scheme_thread *me) { (void)me; }
static inline void scheme_flush(void) {}
static inline uint64_t scheme_unreclaimed(void) { return 0; }

static inline void scheme_pin(struct scheme_thread *me)
{
    if (me->depth++ == 0)
        pthread_mutex_lock(&scheme_mutex);
}

static inline void scheme_unpin(struct scheme_thread *me)
{
    if (--me->depth == 0)
        pthread_mutex_unlock(&scheme_mutex);
}

static inline void scheme_retire(struct scheme_thread *me, struct node *node)
{
    (void)me;
    free(node);
}

#endif
