// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: spans and chunks, on a fake clock, checked by a walker and a shadow model.
#include "support/arena_walk.h"

namespace {

using namespace unit;

struct Span : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_clock(1000);
    }
};

ebbi_span *take(std::size_t granules, std::size_t align = 1)
{
    return ebbi_span_alloc(granules, align, EBBI_SPAN_LARGE);
}

TEST_F(Span, GivesGranulesThatReadAsZero)
{
    ebbi_span *span = take(5);
    ASSERT_NE(nullptr, span);
    EXPECT_TRUE(span->zeroed);
    auto *bytes = static_cast<unsigned char *>(ebbi_span_start(span));
    EXPECT_EQ(0U, address(bytes) % EBBI_GRANULE);
    for (std::size_t i = 0; i < 5 * EBBI_GRANULE; i += 4096)
        EXPECT_EQ(0, bytes[i]);
    EXPECT_EQ(span, ebbi_span_of(bytes + 5));
    ASSERT_ARENA_WHOLE();
}

TEST_F(Span, UsedMemoryIsDirtyUntilPurged)
{
    ebbi_span *span = take(3);
    std::memset(ebbi_span_start(span), 7, 3 * EBBI_GRANULE);
    ebbi_span_free(span);
    EXPECT_EQ(3 * EBBI_GRANULE, ebbi_arena_dirty_bytes());
    ebbi_span *again = take(3);
    EXPECT_EQ(span, again) << "best fit takes the hole that fits exactly";
    EXPECT_FALSE(again->zeroed);
    ebbi_span_free(again);
    EXPECT_FALSE(ebbi_arena_purge(1000, 0, SIZE_MAX));
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes());
    EXPECT_TRUE(take(3)->zeroed);
    ASSERT_ARENA_WHOLE();
}

TEST_F(Span, CoalescesOnBothSides)
{
    ebbi_span *a = take(2), *b = take(3), *c = take(4), *guard = take(1);
    ASSERT_NE(nullptr, guard);
    ebbi_span_free(a);
    ebbi_span_free(c);
    ASSERT_ARENA_WHOLE();
    ebbi_span_free(b);
    ASSERT_ARENA_WHOLE();
    EXPECT_EQ(a, take(9)) << "the three are one hole";
}

TEST_F(Span, BestFitPrefersTheSmallestHole)
{
    ebbi_span *wide = take(10), *g1 = take(1), *narrow = take(4), *g2 = take(1);
    ASSERT_TRUE(g1 && g2);
    ebbi_span_free(wide);
    ebbi_span_free(narrow);
    EXPECT_EQ(narrow, take(4));
    EXPECT_EQ(wide, take(5));
    ASSERT_ARENA_WHOLE();
}

TEST_F(Span, AlignsToAnyPowerOfTwo)
{
    for (std::size_t align = 1; align <= 512; align *= 2) {
        ebbi_span *span = take(3, align);
        ASSERT_NE(nullptr, span);
        EXPECT_EQ(0U, address(ebbi_span_start(span)) % (align * EBBI_GRANULE)) << align;
        ASSERT_ARENA_WHOLE();
    }
}

TEST_F(Span, ResizesInPlaceWhereTheNeighbourAllows)
{
    ebbi_span *span = take(4);
    EXPECT_TRUE(ebbi_span_resize(span, 20)) << "the rest of the chunk is free";
    ebbi_span *next = take(1);
    EXPECT_FALSE(ebbi_span_resize(span, 21));
    EXPECT_EQ(20U, span->granules);
    EXPECT_TRUE(ebbi_span_resize(span, 6));
    EXPECT_TRUE(ebbi_span_resize(span, 20)) << "back into what it gave up";
    ebbi_span_free(next);
    ASSERT_ARENA_WHOLE();
}

TEST_F(Span, GrowsByChunksAndFindsEachByItsAddress)
{
    std::size_t before = fake_os_count(FAKE_RESERVE);
    std::vector<ebbi_span *> spans;
    for (int i = 0; i < 5; i++) {
        spans.push_back(take(8000)); // two do not fit in one chunk
        ASSERT_NE(nullptr, spans.back());
        EXPECT_NE(nullptr, ebbi_chunk_of(ebbi_span_start(spans.back())));
    }
    EXPECT_GE(fake_os_count(FAKE_RESERVE), before + 2);
    ASSERT_ARENA_WHOLE();
    for (ebbi_span *span : spans)
        ebbi_span_free(span);
    int local = 0;
    EXPECT_EQ(nullptr, ebbi_chunk_of(&local));
}

TEST_F(Span, PurgeHonoursTheDelayAndTheOrder)
{
    ebbi_span *first = take(2), *g1 = take(1), *second = take(3), *g2 = take(1);
    ASSERT_TRUE(g1 && g2);
    ebbi_span_free(second);
    fake_os_clock(1100);
    ebbi_span_free(first);
    EXPECT_TRUE(ebbi_arena_purge(1499, 500, SIZE_MAX));
    EXPECT_EQ(0U, fake_os_count(FAKE_PURGE)) << "both are too young";
    EXPECT_TRUE(ebbi_arena_purge(1500, 500, SIZE_MAX));
    fake_purge purged[4];
    ASSERT_GE(fake_os_purges(purged, 4), 1U); // and whole pages of the rooms for its bitmaps
    EXPECT_EQ(address(ebbi_span_start(second)), purged[0].start);
    EXPECT_EQ(3 * EBBI_GRANULE, purged[0].bytes);
    EXPECT_FALSE(ebbi_arena_purge(1600, 500, SIZE_MAX));
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes());
    ASSERT_ARENA_WHOLE();
}

// The order is what a search from either end would make it.
TEST_F(Span, WhatMergesWithOlderMemoryTakesItsPlace)
{
    ebbi_span *left = take(3), *middle = take(1), *right = take(4), *g1 = take(1);
    ebbi_span *young = take(2), *g2 = take(1);
    ASSERT_TRUE(g1 && g2);
    std::uint64_t time = 1000;
    for (ebbi_span *span : {right, left, young, middle}) { // the middle merges with both
        fake_os_clock(time += 100);
        ebbi_span_free(span);
    }
    const ebbi_free_span *first = ebbi_dirty_first;
    ASSERT_EQ(left, &first->head);
    EXPECT_EQ(8U, first->dirty);
    EXPECT_EQ(1100U, first->freed_ms) << "as old as its largest part";
    EXPECT_EQ(ebbi_dirty_last, first->dirty_next);
    EXPECT_EQ(young, &ebbi_dirty_last->head);
    ASSERT_ARENA_WHOLE();
}

TEST_F(Span, PurgeStopsAtItsLimit)
{
    std::vector<ebbi_span *> spans;
    for (int i = 0; i < 16; i++)
        spans.push_back(take(2));
    for (int i = 0; i < 16; i += 2)
        ebbi_span_free(spans[static_cast<std::size_t>(i)]);
    EXPECT_TRUE(ebbi_arena_purge(9000, 0, 6 * EBBI_GRANULE));
    EXPECT_EQ(3U, fake_os_count(FAKE_PURGE));
    EXPECT_EQ(10 * EBBI_GRANULE, ebbi_arena_dirty_bytes());
}

TEST_F(Span, OfAPurgedSpanTheRestStaysTheOldest)
{
    ebbi_span *large = take(200), *g1 = take(1), *young = take(4), *g2 = take(1);
    ASSERT_TRUE(g1 && g2);
    ebbi_span_free(large);
    fake_os_clock(2000);
    ebbi_span_free(young);
    for (std::size_t left = 204; left >= 44;) {
        EXPECT_TRUE(ebbi_arena_purge(9000, 0, 40 * EBBI_GRANULE));
        const std::size_t now = ebbi_arena_dirty_bytes() / EBBI_GRANULE;
        EXPECT_GE(left - now, 40U);
        EXPECT_LT(left - now, 40U + EBBI_UNIT_GRANULES) << "to the end of a unit at most";
        EXPECT_EQ(young, &ebbi_dirty_last->head);
        ASSERT_ARENA_WHOLE();
        left = now;
    }
}

// The kernel brings 2 MiB where one granule is touched: the others count as clean, and are there.
TEST_F(Span, WhereHugePagesComeByThemselvesTheyGoAsAWhole)
{
    ebbi_arena_advice = EBBI_HUGE_ALWAYS;
    ebbi_span *large = take(4 * EBBI_UNIT_GRANULES), *g = take(1);
    ASSERT_TRUE(large && g);
    const std::uintptr_t end = address(ebbi_span_start(g));
    const std::size_t behind = ebbi_chunk_of(g)->granules - ebbi_span_index(g) - 1;
    if (behind > 0 && behind < 5 * EBBI_UNIT_GRANULES) // in a short chunk what is left fits better
        (void)take(behind);
    ebbi_span_free(large);
    EXPECT_FALSE(ebbi_arena_purge(2000, 0, SIZE_MAX));
    ebbi_span *small = take(2 * EBBI_UNIT_GRANULES); // from the place of the large one
    ebbi_span *touched = take(1);
    ASSERT_TRUE(small && touched);
    const std::uintptr_t at = address(ebbi_span_start(touched));
    ASSERT_LT(at, end);
    ebbi_span_free(touched);
    fake_os_reset();
    EXPECT_FALSE(ebbi_arena_purge(3000, 0, SIZE_MAX));
    fake_purge purged[4];
    ASSERT_GE(fake_os_purges(purged, 4), 1U);
    constexpr std::uintptr_t unit = EBBI_UNIT_GRANULES * EBBI_GRANULE;
    EXPECT_EQ(std::max(ebbi_align_down(at, unit), address(ebbi_span_start(small)) + 2 * unit),
              purged[0].start);
    EXPECT_EQ(std::min(ebbi_align_up(at + 1, unit), end), purged[0].start + purged[0].bytes);
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes());
    ASSERT_ARENA_WHOLE();
}

TEST_F(Span, AnObjectTakesThePagesOfAnother)
{
    const auto object = [](std::size_t granules) {
        return ebbi_span_alloc_dense(granules, EBBI_SPAN_LARGE, EBBI_FILL_OBJECT);
    };
    ebbi_span_free(
        take(300)); // so the first chunk has room for all side by side, wherever it begins
    EXPECT_FALSE(ebbi_arena_purge(9000, 0, SIZE_MAX));
    ebbi_span *clean = take(100), *g1 = take(1), *dirty = take(150), *g2 = take(1);
    ASSERT_TRUE(g1 && g2);
    ebbi_span_free(clean);
    EXPECT_FALSE(ebbi_arena_purge(9000, 0, SIZE_MAX));
    ebbi_span_free(dirty);
    ebbi_span *got = object(100); // although a clean hole fits exactly
    EXPECT_EQ(dirty, got);
    EXPECT_FALSE(got->zeroed);
    EXPECT_EQ(clean, object(100)) << "the rest is too short";
    EXPECT_EQ(50 * EBBI_GRANULE, ebbi_arena_dirty_bytes());
    ASSERT_ARENA_WHOLE();
}

// Of any purpose and size: a clean hole that fits exactly costs pages.
TEST_F(Span, NoPagesAreTouchedWhileOthersWaitToBeReturned)
{
    ebbi_span *clean = take(1), *g1 = take(1), *dirty = take(40), *g2 = take(1);
    ASSERT_TRUE(g1 && g2);
    ebbi_span_free(clean);
    EXPECT_FALSE(ebbi_arena_purge(9000, 0, SIZE_MAX));
    ebbi_span_free(dirty);
    for (enum ebbi_fill fill :
         {EBBI_FILL_UNKNOWN, EBBI_FILL_LIKELY, EBBI_FILL_GROWS, EBBI_FILL_OBJECT}) {
        std::size_t before = ebbi_arena_dirty_bytes();
        ASSERT_NE(nullptr, ebbi_span_alloc_dense(1, EBBI_SPAN_SHEET, fill));
        EXPECT_EQ(before - EBBI_GRANULE, ebbi_arena_dirty_bytes());
    }
    ebbi_span *whole = take(36);
    EXPECT_FALSE(whole->zeroed);
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes());
    EXPECT_EQ(clean, take(1)) << "at last";
    ASSERT_ARENA_WHOLE();
}

// What is hardly touched keeps no pages from others, but for a few.
TEST_F(Span, WhatIsHardlyTouchedGoesWhereFewPagesAre)
{
    std::uint64_t dirty = 0;
    const auto few = [&dirty](std::size_t granules) {
        return ebbi_span_alloc_part(granules, EBBI_SPAN_SHEET, EBBI_FILL_FEW, &dirty);
    };
    ebbi_span *clean = take(20), *g1 = take(1), *used = take(40), *g2 = take(1);
    ASSERT_TRUE(g1 && g2);
    ebbi_span_free(clean);
    EXPECT_FALSE(ebbi_arena_purge(9000, 0, SIZE_MAX));
    ebbi_span_free_part(used, 0xFFFFFFFF); // 8 clean ones at its end
    ebbi_span *got = few(16);
    EXPECT_EQ(clean, got) << "although it is the longer in that no one is dirty";
    EXPECT_EQ(0U, dirty);
    EXPECT_TRUE(got->zeroed);
    got = few(10);
    EXPECT_EQ(ebbi_span_index(used) + 30, ebbi_span_index(got)) << "a quarter may be";
    EXPECT_EQ(3U, dirty);
    EXPECT_FALSE(got->zeroed);
    EXPECT_EQ(30 * EBBI_GRANULE, ebbi_arena_dirty_bytes());
    ASSERT_ARENA_WHOLE();
}

TEST_F(Span, MemoryThatTheKernelKeepsStaysDirty)
{
    ebbi_span *span = take(2), *guard = take(1);
    ASSERT_NE(nullptr, guard);
    std::memset(ebbi_span_start(span), 9, EBBI_GRANULE);
    ebbi_span_free(span);
    fake_os_refuse(FAKE_PURGE, 1, true);
    EXPECT_FALSE(ebbi_arena_purge(9000, 0, SIZE_MAX)) << "nothing younger is left to wait for";
    EXPECT_EQ(2 * EBBI_GRANULE, ebbi_arena_dirty_bytes());
    ASSERT_ARENA_WHOLE();
    fake_os_allow();
    EXPECT_FALSE(ebbi_arena_purge(9999, 0, SIZE_MAX));
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes());
    ASSERT_ARENA_WHOLE();
}

struct Live {
    ebbi_span *span;
    std::size_t granules;
    unsigned char mark;
};

// Random alloc, free, resize and purge, some refused, against a model that knows what is whose.
void random_walk(std::uint64_t seed, int steps)
{
    static std::uint64_t now_ms = 1000; // time goes on from one walk to the next
    Random random(seed);
    std::vector<Live> live;
    for (int step = 0; step < steps; step++) {
        fake_os_clock(now_ms += random.below(3));
        if (random.chance(20))
            fake_os_refuse(random.chance(2) ? FAKE_COMMIT : FAKE_PURGE, 1, false);
        std::size_t what = random.below(10);
        if (what < 5) {
            std::size_t granules = 1 + random.below(random.chance(8) ? 300 : 12);
            std::size_t align = random.chance(6) ? std::size_t{1} << random.below(6) : 1;
            ebbi_span *span = take(granules, align);
            if (span != nullptr) {
                auto *bytes = static_cast<unsigned char *>(ebbi_span_start(span));
                ASSERT_EQ(0U, address(bytes) % (align * EBBI_GRANULE));
                if (span->zeroed) {
                    ASSERT_EQ(0, bytes[granules * EBBI_GRANULE - 1]) << "not zero";
                }
                auto mark = static_cast<unsigned char>(1 + random.below(255));
                for (std::size_t g = 0; g < granules; g++)
                    bytes[g * EBBI_GRANULE] = mark;
                live.push_back({span, granules, mark});
            }
        } else if (what < 9 && !live.empty()) {
            std::size_t i = random.below(live.size());
            Live &l = live[i];
            auto *bytes = static_cast<unsigned char *>(ebbi_span_start(l.span));
            for (std::size_t g = 0; g < l.granules; g++)
                ASSERT_EQ(l.mark, bytes[g * EBBI_GRANULE]) << "step " << step;
            std::size_t granules = 1 + random.below(l.granules * 2);
            if (what == 8 && ebbi_span_resize(l.span, granules)) {
                for (std::size_t g = l.granules; g < granules; g++)
                    bytes[g * EBBI_GRANULE] = l.mark;
                l.granules = granules;
            } else if (what != 8) {
                ebbi_span_free(l.span);
                live[i] = live.back();
                live.pop_back();
            }
        } else {
            (void)ebbi_arena_purge(now_ms, random.below(50), random.below(64) * EBBI_GRANULE);
        }
        fake_os_allow();
        if (step % 50 == 0) {
            ASSERT_ARENA_WHOLE() << "seed " << seed << ", step " << step;
        }
    }
    for (const Live &l : live)
        ebbi_span_free(l.span);
    ASSERT_ARENA_WHOLE();
    EXPECT_EQ(0U, ebbi_arena_used_bytes());
}

TEST_F(Span, InvariantsHoldOverRandomOperations)
{
    for (std::uint64_t seed = 1; seed <= 6; seed++)
        random_walk(seed, 1500);
    ebbi_arena_advice = EBBI_HUGE_ALWAYS;
    for (std::uint64_t seed = 7; seed <= 10; seed++)
        random_walk(seed, 1500);
}

TEST_F(Span, EveryRefusedCallLeavesTheArenaWhole)
{
    for (fake_call call : {FAKE_RESERVE, FAKE_COMMIT})
        for (std::size_t n = 1; n <= 8; n++) {
            fake_os_refuse(call, n, false);
            ebbi_span *wide = take(9000), *thin = take(3);
            fake_os_allow();
            EXPECT_ARENA_WHOLE() << fake_os_name(call) << " number " << n << " refused";
            if (wide != nullptr)
                ebbi_span_free(wide);
            if (thin != nullptr)
                ebbi_span_free(thin);
        }
}

// A chunk whose granules are refused must serve later, or go back: no address space leaks.
TEST_F(Span, RefusedMemoryLeaksNoAddressSpace)
{
    for (std::size_t n = 1; n <= 5; n++) { // the header, the tags, then the granules
        std::size_t held = fake_os_held_bytes();
        for (int i = 0; i < 20; i++) {
            fake_os_refuse(FAKE_COMMIT, n, true);
            ebbi_span *span = take(9000);
            fake_os_allow();
            if (span != nullptr)
                ebbi_span_free(span);
        }
        EXPECT_LE(fake_os_held_bytes(), held + GiB) << "refused from call " << n << " on";
        ASSERT_ARENA_WHOLE();
    }
    EXPECT_NE(nullptr, take(9000));
}

TEST_F(Span, TheWalkerFindsPlantedFaults)
{
    ebbi_span *span = take(4), *guard = take(1);
    ASSERT_NE(nullptr, guard);
    ebbi_span_free(span);
    ebbi_chunk *chunk = ebbi_span_chunk(span);
    std::size_t g = ebbi_span_index(span);
    chunk->free_map[g / 64] ^= std::uint64_t{1} << (g % 64);
    EXPECT_NE("", walk_arena().broken);
    chunk->free_map[g / 64] ^= std::uint64_t{1} << (g % 64);
    ASSERT_ARENA_WHOLE();
    std::memset(ebbi_span_start(span), 1, 8);
    std::uint64_t dirty = chunk->dirty_map[g / 64];
    chunk->dirty_map[g / 64] = 0;
    EXPECT_NE("", walk_arena().broken);
    chunk->dirty_map[g / 64] = dirty;
    guard->state = EBBI_SPAN_FREE;
    EXPECT_NE("", walk_arena().broken);
    guard->state = EBBI_SPAN_LARGE;
    ASSERT_ARENA_WHOLE();
}

} // namespace
