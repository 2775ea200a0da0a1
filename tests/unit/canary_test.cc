// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: ranges of canary, of all lengths at all places in a word, and the sum of a checked block's header.
#include <array>
#include <set>

#include "support/engine.h"

namespace {

constexpr std::uint64_t canary = 0x8F71534D3B2B1D11u; // no two bytes of it are the same
constexpr std::size_t most = 200;

struct Canary : testing::Test {
    alignas(64) std::array<unsigned char, most + 64> memory{};

    // Each byte as the address has it, by its definition.
    static unsigned char byte_at(const void *at)
    {
        return static_cast<unsigned char>(canary >> (reinterpret_cast<std::uintptr_t>(at) % 8 * 8));
    }
    ebbi_range range(std::size_t from, std::size_t length)
    {
        char *start = reinterpret_cast<char *>(memory.data()) + 16 + from;
        return {start, start + length};
    }
    template <typename Do> void each_range(Do &&with)
    {
        for (std::size_t from = 0; from < 8; from++)
            for (std::size_t length = 0; length <= most - 8; length++)
                with(range(from, length));
    }
};

TEST_F(Canary, IsPutFromTheFirstByteToTheLast)
{
    each_range([this](ebbi_range range) {
        memory.fill(0xEE);
        ebbi_canary_put(range, canary);
        for (const unsigned char &byte : memory) {
            const char *at = reinterpret_cast<const char *>(&byte);
            bool inside = at >= range.from && at < range.to;
            ASSERT_EQ(inside ? byte_at(at) : 0xEE, byte)
                << at - range.from << " of " << range.to - range.from;
        }
    });
}

TEST_F(Canary, AChangeIsSeenWhereverItIs)
{
    each_range([this](ebbi_range range) {
        memory.fill(0xEE);
        ebbi_canary_put(range, canary);
        ASSERT_TRUE(ebbi_canary_holds(range, canary));
        ASSERT_EQ(nullptr, ebbi_canary_changed(range, canary));
        bool to_word = range.to - range.from >= 8 && unit::address(range.to) % 8 == 0;
        ASSERT_TRUE(!to_word || ebbi_canary_holds_to_word(range, canary));
        for (char *at = range.from; at < range.to; at++) {
            for (unsigned bit : {0U, 7U}) {
                *at = static_cast<char>(*at ^ 1 << bit);
                ASSERT_FALSE(ebbi_canary_holds(range, canary)) << at - range.from;
                ASSERT_FALSE(to_word && ebbi_canary_holds_to_word(range, canary));
                ASSERT_EQ(at, ebbi_canary_changed(range, canary));
                *at = static_cast<char>(*at ^ 1 << bit);
            }
        }
    });
}

// The two for ranges of whole words at their end, or at both ends.
TEST_F(Canary, ByWordsAsByBytes)
{
    each_range([this](ebbi_range range) {
        if (unit::address(range.to) % 8 != 0 || range.to - range.from < 16)
            return;
        memory.fill(0xEE);
        ebbi_canary_put_to_word(range, canary);
        const auto words_put = memory;
        ASSERT_TRUE(ebbi_canary_holds_to_word(range, canary));
        memory.fill(0xEE);
        ebbi_canary_put(range, canary);
        ASSERT_EQ(memory, words_put) << range.to - range.from;
        if (unit::address(range.from) % 8 != 0)
            return;
        ASSERT_TRUE(ebbi_canary_holds_words(range, canary));
        range.from[-1] = range.to[0] = 1;
        ASSERT_TRUE(ebbi_canary_holds_words(range, canary));
        for (char *at = range.from; at < range.to; at++) {
            *at = static_cast<char>(*at ^ 1);
            ASSERT_FALSE(ebbi_canary_holds_words(range, canary)) << at - range.from;
            *at = static_cast<char>(*at ^ 1);
        }
    });
}

TEST_F(Canary, WhatLiesBesideDoesNotMatter)
{
    each_range([](ebbi_range range) {
        ebbi_canary_put(range, canary);
        range.from[-1] = range.to[0] = 0;
        ASSERT_TRUE(ebbi_canary_holds(range, canary));
        range.from[-1] = range.to[0] = 1;
        ASSERT_TRUE(ebbi_canary_holds(range, canary));
    });
}

// Neither 0 nor text.
TEST(CheckedCanary, HasNoByteThatProgramsWriteMost)
{
    std::array<ebbi_checked, 500> headers{};
    for (std::uint64_t secret : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{12345}}) {
        ebbi_checked_secret = secret;
        std::set<std::uint64_t> seen;
        for (const ebbi_checked &header : headers) {
            const std::uint64_t one = ebbi_checked_canary(&header);
            EXPECT_TRUE(seen.insert(one).second);
            for (unsigned shift = 0; shift < 64; shift += 8)
                EXPECT_GE(one >> shift & 0xFF, 0x80U);
        }
    }
}

// All of a header but its state and the sum itself.
TEST(CheckedSum, ChangesWithEachBitAndWithThePlace)
{
    ebbi_checked_secret = 0x6A09E667F3BCC908u;
    std::array<ebbi_checked, 2> headers{};
    for (std::uint64_t content : {std::uint64_t{0}, std::uint64_t{0x5DEECE66D1234567u}}) {
        ebbi_checked &h = headers[0];
        auto *bytes = reinterpret_cast<unsigned char *>(&h);
        for (std::size_t i = 8; i < sizeof h; i++)
            bytes[i] = static_cast<unsigned char>(content >> i % 8 * 8);
        std::set<std::uint32_t> sums{ebbi_checked_sum(&h)};
        for (std::size_t bit = 64; bit < sizeof h * 8; bit++) {
            bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ 1U << bit % 8);
            EXPECT_TRUE(sums.insert(ebbi_checked_sum(&h)).second) << bit;
            bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ 1U << bit % 8);
        }
        headers[1] = h;
        EXPECT_TRUE(sums.insert(ebbi_checked_sum(&headers[1])).second) << "elsewhere";
        h.state = 7;
        EXPECT_FALSE(sums.insert(ebbi_checked_sum(&h)).second) << "the state is not in it";
        h.state = 0;
        EXPECT_NE(0U, ebbi_checked_sum(&h));
    }
}

} // namespace
