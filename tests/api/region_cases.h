// SPDX-License-Identifier: MIT OR Apache-2.0
// Blocks of regions: sizes, alignment, zeroing, realloc, free from anywhere (law R5), promote, limits.
// The file that includes this one has chosen the form of the API before.
#pragma once

#include "region_support.h"

namespace {

using namespace regions;
using support::KiB;
using support::MiB;
using support::too_large;

TEST(RegionAlloc, EverySizeIsAlignedUsableAndApart)
{
    ebb_region *region = open();
    ASSERT_NE(region, nullptr);
    void *blocks[std::size(border_sizes)];
    std::size_t i = 0;
    for (std::size_t bytes : border_sizes) {
        blocks[i] = take_filled(region, bytes, i);
        ASSERT_NE(blocks[i], nullptr) << bytes;
        ASSERT_EQ(support::address(blocks[i]) % 16, 0U) << bytes;
        ASSERT_GE(api::usable_bytes(blocks[i]), bytes);
        ASSERT_EQ(ebb_region_of(blocks[i]), region) << bytes;
        i++;
    }
    for (i = 0; i < std::size(border_sizes); i++)
        EXPECT_TRUE(is_filled(blocks[i], border_sizes[i], i)) << border_sizes[i];
    EXPECT_EQ(stats(region).live_blocks, std::size(border_sizes));
    ebb_region_release(region);
}

TEST(RegionAlloc, FortyMegabytes)
{
    ebb_region *region = open();
    void *block = take_filled(region, 40 * MiB, 1);
    ASSERT_NE(block, nullptr);
    const ebb_region_stats during = stats(region);
    EXPECT_EQ(during.large_blocks, 1U);
    EXPECT_GE(during.held_bytes, 40 * MiB);
    EXPECT_GE(during.resident_bytes, 39 * MiB);
    EXPECT_TRUE(is_filled(block, 40 * MiB, 1));
    api::release(block);
    EXPECT_LT(stats(region).held_bytes, 4 * MiB);
    EXPECT_EQ(stats(region).large_blocks, 0U);
    ebb_region_release(region);
}

// Usable bytes are the program's: written in full they must not meet a neighbour.
TEST(RegionAlloc, UsableBytesMayBeWritten)
{
    ebb_region *region = open();
    support::MappedArray<void *> blocks(3000);
    for (std::size_t i = 0; i < blocks.size(); i++) {
        blocks[i] = take(region, i % 300);
        support::fill_pattern(blocks[i], 0, api::usable_bytes(blocks[i]), seed_of(i));
    }
    for (std::size_t i = 0; i < blocks.size(); i++)
        ASSERT_TRUE(is_filled(blocks[i], api::usable_bytes(blocks[i]), i)) << i;
    ebb_region_release(region);
}

TEST(RegionAlloc, ImpossibleSizesAreRefused)
{
    ebb_region *region = open();
    for (std::size_t bytes : {too_large, SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 64 * KiB}) {
        errno = 0;
        EXPECT_EQ(take(region, bytes), nullptr) << bytes;
        EXPECT_EQ(errno, ENOMEM);
        errno = 0;
        EXPECT_EQ(ebb_region_aligned_alloc(region, 4096, support::opaque(bytes)), nullptr);
        EXPECT_EQ(errno, ENOMEM);
        errno = 0;
        EXPECT_EQ(ebb_region_calloc(region, support::opaque(bytes), 1), nullptr);
        EXPECT_EQ(errno, ENOMEM);
    }
    EXPECT_NE(take(region, 10), nullptr);
    EXPECT_EQ(stats(region).live_blocks, 1U);
    ebb_region_release(region);
}

TEST(RegionAlloc, AlignedToEveryPowerOfTwo)
{
    ebb_region *region = open();
    for (std::size_t align = 1; align <= MiB; align *= 2)
        for (std::size_t bytes :
             {std::size_t{0}, std::size_t{1}, std::size_t{100}, 5 * KiB, 64 * KiB, 200 * KiB}) {
            void *block = ebb_region_aligned_alloc(region, support::opaque(align), bytes);
            ASSERT_NE(block, nullptr) << align << " " << bytes;
            ASSERT_EQ(support::address(block) % std::max<std::size_t>(align, 16), 0U) << bytes;
            ASSERT_GE(api::usable_bytes(block), bytes);
            ASSERT_EQ(ebb_region_of(block), region) << align << " " << bytes;
            std::memset(block, 1, bytes);
            if (bytes % 3 == 0)
                api::release(block);
        }
    for (std::size_t align : {std::size_t{0}, std::size_t{3}, std::size_t{24}, SIZE_MAX}) {
        errno = 0;
        EXPECT_EQ(ebb_region_aligned_alloc(region, support::opaque(align), 10), nullptr) << align;
        EXPECT_EQ(errno, EINVAL) << align;
    }
    ebb_region_release(region);
}

TEST(RegionCalloc, ProductsThatOverflowAreRefused)
{
    ebb_region *region = open();
    const std::size_t root = std::size_t{1} << 32;
    const std::size_t pairs[][2] = {
        {root, root}, {SIZE_MAX, 2}, {2, SIZE_MAX / 2 + 1}, {root + 1, root - 1}};
    for (const auto &pair : pairs) {
        errno = 0;
        EXPECT_EQ(ebb_region_calloc(region, support::opaque(pair[0]), support::opaque(pair[1])),
                  nullptr);
        EXPECT_EQ(errno, ENOMEM);
    }
    EXPECT_EQ(stats(region).live_blocks, 0U);
    ebb_region_release(region);
}

// Dirt first: by blocks that were freed, by a reset, and by a region that went before.
TEST(RegionCalloc, IsZeroInRecycledMemory)
{
    const std::size_t sizes[] = {1, 16, 100, 1000, 10 * KiB, 100 * KiB, 200 * KiB, MiB};
    ebb_region *region = open();
    for (int round = 0; round < 20; round++) {
        for (std::size_t bytes : sizes) {
            void *dirt = take(region, bytes);
            std::memset(dirt, 0xa5, api::usable_bytes(dirt));
            if (round % 3 == 0)
                api::release(dirt);
            auto *clean = static_cast<char *>(ebb_region_calloc(region, bytes, 1));
            ASSERT_NE(clean, nullptr);
            ASSERT_TRUE(support::all_zero(clean, bytes)) << bytes << " in round " << round;
            std::memset(clean, 0x5a, bytes);
            api::release(clean);
        }
        if (round % 4 == 1) {
            ebb_region_reset(region);
        } else if (round % 4 == 3) {
            ebb_region_release(region);
            region = open();
        }
    }
    ebb_region_release(region);
}

TEST(RegionRealloc, NewestBlockGrowsAndShrinksInPlace)
{
    ebb_region *region = open();
    ASSERT_NE(take(region, 100), nullptr);
    void *block = take_filled(region, 64, 2);
    for (std::size_t bytes : {std::size_t{100}, std::size_t{1000}, std::size_t{5000}, 20 * KiB}) {
        ASSERT_EQ(ebb_region_realloc(region, block, bytes), block) << bytes;
        EXPECT_GE(api::usable_bytes(block), bytes);
        EXPECT_TRUE(is_filled(block, 64, 2));
    }
    ASSERT_EQ(ebb_region_realloc(region, block, 64), block);
    EXPECT_TRUE(is_filled(block, 64, 2));
    EXPECT_EQ(stats(region).live_blocks, 2U);
    ebb_region_release(region);
}

TEST(RegionRealloc, OtherBlocksMoveWithTheirContents)
{
    ebb_region *region = open();
    for (std::size_t from : border_sizes)
        for (std::size_t to : border_sizes) {
            if (to == 0)
                continue;
            void *block = take_filled(region, from, from);
            void *newer = take_filled(region, 40, 1);
            void *moved = ebb_region_realloc(region, block, support::opaque(to));
            ASSERT_NE(moved, nullptr) << from << "->" << to;
            ASSERT_TRUE(is_filled(moved, std::min(from, to), from)) << from << "->" << to;
            ASSERT_GE(api::usable_bytes(moved), to);
            std::memset(moved, 1, to);
            ASSERT_TRUE(is_filled(newer, 40, 1)) << from << "->" << to;
            ASSERT_EQ(ebb_region_of(moved), region);
            api::release(moved);
            api::release(newer);
        }
    EXPECT_EQ(stats(region).live_blocks, 0U) << "a block that moved was not freed";
    ebb_region_release(region);
}

// Blocks of one size fill the holes between their like to the last byte: the next block is a neighbour's.
TEST(RegionRealloc, InHolesThatAreFilledExactly)
{
    for (std::size_t bytes : {4096U, 5008U, 8000U, 16000U}) {
        ebb_region *region = open();
        support::MappedArray<void *> blocks(400);
        for (std::size_t i = 0; i < blocks.size(); i++)
            blocks[i] = take_filled(region, bytes, i);
        for (std::size_t i = 0; i < blocks.size(); i += 2)
            api::release(blocks[i]);
        for (std::size_t i = 0; i < blocks.size(); i += 2) {
            blocks[i] = take_filled(region, bytes, i);
            if (i % 4 == 0)
                blocks[i] = ebb_region_realloc(region, blocks[i], bytes / 3);
            if (i % 8 == 0)
                blocks[i] = ebb_region_realloc(region, blocks[i], bytes);
        }
        for (std::size_t i = 0; i < blocks.size(); i++) {
            ASSERT_TRUE(is_filled(blocks[i], bytes / 3, i)) << i;
            ASSERT_EQ(ebb_region_of(blocks[i]), region) << i;
            api::release(blocks[i]);
        }
        EXPECT_EQ(stats(region).live_blocks, 0U);
        ebb_region_release(region);
    }
}

TEST(RegionRealloc, OfNullOfZeroAndRefused)
{
    ebb_region *region = open();
    void *block = ebb_region_realloc(region, nullptr, 100);
    ASSERT_NE(block, nullptr);
    support::fill_pattern(block, 0, 100, 5);
    for (std::size_t bytes : {too_large, SIZE_MAX}) {
        errno = 0;
        EXPECT_EQ(ebb_region_realloc(region, block, support::opaque(bytes)), nullptr);
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_EQ(support::find_mismatch(block, 100, 5), 100U);
        EXPECT_EQ(ebb_region_of(block), region);
    }
    EXPECT_EQ(ebb_region_realloc(region, block, 0), nullptr);
    EXPECT_EQ(stats(region).live_blocks, 0U);
    ebb_region_release(region);
}

// p may be the heap's, or another region's: the result is in the region that was asked for.
TEST(RegionRealloc, TakesBlocksFromElsewhere)
{
    ebb_region *from = open("realloc from");
    ebb_region *to = open("realloc to");
    for (std::size_t bytes : {std::size_t{48}, std::size_t{3000}, 60 * KiB, 200 * KiB}) {
        void *heap_block = api::allocate(bytes);
        support::fill_pattern(heap_block, 0, bytes, 9);
        void *moved = ebb_region_realloc(to, heap_block, bytes + 50);
        ASSERT_EQ(support::find_mismatch(moved, bytes, 9), bytes);
        ASSERT_EQ(ebb_region_of(moved), to) << bytes;
        void *other = take_filled(from, bytes, 4);
        moved = ebb_region_realloc(to, other, bytes);
        ASSERT_TRUE(is_filled(moved, bytes, 4));
        ASSERT_EQ(ebb_region_of(moved), to) << bytes;
    }
    EXPECT_EQ(stats(from).live_blocks, 0U);
    EXPECT_EQ(stats(to).live_blocks, 8U);
    ebb_region_release(from);
    ebb_region_release(to);
}

TEST(RegionPromote, CopiesSmallAndLargeToRegionAndHeap)
{
    for (std::size_t bytes : border_sizes) {
        ebb_region *from = open("promote from");
        ebb_region *to = open("promote to");
        void *block = take(from, bytes);
        const std::size_t usable = api::usable_bytes(block);
        support::fill_pattern(block, 0, usable, seed_of(bytes));
        void *in_region = ebb_region_promote(block, to);
        void *in_heap = ebb_region_promote(block, nullptr);
        ASSERT_NE(in_region, nullptr);
        ASSERT_NE(in_heap, nullptr);
        EXPECT_EQ(ebb_region_of(in_region), to);
        EXPECT_EQ(ebb_region_of(in_heap), nullptr);
        EXPECT_TRUE(is_filled(block, usable, bytes)) << "the original changed";
        ebb_region_release(from);
        EXPECT_GE(api::usable_bytes(in_region), usable);
        EXPECT_GE(api::usable_bytes(in_heap), usable);
        EXPECT_TRUE(is_filled(in_region, usable, bytes)) << bytes;
        void *back = ebb_region_promote(in_heap, to);
        EXPECT_TRUE(is_filled(back, usable, bytes)) << bytes;
        EXPECT_EQ(ebb_region_of(back), to);
        api::release(in_heap);
        ebb_region_release(to);
    }
}

// "To the heap" holds wherever the caller is.
TEST(RegionPromote, ToTheHeapWhileARegionIsCurrent)
{
    ebb_region *region = open();
    void *copy = nullptr;
    {
        const InRegion scope(region);
        copy = ebb_region_promote(take_filled(region, 500, 3), nullptr);
    }
    ASSERT_NE(copy, nullptr);
    EXPECT_EQ(ebb_region_of(copy), nullptr);
    ebb_region_release(region);
    EXPECT_TRUE(is_filled(copy, 500, 3));
    api::release(copy);
}

TEST(RegionPromote, RefusedByTheTargetsLimit)
{
    ebb_region *from = open();
    ebb_region *to = open("narrow", nullptr, 0, 256 * KiB);
    void *block = take(from, MiB);
    errno = 0;
    EXPECT_EQ(ebb_region_promote(block, to), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(stats(to).live_blocks, 0U);
    EXPECT_GE(api::usable_bytes(block), MiB);
    ebb_region_release(to);
    ebb_region_release(from);
}

TEST(RegionOf, KnowsOpenRegionsAndNothingElse)
{
    ebb_region *region = open();
    auto *small = static_cast<char *>(take(region, 100));
    auto *large = static_cast<char *>(take(region, 300 * KiB));
    void *heap_block = api::allocate(100);
    int on_stack = 0;
    EXPECT_EQ(ebb_region_of(small), region);
    EXPECT_EQ(ebb_region_of(large), region);
    EXPECT_EQ(ebb_region_of(nullptr), nullptr);
    EXPECT_EQ(ebb_region_of(heap_block), nullptr);
    EXPECT_EQ(ebb_region_of(&on_stack), nullptr);
    EXPECT_EQ(ebb_region_of(reinterpret_cast<void *>(std::uintptr_t{16})), nullptr);
    EXPECT_EQ(ebb_region_of(reinterpret_cast<void *>(UINTPTR_MAX - 15)), nullptr);
    EXPECT_EQ(ebb_region_of(small + 16), nullptr) << "inside a block is no block";
    api::release(small);
    EXPECT_EQ(ebb_region_of(small), nullptr) << "freed";
    void *survivor = take(region, 50);
    ebb_region_close(region);
    EXPECT_EQ(ebb_region_of(survivor), nullptr) << "closed";
    EXPECT_EQ(ebb_region_of(large), nullptr) << "closed";
    api::release(survivor);
    api::release(large);
    EXPECT_EQ(ebb_region_of(survivor), nullptr);
    api::release(heap_block);
}

} // namespace
