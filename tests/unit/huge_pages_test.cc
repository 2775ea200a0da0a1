// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: huge objects in huge pages.
#include "support/huge.h"

namespace {

using namespace unit;

struct HugePages : Fake {
    static constexpr std::size_t unit_bytes = EBBI_UNIT_GRANULES * EBBI_GRANULE;

    void SetUp() override
    {
        Fake::SetUp();
        fake_os_clock(1000);
        fake_os_huge_on_request(true);
        ebbi_arena_advice = EBBI_HUGE_AUTO;
    }
    // What is untouched says nothing of how it will be filled.
    static void *untouched(std::size_t bytes) { return ebbi_huge_alloc(bytes, 1, false); }
    static std::size_t asked_bytes()
    {
        struct ebbi_arena_totals totals;
        ebbi_arena_totals(&totals);
        return totals.dense_bytes;
    }
    static std::vector<fake_advice> advices()
    {
        std::vector<fake_advice> all(256);
        all.resize(fake_os_advices(all.data(), all.size()));
        return all;
    }
};

TEST_F(HugePages, AreAskedForAsAWholeFromAUnitsBeginning)
{
    for (std::size_t bytes : {32 * MiB, 33 * MiB + 1, 70 * MiB}) {
        std::size_t before = advices().size();
        void *p = untouched(bytes);
        ASSERT_EQ(before + 1, advices().size());
        const fake_advice advice = advices().back();
        EXPECT_TRUE(advice.always);
        EXPECT_EQ(address(p), advice.start);
        EXPECT_EQ(0U, address(p) % unit_bytes);
        EXPECT_EQ(ebbi_huge_bytes(p), advice.bytes);
        EXPECT_EQ(ebbi_huge_bytes(p), asked_bytes());
        EXPECT_TRUE(ebbi_huge_free(p));
        EXPECT_EQ(0U, asked_bytes());
    }
}

TEST_F(HugePages, StayWhereAnObjectIsResizedMovedAndKept)
{
    Block b = huge(40 * MiB);
    fake_os_refuse(FAKE_RESIZE, 1, false);
    auto *to = static_cast<unsigned char *>(ebbi_huge_resize(b.bytes, 60 * MiB, true));
    ASSERT_NE(nullptr, to);
    EXPECT_NE(b.bytes, to);
    EXPECT_EQ(0U, address(to) % unit_bytes) << "so that they move as they are";
    EXPECT_EQ(60 * MiB, asked_bytes());
    ASSERT_EQ(to, ebbi_huge_resize(to, 50 * MiB, true));
    EXPECT_EQ(50 * MiB, asked_bytes());
    EXPECT_TRUE(ebbi_huge_keep(to));
    EXPECT_EQ(50 * MiB, asked_bytes());
    EXPECT_EQ(to, ebbi_huge_take(45 * MiB, 1, false));
    EXPECT_EQ(45 * MiB, asked_bytes());
    EXPECT_EQ(1U, advices().size());
    EXPECT_TRUE(ebbi_huge_free(to));
    EXPECT_EQ(0U, asked_bytes());
}

// Who wants zeroes may touch a page here and there.
TEST_F(HugePages, AreNotForWhatIsToReadAsZero)
{
    void *p = ebbi_huge_alloc(40 * MiB, 1, true);
    EXPECT_TRUE(advices().empty());
    EXPECT_EQ(0U, asked_bytes());
    EXPECT_TRUE(ebbi_huge_keep(p));
    EXPECT_EQ(p, ebbi_huge_take(40 * MiB, 1, false));
    EXPECT_TRUE(advices().empty()) << "its pages are there as they are";
    EXPECT_TRUE(ebbi_huge_free(p));

    p = huge(40 * MiB).bytes;
    EXPECT_TRUE(ebbi_huge_keep(p));
    EXPECT_EQ(p, ebbi_huge_take(40 * MiB, 1, true));
    ASSERT_EQ(2U, advices().size());
    EXPECT_FALSE(advices().back().always);
    EXPECT_EQ(advices().front().bytes, advices().back().bytes);
    EXPECT_EQ(0U, asked_bytes());
    EXPECT_TRUE(ebbi_huge_free(p));
}

// An object whose first page takes 3 ms has small ones, and so have some after it.
TEST_F(HugePages, ThatComeSlowlyAreLeftOut)
{
    fake_os_clock_step(3);
    void *slow = untouched(40 * MiB);
    ASSERT_EQ(2U, advices().size());
    EXPECT_TRUE(advices().front().always);
    EXPECT_FALSE(advices().back().always);
    EXPECT_EQ(0U, asked_bytes());
    fake_os_clock_step(0);
    void *after = untouched(40 * MiB);
    EXPECT_EQ(2U, advices().size());
    void *later = untouched(40 * MiB);
    EXPECT_EQ(3U, advices().size());
    EXPECT_EQ(40 * MiB, asked_bytes());
    for (void *p : {slow, after, later})
        EXPECT_TRUE(ebbi_huge_free(p));
}

// Grown in place or moved by page tables, an object has the pages that it had.
TEST_F(HugePages, ThatComeSlowlyAreLeftOutWhereAnObjectGrows)
{
    for (const bool moves : {false, true}) {
        SCOPED_TRACE(moves);
        fake_os_clock_step(0);
        void *first = untouched(40 * MiB);
        void *p = untouched(40 * MiB);
        ASSERT_EQ(80 * MiB, asked_bytes());
        const std::size_t before = advices().size();
        fake_os_clock_step(3);
        ASSERT_NE(nullptr, p = ebbi_huge_resize(p, 40 * MiB + unit_bytes / 2, true));
        EXPECT_EQ(before, advices().size()) << "no page begins there";
        fake_os_refuse(FAKE_RESIZE, 1, false);
        if (!moves)
            fake_os_allow();
        ASSERT_NE(nullptr, p = ebbi_huge_resize(p, 60 * MiB, true));
        ASSERT_EQ(before + 1, advices().size());
        EXPECT_FALSE(advices().back().always);
        EXPECT_EQ(address(p), advices().back().start) << "a part could not be moved with the rest";
        EXPECT_EQ(60 * MiB, advices().back().bytes);
        EXPECT_EQ(40 * MiB, asked_bytes());
        ASSERT_NE(nullptr, p = ebbi_huge_resize(p, 90 * MiB, true));
        fake_os_clock_step(0);
        ASSERT_NE(nullptr, first = ebbi_huge_resize(first, 44 * MiB, true));
        EXPECT_EQ(before + 2, advices().size()) << "first: left out without a touch";
        EXPECT_EQ(0U, asked_bytes());
        EXPECT_TRUE(ebbi_huge_free(p) && ebbi_huge_free(first));
        for (int i = 0; i < 8; i++) // to the end of what is left out
            EXPECT_TRUE(ebbi_huge_free(untouched(40 * MiB)));
    }
}

TEST_F(HugePages, ThatComeSlowlyAreLeftOutWhereAKeptObjectGrows)
{
    void *p = untouched(40 * MiB);
    EXPECT_TRUE(ebbi_huge_keep(p));
    fake_os_clock_step(3);
    EXPECT_NE(nullptr, p = ebbi_huge_take(44 * MiB, 1, false));
    EXPECT_EQ(0U, asked_bytes());
    EXPECT_FALSE(advices().back().always);
    EXPECT_TRUE(ebbi_huge_free(p));
}

TEST_F(HugePages, AreAskedForNowhereElse)
{
    const auto asks = [] {
        std::size_t before = advices().size();
        EXPECT_TRUE(ebbi_huge_free(untouched(33 * MiB)));
        return advices().size() - before;
    };
    fake_os_huge_on_request(false);
    EXPECT_EQ(0U, asks()) << "the kernel gives none";
    fake_os_huge_on_request(true);
    fake_os_huge_pages(true);
    EXPECT_EQ(0U, asks()) << "it gives them unasked";
    fake_os_huge_pages(false);
    fake_os_page_size(16 * KiB);
    EXPECT_EQ(0U, asks()) << "a unit is no huge page";
    fake_os_page_size(4 * KiB);
    ebbi_arena_advice = EBBI_HUGE_SYSTEM;
    EXPECT_EQ(0U, asks());
    ebbi_arena_advice = EBBI_HUGE_ALWAYS;
    EXPECT_EQ(1U, asks());
}

} // namespace
