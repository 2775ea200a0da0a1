// SPDX-License-Identifier: MIT OR Apache-2.0
// ck_epoch: the program drives reclamation, here by a poll every 64 retires of a thread.
#ifndef EBB_BENCH_RECLAIM_SCHEME_CK_H
#define EBB_BENCH_RECLAIM_SCHEME_CK_H

#include <ck_epoch.h>

enum { SCHEME_COUNTS = 1, POLL_PERIOD = 64 };

struct node {
    ck_epoch_entry_t entry;
    uint64_t word;
    uint64_t check;
};

struct scheme_thread {
    ck_epoch_record_t *record;
    unsigned unpolled; // retires since the last poll
};

static ck_epoch_t scheme_epoch;
static ck_epoch_record_t scheme_records[THREADS_MAX];
static unsigned scheme_threads;

static inline void scheme_open(void) { ck_epoch_init(&scheme_epoch); }

static inline void scheme_enter(struct scheme_thread *me)
{
    // relaxed: a number of its own for each thread
    unsigned index = ebbi_fetch_add_relaxed(&scheme_threads, 1U);
    if (index >= THREADS_MAX)
        bench_fail("too many threads");
    me->record = &scheme_records[index];
    ck_epoch_register(&scheme_epoch, me->record, NULL);
}

// Nobody else may reclaim what waits in this thread's record. The record stays registered:
// to unregister it would set its counts to zero, reclaimed or not.
static inline void scheme_leave(struct scheme_thread *me) { ck_epoch_barrier(me->record); }

static inline void scheme_pin(struct scheme_thread *me) { ck_epoch_begin(me->record, NULL); }
static inline void scheme_unpin(struct scheme_thread *me) { ck_epoch_end(me->record, NULL); }

static inline void scheme_poll(struct scheme_thread *me)
{
    if (me->unpolled < POLL_PERIOD)
        return;
    me->unpolled = 0;
    ck_epoch_poll(me->record);
}

// Poisons the node, which a reader that still sees it would notice.
static inline void scheme_reclaim(ck_epoch_entry_t *entry)
{
    struct node *node = (struct node *)(void *)entry;
    // relaxed: the readers' check only needs to see it some day
    ebbi_store_relaxed(&node->check, node->word);
    free(node);
}

static inline void scheme_retire(struct scheme_thread *me, struct node *node)
{
    me->unpolled++;
    ck_epoch_call(me->record, &node->entry, scheme_reclaim);
}

static inline void scheme_flush(void) {}

// The library counts what waits in each record.
static inline uint64_t scheme_unreclaimed(void)
{
    uint64_t waiting = 0;
    for (unsigned i = 0; i < THREADS_MAX; i++)
        waiting += ebbi_load_relaxed(&scheme_records[i].n_pending); // relaxed: a count
    return waiting;
}

#endif
