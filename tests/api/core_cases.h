// SPDX-License-Identifier: MIT OR Apache-2.0
// malloc, calloc, free, usable size: limits, alignment, errno, zero sizes, overflow. The file that
// includes this one has chosen the form of the API before.
#pragma once

#include <algorithm>

namespace {

using support::KiB;
using support::MiB;
using support::too_large;

const std::size_t refused_sizes[] = {too_large,       too_large + 1, SIZE_MAX / 2 + 4096,
                                     SIZE_MAX - 4096, SIZE_MAX - 16, SIZE_MAX - 1,
                                     SIZE_MAX};

void expect_refused(void *block)
{
    EXPECT_EQ(block, nullptr);
    EXPECT_EQ(errno, ENOMEM);
    errno = 0;
}

TEST(Malloc, EverySmallSizeIsAlignedWritableAndApart)
{
    const std::size_t count = 5000;
    support::MappedArray<unsigned char *> blocks(count);
    for (std::size_t bytes = 0; bytes < count; bytes++) {
        blocks[bytes] = static_cast<unsigned char *>(api::allocate(bytes));
        ASSERT_NE(blocks[bytes], nullptr) << bytes;
        ASSERT_EQ(support::address(blocks[bytes]) % 16, 0U) << bytes;
        support::fill_pattern(blocks[bytes], 0, bytes, static_cast<unsigned>(bytes));
    }
    for (std::size_t bytes = 0; bytes < count; bytes++) {
        ASSERT_EQ(support::find_mismatch(blocks[bytes], bytes, static_cast<unsigned>(bytes)),
                  bytes);
        api::release(blocks[bytes]);
    }
}

TEST(Malloc, OneByteBlocksAreAligned)
{
    support::MappedArray<void *> blocks(3000);
    for (void *&block : blocks) {
        block = api::allocate(1);
        ASSERT_EQ(support::address(block) % 16, 0U);
    }
    for (void *block : blocks)
        api::release(block);
}

TEST(Malloc, ZeroBytesGivesUniqueBlocks)
{
    support::MappedArray<void *> blocks(1000);
    for (void *&block : blocks) {
        block = api::allocate(0);
        ASSERT_NE(block, nullptr);
    }
    std::sort(blocks.begin(), blocks.end());
    EXPECT_EQ(std::adjacent_find(blocks.begin(), blocks.end()), blocks.end());
    for (void *block : blocks)
        api::release(block);
}

TEST(Malloc, RefusesSizesAbovePtrdiffMax)
{
    for (std::size_t bytes : refused_sizes) {
        errno = 0;
        expect_refused(api::allocate(bytes));
    }
    void *block = api::allocate(100);
    EXPECT_NE(block, nullptr) << "a refusal must leave the heap usable";
    api::release(block);
}

TEST(Malloc, RefusesMoreThanTheAddressSpace)
{
    errno = 0;
    expect_refused(api::allocate(static_cast<std::size_t>(PTRDIFF_MAX)));
    expect_refused(api::allocate(std::size_t{1} << 52));
}

TEST(Malloc, LargeBlocksAreWritableToTheEnd)
{
    for (std::size_t bytes = 16 * KiB; bytes <= 64 * MiB; bytes *= 2)
        for (std::size_t size : {bytes - 1, bytes, bytes + 1}) {
            auto *block = static_cast<unsigned char *>(api::allocate(size));
            ASSERT_NE(block, nullptr) << size;
            ASSERT_EQ(support::address(block) % 16, 0U) << size;
            block[0] = 1;
            block[size - 1] = 2;
            api::release(block);
        }
}

TEST(Calloc, RefusesOverflow)
{
    const std::size_t half = std::size_t{1} << (sizeof(std::size_t) * 4);
    const std::size_t pairs[][2] = {
        {half, half},      {SIZE_MAX, 2},           {2, SIZE_MAX},  {SIZE_MAX, SIZE_MAX},
        {SIZE_MAX / 2, 3}, {SIZE_MAX / 16 + 1, 16}, {too_large, 1}, {1, too_large}};
    for (const auto &pair : pairs) {
        errno = 0;
        expect_refused(api::allocate_zeroed(pair[0], pair[1]));
    }
}

TEST(Calloc, ZeroCountOrSizeGivesABlock)
{
    void *first = api::allocate_zeroed(0, 10);
    void *second = api::allocate_zeroed(10, 0);
    void *third = api::allocate_zeroed(0, SIZE_MAX);
    EXPECT_NE(first, nullptr);
    EXPECT_NE(second, nullptr);
    EXPECT_NE(third, nullptr);
    EXPECT_NE(first, second);
    api::release(first);
    api::release(second);
    api::release(third);
}

void dirty_then_free(std::size_t bytes, support::MappedArray<void *> &blocks)
{
    for (void *&block : blocks) {
        block = api::allocate(bytes);
        ASSERT_NE(block, nullptr);
        std::memset(block, 0xff, api::usable_bytes(block));
    }
    for (void *block : blocks)
        api::release(block);
}

void expect_zeroed(std::size_t bytes, support::MappedArray<void *> &blocks)
{
    for (void *&block : blocks) {
        block = api::allocate_zeroed(1, bytes);
        ASSERT_NE(block, nullptr);
        ASSERT_TRUE(support::all_zero(block, bytes)) << bytes;
    }
    for (void *block : blocks)
        api::release(block);
}

TEST(Calloc, IsZeroAfterReuse)
{
    support::MappedArray<void *> blocks(200);
    for (std::size_t bytes : {1U, 8U, 16U, 24U, 48U, 64U, 100U, 128U, 200U, 333U, 512U, 1000U,
                              2048U, 4096U, 5000U, 8192U, 12345U, 16384U, 32768U})
        for (int round = 0; round < 3; round++) {
            ASSERT_NO_FATAL_FAILURE(dirty_then_free(bytes, blocks));
            ASSERT_NO_FATAL_FAILURE(expect_zeroed(bytes, blocks));
        }
}

TEST(Calloc, LargeIsZeroAfterReuse)
{
    support::MappedArray<void *> blocks(3);
    for (std::size_t bytes : {33 * KiB, 65 * KiB, 200 * KiB, MiB, 3 * MiB + 5, 8 * MiB})
        for (int round = 0; round < 3; round++) {
            ASSERT_NO_FATAL_FAILURE(dirty_then_free(bytes, blocks));
            ASSERT_NO_FATAL_FAILURE(expect_zeroed(bytes, blocks));
        }
}

TEST(Calloc, LargeIsZeroWhenCarvedFromAnotherSize)
{
    support::MappedArray<void *> blocks(3);
    ASSERT_NO_FATAL_FAILURE(dirty_then_free(6 * MiB, blocks));
    for (std::size_t bytes : {40 * KiB, 100 * KiB, MiB, 5 * MiB, 17 * MiB})
        ASSERT_NO_FATAL_FAILURE(expect_zeroed(bytes, blocks));
}

TEST(Free, NullIsIgnored)
{
    errno = 77;
    api::release(nullptr);
    EXPECT_EQ(errno, 77);
}

TEST(Free, KeepsErrno)
{
    for (std::size_t bytes : {std::size_t{1}, std::size_t{100}, 4 * KiB, 40 * KiB, MiB, 64 * MiB}) {
        support::MappedArray<void *> blocks(bytes < MiB ? 500 : 2);
        for (void *&block : blocks) {
            block = api::allocate(bytes);
            static_cast<char *>(block)[0] = 1;
        }
        for (void *block : blocks) {
            errno = EXDEV;
            api::release(block);
            ASSERT_EQ(errno, EXDEV) << bytes;
        }
    }
}

TEST(Free, SizedFormsRelease)
{
    const std::size_t before = support::resident_bytes();
    for (std::size_t i = 0; i < support::scaled(3000); i++) {
        for (std::size_t bytes : {std::size_t{24}, 3 * KiB, 300 * KiB}) {
            void *block = api::allocate(bytes);
            std::memset(block, 1, bytes);
            api::release_sized(block, bytes);
        }
        void *block = api::allocate_aligned(256, 1000);
        std::memset(block, 1, 1000);
        api::release_aligned_sized(block, 256, 1000);
    }
    api::release_sized(nullptr, 10);
    api::release_aligned_sized(nullptr, 64, 10);
    support::expect_resident_at_most(before + 64 * MiB, "the sized forms leak");
}

TEST(UsableSize, CoversTheRequestIsStableAndWritable)
{
    for (std::size_t bytes = 0; bytes <= 200 * KiB; bytes += bytes < 2 * KiB ? 1 : bytes / 97) {
        void *block = api::allocate(bytes);
        const std::size_t usable = api::usable_bytes(block);
        ASSERT_GE(usable, bytes);
        support::fill_pattern(block, 0, usable, 3);
        void *neighbour = api::allocate(bytes);
        support::fill_pattern(neighbour, 0, api::usable_bytes(neighbour), 9);
        ASSERT_EQ(api::usable_bytes(block), usable) << bytes;
        ASSERT_EQ(support::find_mismatch(block, usable, 3), usable) << bytes;
        api::release(neighbour);
        ASSERT_EQ(api::usable_bytes(block), usable) << bytes;
        api::release(block);
    }
}

TEST(UsableSize, OfNullIsZero) { EXPECT_EQ(api::usable_bytes(nullptr), 0U); }

TEST(UsableSize, WasteIsAtMostAnEighthOfTheBlock)
{
    for (std::size_t bytes = 129; bytes <= 128 * KiB; bytes += bytes < 4 * KiB ? 1 : 61) {
        void *block = api::allocate(bytes);
        const std::size_t usable = api::usable_bytes(block);
        api::release(block);
        ASSERT_LE((usable - bytes) * 8, usable) << bytes << " bytes got " << usable;
    }
}

} // namespace
