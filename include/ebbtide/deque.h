// SPDX-License-Identifier: MIT OR Apache-2.0
// A work-stealing deque of pointers, growable. One thread owns it: it pushes and pops at the bottom,
// last in, first out. All others steal at the top, first in, first out. Lock-free; push, pop and
// steal are O(1) but for the pushes that double the buffer.
//
// Source: D. Chase, Y. Lev, "Dynamic circular work-stealing deque", SPAA 2005, with the orders of
// N. M. Le, A. Pop, A. Cohen, F. Zappa Nardelli, "Correct and efficient work-stealing for weak
// memory models", PPoPP 2013. The paper leaves the old buffers to a collector: here they are retired
// (ebb_retire), and a thief reads a buffer inside a pin.
//
// Functions marked "owner" are for one thread at a time; ownership may pass to another thread by
// anything that orders the two (a lock, a join). Those marked "any" are for every thread. The deque
// owns its buffers, never the items. An item may be any pointer, NULL too.
//
// P1  the owner alone stores `bottom` and `buffer`; `top` only grows, by one, by compare-exchange.
// P2  the items are the indices from `top` to below `bottom`, that of index i is in slot i & mask. In
//     the middle of a pop `bottom` may be one less than `top`; it never is less than that.
// P3  index i goes to whoever changes `top` from i to i + 1: a thief, or the owner when it is the only
//     one; or to the owner without that if after storing i to `bottom` and a full fence it sees `top`
//     below i: a thief that sees `top` at i then sees `bottom` at i too and lets go.
// P4  the owner writes to the slot of index i only below `room`, which is a value that it has seen of
//     `top` plus the capacity: the item that was there before has been read by its thief.
// P5  a buffer that has been replaced is not written any more, holds all items that were there then,
//     and is retired after it has been replaced; thieves load `buffer` inside their pin.
#ifndef EBBTIDE_DEQUE_H
#define EBBTIDE_DEQUE_H

#include <ebbtide/reclaim.h>

#ifdef __cplusplus
extern "C" {
#endif

// The slots follow it in the same block.
struct ebb_deque_buffer {
    uint64_t mask; // capacity - 1; fixed
};

struct ebb_deque {
    EBBI_ATOMIC(int64_t) top; // thieves, and the owner for the last item
    // The owner's, on a line of their own; thieves read the first two.
    EBBI_ATOMIC(int64_t) bottom __attribute__((aligned(128)));
    EBBI_ATOMIC(struct ebb_deque_buffer *) buffer;
    int64_t room; // P4; the owner's alone
} __attribute__((aligned(128)));

enum ebb_steal {
    EBB_STEAL_EMPTY = 0, // there was none
    EBB_STEAL_SUCCESS = 1,
    EBB_STEAL_RETRY = 2, // another thread took the item meanwhile: worth another try
};

// An empty deque with room for `capacity` items (rounded up to a power of two, at least 32), owned by
// the thread that first uses it. NULL with errno = ENOMEM.
EBB_EXPORT struct ebb_deque *ebb_deque_create(size_t capacity) EBB_NOEXCEPT;
// For one thread, when no other uses it any more; items that are left are dropped. NULL is allowed.
EBB_EXPORT void ebb_deque_destroy(struct ebb_deque *deque) EBB_NOEXCEPT;

// Owner: gives the buffer the least capacity, not below 32, that holds what is there. O(items). 0, or
// -1 with errno = ENOMEM; then nothing has changed.
EBB_EXPORT int ebb_deque_shrink(struct ebb_deque *deque) EBB_NOEXCEPT;

// push where there seems to be no room.
EBB_EXPORT int ebb_deque_push_slow(struct ebb_deque *deque, void *item) EBB_NOEXCEPT;

// Any: the number of items a moment ago. Exact for the owner while nobody steals.
static inline size_t ebb_deque_size(const struct ebb_deque *deque)
{
    int64_t bottom = ebbi_load_relaxed(&deque->bottom); // relaxed: a hint
    int64_t top = ebbi_load_relaxed(&deque->top);       // relaxed: a hint
    return bottom > top ? (size_t)(bottom - top) : 0;
}

static inline EBBI_ATOMIC(void *) * ebbi_deque_slot(struct ebb_deque_buffer *buffer, int64_t index)
{
    return (EBBI_ATOMIC(void *) *)(void *)(buffer + 1) + ((uint64_t)index & buffer->mask);
}

// Stores an item where there is room. For this header and lockfree/deque.c.
static inline void ebbi_deque_put(struct ebb_deque *deque, int64_t bottom, void *item)
{
    struct ebb_deque_buffer *buffer = ebbi_load_relaxed(&deque->buffer); // relaxed: its own, P1
    // relaxed: published below
    ebbi_store_relaxed(ebbi_deque_slot(buffer, bottom), item);
    // release[deque-push -> deque-steal]: the item, what it points to, and the buffer it is in
    ebbi_store_release(&deque->bottom, bottom + 1);
}

// Owner. 0, or -1 with errno = ENOMEM when the buffer is full and cannot grow; then nothing has
// changed. What the thread has stored before is visible to who gets the item.
static inline int ebb_deque_push(struct ebb_deque *deque, void *item)
{
    int64_t bottom = ebbi_load_relaxed(&deque->bottom); // relaxed: its own, P1
    if (__builtin_expect(bottom >= deque->room, 0)) {
        return ebb_deque_push_slow(deque, item);
    }
    ebbi_deque_put(deque, bottom, item);
    return 0;
}

// Owner: competes with thieves for the index `bottom`, when there is none below it.
static inline bool ebbi_deque_pop_last(struct ebb_deque *deque, int64_t bottom, int64_t top,
                                       void **item)
{
    // release[deque-take -> deque-room, deque-steal]: what `bottom` has been until here
    if (top > bottom || !ebbi_cas_release(&deque->top, &top, top + 1)) {
        return false;
    }
    struct ebb_deque_buffer *buffer = ebbi_load_relaxed(&deque->buffer); // relaxed: its own, P1
    *item = ebbi_load_relaxed(ebbi_deque_slot(buffer, bottom));          // relaxed: its own store
    return true;
}

// Owner: the item pushed last. False: there is none, and *item is as before.
static inline bool ebb_deque_pop(struct ebb_deque *deque, void **item)
{
    int64_t bottom = ebbi_load_relaxed(&deque->bottom) - 1; // relaxed: its own, P1
    // relaxed: `top` only grows, so what looks empty is empty, and one item is one at most
    int64_t top = ebbi_load_relaxed(&deque->top);
    if (top >= bottom) {
        return ebbi_deque_pop_last(deque, bottom, top, item);
    }
    struct ebb_deque_buffer *buffer = ebbi_load_relaxed(&deque->buffer); // relaxed: its own, P1
    // full[deque-pop <-> deque-steal]: the lowered `bottom`, for thieves that see `top` there (P3)
    // release[deque-push -> deque-steal]: the items pushed so far
    ebbi_store_full(&deque->bottom, bottom);
    top = ebbi_load_relaxed(&deque->top); // relaxed: ordered by the fence
    if (__builtin_expect(top >= bottom, 0)) {
        // release[deque-push -> deque-steal]: the items pushed so far
        ebbi_store_release(&deque->bottom, bottom + 1);
        return ebbi_deque_pop_last(deque, bottom, top, item);
    }
    *item = ebbi_load_relaxed(ebbi_deque_slot(buffer, bottom)); // relaxed: its own store
    return true;
}

// Any: the oldest item. *item is set on EBB_STEAL_SUCCESS alone. Pins by itself, unless the deque is
// empty.
static inline enum ebb_steal ebb_deque_steal(struct ebb_deque *deque, void **item)
{
    // acquire[deque-steal <- deque-take]: who took the index below had seen `bottom` above it, or
    // had lowered it
    int64_t top = ebbi_load_acquire(&deque->top);
    // full[deque-steal <-> deque-pop]: `top`, which other thieves have moved (P3)
    ebbi_fence_loads();
    // acquire[deque-steal <- deque-push]: the item, what it points to, and the buffer it is in
    if (ebbi_load_acquire(&deque->bottom) <= top) {
        return EBB_STEAL_EMPTY;
    }
    ebb_pin();
    // acquire[deque-steal <- deque-grow]: the items that were copied
    struct ebb_deque_buffer *buffer = ebbi_load_acquire(&deque->buffer);
    // relaxed: worth something only if `top` is as it was, and then published by `bottom`
    void *seen = ebbi_load_relaxed(ebbi_deque_slot(buffer, top));
    // release[deque-take -> deque-room, deque-steal]: the slot has been read
    bool mine = ebbi_cas_release(&deque->top, &top, top + 1);
    ebb_unpin();
    if (!mine) {
        return EBB_STEAL_RETRY;
    }
    *item = seen;
    return EBB_STEAL_SUCCESS;
}

#ifdef __cplusplus
}
#endif

#endif
