// SPDX-License-Identifier: MIT OR Apache-2.0
// A queue of pointers, first in, first out, unbounded, for any number of producers and consumers.
// Linearizable and lock-free; an operation is O(1) but for what it repeats in races.
//
// Source: the linked list of M. M. Michael, M. L. Scott ("Simple, fast, and practical non-blocking and
// blocking concurrent queue algorithms", PODC 1996), whose nodes are arrays with two counters that
// producers and consumers add to, as in P. Ramalhete and A. Correia's FAAArrayQueue (2016). Cells
// here hold the item beside its state, so that every pointer, NULL too, can be an item. Segments that
// are used up are retired (ebb_retire).
//
// Every function may be called by any thread, inside a pin or outside; each pins by itself. The queue
// owns its segments, never the items. What a producer has stored before its push is visible to who
// pops the item; beyond that no order is promised (no full fence).
#ifndef EBBTIDE_QUEUE_H
#define EBBTIDE_QUEUE_H

#include <ebbtide/reclaim.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_queue;

// An empty queue; it holds about 4 KiB at the least. NULL with errno = ENOMEM.
EBB_EXPORT struct ebb_queue *ebb_queue_create(void) EBB_NOEXCEPT;
// For one thread, when no other uses it any more; items that are left are dropped. NULL is allowed.
EBB_EXPORT void ebb_queue_destroy(struct ebb_queue *queue) EBB_NOEXCEPT;

// 0, or -1 with errno = ENOMEM; then nothing has changed.
EBB_EXPORT int ebb_queue_push(struct ebb_queue *queue, void *item) EBB_NOEXCEPT;
// The oldest item. False: there was none, and *item is as before.
EBB_EXPORT bool ebb_queue_pop(struct ebb_queue *queue, void **item) EBB_NOEXCEPT;
// About the number of items a moment ago: cells that a race has spoilt count until they are passed.
// 0 for a queue that nobody uses means empty. O(1).
EBB_EXPORT size_t ebb_queue_size(struct ebb_queue *queue) EBB_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
