// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: the pages that are there where a slab begins. A fake clock, no helper.
#include "support/arena_walk.h"

namespace {

using namespace unit;

struct Began : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_clock(100000);
        fake_os_threaded(false);
        tick();
    }
    // Free spans that have pages, in one piece.
    static void burst()
    {
        std::vector<void *> blocks;
        for (int i = 0; i < 40000; i++) {
            blocks.push_back(ebb_malloc(1024));
            std::memset(blocks.back(), 1, 1024);
        }
        for (void *p : blocks)
            ebb_free(p);
        ASSERT_GE(ebbi_arena_dirty_bytes(), 30 * MiB);
    }
    // Frees enough, small, to be past a few refills and flushes, so that the clock is looked at.
    static void tick()
    {
        std::vector<void *> blocks(2400);
        for (void *&p : blocks)
            p = ebb_malloc(16);
        for (void *p : blocks)
            ebb_free(p);
    }
    static std::vector<void *> one_of_each(std::size_t least)
    {
        std::vector<void *> blocks;
        for (unsigned c = ebbi_class_for(least); c < EBBI_CLASS_EMPTY; c++)
            blocks.push_back(ebb_malloc(ebbi_classes[c].size));
        return blocks;
    }
};

// Nothing is ever freed into these slabs.
TEST_F(Began, PagesOfOthersGoAfterTheDelay)
{
    burst();
    const auto kept = one_of_each(1200);
    for (int i = 0; i < 2; i++) {
        fake_os_clock_advance(5000);
        tick();
    }
    const std::size_t page = ebbi_os_page_size();
    for (void *p : kept) {
        ebbi_slab *slab = ebbi_slab_of(p);
        const ebbi_class *k = ebbi_slab_class(slab);
        const std::size_t held =
            ebbi_bits_count(ebbi_slab_dirty_pages(slab), 0, k->granules * EBBI_GRANULE / page);
        const std::size_t in_use = std::size_t{k->blocks} - slab->free_count; // or in magazines
        EXPECT_LE(held * page, in_use * k->size + 2 * page) << k->size;
    }
}

// A slab of long blocks is hardly touched at first: small ones can use what is there.
TEST_F(Began, LongBlocksLeaveThePagesOfOthers)
{
    void *room[3]; // without pages, more than the burst needs
    for (void *&p : room)
        p = ebb_malloc(30 * MiB);
    for (void *p : room)
        ebb_free(p);
    EXPECT_FALSE(ebbi_arena_purge(UINT64_MAX, 0, SIZE_MAX));
    burst();
    const std::size_t before = ebbi_arena_dirty_bytes();
    const auto kept = one_of_each(8192);
    EXPECT_GE(ebbi_arena_dirty_bytes() + 2 * MiB, before) << kept.size();
    burst();
    ASSERT_ARENA_WHOLE();
}

// Slabs that come and go, most of them hardly touched, need no more memory each time.
TEST_F(Began, TheSameAgainAndAgainNeedsNoMore)
{
    burst();
    std::size_t committed = 0, dirty = 0;
    for (std::size_t round = 0; round < 500; round++) {
        std::vector<void *> blocks;
        for (unsigned c = ebbi_class_for(8192); c < EBBI_CLASS_EMPTY; c++)
            for (unsigned i = 0; i < ebbi_classes[c].blocks + 1 + round % 2; i++)
                blocks.push_back(ebb_malloc(ebbi_classes[c].size));
        for (void *p : blocks)
            ebb_free(p);
        struct ebbi_arena_totals totals;
        ebbi_arena_totals(&totals);
        if (round < 100) {
            committed = std::max(committed, totals.committed_bytes);
            dirty = std::max(dirty, totals.dirty_bytes);
        } else {
            ASSERT_LE(totals.committed_bytes, committed) << round;
            ASSERT_LE(totals.dirty_bytes, dirty + 4 * MiB) << round;
        }
    }
    ASSERT_ARENA_WHOLE();
}

} // namespace
