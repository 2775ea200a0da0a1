// SPDX-License-Identifier: MIT OR Apache-2.0
// The slow half of the work-stealing deque: buffers are made, doubled, halved and retired. See
// ebbtide/deque.h for the algorithm and its invariants.
#include <ebbtide/deque.h>

#include <errno.h>

#include "check.h"

#define LEAST_CAPACITY ((size_t)32)
// Far from where indices or sizes overflow.
#define LARGEST_CAPACITY ((size_t)1 << 56)

static size_t round_capacity(size_t items)
{
    size_t capacity = LEAST_CAPACITY;
    while (capacity < items && capacity < LARGEST_CAPACITY) {
        capacity *= 2;
    }
    return capacity;
}

static struct ebb_deque_buffer *buffer_create(size_t capacity)
{
    EBBI_LOCKFREE_ASSERT(capacity >= LEAST_CAPACITY && (capacity & (capacity - 1)) == 0);
    struct ebb_deque_buffer *buffer = (struct ebb_deque_buffer *)ebb_malloc(
        sizeof *buffer + capacity * sizeof(EBBI_ATOMIC(void *)));
    if (buffer != NULL) {
        buffer->mask = capacity - 1;
    }
    return buffer;
}

struct ebb_deque *ebb_deque_create(size_t capacity)
{
    struct ebb_deque *deque = (struct ebb_deque *)ebb_aligned_alloc(128, sizeof *deque);
    struct ebb_deque_buffer *buffer = buffer_create(round_capacity(capacity));
    if (deque == NULL || buffer == NULL) {
        ebb_free(deque);
        ebb_free(buffer);
        errno = ENOMEM;
        return NULL;
    }
    // relaxed: nobody else has the deque yet, here and in the next two
    ebbi_store_relaxed(&deque->top, 0);
    ebbi_store_relaxed(&deque->bottom, 0);
    ebbi_store_relaxed(&deque->buffer, buffer);
    deque->room = (int64_t)buffer->mask + 1;
    return deque;
}

void ebb_deque_destroy(struct ebb_deque *deque)
{
    if (deque != NULL) {
        // relaxed: nobody else uses the deque
        EBBI_LOCKFREE_ASSERT(ebbi_load_relaxed(&deque->top) <= ebbi_load_relaxed(&deque->bottom));
        ebb_free(ebbi_load_relaxed(&deque->buffer)); // relaxed: nobody else uses the deque
        ebb_free(deque);
    }
}

// Replaces the buffer. The capacity is enough for what lies between top and bottom (P5).
static int resize(struct ebb_deque *deque, int64_t top, int64_t bottom, size_t capacity)
{
    EBBI_LOCKFREE_ASSERT(top <= bottom && (size_t)(bottom - top) <= capacity); // P2, P5
    struct ebb_deque_buffer *old = ebbi_load_relaxed(&deque->buffer); // relaxed: the owner's, P1
    struct ebb_deque_buffer *buffer = buffer_create(capacity);
    if (buffer == NULL) {
        return -1;
    }
    for (int64_t i = top; i < bottom; i++) {
        // relaxed: the owner's own stores; published below
        void *item = ebbi_load_relaxed(ebbi_deque_slot(old, i));
        ebbi_store_relaxed(ebbi_deque_slot(buffer, i), item); // relaxed: as above
    }
    // release[deque-grow -> deque-steal]: the items that were copied
    ebbi_store_release(&deque->buffer, buffer);
    deque->room = top + (int64_t)capacity;
    EBBI_LOCKFREE_ASSERT(old != buffer && bottom <= deque->room);
    ebb_retire(old);
    return 0;
}

int ebb_deque_push_slow(struct ebb_deque *deque, void *item)
{
    int64_t bottom = ebbi_load_relaxed(&deque->bottom); // relaxed: the owner's, P1
    // acquire[deque-room <- deque-take]: the slots below have been read
    int64_t top = ebbi_load_acquire(&deque->top);
    // relaxed: the owner's, P1
    size_t capacity = (size_t)ebbi_load_relaxed(&deque->buffer)->mask + 1;
    EBBI_LOCKFREE_ASSERT(top <= bottom && (size_t)(bottom - top) <= capacity); // P2
    EBBI_LOCKFREE_ASSERT(top + (int64_t)capacity >= deque->room); // P4: `top` only grows
    deque->room = top + (int64_t)capacity;
    if (bottom >= deque->room && resize(deque, top, bottom, capacity * 2) != 0) {
        return -1;
    }
    EBBI_LOCKFREE_ASSERT(bottom < deque->room);
    ebbi_deque_put(deque, bottom, item);
    return 0;
}

int ebb_deque_shrink(struct ebb_deque *deque)
{
    int64_t bottom = ebbi_load_relaxed(&deque->bottom); // relaxed: the owner's, P1
    // acquire[deque-room <- deque-take]: the slots below have been read
    int64_t top = ebbi_load_acquire(&deque->top);
    EBBI_LOCKFREE_ASSERT(top <= bottom); // P2
    size_t capacity = round_capacity((size_t)(bottom - top));
    // relaxed: the owner's, P1
    if (capacity > ebbi_load_relaxed(&deque->buffer)->mask) {
        return 0;
    }
    return resize(deque, top, bottom, capacity);
}
