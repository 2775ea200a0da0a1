// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer base: numbers that look random, from others. Not for secrets that must not be computed back.
#ifndef EBB_BASE_MIX_H
#define EBB_BASE_MIX_H

#include "base/base.h"

#define EBBI_GOLDEN_RATIO 0x9E3779B97F4A7C15u // of 2^64

// What splitmix64 does to its state (Steele, Lea, Flood, 2014).
EBBI_INLINE uint64_t ebbi_scramble(uint64_t number)
{
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9u;
    number = (number ^ number >> 27) * 0x94D049BB133111EBu;
    return number ^ number >> 31;
}

// One word more into a sum.
EBBI_INLINE uint64_t ebbi_mix(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * EBBI_GOLDEN_RATIO;
    return sum ^ sum >> 32;
}

// Two words as one: the halves of their product (as in wyhash, Wang Yi, 2019).
EBBI_INLINE uint64_t ebbi_fold(uint64_t a, uint64_t b)
{
    __extension__ unsigned __int128 product = a;
    product *= b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

#endif
