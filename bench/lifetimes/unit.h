// SPDX-License-Identifier: MIT OR Apache-2.0
// The objects of one unit of work, as those of a request: 225 of 88, 184 and 376 bytes,
// about 52 KB, their sizes in an order that repeats.
#ifndef EBB_BENCH_LIFETIMES_UNIT_H
#define EBB_BENCH_LIFETIMES_UNIT_H

#include "scope.h"

enum { UNIT_OBJECTS = 225 };

// 66 of 88, 72 of 184, 87 of 376 bytes: the smallest in every third place (75) but for
// the nine that come too late.
static inline uint16_t unit_size(uint32_t index)
{
    static const uint16_t sizes[] = {88, 184, 376};
    return sizes[index < 198 ? index % 3 : index < 204 ? 1 : 2];
}

#endif
