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

EBBI_INLINE void ebbi_canary_put(struct ebbi_range range, uint64_t canary)
{
    char *at = range.from;
    for (; at < range.to && (uintptr_t)at % sizeof canary != 0; at++) {
        *at = (char)ebbi_canary_at(canary, at);
    }
    for (; at + sizeof canary <= range.to; at += sizeof canary) {
        memcpy(at, &canary, sizeof canary); // on a little-endian machine
    }
    for (; at < range.to; at++) {
        *at = (char)ebbi_canary_at(canary, at);
    }
}

// Whole chunks of words that are the canary, as far as they come one after the other: what compilers make vectors of.
EBBI_INLINE const char *ebbi_canary_skip(const char *at, const char *to, uint64_t canary)
{
    enum { WORDS = 8 };
    for (uint64_t some[WORDS], differs = 0; (size_t)(to - at) >= sizeof some; at += sizeof some) {
        memcpy(some, at, sizeof some);
        for (size_t i = 0; i < WORDS; i++) {
            differs |= some[i] ^ canary;
        }
        if (differs != 0) {
            break;
        }
    }
    return at;
}

// The first byte of the range that is not that of the canary; NULL: all are.
static inline const char *ebbi_canary_changed(struct ebbi_range range, uint64_t canary)
{
    const char *at = range.from;
    uint64_t word = canary;
    while (at < range.to && (uintptr_t)at % sizeof word != 0) {
        if ((unsigned char)*at != ebbi_canary_at(canary, at)) {
            return at;
        }
        at++;
    }
    at = ebbi_canary_skip(at, range.to, canary);
    for (; at + sizeof word <= range.to; at += sizeof word) {
        memcpy(&word, at, sizeof word);
        if (word != canary) {
            break;
        }
    }
    while (at < range.to && (unsigned char)*at == ebbi_canary_at(canary, at)) {
        at++;
    }
    return at < range.to ? at : NULL;
}

#endif
