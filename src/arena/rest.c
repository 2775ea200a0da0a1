// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: what is left of the unit that was opened last (dense.c), kept for what fills it. Under the lock.
#include "arena/internal.h"

// [next, end), as far as a free span begins with it. When it has been returned it is still for what grows: that grows slowly.
static struct {
    struct ebbi_chunk *chunk; // NULL: none
    size_t next, end;
    bool is_free; // P10
} open_unit;

void ebbi_rest_open(struct ebbi_chunk *chunk, size_t next, size_t end)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    open_unit.chunk = chunk;
    open_unit.next = next;
    open_unit.end = end;
    open_unit.is_free = false; // until it has been cut off
}

static bool is_rest(const struct ebbi_free_span *span)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    return open_unit.chunk == ebbi_span_chunk(&span->head) &&
           open_unit.next == ebbi_span_index(&span->head);
}

void ebbi_rest_see(const struct ebbi_free_span *span, bool is_free)
{
    if (is_rest(span)) {
        open_unit.is_free = is_free;
    }
}

size_t ebbi_rest_of(const struct ebbi_free_span *span)
{
    bool is_there = open_unit.is_free && is_rest(span);
    return is_there ? ebbi_min(open_unit.end - open_unit.next, span->head.granules) : 0;
}

bool ebbi_rest_is_there(void)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    return open_unit.chunk != NULL && open_unit.is_free && open_unit.next < open_unit.end;
}

struct ebbi_free_span *ebbi_rest_take(size_t granules, bool beyond)
{
    if (!ebbi_rest_is_there()) {
        return NULL;
    }
    struct ebbi_free_span *span = ebbi_free_span_at(open_unit.chunk, open_unit.next);
    if (granules > (beyond ? span->head.granules : ebbi_rest_of(span))) {
        return NULL;
    }
    open_unit.next = ebbi_min(open_unit.next + granules, open_unit.end);
    open_unit.is_free = false; // until what stays free of it is back
    return span;
}

bool ebbi_rest_forget(void)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    bool was_there = ebbi_rest_is_there();
    open_unit.chunk = NULL;
    return was_there;
}
