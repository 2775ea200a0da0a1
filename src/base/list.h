// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer base: doubly linked lists through fields of their nodes, which have a type of their own and may be in
// several. `first` and `last` are lvalues, `next` and `previous` the fields' names; ends are NULL. Whoever
// calls holds the list's lock. O(1) each.
#ifndef EBB_BASE_LIST_H
#define EBB_BASE_LIST_H

#include "base/base.h"

// A list has a first node; new ones come before it.
#define EBBI_LIST_PUSH(first, node, next, previous)                                                \
    do {                                                                                           \
        EBBI_ASSERT((first) == NULL || (first)->previous == NULL);                                 \
        (node)->previous = NULL;                                                                   \
        (node)->next = (first);                                                                    \
        if ((first) != NULL) {                                                                     \
            (first)->previous = (node);                                                            \
        }                                                                                          \
        (first) = (node);                                                                          \
    } while (0)

#define EBBI_LIST_REMOVE(first, node, next, previous)                                              \
    do {                                                                                           \
        EBBI_ASSERT(((node)->previous != NULL ? (node)->previous->next : (first)) == (node));      \
        EBBI_ASSERT((node)->next == NULL || (node)->next->previous == (node));                     \
        *((node)->previous != NULL ? &(node)->previous->next : &(first)) = (node)->next;           \
        if ((node)->next != NULL) {                                                                \
            (node)->next->previous = (node)->previous;                                             \
        }                                                                                          \
    } while (0)

// A queue has a last one, too, behind which new ones come.
#define EBBI_QUEUE_APPEND(first, last, node, next, previous)                                       \
    do {                                                                                           \
        EBBI_ASSERT(((first) == NULL) == ((last) == NULL));                                        \
        (node)->next = NULL;                                                                       \
        (node)->previous = (last);                                                                 \
        *((last) != NULL ? &(last)->next : &(first)) = (node);                                     \
        (last) = (node);                                                                           \
    } while (0)

#define EBBI_QUEUE_REMOVE(first, last, node, next, previous)                                       \
    do {                                                                                           \
        EBBI_ASSERT(((node)->previous != NULL ? (node)->previous->next : (first)) == (node));      \
        EBBI_ASSERT(((node)->next != NULL ? (node)->next->previous : (last)) == (node));           \
        *((node)->previous != NULL ? &(node)->previous->next : &(first)) = (node)->next;           \
        *((node)->next != NULL ? &(node)->next->previous : &(last)) = (node)->previous;            \
    } while (0)

#endif
