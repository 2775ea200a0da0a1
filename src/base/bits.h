// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer base: ranges of bits in arrays of words. Linear in the number of words touched.
#ifndef EBB_BASE_BITS_H
#define EBB_BASE_BITS_H

#include "base/base.h"

EBBI_INLINE bool ebbi_bits_test(const uint64_t *map, size_t bit)
{
    return (map[bit / 64] >> (bit % 64) & 1) != 0;
}

EBBI_INLINE void ebbi_bits_put(uint64_t *map, size_t bit, bool value)
{
    uint64_t mask = (uint64_t)1 << (bit % 64);
    map[bit / 64] = value ? map[bit / 64] | mask : map[bit / 64] & ~mask;
}

// The bits of `word` that lie in [first, first + count).
EBBI_INLINE uint64_t ebbi_bits_mask(size_t word, size_t first, size_t count)
{
    size_t low = ebbi_max(first, word * 64);
    size_t high = ebbi_min(first + count, word * 64 + 64);
    uint64_t bits = high - low == 64 ? ~(uint64_t)0 : ((uint64_t)1 << (high - low)) - 1;
    return bits << (low % 64);
}

EBBI_INLINE size_t ebbi_bits_count(const uint64_t *map, size_t first, size_t count)
{
    size_t total = 0;
    for (size_t w = first / 64; w * 64 < first + count; w++) {
        total += ebbi_count_bits(map[w] & ebbi_bits_mask(w, first, count));
    }
    return total;
}

// The first that is set; first + count: none.
EBBI_INLINE size_t ebbi_bits_find(const uint64_t *map, size_t first, size_t count)
{
    for (size_t w = first / 64; w * 64 < first + count; w++) {
        uint64_t found = map[w] & ebbi_bits_mask(w, first, count);
        if (found != 0) {
            return w * 64 + ebbi_lowest_bit(found);
        }
    }
    return first + count;
}

EBBI_INLINE void ebbi_bits_set(uint64_t *map, size_t first, size_t count)
{
    for (size_t w = first / 64; w * 64 < first + count; w++) {
        map[w] |= ebbi_bits_mask(w, first, count);
    }
}

EBBI_INLINE void ebbi_bits_clear(uint64_t *map, size_t first, size_t count)
{
    for (size_t w = first / 64; w * 64 < first + count; w++) {
        map[w] &= ~ebbi_bits_mask(w, first, count);
    }
}

#endif
