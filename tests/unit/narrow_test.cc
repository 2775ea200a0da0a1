// SPDX-License-Identifier: MIT OR Apache-2.0
// A limit on address space (ulimit -v): small chunks, everything below 64 GiB.
#include "support/arena_walk.h"

namespace {

using namespace unit;

struct Narrow : Fake, testing::WithParamInterface<std::size_t> {
    void SetUp() override
    {
        if (under_asan || under_tsan)
            GTEST_SKIP() << "the sanitizer's shadow takes the low addresses";
        Fake::SetUp();
        fake_os_threaded(false);
        start_narrow(GetParam());
    }
};

TEST_P(Narrow, RandomUseKeepsContentsAndTheArenaWhole)
{
    Random random(5);
    std::vector<Block> live;
    for (int i = 0; i < 60000; i++) {
        if (random.chance(2) || live.empty()) {
            std::size_t bytes = random.chance(300) ? random.below(MiB) : random.below(1500);
            Block b{static_cast<unsigned char *>(ebb_malloc(bytes)), bytes,
                    static_cast<unsigned char>(i)};
            ASSERT_NE(nullptr, b.bytes) << "step " << i;
            ASSERT_LT(address(b.bytes), EBBI_WINDOW_END);
            b.fill();
            live.push_back(b);
        } else {
            std::size_t k = random.below(live.size());
            ASSERT_TRUE(live[k].intact()) << "step " << i;
            ebb_free(live[k].bytes);
            live[k] = live.back();
            live.pop_back();
        }
    }
    for (const Block &b : live)
        ebb_free(b.bytes);
}

// Slabs and spans in every granule of the first chunks: no header lies in a chunk's own record.
TEST_P(Narrow, EveryGranuleOfTheFirstChunksIsUsable)
{
    std::vector<void *> blocks;
    for (int i = 0; i < 60 * 1024; i++)
        blocks.push_back(ebb_malloc(512)); // 128 to a slab: 30 MiB
    for (void *p : blocks)
        ASSERT_NE(nullptr, p);
    for (std::size_t i = blocks.size() / 2; i < blocks.size(); i++)
        ebb_free(blocks[i]);
    ebb_trim();
    for (std::size_t i = 0; i < blocks.size() / 2; i++)
        ebb_free(blocks[i]);
}

TEST_P(Narrow, AnObjectMayTakeMostOfTheLimit)
{
    std::size_t bytes = GetParam() / 10 * 7;
    for (int i = 0; i < 4; i++) {
        auto *p = static_cast<unsigned char *>(ebb_malloc(bytes));
        ASSERT_NE(nullptr, p) << "round " << i;
        p[0] = p[bytes - 1] = 1;
        ebb_free(p);
    }
    errno = 0;
    EXPECT_EQ(nullptr, ebb_malloc(GetParam()));
    EXPECT_EQ(ENOMEM, errno);
    EXPECT_NE(nullptr, ebb_malloc(1000));
}

TEST_P(Narrow, WhatIsFreedCanBeHadAgainInOtherSizes)
{
    for (std::size_t bytes : {48 * KiB, 3 * MiB, 40 * MiB, 700 * KiB, 100 * MiB}) {
        std::vector<void *> blocks;
        std::size_t total = 0;
        while (total + bytes < GetParam() / 2) {
            blocks.push_back(ebb_malloc(bytes));
            ASSERT_NE(nullptr, blocks.back()) << bytes << ", " << total << " in use";
            total += bytes;
        }
        for (void *p : blocks)
            ebb_free(p);
    }
}

TEST_P(Narrow, ForeignAddressesInTheWindowAreNamed)
{
    void *p = ebb_malloc(100);
    EXPECT_DEATH(ebb_free(static_cast<char *>(p) + 8 * GiB), "does not come from this allocator");
}

INSTANTIATE_TEST_SUITE_P(Limits, Narrow, testing::Values(512 * MiB, 2 * GiB),
                         [](const auto &limit) {
                             return std::to_string(limit.param / MiB) + "MiB";
                         });

struct Window : Fake {};

// Space in the window is not used up by a few objects.
TEST_F(Window, ManyLargeObjectsFitUnderAWideLimit)
{
    if (under_asan || under_tsan)
        GTEST_SKIP() << "the sanitizer's shadow takes the low addresses";
    start_narrow(20 * GiB); // beside the tags' reservation, 8 GiB at most
    std::vector<void *> blocks;
    for (int i = 0; i < 300; i++) {
        blocks.push_back(ebb_malloc(33 * MiB));
        ASSERT_NE(nullptr, blocks.back()) << "object " << i;
    }
    for (void *p : blocks)
        ebb_free(p);
}

} // namespace
