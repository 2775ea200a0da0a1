// SPDX-License-Identifier: MIT OR Apache-2.0
// The stack (ebbtide/stack.h has the source): a list whose first link is changed by compare-exchange.
//
// S1  a node's fields are fixed once it is linked.
// S2  who pops a node retires it; the node's address cannot come back while a thread that has loaded
//     it from `top` is pinned, so the compare-exchange finds that node or fails.
#include <ebbtide/stack.h>

#include <errno.h>

#include "check.h"

struct node {
    struct node *next;
    void *item;
};

struct ebb_stack {
    EBBI_ATOMIC(struct node *) top;
} __attribute__((aligned(64)));

struct ebb_stack *ebb_stack_create(void)
{
    struct ebb_stack *stack = (struct ebb_stack *)ebb_aligned_alloc(64, sizeof *stack);
    if (stack == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    ebbi_store_relaxed(&stack->top, NULL); // relaxed: nobody else has the stack yet
    return stack;
}

void ebb_stack_destroy(struct ebb_stack *stack)
{
    // relaxed: nobody else uses the stack
    struct node *node = stack != NULL ? ebbi_load_relaxed(&stack->top) : NULL;
    while (node != NULL) {
        EBBI_LOCKFREE_ASSERT(node->next != node);
        struct node *next = node->next;
        ebb_free(node);
        node = next;
    }
    ebb_free(stack);
}

int ebb_stack_push(struct ebb_stack *stack, void *item)
{
    struct node *node = (struct node *)ebb_malloc(sizeof *node);
    if (node == NULL) {
        return -1;
    }
    node->item = item;
    node->next = ebbi_load_relaxed(&stack->top); // relaxed: not read through here
    // release[stack-push -> stack-pop]: the node, the item and what it points to
    while (!ebbi_cas_release(&stack->top, &node->next, node)) {
        EBBI_LOCKFREE_ASSERT(node->next != node); // S2: nobody else can have linked it
    }
    return 0;
}

bool ebb_stack_pop(struct ebb_stack *stack, void **item)
{
    ebb_pin();
    // acquire[stack-pop <- stack-push]: the node; who popped those above has passed it on
    struct node *node = ebbi_load_acquire(&stack->top);
    // release[stack-pop -> stack-pop]: the next node, which becomes the first
    // acquire[stack-pop <- stack-pop, stack-push]: the node that is the first now
    while (node != NULL && !ebbi_cas_acq_rel(&stack->top, &node, node->next)) {
    }
    if (node != NULL) {
        EBBI_LOCKFREE_ASSERT(node->next != node);
        *item = node->item;
        ebb_retire(node);
    }
    ebb_unpin();
    return node != NULL;
}

bool ebb_stack_is_empty(const struct ebb_stack *stack)
{
    return ebbi_load_relaxed(&stack->top) == NULL; // relaxed: a hint
}
