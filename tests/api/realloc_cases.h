// SPDX-License-Identifier: MIT OR Apache-2.0
// realloc: contents over every class border and over large spans, both ways; zero sizes; refusals.
// The file that includes this one has chosen the form of the API before.
#pragma once

#include <algorithm>

namespace {

using support::KiB;
using support::MiB;
using support::too_large;

// Sizes on both sides of each class border up to 256 KiB, then a ladder up to 64 MiB.
std::vector<std::size_t> border_sizes(std::size_t limit)
{
    std::vector<std::size_t> sizes;
    for (std::size_t bytes = 1; bytes < 256 * KiB && bytes < limit;) {
        void *block = api::allocate(bytes);
        const std::size_t usable = api::usable_bytes(block);
        api::release(block);
        if (usable < bytes)
            break;
        sizes.push_back(bytes);
        if (usable != bytes)
            sizes.push_back(usable);
        bytes = usable + 1;
    }
    for (std::size_t bytes = 256 * KiB + 1; bytes <= limit; bytes += bytes / 5)
        sizes.push_back(bytes);
    sizes.push_back(limit);
    return sizes;
}

void expect_pattern(const void *block, std::size_t bytes, unsigned seed)
{
    ASSERT_EQ(support::find_mismatch(block, bytes, seed), bytes) << "contents lost at this byte";
}

TEST(Realloc, OfNullAllocates)
{
    for (std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, std::size_t{100}, 40 * KiB, 3 * MiB}) {
        void *block = api::resize(nullptr, bytes);
        ASSERT_NE(block, nullptr);
        ASSERT_GE(api::usable_bytes(block), bytes);
        api::release(block);
    }
}

// Whose memory is outside of the window where the alignment asks for it.
TEST(Realloc, AcceptsAlignedBlocks)
{
    for (std::size_t align = 32; align <= 64 * MiB; align *= 2)
        for (std::size_t bytes : {std::size_t{100}, 100 * KiB, MiB})
            for (std::size_t to : {bytes - bytes / 8, bytes + bytes / 8, 3 * bytes, bytes / 3}) {
                void *block = api::allocate_aligned(align, bytes);
                ASSERT_NE(block, nullptr);
                support::fill_pattern(block, 0, bytes, 7);
                block = api::resize(block, to);
                ASSERT_NE(block, nullptr);
                expect_pattern(block, std::min(bytes, to), 7);
                api::release(block);
            }
}

TEST(Realloc, ToZeroFreesAndGivesNull)
{
    const std::size_t before = support::resident_bytes();
    for (std::size_t i = 0; i < support::scaled(1000); i++)
        for (std::size_t bytes : {std::size_t{24}, 3 * KiB, 100 * KiB, MiB}) {
            void *block = api::allocate(bytes);
            static_cast<char *>(block)[0] = 1;
            static_cast<char *>(block)[bytes / 2] = 1;
            std::memset(block, 1, std::min(bytes, 64 * KiB));
            ASSERT_EQ(api::resize(block, 0), nullptr);
        }
    support::expect_resident_at_most(before + 24 * MiB, "realloc(p, 0) does not free");
}

TEST(Realloc, KeepsContentsWhileGrowingOverEveryBorder)
{
    void *block = api::allocate(1);
    support::fill_pattern(block, 0, 1, 5);
    std::size_t held = 1;
    for (std::size_t bytes : border_sizes(64 * MiB)) {
        block = api::resize(block, bytes);
        ASSERT_NE(block, nullptr) << bytes;
        ASSERT_EQ(support::address(block) % 16, 0U);
        ASSERT_GE(api::usable_bytes(block), bytes);
        ASSERT_NO_FATAL_FAILURE(expect_pattern(block, held, 5)) << bytes;
        support::fill_pattern(block, held, bytes, 5);
        held = bytes;
    }
    api::release(block);
}

TEST(Realloc, KeepsContentsWhileShrinkingOverEveryBorder)
{
    std::vector<std::size_t> sizes = border_sizes(64 * MiB);
    std::reverse(sizes.begin(), sizes.end());
    void *block = api::allocate(sizes.front());
    support::fill_pattern(block, 0, sizes.front(), 6);
    for (std::size_t bytes : sizes) {
        block = api::resize(block, bytes);
        ASSERT_NE(block, nullptr) << bytes;
        ASSERT_GE(api::usable_bytes(block), bytes);
        ASSERT_NO_FATAL_FAILURE(expect_pattern(block, bytes, 6)) << bytes;
    }
    api::release(block);
}

TEST(Realloc, KeepsContentsBetweenEveryPairOfBorders)
{
    const std::vector<std::size_t> sizes = border_sizes(20 * KiB);
    for (std::size_t from : sizes)
        for (std::size_t to : sizes) {
            void *block = api::allocate(from);
            const std::size_t kept = std::min(from, to);
            const std::size_t head = std::min<std::size_t>(kept, 64);
            support::fill_pattern(block, 0, head, 7);
            support::fill_pattern(block, kept - head, kept, 7);
            block = api::resize(block, to);
            ASSERT_NE(block, nullptr);
            for (std::size_t i = 0; i < head; i++) {
                ASSERT_EQ(static_cast<unsigned char *>(block)[i], support::pattern_byte(i, 7))
                    << from << "->" << to;
                const std::size_t tail = kept - head + i;
                ASSERT_EQ(static_cast<unsigned char *>(block)[tail], support::pattern_byte(tail, 7))
                    << from << "->" << to;
            }
            api::release(block);
        }
}

TEST(Realloc, LargeJumpsKeepContentsBesideNeighbours)
{
    const std::size_t sizes[] = {32 * KiB, 64 * KiB, 100 * KiB, MiB, 200 * KiB, 9 * MiB,
                                 5 * MiB,  40 * KiB, 16 * MiB,  100, 2 * MiB,   16};
    void *blocks[4] = {};
    std::size_t held[4] = {};
    for (std::size_t step = 0; step < 48; step++) {
        const std::size_t slot = step % 4;
        const unsigned seed = static_cast<unsigned>(slot + 20);
        const std::size_t bytes = sizes[(step * 5 + slot) % 12];
        blocks[slot] = api::resize(blocks[slot], bytes);
        ASSERT_NE(blocks[slot], nullptr);
        ASSERT_NO_FATAL_FAILURE(expect_pattern(blocks[slot], std::min(held[slot], bytes), seed));
        support::fill_pattern(blocks[slot], 0, bytes, seed);
        held[slot] = bytes;
    }
    for (std::size_t slot = 0; slot < 4; slot++) {
        ASSERT_NO_FATAL_FAILURE(
            expect_pattern(blocks[slot], held[slot], static_cast<unsigned>(slot + 20)));
        api::release(blocks[slot]);
    }
}

TEST(Realloc, RefusedLeavesTheBlockIntact)
{
    for (std::size_t bytes : {std::size_t{10}, std::size_t{1000}, 100 * KiB, 4 * MiB}) {
        void *block = api::allocate(bytes);
        const std::size_t usable = api::usable_bytes(block);
        support::fill_pattern(block, 0, bytes, 8);
        for (std::size_t refused :
             {too_large, SIZE_MAX, SIZE_MAX - 4096, static_cast<std::size_t>(PTRDIFF_MAX)}) {
            errno = 0;
            ASSERT_EQ(api::resize(block, refused), nullptr);
            ASSERT_EQ(errno, ENOMEM);
            ASSERT_EQ(api::usable_bytes(block), usable);
            ASSERT_NO_FATAL_FAILURE(expect_pattern(block, bytes, 8));
        }
        api::release(block);
    }
}

TEST(Realloc, RefusedFromNullGivesNull)
{
    errno = 0;
    EXPECT_EQ(api::resize(nullptr, too_large), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

TEST(Realloc, KeepsContentsOfAlignedBlocks)
{
    for (std::size_t alignment = 32; alignment <= 4 * MiB; alignment *= 4)
        for (std::size_t bytes : {std::size_t{50}, 5 * KiB, 70 * KiB}) {
            void *block = api::allocate_aligned(alignment, bytes);
            ASSERT_NE(block, nullptr);
            support::fill_pattern(block, 0, bytes, 11);
            block = api::resize(block, bytes * 3);
            ASSERT_NE(block, nullptr);
            ASSERT_NO_FATAL_FAILURE(expect_pattern(block, bytes, 11));
            block = api::resize(block, bytes / 2);
            ASSERT_NO_FATAL_FAILURE(expect_pattern(block, bytes / 2, 11));
            api::release(block);
        }
}

TEST(Realloc, ShrunkLargeBlockReturnsItsMemory)
{
    if (support::under_sanitizer)
        GTEST_SKIP() << "resident memory is the sanitizer's here";
    void *block = api::allocate(64 * MiB);
    std::memset(block, 1, 64 * MiB);
    const std::size_t before = support::resident_bytes();
    block = api::resize(block, 100);
    ASSERT_NE(block, nullptr);
    for (int wait = 0; wait < 200 && support::resident_bytes() + 32 * MiB > before; wait++) {
        usleep(20 * 1000);
        api::release(api::allocate(64 * KiB));
    }
    EXPECT_LT(support::resident_bytes() + 32 * MiB, before) << "100 bytes pin 64 MiB";
    api::release(block);
}

} // namespace
