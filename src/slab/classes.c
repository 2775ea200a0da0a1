// SPDX-License-Identifier: MIT OR Apache-2.0
#include "slab/classes.h"

_Static_assert(EBBI_LANES > 0 &&
                   EBBI_EXCLUSIVE_BINS + EBBI_SHARING_BINS * EBBI_LANES < EBBI_TAG_REGION,
               "tags above are taken");

#define EBBI_CLASS_LOOKED_UP(size)                                                                 \
    _Static_assert((size) <= EBBI_SMALL_MAX && (size) % EBBI_QUANTUM == 0,                         \
                   "ebbi_lookup does not find this class")
// The guess grows with the size, so both ends say all.
#define EBBI_CLASS_GUESSED(number, least, most)                                                    \
    _Static_assert((most) % EBBI_QUANTUM == 0 && EBBI_CLASS_GUESS(least) + 1 >= (number) &&        \
                       EBBI_CLASS_GUESS(most) <= (number),                                         \
                   "EBBI_CLASS_GUESS does not find this class")
#define EBBI_CLASS_TABLE_DATA
#include "slab/class_table.h" // the same file, now for its data

// What one lane has of it lies in one page.
EBBI_SPARSE uint64_t ebbi_place_factor[EBBI_TAG_COUNT] __attribute__((aligned(4096)));

static uint64_t place_factor(const struct ebbi_class *c)
{
    uint64_t factor = UINT64_MAX / c->size + 1;
    uint64_t step = factor * c->size; // modulo 2^64: below size
    uint64_t least = (((uint64_t)1 << EBBI_PLACE_BITS) + c->blocks - 1) / c->blocks;
    factor += step < least ? (least - step + c->size - 1) / c->size : 0;
    EBBI_ASSERT((c->blocks - 1) * (factor * c->size) >> EBBI_PLACE_BITS == 0);
    EBBI_ASSERT(c->blocks * (factor * c->size) >> EBBI_PLACE_BITS != 0);
    return factor;
}

void ebbi_places_prepare(unsigned lane)
{
    for (unsigned number = 1; number < EBBI_CLASS_COUNT; number++) {
        const struct ebbi_class *c = &ebbi_classes[number];
        unsigned bin = ebbi_class_bin(number, lane);
        EBBI_ASSERT((size_t)c->blocks * c->size <= (size_t)c->granules << EBBI_GRANULE_SHIFT);
        EBBI_ASSERT(c->magic == (((uint64_t)1 << 40) + c->size - 1) / c->size);
        if (ebbi_place_factor[bin] == 0) { // what is there others read
            ebbi_place_factor[bin] = place_factor(c);
        }
    }
}
