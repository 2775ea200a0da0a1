// SPDX-License-Identifier: MIT OR Apache-2.0
// A stack of pointers, last in, first out, for any number of threads. Linearizable and lock-free; an
// operation is O(1) but for what it repeats in races.
//
// Source: R. K. Treiber, "Systems programming: coping with parallelism", IBM RJ 5118, 1986. Nodes come
// from ebb_malloc and are retired: a pop reads a node inside a pin, which also rules out that the node
// it compares with has been another one meanwhile (the ABA problem).
//
// Every function may be called by any thread, inside a pin or outside. The stack owns its nodes, never
// the items; an item may be any pointer, NULL too. What a thread has stored before its push is visible
// to who pops the item.
#ifndef EBBTIDE_STACK_H
#define EBBTIDE_STACK_H

#include <ebbtide/reclaim.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_stack;

// An empty stack. NULL with errno = ENOMEM.
EBB_EXPORT struct ebb_stack *ebb_stack_create(void) EBB_NOEXCEPT;
// For one thread, when no other uses it any more; items that are left are dropped. NULL is allowed.
EBB_EXPORT void ebb_stack_destroy(struct ebb_stack *stack) EBB_NOEXCEPT;

// 0, or -1 with errno = ENOMEM; then nothing has changed.
EBB_EXPORT int ebb_stack_push(struct ebb_stack *stack, void *item) EBB_NOEXCEPT;
// The item pushed last. False: there was none, and *item is as before.
EBB_EXPORT bool ebb_stack_pop(struct ebb_stack *stack, void **item) EBB_NOEXCEPT;
// Whether it was empty a moment ago.
EBB_EXPORT bool ebb_stack_is_empty(const struct ebb_stack *stack) EBB_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
