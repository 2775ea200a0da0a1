// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: ranges of bits. Linear in the number of words touched.
#include "arena/internal.h"

// The bits of `word` that lie in [first, first + count).
static uint64_t word_mask(size_t word, size_t first, size_t count)
{
    size_t low = ebbi_max(first, word * 64);
    size_t high = ebbi_min(first + count, word * 64 + 64);
    uint64_t bits = high - low == 64 ? ~(uint64_t)0 : ((uint64_t)1 << (high - low)) - 1;
    return bits << (low % 64);
}

size_t ebbi_map_count(const uint64_t *map, size_t first, size_t count)
{
    size_t total = 0;
    for (size_t w = first / 64; w * 64 < first + count; w++) {
        total += ebbi_count_bits(map[w] & word_mask(w, first, count));
    }
    return total;
}

void ebbi_map_set(uint64_t *map, size_t first, size_t count)
{
    for (size_t w = first / 64; w * 64 < first + count; w++) {
        map[w] |= word_mask(w, first, count);
    }
}

void ebbi_map_clear(uint64_t *map, size_t first, size_t count)
{
    for (size_t w = first / 64; w * 64 < first + count; w++) {
        map[w] &= ~word_mask(w, first, count);
    }
}
