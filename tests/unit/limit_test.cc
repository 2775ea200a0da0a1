// SPDX-License-Identifier: MIT OR Apache-2.0
// A limit on address space (ulimit -v), in force from the start or set by the program itself.
#include "support/arena_walk.h"

namespace {

using namespace unit;

struct Limit : Fake, testing::WithParamInterface<std::size_t> {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_threaded(false);
        start_limited(GetParam());
    }
};

bool in_window(const void *p) { return ebbi_granule_of(p) < ebbi_window.granules; }

TEST_P(Limit, RandomUseKeepsContentsAndTheArenaWhole)
{
    Random random(5);
    std::vector<Block> live;
    for (int i = 0; i < 60000; i++) {
        if (random.chance(2) || live.empty()) {
            std::size_t bytes = random.chance(300) ? random.below(MiB) : random.below(1500);
            Block b{static_cast<unsigned char *>(ebb_malloc(bytes)), bytes,
                    static_cast<unsigned char>(i)};
            ASSERT_NE(nullptr, b.bytes) << "step " << i;
            ASSERT_TRUE(in_window(b.bytes));
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
TEST_P(Limit, EveryGranuleOfTheFirstChunksIsUsable)
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

// Instead of being kept: what is limited is the program's as well.
TEST_P(Limit, WhatIsCutOffAMappingIsItsAtOnce)
{
    ebbi_large_begin();
    ASSERT_EQ(GetParam() < 2 * GiB, ebbi_large_is_limited()); // by a 64th of it
    if (!ebbi_large_is_limited())
        return;
    void *p = ebb_realloc(ebb_malloc(1), 9 * MiB);
    ASSERT_TRUE(ebbi_huge_is(p));
    const std::size_t held = fake_os_held_bytes();
    p = ebb_realloc(p, 5 * MiB + 1);
    EXPECT_EQ(5 * MiB + ebbi_os_page_size(), ebb_malloc_usable_size(p));
    EXPECT_GE(held - 4 * MiB + 2 * EBBI_GRANULE, fake_os_held_bytes());
    ebb_free(p);
    fake_os_limit(SIZE_MAX);
    ebbi_large_begin();
}

TEST_P(Limit, AnObjectMayTakeMostOfTheLimit)
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

TEST_P(Limit, WhatIsFreedCanBeHadAgainInOtherSizes)
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

TEST_P(Limit, ForeignAddressesInTheWindowAreNamed)
{
    void *p = ebb_malloc(100);
    EXPECT_DEATH(ebb_free(static_cast<char *>(p) + 8 * GiB), "does not come from this allocator");
}

INSTANTIATE_TEST_SUITE_P(Limits, Limit, testing::Values(512 * MiB, 2 * GiB), [](const auto &limit) {
    return std::to_string(limit.param / MiB) + "MiB";
});

// How much can be had in blocks of that size.
std::size_t to_be_had(std::size_t bytes)
{
    std::vector<void *> blocks;
    for (void *p = ebb_malloc(bytes); p != nullptr; p = ebb_malloc(bytes))
        blocks.push_back(p);
    for (void *p : blocks)
        ebb_free(p);
    return blocks.size() * bytes;
}

// Chunks begin with a few MiB: what is theirs alone is a small part of them.
TEST_F(Fake, OfASmallLimitMostCanBeHad)
{
    fake_os_threaded(false);
    start_limited(12 * MiB);
    fake_os_limit(12 * MiB + fake_os_held_bytes()); // what it began with before is given back
    EXPECT_GE(to_be_had(4096), 13 * MiB);           // of these and the first chunk's 4
    ASSERT_ARENA_WHOLE();
}

struct LaterLimit : Fake {
    // The same of `limit` beyond what is held.
    static std::size_t usable(std::size_t limit, std::size_t bytes)
    {
        fake_os_threaded(false);
        fake_os_limit(limit + fake_os_held_bytes());
        return to_be_had(bytes);
    }
};

TEST_F(LaterLimit, SmallBlocksUseMostOfIt) { EXPECT_GE(usable(GiB, 4096), 900 * MiB); }
TEST_F(LaterLimit, LargeBlocksUseMostOfIt) { EXPECT_GE(usable(GiB, MiB), 900 * MiB); }
TEST_F(LaterLimit, HugeBlocksUseMostOfIt) { EXPECT_GE(usable(GiB, 40 * MiB), 900 * MiB); }
TEST_F(LaterLimit, ASmallOneToo) { EXPECT_GE(usable(256 * MiB, 4096), 200 * MiB); }

TEST_F(LaterLimit, EachSizeAfterTheOther)
{
    for (std::size_t bytes : {4 * KiB, 40 * MiB, MiB, 200 * MiB, 100 * KiB})
        EXPECT_GE(usable(GiB, bytes), 600 * MiB) << bytes;
}

// No more than about twice of what is in use is reserved.
TEST_F(LaterLimit, ReservationsFollowUse)
{
    std::size_t before = fake_os_held_bytes(), used = 0;
    for (int i = 0; i < 3000; i++) {
        ASSERT_NE(nullptr, ebb_malloc(MiB));
        used += MiB;
        ASSERT_LE(fake_os_held_bytes(), before + 2 * used + 64 * MiB) << "block " << i;
    }
}

} // namespace
