// SPDX-License-Identifier: MIT OR Apache-2.0
// Layers arena, slab and heap: what is asked for as huge pages, and when it is split again. On the fake OS: what
// the kernel is told is the figure.
#include "support/dense.h"

namespace {

using namespace unit;

TEST_F(Dense, SmallProgramsAskForNothing)
{
    grow(least_grown);
    grow(10 * EBBI_UNIT_GRANULES, EBBI_FILL_UNKNOWN);
    grow(10 * EBBI_UNIT_GRANULES, EBBI_FILL_LIKELY);
    EXPECT_EQ(0U, fake_os_count(FAKE_ADVISE_HUGE));
    grow(1);
    EXPECT_EQ(1U, fake_os_count(FAKE_ADVISE_HUGE));
}

// A program that makes and frees such spans again and again has never many of them.
TEST_F(Dense, WhatHasGrownAndEndedDoesNotCount)
{
    for (std::size_t i = 0; i < 10 * EBBI_UNIT_GRANULES; i++) {
        grow(1);
        ebbi_span_free(spans.back());
    }
    EXPECT_EQ(0U, fake_os_count(FAKE_ADVISE_HUGE));
}

TEST_F(Dense, BesideMuchTheFirstThatGrowsAsks)
{
    grow(1, EBBI_FILL_MUCH);
    EXPECT_EQ(1U, fake_os_count(FAKE_ADVISE_HUGE));
}

// What grows lies side by side: nothing else lies between, whatever is asked for in the meantime.
TEST_F(Dense, WhatGrowsSharesUnitsWithNothingElse)
{
    grow_to_the_least();
    std::set<std::uintptr_t> dense, sparse;
    for (std::size_t i = 0; i < 2 * EBBI_UNIT_GRANULES; i++) { // within a chunk
        grow(1);
        dense.insert(address(ebbi_span_start(spans.back())) / unit_bytes);
        const ebbi_span *other = ebbi_span_alloc(1 + i % 2, 1, EBBI_SPAN_SHEET);
        ASSERT_NE(nullptr, other);
        sparse.insert(address(ebbi_span_start(other)) / unit_bytes);
    }
    EXPECT_EQ(2U, dense.size());
    EXPECT_EQ(2U, fake_os_count(FAKE_ADVISE_HUGE));
    for (std::uintptr_t unit : sparse)
        EXPECT_EQ(0U, dense.count(unit));
}

// Longer slabs that grow lie across the ends of units: what is left of each would be nobody's.
TEST_F(Dense, WhatGrowsLiesAcrossUnits)
{
    constexpr std::size_t granules = EBBI_UNIT_GRANULES * 3 / 8;
    grow_to_the_least();
    const std::size_t before = ebbi_arena_dirty_bytes();
    std::set<std::uintptr_t> chunks;
    std::uintptr_t end = 0;
    std::size_t apart = 0;
    for (int i = 0; i < 101; i++) {
        const ebbi_span *span = ebbi_span_alloc_dense(granules, EBBI_SPAN_SHEET, EBBI_FILL_GROWS);
        ASSERT_NE(nullptr, span);
        chunks.insert(address(ebbi_span_start(span)) / EBBI_CHUNK);
        apart += end != address(ebbi_span_start(span));
        end = address(ebbi_span_start(span)) + granules * EBBI_GRANULE;
        audit();
    }
    EXPECT_LE(apart, 2 * chunks.size()); // where it begins and where it ends
    EXPECT_LE(ebbi_arena_dirty_bytes(), before + chunks.size() * unit_bytes);
    EXPECT_GE(asked_bytes(), 101 * granules * EBBI_GRANULE * 9 / 10);
}

// A unit came as a whole: what nobody touched of it has its pages, too.
TEST_F(Dense, WhatEndsUntouchedIsDirtyAllTheSame)
{
    constexpr std::size_t granules = EBBI_UNIT_GRANULES / 2;
    std::uint64_t dirty = 0;
    grow_to_the_least();
    ebbi_span *span = ebbi_span_alloc_part(granules, EBBI_SPAN_SHEET, EBBI_FILL_GROWS, &dirty);
    ASSERT_NE(nullptr, span);
    ASSERT_TRUE(ebbi_dense_is(ebbi_span_start(span), granules * EBBI_GRANULE));
    const std::size_t before = ebbi_arena_dirty_bytes();
    ebbi_span_free_part(span, 1);
    EXPECT_EQ(before + granules * EBBI_GRANULE, ebbi_arena_dirty_bytes());
    audit();
}

TEST_F(Dense, WhatLikelyFillsTakesPartInAUnit)
{
    grow_to_the_least();
    grow(1);
    std::uintptr_t unit = address(ebbi_span_start(spans.back())) / unit_bytes;
    grow(EBBI_UNIT_GRANULES - 1, EBBI_FILL_LIKELY);
    for (std::size_t i = 0; i < EBBI_UNIT_GRANULES - 1; i++)
        EXPECT_EQ(unit, address(ebbi_span_start(spans[spans.size() - 1 - i])) / unit_bytes);
    grow(1, EBBI_FILL_LIKELY);
    EXPECT_NE(unit, address(ebbi_span_start(spans.back())) / unit_bytes);
    EXPECT_EQ(1U, fake_os_count(FAKE_ADVISE_HUGE));
}

// A span now and then: what was returned of the unit is filled first, by small pages.
TEST_F(Dense, WhatGrowsSlowlyOpensFewUnits)
{
    grow_to_the_least();
    const std::size_t rounds = 3 * EBBI_UNIT_GRANULES;
    for (std::size_t i = 0; i < rounds; i++) {
        grow(1);
        purge();
    }
    std::size_t asked = 0;
    for (const fake_advice &advice : advices())
        asked += advice.always;
    EXPECT_EQ(3U, asked);
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes());
}

// The same wave again and again, an odd and an even number of spans, needs no more address space.
TEST_F(Dense, WavesNeedNoMoreSpace)
{
    std::size_t committed = 0;
    for (std::size_t wave = 0; wave < 60; wave++) {
        grow(2 * EBBI_UNIT_GRANULES + wave % 2);
        for (std::size_t i = 0; i < spans.size(); i++)
            if (i % 3 != 2 || wave % 4 == 3) // some of them a few waves later
                ebbi_span_free(std::exchange(spans[i], nullptr));
        spans.erase(std::remove(spans.begin(), spans.end(), nullptr), spans.end());
        if (wave % 2 == 0)
            purge();
        if (wave == 20)
            committed = ebbi_committed_granules;
    }
    EXPECT_EQ(committed, ebbi_committed_granules);
}

// What is dirty already costs no fault: no unit is asked for beside it.
TEST_F(Dense, WhatIsDirtyIsUsedFirst)
{
    grow_to_the_least();
    std::vector<ebbi_span *> others;
    for (int i = 0; i < 23; i++)
        others.push_back(ebbi_span_alloc(1, 1, EBBI_SPAN_SHEET));
    ebbi_span_free(others[21]); // a clean hole that fits best
    purge();
    others.resize(20);
    for (ebbi_span *span : others)
        ebbi_span_free(span);
    grow(20);
    EXPECT_EQ(0U, fake_os_count(FAKE_ADVISE_HUGE));
}

// Where memory is refused, what was kept for dense spans is for all.
TEST_F(Dense, WhatIsLeftOfAUnitIsForAllWhenMemoryIsRefused)
{
    grow_to_the_least();
    grow(1);
    fake_os_refuse(FAKE_COMMIT, 1, true);
    std::size_t got = 0;
    while (ebbi_span_alloc(1, 1, EBBI_SPAN_SHEET) != nullptr)
        got++;
    EXPECT_GE(got, EBBI_UNIT_GRANULES - 1);
    EXPECT_GE(used() + 2, ebbi_committed_granules);
}

TEST_F(Dense, UnitsAreAskedForOnceEachAsTheyBegin)
{
    grow_to_the_least();
    grow(10 * EBBI_UNIT_GRANULES);
    std::vector<fake_advice> all = advices();
    ASSERT_GE(all.size(), 9U);
    EXPECT_LE(all.size(), 10U);
    std::vector<std::uintptr_t> starts;
    for (const fake_advice &advice : all) {
        EXPECT_TRUE(advice.always);
        EXPECT_EQ(unit_bytes, advice.bytes);
        EXPECT_EQ(0U, advice.start % unit_bytes);
        starts.push_back(advice.start);
    }
    std::sort(starts.begin(), starts.end());
    EXPECT_EQ(starts.end(), std::adjacent_find(starts.begin(), starts.end()));
    EXPECT_EQ(all.size() * unit_bytes, asked_bytes());
}

TEST_F(Dense, NothingIsAskedForElsewhere)
{
    fake_os_huge_on_request(false);
    grow_to_the_least();
    fake_os_huge_on_request(true);
    fake_os_page_size(16 * KiB);
    grow(2 * EBBI_UNIT_GRANULES);
    fake_os_page_size(4 * KiB);
    ebbi_arena_advice = EBBI_HUGE_SYSTEM;
    grow(2 * EBBI_UNIT_GRANULES);
    EXPECT_EQ(0U, fake_os_count(FAKE_ADVISE_HUGE));
}

// Else sparse memory has them too, and what was returned of one comes back.
TEST_F(Dense, WhereTheyComeUnaskedChunksAskForNone)
{
    fake_os_huge_pages(true);
    grow(1);
    ASSERT_EQ(1U, advices().size());
    EXPECT_FALSE(advices().at(0).always);
    EXPECT_LE(least_units * unit_bytes, advices().at(0).bytes); // the chunk
    EXPECT_FALSE(ebbi_dense_everywhere());
    grow_to_the_least();
    grow(2 * EBBI_UNIT_GRANULES);
    ASSERT_LT(1U, advices().size());
    EXPECT_TRUE(advices().at(1).always);
    EXPECT_EQ(unit_bytes, advices().at(1).bytes);
    fake_os_page_size(16 * KiB);
    EXPECT_TRUE(ebbi_dense_everywhere());
    fake_os_page_size(4 * KiB);
    ebbi_arena_advice = EBBI_HUGE_SYSTEM;
    EXPECT_TRUE(ebbi_dense_everywhere());
    fake_os_huge_pages(false);
    EXPECT_FALSE(ebbi_dense_everywhere());
}

TEST_F(Dense, WhatMayStaySparseAsksForNothing)
{
    grow_to_the_least();
    std::size_t before = fake_os_count(FAKE_ADVISE_HUGE);
    for (int i = 0; i < 8; i++)
        ASSERT_NE(nullptr, ebbi_span_alloc(2 * EBBI_UNIT_GRANULES, 1, EBBI_SPAN_LARGE));
    for (int i = 0; i < 100; i++)
        ASSERT_NE(nullptr, ebbi_span_alloc(1, 1, EBBI_SPAN_SHEET));
    EXPECT_EQ(before, fake_os_count(FAKE_ADVISE_HUGE));
}

// A unit comes as a whole: what is never used of it must go.
TEST_F(Dense, WhatIsLeftOfAUnitGoesAfterTheDelay)
{
    while (advices().empty())
        grow(1);
    EXPECT_EQ((EBBI_UNIT_GRANULES - 1) * EBBI_GRANULE, ebbi_arena_dirty_bytes());
    EXPECT_FALSE(spans.back()->zeroed) << "its pages are there";
    purge();
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes());
    EXPECT_EQ(2U, advices().size());
    EXPECT_FALSE(advices()[1].always);
    EXPECT_EQ(advices()[0].start, advices()[1].start);
    EXPECT_EQ(0U, asked_bytes());
    grow(EBBI_UNIT_GRANULES - 1);
    EXPECT_EQ(2U, advices().size()) << "small pages from then on";
}

TEST_F(Dense, AUnitIsAskedForAgainOnceItIsFreeAndClean)
{
    while (advices().size() < 2)
        grow(1);
    std::vector<ebbi_span *> unit = whole_unit();
    ASSERT_EQ(EBBI_UNIT_GRANULES, unit.size());
    std::uintptr_t start = address(ebbi_span_start(unit[0]));
    for (ebbi_span *span : unit)
        ebbi_span_free(span);
    purge();
    grow(2 * EBBI_UNIT_GRANULES);
    std::size_t asked = 0;
    for (const fake_advice &advice : advices())
        asked += advice.always && advice.start == start;
    EXPECT_EQ(2U, asked);
}

TEST_F(Dense, RefusedMemoryIsServedFromWhatIsThere)
{
    grow_to_the_least();
    fake_os_refuse(FAKE_COMMIT, 1, true);
    fake_os_refuse(FAKE_ADVISE_HUGE, 1, true);
    while (ebbi_span *span = ebbi_span_alloc_dense(1, EBBI_SPAN_SHEET, EBBI_FILL_GROWS))
        std::memset(ebbi_span_start(span), 1, EBBI_GRANULE);
    EXPECT_GE(used() + 2, ebbi_committed_granules);
}

TEST_F(Dense, ManyThreadsAskOnceEach)
{
    grow_to_the_least();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([] {
            for (std::size_t i = 0; i < 4 * EBBI_UNIT_GRANULES; i++)
                (void)ebbi_span_alloc_dense(1 + i % 3, EBBI_SPAN_SHEET, EBBI_FILL_GROWS);
        });
    for (std::thread &thread : threads)
        thread.join();
    std::vector<std::uintptr_t> starts;
    for (const fake_advice &advice : advices())
        for (std::size_t at = 0; at < advice.bytes; at += unit_bytes)
            starts.push_back(advice.start + at);
    EXPECT_GE(starts.size(), 25U);
    std::sort(starts.begin(), starts.end());
    EXPECT_EQ(starts.end(), std::adjacent_find(starts.begin(), starts.end()));
}

// Blocks: sparse slabs are split and their free pages go; for a few pages nothing is split.
struct DenseBlocks : Dense {
    void fill(std::size_t bytes)
    {
        while (bytes > blocks.size() * 256) {
            blocks.push_back(static_cast<char *>(ebb_malloc(256)));
            *blocks.back() = 1;
        }
    }
    void free_but_one_in(std::size_t n)
    {
        for (std::size_t i = 0; i < blocks.size(); i++)
            if (i % n != 0)
                ebb_free(blocks[i]);
    }
    static void pass()
    {
        fake_os_clock_advance(1000);
        struct ebbi_pass pass = {};
        pass.delay_ms = 500;
        ebbi_purge_pass(&pass);
    }
    std::vector<char *> blocks;
};

TEST_F(DenseBlocks, ASparseUnitIsSplitAndItsPagesGo)
{
    fill(100 * MiB);
    EXPECT_GE(asked_bytes(), 30 * MiB);
    free_but_one_in(200);
    pass();
    EXPECT_EQ(0U, asked_bytes());
    std::size_t resident = 0;
    struct ebbi_os_pages pages;
    ebbi_os_pages_open(&pages);
    for (char *block : blocks)
        resident += ebbi_resident_in(&pages, address(block) & ~std::uintptr_t{4095}, 4096) / 16;
    ebbi_os_pages_close(&pages);
    EXPECT_LE(resident, blocks.size() / 200 * 2 * 4096);
}

TEST_F(DenseBlocks, ForAFewPagesNothingIsSplit)
{
    fill(100 * MiB);
    pass(); // what is left of the last
    std::size_t asked = asked_bytes();
    EXPECT_GE(asked, 30 * MiB);
    for (std::size_t i = 0; i < blocks.size(); i++)
        if (i % 512 < 20) // a page of a slab of 16
            ebb_free(blocks[i]);
    pass();
    EXPECT_EQ(asked, asked_bytes());
}

// In a steady state no unit is asked for and split in turn.
TEST_F(DenseBlocks, ASteadyStateAsksForNothing)
{
    fill(100 * MiB);
    auto churn = [this](int rounds) {
        Random random(3);
        for (int i = 0; i < rounds; i++) {
            char *&block = blocks[random.below(blocks.size())];
            ebb_free(block);
            block = static_cast<char *>(ebb_malloc(256));
        }
    };
    churn(200000);
    pass();
    std::size_t before = fake_os_count(FAKE_ADVISE_HUGE), asked = asked_bytes();
    for (int i = 0; i < 5; i++) {
        churn(100000);
        pass();
    }
    EXPECT_EQ(before, fake_os_count(FAKE_ADVISE_HUGE));
    EXPECT_EQ(asked, asked_bytes());
}

TEST_F(DenseBlocks, LargeObjectsAreDenseAndFreshOnesAreNotClearedTwice)
{
    grow_to_the_least();
    std::size_t before = fake_os_count(FAKE_ADVISE_HUGE);
    for (int i = 0; i < 12; i++) {
        auto *p = static_cast<unsigned char *>(ebb_malloc(2 * MiB));
        ASSERT_NE(nullptr, p);
        EXPECT_TRUE(ebbi_span_of(p)->zeroed) << i;
        EXPECT_EQ(0, p[0]);
        std::memset(p, 1, 2 * MiB);
        blocks.push_back(reinterpret_cast<char *>(p));
    }
    EXPECT_GE(fake_os_count(FAKE_ADVISE_HUGE) - before, 10U);
    for (char *p : blocks)
        ebb_free(p);
    auto *again = static_cast<unsigned char *>(ebb_calloc(1, 20 * MiB));
    ASSERT_NE(nullptr, again);
    EXPECT_TRUE(std::all_of(again, again + 20 * MiB, [](unsigned char c) { return c == 0; }));
}

// As a sample of a profile, whatever its size.
TEST_F(DenseBlocks, WhatDoesNotFillHalfOfItsSpanAsksForNothing)
{
    grow_to_the_least();
    const std::size_t before = asked_bytes();
    for (int i = 0; i < 200; i++) // six units
        ASSERT_NE(nullptr, ebbi_large_alloc(EBBI_GRANULE / 2 - 1, 1, false, nullptr));
    EXPECT_EQ(before, asked_bytes());
    for (int i = 0; i < 200; i++)
        ASSERT_NE(nullptr, ebbi_large_alloc(EBBI_GRANULE / 2, 1, false, nullptr));
    EXPECT_GT(asked_bytes(), before);
}

// Where a first touch takes 3 ms most units are left out, and all are asked for again when it does not.
TEST_F(Dense, UnitsThatComeSlowlyAreLeftOut)
{
    grow_to_the_least();
    std::size_t before = fake_os_count(FAKE_ADVISE_HUGE);
    fake_os_clock_step(3);
    grow(100 * EBBI_UNIT_GRANULES);
    std::size_t slow = fake_os_count(FAKE_ADVISE_HUGE) - before;
    EXPECT_GE(slow, 2U);
    EXPECT_LE(slow, 10U);
    fake_os_clock_step(0);
    grow(150 * EBBI_UNIT_GRANULES); // to the end of what is left out
    before = fake_os_count(FAKE_ADVISE_HUGE);
    grow(50 * EBBI_UNIT_GRANULES);
    EXPECT_GE(fake_os_count(FAKE_ADVISE_HUGE) - before, 48U);
}

// While others had the processor, which says nothing of the page.
TEST_F(Dense, WhoDidNotRunWasNotSlow)
{
    grow_to_the_least();
    fake_os_clock_step(3);
    fake_os_thread_waits(true);
    const std::size_t before = fake_os_count(FAKE_ADVISE_HUGE);
    grow(50 * EBBI_UNIT_GRANULES);
    EXPECT_GE(fake_os_count(FAKE_ADVISE_HUGE) - before, 48U);
}

// Many heaps whose slabs hold little are no dense memory, however much of it there is.
TEST_F(DenseBlocks, ManySparseSlabsAreNotDense)
{
    constexpr int count = 80;
    std::vector<std::thread> threads;
    std::atomic<int> ready{0};
    for (int t = 0; t < count; t++)
        threads.emplace_back([&ready] {
            for (std::size_t size :
                 {16, 32, 48, 80, 96, 112, 144, 160, 176, 208, 224, 240, 288, 352, 416, 480})
                ASSERT_NE(nullptr, ebb_malloc(size));
            ready++;
            while (ready < count)
                std::this_thread::yield();
        });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_GE(used(), least_units * EBBI_UNIT_GRANULES);
    EXPECT_EQ(0U, fake_os_count(FAKE_ADVISE_HUGE));
}

} // namespace
