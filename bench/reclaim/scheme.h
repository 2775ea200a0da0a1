// SPDX-License-Identifier: MIT OR Apache-2.0
// One reclamation scheme, chosen by the build: SCHEME_HEADER names a header that gives
// the following, all `static inline`, so that each scheme is as fast as it can be.
//
//   struct node           32 bytes: the scheme's own link, if it wants one, `word`, `check`
//   struct scheme_thread  what one thread has to itself
//   SCHEME_COUNTS         1: scheme_unreclaimed may be asked while threads run
//
//   scheme_open()               main thread, before all others
//   scheme_enter(me)            each thread, before its first pin
//   scheme_leave(me)            each thread, last; nobody stays pinned for ever
//   scheme_pin(me), scheme_unpin(me)
//   scheme_retire(me, node)     inside a pin
//   scheme_poll(me)             outside of pins, after some retires: for schemes that reclaim
//                               only when the program asks
//   scheme_flush()              main thread, when it is alone: reclaims all that can go
//   scheme_unreclaimed()        nodes retired and not reclaimed, by the scheme's own count
//
// A scheme whose readers protect something else than a pin also defines SCHEME_PROTECTS,
// scheme_protect and scheme_release.
#ifndef EBB_BENCH_RECLAIM_SCHEME_H
#define EBB_BENCH_RECLAIM_SCHEME_H

#include "harness/common.h"

#include "ebbtide/detail/atomic.h"

enum { THREADS_MAX = 128, LINE_BYTES = BENCH_LINE_BYTES };

#include SCHEME_HEADER

_Static_assert(sizeof(struct node) == 32, "every scheme's node is of one size");

#ifndef SCHEME_PROTECTS
// The node is safe to read until scheme_release.
static inline struct node *scheme_protect(struct scheme_thread *me, struct node **source)
{
    scheme_pin(me);
    // acquire[node-read <- node-publish]: the contents of the node
    return ebbi_load_acquire(source);
}

static inline void scheme_release(struct scheme_thread *me) { scheme_unpin(me); }
#endif

static inline struct node *node_create(uint64_t size_bytes, uint64_t word)
{
    struct node *node = (struct node *)(void *)bench_alloc(size_bytes);
    node->word = word;
    node->check = ~word;
    return node;
}

static inline bool node_is_intact(const struct node *node) { return node->check == ~node->word; }

#endif
