// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: calls whose grace period is over, as they run.
#include <string.h>

#include "heap/blocks.h"
#include "reclaim/queues.h"

#define NESTED_MOST 8 // ebbtide/reclaim.h says so

static void taken_begin(struct ebbi_calls *calls)
{
    ebbi_lock_take(&ebbi_calls_taken.lock);
    EBBI_ASSERT(!calls->runs && calls->begun == 0 && calls->taker == ebbi_lock_self());
    calls->runs = true;
    ebbi_lock_drop(&ebbi_calls_taken.lock);
}

static void calls_end(struct ebbi_calls *calls)
{
    ebbi_taken_remove(calls, false);
    if (ebbi_record_let_go(calls, EBBI_CALLS_DONE)) {
        ebbi_own_send(calls);
    }
}

// The first record of the list, where it stays until all its calls have run.
static void run_record(struct ebbi_calls **list)
{
    struct ebbi_calls *calls = *list;
    EBBI_ASSERT(calls->count <= EBBI_CALLS && calls->begun == 0);
    taken_begin(calls);
    while (calls->begun < calls->count) {
        const struct ebbi_call *call = &calls->calls[calls->begun++];
        call->run(call->p, call->context);
    }
    *list = calls->next;
    calls_end(calls);
}

// A call may run others (ebb_reclaim): they come first in the list, and are out of it in the end.
static void run_list(struct ebbi_calls **list, struct ebbi_calls *first, struct ebbi_calls **end)
{
    struct ebbi_calls *outer = *list;
    *end = outer;
    *list = first;
    while (*list != outer) {
        run_record(list);
    }
}

static void run_taken(struct ebbi_heap *heap, struct ebbi_calls **list,
                      struct ebbi_expired *expired)
{
    struct ebbi_calls *calls = expired->calls;
    struct ebbi_calls **end = expired->calls_end;
    size_t hooks = expired->hooks;
    ebbi_hooks_claim(heap, expired);
    expired->calls = NULL;
    expired->calls_end = &expired->calls;
    expired->hooks = 0;
    if (calls != NULL) {
        run_list(list, calls, end);
    }
    ebbi_hooks_run(heap, hooks);
}

bool ebbi_calls_may_nest(const struct ebbi_heap *heap)
{
    return heap == NULL || heap->runs_calls < NESTED_MOST;
}

void ebbi_calls_run(struct ebbi_expired *expired)
{
    struct ebbi_heap *heap = ebbi_heap_mine();
    struct ebbi_calls *list = NULL;
    if (heap == NULL) {
        run_taken(NULL, &list, expired);
        return;
    }
    uint8_t outer = heap->runs_calls;
    EBBI_ASSERT(outer < NESTED_MOST);
    if (outer == 0) {
        heap->run_frame = __builtin_frame_address(0);
    }
    heap->runs_calls = outer + 1;
    run_taken(heap, &heap->running, expired);
    heap->runs_calls = outer;
    if (outer == 0) {
        ebbi_collectors_bury(heap);
    }
}

// Those that have not begun.
static void put_back(struct ebbi_calls *calls)
{
    EBBI_ASSERT(calls->begun < calls->count && calls->count <= EBBI_CALLS);
    calls->count = (uint8_t)(calls->count - calls->begun);
    memmove(calls->calls, calls->calls + calls->begun, calls->count * sizeof calls->calls[0]);
    calls->begun = 0;
    ebbi_late_put(calls);
}

void ebbi_calls_attach(struct ebbi_heap *heap)
{
    heap->runs_calls = 0;
    heap->buries = false;
    heap->running = NULL;
    heap->hooks = (struct ebbi_hooks_taken){0};
    heap->doomed = NULL;
}

void ebbi_calls_abandon(struct ebbi_heap *heap)
{
    while (heap->running != NULL) {
        struct ebbi_calls *calls = heap->running;
        heap->running = calls->next;
        if (calls->begun < calls->count) {
            put_back(calls);
        } else {
            calls_end(calls);
        }
    }
    ebbi_hooks_abandon(heap);
    heap->runs_calls = 0;
    heap->buries = false;
    ebbi_collectors_bury(heap);
}

uint64_t ebbi_calls_ask(void)
{
    ebbi_lock_take(&ebbi_calls_taken.lock);
    uint64_t turn = ++ebbi_calls_taken.turn;
    ebbi_lock_drop(&ebbi_calls_taken.lock);
    return turn;
}

bool ebbi_calls_in_flight(uint64_t turn)
{
    ebbi_lock_take(&ebbi_calls_taken.lock);
    const struct ebbi_calls *first = ebbi_calls_taken.first;
    bool any = first != NULL && first->turn < turn;
    for (const struct ebbi_hooks_taken *h = ebbi_calls_taken.hooks; h != NULL; h = h->next) {
        any |= h->turn < turn;
    }
    ebbi_lock_drop(&ebbi_calls_taken.lock);
    return any;
}

size_t ebbi_calls_returned(void)
{
    ebbi_lock_take(&ebbi_calls_taken.lock);
    size_t returned = ebbi_calls_taken.returned;
    ebbi_lock_drop(&ebbi_calls_taken.lock);
    return returned;
}

void ebbi_calls_lock(void) { ebbi_lock_take(&ebbi_calls_taken.lock); }
void ebbi_calls_unlock(void) { ebbi_lock_drop(&ebbi_calls_taken.lock); }

void ebbi_calls_forked(void)
{
    ebbi_hooks_forked(ebbi_heap_mine());
    for (struct ebbi_calls *next, *calls = ebbi_calls_taken.first; calls != NULL; calls = next) {
        next = calls->taken_next;
        if (calls->taker == ebbi_lock_self()) {
            continue;
        }
        if (calls->runs) {
            ebbi_taken_remove(calls, false);
        } else {
            put_back(calls);
        }
    }
}
