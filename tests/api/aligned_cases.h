// SPDX-License-Identifier: MIT OR Apache-2.0
// aligned_alloc and posix_memalign: every power of two up to 64 MiB, refusals, untouched results.
// The file that includes this one has chosen the form of the API before.
#pragma once

#include <algorithm>

namespace {

using support::KiB;
using support::MiB;
using support::too_large;

const std::size_t crooked_alignments[] = {3,  5,   6,    7,    12,      24,
                                          48, 100, 4095, 4097, 3 * MiB, SIZE_MAX};

std::vector<std::size_t> sizes_for(std::size_t alignment)
{
    std::vector<std::size_t> sizes = {1, 15, 16, 17, 100, 1000, 4096, 5000, 33 * KiB};
    if (alignment <= MiB)
        sizes.insert(sizes.end(), {alignment - 1, alignment, alignment + 1,
                                   alignment + alignment / 2, 3 * alignment});
    return sizes;
}

void expect_aligned(void *block, std::size_t alignment, std::size_t bytes)
{
    ASSERT_NE(block, nullptr) << alignment << ", " << bytes;
    ASSERT_EQ(support::address(block) % std::max<std::size_t>(alignment, 16), 0U)
        << alignment << ", " << bytes;
    ASSERT_GE(api::usable_bytes(block), bytes) << alignment;
}

TEST(AlignedAlloc, EveryPowerOfTwo)
{
    for (std::size_t alignment = 1; alignment <= 64 * MiB; alignment *= 2)
        for (std::size_t bytes : sizes_for(alignment)) {
            auto *block = static_cast<unsigned char *>(api::allocate_aligned(alignment, bytes));
            ASSERT_NO_FATAL_FAILURE(expect_aligned(block, alignment, bytes));
            support::fill_pattern(block, 0, std::min(bytes, 4 * KiB), 1);
            if (bytes != 0)
                block[bytes - 1] = 1;
            api::release(block);
        }
}

TEST(AlignedAlloc, BlocksHeldTogetherAreApart)
{
    for (std::size_t alignment = 16; alignment <= 64 * KiB; alignment *= 2) {
        const std::size_t bytes = 40 + alignment / 3;
        support::MappedArray<void *> blocks(60);
        for (std::size_t i = 0; i < blocks.size(); i++) {
            blocks[i] = api::allocate_aligned(alignment, bytes);
            ASSERT_NO_FATAL_FAILURE(expect_aligned(blocks[i], alignment, bytes));
            support::fill_pattern(blocks[i], 0, api::usable_bytes(blocks[i]),
                                  static_cast<unsigned>(i));
        }
        for (std::size_t i = 0; i < blocks.size(); i++) {
            const std::size_t usable = api::usable_bytes(blocks[i]);
            ASSERT_EQ(support::find_mismatch(blocks[i], usable, static_cast<unsigned>(i)), usable)
                << alignment;
            api::release(blocks[i]);
        }
    }
}

TEST(AlignedAlloc, ManyOfOneAlignmentStayAlignedAfterReuse)
{
    support::Random random(4);
    support::MappedArray<void *> blocks(256);
    for (std::size_t step = 0; step < support::scaled(20000); step++) {
        void *&block = blocks[random.below(blocks.size())];
        api::release(block);
        const std::size_t alignment = std::size_t{1} << random.between(4, 12);
        const std::size_t bytes = random.between(1, 3000);
        block = api::allocate_aligned(alignment, bytes);
        ASSERT_NO_FATAL_FAILURE(expect_aligned(block, alignment, bytes));
        std::memset(block, 0x5a, bytes);
    }
    for (void *block : blocks)
        api::release(block);
}

TEST(AlignedAlloc, ZeroBytesGivesABlock)
{
    for (std::size_t alignment = 8; alignment <= 8 * KiB; alignment *= 4) {
        void *block = api::allocate_aligned(alignment, 0);
        ASSERT_NO_FATAL_FAILURE(expect_aligned(block, alignment, 0));
        api::release(block);
    }
}

TEST(AlignedAlloc, CrookedAlignmentIsInvalid)
{
    for (std::size_t alignment : crooked_alignments) {
        errno = 0;
        void *block = api::allocate_aligned(alignment, 100);
        EXPECT_EQ(block, nullptr) << alignment;
        EXPECT_EQ(errno, EINVAL) << alignment;
        api::release(block);
    }
}

TEST(AlignedAlloc, TooMuchIsRefused)
{
    const std::size_t pairs[][2] = {{16, too_large},
                                    {4096, SIZE_MAX},
                                    {4096, SIZE_MAX - 4095},
                                    {64 * MiB, SIZE_MAX - 64 * MiB},
                                    {64, SIZE_MAX - 10},
                                    {std::size_t{1} << 62, 1},
                                    {64, static_cast<std::size_t>(PTRDIFF_MAX)}};
    for (const auto &pair : pairs) {
        errno = 0;
        EXPECT_EQ(api::allocate_aligned(pair[0], pair[1]), nullptr) << pair[0];
        EXPECT_EQ(errno, ENOMEM) << pair[0];
    }
}

TEST(PosixMemalign, EveryPowerOfTwoFromAPointer)
{
    for (std::size_t alignment = sizeof(void *); alignment <= 64 * MiB; alignment *= 2)
        for (std::size_t bytes : sizes_for(alignment)) {
            void *block = nullptr;
            errno = EXDEV;
            ASSERT_EQ(api::posix_aligned(&block, alignment, bytes), 0);
            ASSERT_EQ(errno, EXDEV);
            ASSERT_NO_FATAL_FAILURE(expect_aligned(block, alignment, bytes));
            static_cast<char *>(block)[bytes - 1] = 1;
            api::release(block);
        }
}

void expect_posix_failure(std::size_t alignment, std::size_t bytes, int expected)
{
    int mark = 0;
    void *out = &mark;
    errno = EXDEV;
    EXPECT_EQ(api::posix_aligned(&out, alignment, bytes), expected) << alignment << ", " << bytes;
    EXPECT_EQ(out, &mark) << "the result was written on failure";
    EXPECT_EQ(errno, EXDEV) << "errno was written on failure";
}

TEST(PosixMemalign, BadAlignmentLeavesResultAndErrnoAlone)
{
    for (std::size_t alignment : {0U, 1U, 2U, 4U})
        expect_posix_failure(alignment, 100, EINVAL);
    for (std::size_t alignment : crooked_alignments)
        expect_posix_failure(alignment, 100, EINVAL);
}

TEST(PosixMemalign, RefusalLeavesResultAndErrnoAlone)
{
    expect_posix_failure(8, too_large, ENOMEM);
    expect_posix_failure(64, SIZE_MAX, ENOMEM);
    expect_posix_failure(4096, SIZE_MAX - 4096, ENOMEM);
    expect_posix_failure(64 * MiB, static_cast<std::size_t>(PTRDIFF_MAX) - 100, ENOMEM);
    expect_posix_failure(std::size_t{1} << 62, 1, ENOMEM);
}

TEST(PosixMemalign, ZeroBytesGivesABlock)
{
    void *block = nullptr;
    ASSERT_EQ(api::posix_aligned(&block, 64, 0), 0);
    ASSERT_NO_FATAL_FAILURE(expect_aligned(block, 64, 0));
    api::release(block);
}

} // namespace
