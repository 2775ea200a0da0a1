// SPDX-License-Identifier: MIT OR Apache-2.0
// The unbounded queue (ebbtide/queue.h has the sources): a list of segments, each an array of cells
// and two counters. A producer claims the next cell by adding to `pushed`, a consumer by adding to
// `popped`; both then exchange the cell's state, and the first to come decides: the producer's FULL
// is a push, the consumer's TAKEN before it spoils the cell, and the producer claims another.
//
// Q1  counters only grow; those at or above CELLS claim nothing and say that the segment is used up.
// Q2  a cell's state goes from EMPTY to FULL to TAKEN, or from EMPTY to TAKEN; its item is written
//     by the producer that claimed it, before FULL, and read by the consumer that found it FULL.
// Q3  `next` is set once, when `pushed` has reached CELLS. `head` and `tail` only move along it, and
//     `head` never passes `tail`: so a segment that `head` has left cannot be reached any more and is
//     retired by who moved `head`.
#include <ebbtide/queue.h>

#include <errno.h>

#include "check.h"

#define CELLS 244 // segments of 4 KiB
#define PATIENCE 32

enum { EMPTY, FULL, TAKEN };

struct cell {
    EBBI_ATOMIC(uintptr_t) state;
    void *item; // Q2
};

struct segment {
    EBBI_ATOMIC(uint64_t) popped;
    EBBI_ATOMIC(uint64_t) pushed __attribute__((aligned(64)));
    EBBI_ATOMIC(struct segment *) next;
    uint64_t number; // of the segment in the queue's life; fixed
    struct cell cells[CELLS] __attribute__((aligned(64)));
} __attribute__((aligned(64)));

struct ebb_queue {
    EBBI_ATOMIC(struct segment *) head __attribute__((aligned(128)));
    EBBI_ATOMIC(struct segment *) tail __attribute__((aligned(128)));
} __attribute__((aligned(128)));

static struct segment *segment_create(uint64_t number)
{
    struct segment *segment = (struct segment *)ebb_aligned_alloc(64, sizeof *segment);
    if (segment == NULL) {
        return NULL;
    }
    // relaxed: nobody else has the segment yet, here and below
    ebbi_store_relaxed(&segment->popped, 0);
    ebbi_store_relaxed(&segment->pushed, 0);
    ebbi_store_relaxed(&segment->next, NULL);
    segment->number = number;
    for (size_t i = 0; i < CELLS; i++) {
        ebbi_store_relaxed(&segment->cells[i].state, EMPTY); // relaxed: as above
    }
    return segment;
}

struct ebb_queue *ebb_queue_create(void)
{
    struct ebb_queue *queue = (struct ebb_queue *)ebb_aligned_alloc(128, sizeof *queue);
    struct segment *segment = segment_create(0);
    if (queue == NULL || segment == NULL) {
        ebb_free(queue);
        ebb_free(segment);
        errno = ENOMEM;
        return NULL;
    }
    // relaxed: nobody else has the queue yet
    ebbi_store_relaxed(&queue->head, segment);
    ebbi_store_relaxed(&queue->tail, segment);
    return queue;
}

void ebb_queue_destroy(struct ebb_queue *queue)
{
    // relaxed: nobody else uses the queue
    struct segment *segment = queue != NULL ? ebbi_load_relaxed(&queue->head) : NULL;
    while (segment != NULL) {
        struct segment *next = ebbi_load_relaxed(&segment->next); // relaxed: as above
        EBBI_LOCKFREE_ASSERT(next == NULL || next->number == segment->number + 1);
        // relaxed: as above
        EBBI_LOCKFREE_ASSERT(next != NULL || ebbi_load_relaxed(&queue->tail) == segment);
        ebb_free(segment);
        segment = next;
    }
    ebb_free(queue);
}

// Moves `tail` on from a segment that has a next one; whoever is first.
static void advance_tail(struct ebb_queue *queue, struct segment *segment, struct segment *next)
{
    EBBI_LOCKFREE_ASSERT(next->number == segment->number + 1);
    // release[queue-move -> queue-enter]: the segment, as queue-link has published it
    (void)ebbi_cas_release(&queue->tail, &segment, next);
}

// False: a consumer has spoilt the cell.
static bool fill(struct cell *cell, void *item)
{
    uintptr_t empty = EMPTY;
    // relaxed: Q2, nobody else fills it
    EBBI_LOCKFREE_ASSERT(ebbi_load_relaxed(&cell->state) != FULL);
    cell->item = item;
    // release[queue-fill -> queue-take]: the item and what it points to
    bool filled = ebbi_cas_release(&cell->state, &empty, FULL);
    EBBI_LOCKFREE_ASSERT(filled || empty == TAKEN);
    return filled;
}

// Links a segment with the item in its first cell behind the last one. 1: done; 0: another has linked
// one; -1: memory refused.
static int append(struct ebb_queue *queue, struct segment *last, void *item)
{
    // relaxed: Q1, as this thread has seen
    EBBI_LOCKFREE_ASSERT(ebbi_load_relaxed(&last->pushed) >= CELLS);
    struct segment *fresh = segment_create(last->number + 1);
    struct segment *none = NULL;
    if (fresh == NULL) {
        return -1;
    }
    ebbi_store_relaxed(&fresh->pushed, 1); // relaxed: published below, as is the cell
    fresh->cells[0].item = item;
    ebbi_store_relaxed(&fresh->cells[0].state, FULL); // relaxed: as above
    // release[queue-link -> queue-follow]: the segment, the item and what it points to
    if (!ebbi_cas_release(&last->next, &none, fresh)) {
        ebb_free(fresh);
        return 0;
    }
    advance_tail(queue, last, fresh);
    return 1;
}

static int push(struct ebb_queue *queue, void *item)
{
    for (;;) {
        // acquire[queue-enter <- queue-move]: the segment
        struct segment *last = ebbi_load_acquire(&queue->tail);
        // release[queue-claim -> queue-look, queue-claim]: all pushes that this thread knows of
        // acquire[queue-claim <- queue-claim]: passes on what the others know of
        uint64_t i = ebbi_fetch_add_acq_rel(&last->pushed, 1);
        if (i < CELLS) {
            if (fill(&last->cells[i], item)) {
                return 0;
            }
            continue;
        }
        // acquire[queue-follow <- queue-link]: the segment
        struct segment *next = ebbi_load_acquire(&last->next);
        if (next != NULL) {
            advance_tail(queue, last, next);
            continue;
        }
        int appended = append(queue, last, item);
        if (appended != 0) {
            return appended > 0 ? 0 : -1;
        }
    }
}

int ebb_queue_push(struct ebb_queue *queue, void *item)
{
    ebb_pin();
    int result = push(queue, item);
    ebb_unpin();
    if (result != 0) {
        errno = ENOMEM;
    }
    return result;
}

// A producer may be between its claim and its item: give it a moment before the cell is spoilt.
static bool take(struct cell *cell, void **item)
{
    // relaxed: the exchange below decides
    for (int i = 0; i < PATIENCE && ebbi_load_relaxed(&cell->state) == EMPTY; i++) {
        ebbi_compiler_fence();
    }
    // acquire[queue-take <- queue-fill]: the item and what it points to
    uintptr_t before = ebbi_exchange_acquire(&cell->state, TAKEN);
    EBBI_LOCKFREE_ASSERT(before != TAKEN); // Q2: this consumer alone claimed it
    if (before != FULL) {
        return false;
    }
    *item = cell->item;
    return true;
}

// No items in this segment, nor behind it. `popped` is loaded before `pushed`, and that before
// `next`: as each only grows, the queue was empty when `pushed` was loaded.
static bool is_empty(struct segment *segment)
{
    // acquire[queue-look <- queue-claim]: the pushes that the others know of
    uint64_t popped = ebbi_load_acquire(&segment->popped);
    // acquire[queue-look <- queue-claim]: as above
    uint64_t pushed = ebbi_load_acquire(&segment->pushed);
    // relaxed: only whether there is one
    return popped >= pushed && ebbi_load_relaxed(&segment->next) == NULL;
}

// `head` moves on from a segment that is used up, and the segment is retired. False: it is the last.
static bool leave(struct ebb_queue *queue, struct segment *first)
{
    // acquire[queue-follow <- queue-link]: the segment
    struct segment *next = ebbi_load_acquire(&first->next);
    if (next == NULL) {
        return false;
    }
    // relaxed: Q1, as this thread has seen; Q3, `next` orders it
    EBBI_LOCKFREE_ASSERT(ebbi_load_relaxed(&first->popped) >= CELLS &&
                         ebbi_load_relaxed(&first->pushed) >= CELLS);
    advance_tail(queue, first, next); // Q3
    // relaxed: Q3, it does not come back
    EBBI_LOCKFREE_ASSERT(ebbi_load_relaxed(&queue->tail) != first);
    // release[queue-move -> queue-enter]: the segment, as queue-link has published it
    if (ebbi_cas_release(&queue->head, &first, next)) {
        ebb_retire(first);
    }
    return true;
}

static bool pop(struct ebb_queue *queue, void **item)
{
    for (;;) {
        // acquire[queue-enter <- queue-move]: the segment
        struct segment *first = ebbi_load_acquire(&queue->head);
        if (is_empty(first)) {
            return false;
        }
        // release[queue-claim -> queue-look, queue-claim]: all pushes that this thread knows of
        // acquire[queue-claim <- queue-claim]: passes on what the others know of
        uint64_t i = ebbi_fetch_add_acq_rel(&first->popped, 1);
        if (i < CELLS ? take(&first->cells[i], item) : !leave(queue, first)) {
            return i < CELLS;
        }
    }
}

bool ebb_queue_pop(struct ebb_queue *queue, void **item)
{
    ebb_pin();
    bool found = pop(queue, item);
    ebb_unpin();
    return found;
}

// Cells that a counter of this segment and of those before it has claimed.
static uint64_t position(struct segment *segment, EBBI_ATOMIC(uint64_t) * counter)
{
    uint64_t claimed = ebbi_load_relaxed(counter); // relaxed: a hint
    return segment->number * CELLS + (claimed < CELLS ? claimed : CELLS);
}

size_t ebb_queue_size(struct ebb_queue *queue)
{
    ebb_pin();
    // acquire[queue-enter <- queue-move]: the segments
    struct segment *first = ebbi_load_acquire(&queue->head);
    struct segment *last = ebbi_load_acquire(&queue->tail);
    uint64_t popped = position(first, &first->popped);
    uint64_t pushed = position(last, &last->pushed);
    ebb_unpin();
    return pushed > popped ? (size_t)(pushed - popped) : 0;
}
