// SPDX-License-Identifier: MIT OR Apache-2.0
// liburcu, the membarrier flavour: read-side sections inline, call_rcu with its one
// helper thread, which frees.
#ifndef EBB_BENCH_RECLAIM_SCHEME_URCU_H
#define EBB_BENCH_RECLAIM_SCHEME_URCU_H

// The library's switch for inline read-side sections, open to sources whose licence allows it.
#define _LGPL_SOURCE
#include <urcu/urcu-memb.h>

enum { SCHEME_COUNTS = 1 };

struct node {
    struct rcu_head head;
    uint64_t word;
    uint64_t check;
};

struct scheme_thread {
    uint64_t *retired;
};

struct scheme_count {
    uint64_t nodes;
    char alone[LINE_BYTES - sizeof(uint64_t)];
} __attribute__((aligned(LINE_BYTES)));

static struct scheme_count scheme_retired[THREADS_MAX];
static struct scheme_count scheme_reclaimed; // by the helper thread alone
static unsigned scheme_threads;

static inline void scheme_open(void) { urcu_memb_init(); }

static inline void scheme_enter(struct scheme_thread *me)
{
    urcu_memb_register_thread();
    // relaxed: a number of its own for each thread
    unsigned index = ebbi_fetch_add_relaxed(&scheme_threads, 1U);
    if (index >= THREADS_MAX)
        bench_fail("too many threads");
    me->retired = &scheme_retired[index].nodes;
}

static inline void scheme_leave(struct scheme_thread *me)
{
    (void)me;
    urcu_memb_unregister_thread();
}

static inline void scheme_pin(struct scheme_thread *me)
{
    (void)me;
    urcu_memb_read_lock();
}

static inline void scheme_unpin(struct scheme_thread *me)
{
    (void)me;
    urcu_memb_read_unlock();
}

static inline void scheme_poll(struct scheme_thread *me) { (void)me; }

// Poisons the node, which a reader that still sees it would notice.
static inline void scheme_reclaim(struct rcu_head *head)
{
    struct node *node = (struct node *)(void *)head;
    // relaxed: the readers' check only needs to see it some day
    ebbi_store_relaxed(&node->check, node->word);
    // relaxed: a count
    ebbi_store_relaxed(&scheme_reclaimed.nodes, scheme_reclaimed.nodes + 1);
    free(node);
}

static inline void scheme_retire(struct scheme_thread *me, struct node *node)
{
    // relaxed: a count
    ebbi_store_relaxed(me->retired, *me->retired + 1);
    urcu_memb_call_rcu(&node->head, scheme_reclaim);
}

static inline uint64_t scheme_unreclaimed(void)
{
    // relaxed: counts; reclaimed first, so that the difference is never below the truth
    uint64_t reclaimed = ebbi_load_relaxed(&scheme_reclaimed.nodes);
    uint64_t retired = 0;
    for (unsigned i = 0; i < THREADS_MAX; i++)
        retired += ebbi_load_relaxed(&scheme_retired[i].nodes); // relaxed: as above
    return retired - reclaimed;
}

static inline void scheme_flush(void) { urcu_memb_barrier(); }

#endif
