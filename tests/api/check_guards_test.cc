// SPDX-License-Identifier: MIT OR Apache-2.0
// EBB_CHECK=1 without a word on guards: which blocks lie between pages without access.
#include "guarded.h"

#include "ebbtide/profile.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include <gtest/gtest.h>

namespace {

constexpr std::size_t bytes = 100;

// Before the library starts.
__attribute__((constructor(102))) void check()
{
    setenv("EBB_CHECK", "1", 1);
    unsetenv("EBB_GUARD");
}

bool next_is_guarded() { return guarded::is(ebb_malloc(bytes), bytes); }

TEST(CheckGuards, TheFirstOfAProcessAndThenAThousandASecond)
{
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 40; i++)
        EXPECT_TRUE(next_is_guarded()) << i;
    long more = 0;
    for (int i = 0; i < 400; i++)
        more += next_is_guarded() ? 1 : 0;
    const auto passed = std::chrono::steady_clock::now() - begin;
    EXPECT_LE(more, 60 + 2 * std::chrono::duration_cast<std::chrono::milliseconds>(passed).count());
}

// A sample is no block of a class, so canaries do not surround it.
TEST(CheckGuards, SamplesOfAProfileAreGuarded)
{
    for (int i = 0; i < 500; i++)
        (void)next_is_guarded();
    ASSERT_EQ(0, ebb_profile_start(1));
    for (const std::size_t size : {24, 1000, 40000, 200000, 3000000}) {
        char *broken = static_cast<char *>(ebb_malloc(size));
        EXPECT_DEATH(
            {
                broken[size] = 1;
                ebb_free(broken);
            },
            "ebbtide: ")
            << size;
        for (int i = 0; i < 50; i++) {
            auto *p = static_cast<char *>(ebb_malloc(size));
            ASSERT_TRUE(guarded::is(p, size)) << size;
            ebb_free(p);
        }
    }
}

// Zeros too, which are not written where all is zero.
TEST(CheckGuards, WhatReallocMovesIsWhole)
{
    for (const std::size_t from : {std::size_t{40000}, std::size_t{200000}, std::size_t{3000000}}) {
        for (int i = 0; i < 4; i++) {
            auto *p = static_cast<unsigned char *>(ebb_calloc(1, from));
            const std::size_t to = 4 * from;
            p = static_cast<unsigned char *>(ebb_realloc(p, to));
            ASSERT_NE(nullptr, p);
            ASSERT_EQ(static_cast<std::ptrdiff_t>(from), std::count(p, p + from, 0)) << from;
            memset(p, 0xEE, to);
            ebb_free(p);
        }
    }
}

// What no block of a class has room for at its alignment, up to 8 MiB.
TEST(CheckGuards, WhatIsAlignedBeyondAPageLiesBetweenPagesAsWell)
{
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    for (const std::size_t align :
         {2 * page, 64 * support::KiB, 128 * support::KiB, 8 * support::MiB}) {
        for (const std::size_t size : {0, 17, 70000, 3000001}) {
            if (size != 0 && size + align < 140 * support::KiB)
                continue;
            auto *p = static_cast<char *>(ebb_aligned_alloc(align, size));
            ASSERT_EQ(0U, support::address(p) % align) << size;
            EXPECT_EQ(size, ebb_malloc_usable_size(p)) << align;
            memset(p, 0xEE, size);
            const std::size_t room = (size + page - 1) / page * page;
            volatile char *seen = p;
            EXPECT_DEATH((void)seen[room], "overflow: ");
            EXPECT_DEATH((void)seen[size == 0 ? 0 : -1], "flow: ");
            ebb_free(p);
            EXPECT_DEATH((void)seen[size / 2], "use after free");
            EXPECT_DEATH(ebb_free(p), "double free");
        }
    }
}

TEST(CheckGuards, WhatIsWrittenBehindAnAlignedBlockIsFoundByItsFree)
{
    for (const std::size_t align : {64 * support::KiB, support::MiB}) {
        auto *p = static_cast<char *>(ebb_aligned_alloc(align, 200001));
        EXPECT_DEATH((p[200001] = 1, ebb_free(p)), "overflow: 1 bytes were written");
        ebb_free(p);
    }
}

// What is held back is address space, which has headers, and tables of its pages.
TEST(CheckGuards, WhatIsHeldBackIsBounded)
{
    for (int i = 0; i < 400; i++)
        ebb_free(ebb_malloc(30 * support::MiB));
    for (int i = 0; i < 400; i++)
        ebb_free(ebb_aligned_alloc(8 * support::MiB, 100));
    ebb_stats stats;
    ebb_stats_get(&stats);
    EXPECT_LE(stats.reserved_bytes, std::size_t{3} << 30);
}

} // namespace
