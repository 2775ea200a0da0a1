// SPDX-License-Identifier: MIT OR Apache-2.0
// Huge objects for the tests that are about them.
#pragma once

#include "support/arena_walk.h"

namespace unit {

inline Block huge(std::size_t bytes, std::size_t align = 1)
{
    Block block{static_cast<unsigned char *>(ebbi_huge_alloc(bytes, align, false)), bytes, 0x5C};
    if (block.bytes != nullptr)
        block.fill();
    return block;
}

inline constexpr std::size_t huge_gaps = 4 * MiB; // at both ends

inline std::size_t huge_count()
{
    struct ebbi_arena_totals totals;
    ebbi_arena_totals(&totals);
    return totals.huge_count;
}

} // namespace unit
