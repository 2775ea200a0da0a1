// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer base: bit arithmetic and ranges of bits.
#include "support/engine.h"

namespace {

TEST(Bits, AlignAndPowers)
{
    EXPECT_EQ(0U, ebbi_align_up(0, 16));
    EXPECT_EQ(16U, ebbi_align_up(1, 16));
    EXPECT_EQ(16U, ebbi_align_up(16, 16));
    EXPECT_EQ(16U, ebbi_align_down(31, 16));
    EXPECT_FALSE(ebbi_is_power_of_two(0));
    EXPECT_TRUE(ebbi_is_power_of_two(1));
    EXPECT_TRUE(ebbi_is_power_of_two(std::size_t{1} << 63));
    EXPECT_FALSE(ebbi_is_power_of_two(SIZE_MAX));
    EXPECT_EQ(3U, ebbi_min(3, 4));
    EXPECT_EQ(4U, ebbi_max(3, 4));
}

TEST(Bits, LowestHighestCount)
{
    for (unsigned bit = 0; bit < 64; bit++) {
        EXPECT_EQ(bit, ebbi_lowest_bit(std::uint64_t{1} << bit));
        EXPECT_EQ(bit, ebbi_highest_bit(std::uint64_t{1} << bit | 1));
    }
    EXPECT_EQ(64U, ebbi_count_bits(~std::uint64_t{0}));
    EXPECT_EQ(0U, ebbi_count_bits(0));
}

TEST(Bits, EveryRangeOfThreeWords)
{
    for (std::size_t first = 0; first < 192; first++) {
        for (std::size_t count = 0; first + count <= 192; count++) {
            std::uint64_t set[3] = {}, clear[3] = {~0ULL, ~0ULL, ~0ULL};
            ebbi_bits_set(set, first, count);
            ebbi_bits_clear(clear, first, count);
            for (std::size_t bit = 0; bit < 192; bit += bit == first ? count + (count == 0) : 1) {
                bool inside = bit >= first && bit < first + count;
                ASSERT_EQ(inside, ebbi_bits_test(set, bit)) << first << "+" << count << ": " << bit;
                ASSERT_EQ(!inside, ebbi_bits_test(clear, bit));
            }
            ASSERT_EQ(count, ebbi_bits_count(set, 0, 192));
            ASSERT_EQ(count, ebbi_bits_count(set, first, count));
            ASSERT_EQ(0U, ebbi_bits_count(clear, first, count));
            ASSERT_EQ(first, ebbi_bits_find(set, 0, first + count));
            ASSERT_EQ(first + count, ebbi_bits_find(clear, first, count));
            ASSERT_EQ(first == 0 ? count : 0, ebbi_bits_find(clear, 0, 192));
            for (int w = 0; w < 3; w++)
                ASSERT_EQ(set[w], ~clear[w]);
        }
    }
}

} // namespace
