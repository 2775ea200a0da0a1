// SPDX-License-Identifier: MIT OR Apache-2.0
// Events as bytes. One byte has the kind (upper three bits) and a small number; what does not fit follows
// as a varint. Both sides keep the state below, so that sizes and objects that come again take no bytes of their own.
#ifndef EBB_TRACE_CODER_H
#define EBB_TRACE_CODER_H

#include <stddef.h>
#include <stdint.h>

enum trace_kind {
    TRACE_MALLOC,      // size
    TRACE_CALLOC,      // size
    TRACE_FREE,        // own object
    TRACE_REALLOC,     // size, own object
    TRACE_FREE_OTHERS, // another thread's object
    TRACE_ALIGNED,     // small: log2 of the alignment; size
    TRACE_MARK,        // turn, microseconds, net: each less the last
    TRACE_MORE,        // small: enum trace_more
};

enum trace_more {
    TRACE_REALLOC_OTHERS,    // thread, n, size
    TRACE_FREE_INHERITED,    // thread, n, the object's size
    TRACE_REALLOC_INHERITED, // thread, n, the object's size, new size
    TRACE_TOUCHED,           // thread, n, pages that were touched: stands before the object's end
    TRACE_LOST, // calls that could not be recorded: made by a signal handler inside of malloc
    TRACE_MORES,
};

enum {
    TRACE_SMALL_BITS = 5,
    TRACE_FOLLOWS = 31, // the number did not fit and follows
    TRACE_SIZES = 31,
    TRACE_YOUNG = 15, // ages below have a code of their own
    TRACE_NEAR = 8,   // so have the objects so far behind, or before, the one that was freed last
    TRACE_OWNERS = 64,
};

// Of one thread's stream, in the recorder and in the reader.
struct trace_coder {
    uint64_t made;                 // objects so far
    uint64_t last_freed;           // the own object freed last
    uint64_t sizes[TRACE_SIZES];   // a size that was seen, by trace_size_place
    uint64_t others[TRACE_OWNERS]; // of a thread, the object that was ended last
    uint64_t turn, time_us;
    int64_t net;
};

static inline uint32_t trace_size_place(uint64_t size)
{
    uint32_t hash = (uint32_t)(size ^ (size >> 32)) * 0x9e3779b1U;
    return (uint32_t)(((uint64_t)hash * TRACE_SIZES) >> 32);
}

static inline uint64_t trace_zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
}

static inline int64_t trace_unzigzag(uint64_t value)
{
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

// At most ten bytes, seven bits each, the lowest first.
static inline unsigned char *trace_put(unsigned char *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    *at++ = (unsigned char)value;
    return at;
}

// NULL: the number does not end before `end`, or has more than 64 bits.
static inline const unsigned char *trace_get(const unsigned char *at, const unsigned char *end,
                                             uint64_t *value)
{
    uint64_t sum = 0;
    for (unsigned shift = 0; at < end && shift < 64; shift += 7) {
        uint64_t bits = *at & 0x7fU;
        if (shift == 63 && bits > 1) {
            return NULL;
        }
        sum |= bits << shift;
        if ((*at++ & 0x80) == 0) {
            *value = sum;
            return at;
        }
    }
    return NULL;
}

static inline unsigned char *trace_put_op(unsigned char *at, enum trace_kind kind, uint32_t small)
{
    *at++ = (unsigned char)((uint32_t)kind << TRACE_SMALL_BITS | small);
    return at;
}

static inline unsigned char *trace_put_size(struct trace_coder *coder, unsigned char *at,
                                            enum trace_kind kind, uint64_t size)
{
    uint32_t place = trace_size_place(size);
    if (coder->sizes[place] == size) {
        return trace_put_op(at, kind, place);
    }
    coder->sizes[place] = size;
    return trace_put(trace_put_op(at, kind, TRACE_FOLLOWS), size);
}

// The code of an own object that is freed: young ones by their age, neighbours of the last by their distance.
static inline unsigned char *trace_put_free(struct trace_coder *coder, unsigned char *at,
                                            uint64_t object)
{
    uint64_t age = coder->made - 1 - object;
    int64_t step = (int64_t)(object - coder->last_freed);
    coder->last_freed = object;
    if (age < TRACE_YOUNG) {
        return trace_put_op(at, TRACE_FREE, (uint32_t)age);
    }
    if (step >= 1 && step <= TRACE_NEAR) {
        return trace_put_op(at, TRACE_FREE, (uint32_t)(TRACE_YOUNG + step - 1));
    }
    if (step <= -1 && step >= -TRACE_NEAR) {
        return trace_put_op(at, TRACE_FREE, (uint32_t)(TRACE_YOUNG + TRACE_NEAR - step - 1));
    }
    return trace_put(trace_put_op(at, TRACE_FREE, TRACE_FOLLOWS), age);
}

static inline unsigned char *trace_put_free_others(struct trace_coder *coder, unsigned char *at,
                                                   uint32_t thread, uint64_t object)
{
    uint64_t *last = &coder->others[thread % TRACE_OWNERS];
    at = thread < TRACE_FOLLOWS
             ? trace_put_op(at, TRACE_FREE_OTHERS, thread)
             : trace_put(trace_put_op(at, TRACE_FREE_OTHERS, TRACE_FOLLOWS), thread);
    at = trace_put(at, trace_zigzag((int64_t)(object - *last)));
    *last = object;
    return at;
}

static inline unsigned char *trace_put_mark(struct trace_coder *coder, unsigned char *at,
                                            uint64_t turn, uint64_t time_us, int64_t net)
{
    at = trace_put(trace_put_op(at, TRACE_MARK, 0), turn - coder->turn);
    at = trace_put(at, time_us > coder->time_us ? time_us - coder->time_us : 0);
    at = trace_put(at, trace_zigzag(net - coder->net));
    coder->turn = turn;
    coder->time_us = time_us > coder->time_us ? time_us : coder->time_us;
    coder->net = net;
    return at;
}

#endif
