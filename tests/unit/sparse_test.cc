// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer base: copies that leave what is zero untouched.
#include "support/engine.h"

extern "C" {
#include "base/sparse.h"
}

namespace {

constexpr std::size_t step = EBBI_SPARSE_STEP, most = 6 * step;

// From such bytes, so many: what comes there, and nothing else is written.
void expect_copy(const unsigned char *from, std::size_t bytes)
{
    std::vector<unsigned char> to(most + 64, 0);
    ebbi_copy_to_zeros(to.data(), from, bytes);
    ASSERT_EQ(0, memcmp(to.data(), from, bytes)) << bytes;
    ASSERT_TRUE(std::all_of(to.begin() + static_cast<std::ptrdiff_t>(bytes), to.end(),
                            [](unsigned char c) { return c == 0; }));
}

TEST(Sparse, OneByteWhereverItIs)
{
    std::vector<unsigned char> from(most, 0);
    for (std::size_t at = 0; at < most; at++) {
        from[at] = 1;
        ASSERT_FALSE(ebbi_is_zero(from.data() + at / step * step, step)) << at;
        expect_copy(from.data(), most);
        from[at] = 0;
    }
    EXPECT_TRUE(ebbi_is_zero(from.data(), most));
}

TEST(Sparse, EveryLengthOfTheLastStep)
{
    std::vector<unsigned char> from(most, 9);
    for (std::size_t bytes = step; bytes <= 2 * step; bytes++) {
        expect_copy(from.data(), bytes);
        std::fill(from.begin() + step, from.begin() + static_cast<std::ptrdiff_t>(bytes), 0);
        expect_copy(from.data(), bytes);
        std::fill(from.begin() + step, from.begin() + static_cast<std::ptrdiff_t>(bytes), 9);
    }
    for (std::size_t bytes = 1; bytes <= 40; bytes++) {
        std::vector<unsigned char> few(bytes, 0); // so that what is read behind it is seen
        EXPECT_TRUE(ebbi_is_zero(few.data(), bytes)) << bytes;
        expect_copy(few.data(), bytes);
    }
}

// Only the steps that hold something are written.
TEST(Sparse, ZeroStepsAreNotWritten)
{
    for (unsigned which = 0; which < 1U << most / step; which++) {
        std::vector<unsigned char> from(most, 0), to(most, 0x55);
        for (std::size_t at = 0; at < most; at++)
            from[at] = (which >> at / step & 1) != 0 ? 7 : 0;
        ebbi_copy_to_zeros(to.data(), from.data(), most);
        for (std::size_t at = 0; at < most; at++)
            ASSERT_EQ(from[at] != 0 ? 7 : 0x55, to[at]) << which << " " << at;
    }
}

} // namespace
