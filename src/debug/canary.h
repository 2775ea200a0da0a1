// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: ranges of memory that hold a word of eight bytes over and over, each byte where the address has it (the
// machine is little-endian), and what has changed there since.
#ifndef EBB_DEBUG_CANARY_H
#define EBB_DEBUG_CANARY_H

#include <string.h>

#include "base/base.h"

struct ebbi_range {
    char *from, *to;
};

EBBI_INLINE unsigned char ebbi_canary_at(uint64_t canary, const char *at)
{
    return (unsigned char)(canary >> (uintptr_t)at % sizeof canary * 8);
}

// The eight bytes from any address on.
EBBI_INLINE uint64_t ebbi_canary_from(uint64_t canary, const char *at)
{
    unsigned bits = (unsigned)((uintptr_t)at % sizeof canary * 8);
    return canary >> bits | canary << (-bits % 64);
}

EBBI_INLINE bool ebbi_canary_is_word(const char *at, uint64_t word)
{
    uint64_t here;
    memcpy(&here, at, sizeof here);
    return here == word;
}

EBBI_INLINE char *ebbi_canary_next_word(const char *at)
{
    return (char *)(((uintptr_t)at | (sizeof(uint64_t) - 1)) + 1);
}

// From eight bytes on: the first eight and the last eight as words of their own, and the aligned ones in between.
EBBI_INLINE void ebbi_canary_put(struct ebbi_range range, uint64_t canary)
{
    uint64_t first = ebbi_canary_from(canary, range.from);
    uint64_t last = ebbi_canary_from(canary, range.to);
    char *at = range.from;
    if ((size_t)(range.to - at) < sizeof canary) {
        for (; at < range.to; at++) {
            *at = (char)ebbi_canary_at(canary, at);
        }
        return;
    }
    memcpy(at, &first, sizeof first);
    for (at = ebbi_canary_next_word(at); at < range.to - sizeof last; at += sizeof canary) {
        memcpy(at, &canary, sizeof canary);
    }
    memcpy(range.to - sizeof last, &last, sizeof last);
}

typedef uint64_t ebbi_pair __attribute__((vector_size(16)));
#define EBBI_CANARY_CHUNK 64 // bytes that are compared at a time

EBBI_INLINE ebbi_pair ebbi_canary_pair(const char *at)
{
    ebbi_pair pair;
    memcpy(&pair, at, sizeof pair);
    return pair;
}

EBBI_INLINE bool ebbi_canary_is_chunk(const char *at, ebbi_pair wanted)
{
    ebbi_pair differs =
        ((ebbi_canary_pair(at) ^ wanted) | (ebbi_canary_pair(at + 16) ^ wanted)) |
        ((ebbi_canary_pair(at + 32) ^ wanted) | (ebbi_canary_pair(at + 48) ^ wanted));
    return (differs[0] | differs[1]) == 0;
}

// Whole chunks of the word, as far as they come one after the other.
EBBI_INLINE const char *ebbi_canary_skip(const char *at, const char *to, uint64_t word)
{
    const ebbi_pair wanted = {word, word};
    while (to - at >= EBBI_CANARY_CHUNK && ebbi_canary_is_chunk(at, wanted)) {
        at += EBBI_CANARY_CHUNK;
    }
    return at;
}

// Whether nothing has changed of sixteen bytes or more, from a multiple of eight to one.
EBBI_INLINE bool ebbi_canary_holds_words(struct ebbi_range range, uint64_t word)
{
    const ebbi_pair wanted = {word, word};
    EBBI_ASSERT(((uintptr_t)range.from | (uintptr_t)range.to) % sizeof word == 0);
    EBBI_ASSERT(range.to - range.from >= (ptrdiff_t)sizeof wanted);
    const char *at = ebbi_canary_skip(range.from, range.to, word);
    if (range.to - at >= EBBI_CANARY_CHUNK) {
        return false;
    }
    ebbi_pair differs = ebbi_canary_pair(range.to - sizeof wanted) ^ wanted;
    for (; range.to - at >= (ptrdiff_t)sizeof wanted; at += sizeof wanted) {
        differs |= ebbi_canary_pair(at) ^ wanted;
    }
    return (differs[0] | differs[1]) == 0;
}

// Whether nothing of the range has changed, by the same words.
EBBI_INLINE bool ebbi_canary_holds(struct ebbi_range range, uint64_t canary)
{
    const char *at = range.from, *last = range.to - sizeof canary;
    if ((size_t)(range.to - at) < sizeof canary) {
        while (at < range.to && (unsigned char)*at == ebbi_canary_at(canary, at)) {
            at++;
        }
        return at == range.to;
    }
    if (!ebbi_canary_is_word(at, ebbi_canary_from(canary, at))) {
        return false;
    }
    at = ebbi_canary_skip(ebbi_canary_next_word(at), range.to, canary);
    for (; at < last; at += sizeof canary) {
        if (!ebbi_canary_is_word(at, canary)) {
            return false;
        }
    }
    return ebbi_canary_is_word(last, ebbi_canary_from(canary, range.to));
}

// The two for at least eight bytes that end at a multiple of eight.
EBBI_INLINE void ebbi_canary_put_to_word(struct ebbi_range range, uint64_t canary)
{
    uint64_t first = ebbi_canary_from(canary, range.from);
    EBBI_ASSERT((uintptr_t)range.to % sizeof canary == 0);
    memcpy(range.from, &first, sizeof first);
    for (char *at = ebbi_canary_next_word(range.from); at < range.to; at += sizeof canary) {
        memcpy(at, &canary, sizeof canary);
    }
}

EBBI_INLINE bool ebbi_canary_holds_to_word(struct ebbi_range range, uint64_t canary)
{
    bool holds = ebbi_canary_is_word(range.from, ebbi_canary_from(canary, range.from));
    EBBI_ASSERT((uintptr_t)range.to % sizeof canary == 0);
    for (const char *at = ebbi_canary_next_word(range.from); holds && at < range.to;
         at += sizeof canary) {
        holds = ebbi_canary_is_word(at, canary);
    }
    return holds;
}

// The first byte of the range that is not that of the canary; NULL: all are.
static inline const char *ebbi_canary_changed(struct ebbi_range range, uint64_t canary)
{
    if (EBBI_LIKELY(ebbi_canary_holds(range, canary))) {
        return NULL;
    }
    const char *at = ebbi_canary_skip(range.from, range.to, ebbi_canary_from(canary, range.from));
    while (at < range.to && (unsigned char)*at == ebbi_canary_at(canary, at)) {
        at++;
    }
    return at < range.to ? at : NULL;
}

#endif
