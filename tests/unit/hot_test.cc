// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: a heap whose refills and flushes come fast, and what it may cache for it.
#include <algorithm>
#include <set>
#include <thread>

#include "support/magazines.h"
#include "support/slab_walk.h"

namespace {

using namespace unit;

struct Hot : Heap {
    std::uint32_t now = 1000;

    void SetUp() override
    {
        Heap::SetUp();
        set_cache("1m");
        tell_time(1, 0);
    }

    // So many refills and flushes since the last time, of nothing, and so much later one more.
    void tell_time(std::uint32_t later, std::uint32_t events)
    {
        heap->slow_work = events * EBBI_EVENT_WORK;
        fake_os_clock(now += later);
        ebbi_magazines_tell_time(heap, now);
    }

    bool is_hot()
    {
        std::vector<void *> blocks(2000);
        for (void *&p : blocks)
            p = ebb_malloc(16384);
        ebbi_flush_all(heap);
        for (void *p : blocks)
            ebb_free(p); // its magazine only fills
        const unsigned slots = magazine(16384).slots;
        return slots == 8;
    }
};

TEST_F(Hot, LargeBlocksLeaveAPartOfTheBudgetToOthers)
{
    tell_time(1, 20 * 200);
    std::vector<void *> blocks;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 40; i++)
            for (unsigned c = ebbi_class_for(2049); c < EBBI_CLASS_EMPTY; c++)
                blocks.push_back(ebb_malloc(ebbi_classes[c].size));
        for (void *p : blocks)
            ebb_free(p);
        blocks.clear();
    }
    EXPECT_LT(512 * KiB, heap->charged_bytes);
    EXPECT_GE(768 * KiB, heap->charged_bytes);
    fill_and_empty(64, 300);
    EXPECT_EQ(512U, magazine(64).slots);
}

TEST_F(Hot, AHeapIsHotOnceItsRefillsAndFlushesComeFastEnough)
{
    EXPECT_FALSE(is_hot());
    tell_time(4, 4 * 200 - 1);
    EXPECT_FALSE(is_hot());
    tell_time(1, 0);
    tell_time(4, 4 * 200);
    EXPECT_TRUE(is_hot());
}

// A rope's old versions go while new ones come: few, but each of half an array.
TEST_F(Hot, WhatTheyMoveCountsToo)
{
    for (int per_ms : {10, 40}) {
        SCOPED_TRACE(per_ms);
        tell_time(600, 0);
        const std::uint32_t before = heap->events;
        std::vector<void *> blocks(20 * 127);
        while (heap->events - before < 4U * static_cast<unsigned>(per_ms)) {
            for (void *&p : blocks)
                p = ebb_malloc(64);
            for (void *p : blocks)
                ebb_free(p);
        }
        EXPECT_LT((heap->events - before) * 64, heap->slow_work);
        for (int i = 0; i < 2; i++) {
            fake_os_clock(now += 4);
            ebbi_magazines_tell_time(heap, now);
        }
        EXPECT_EQ(per_ms == 40 ? now - 4 : 0, heap->hot_ms);
    }
}

TEST_F(Hot, WhatComesSinglyCountsAsRefillsAndFlushesDo)
{
    set_cache("0");
    const std::uint32_t before = heap->events;
    std::vector<void *> blocks(1000);
    for (void *&p : blocks)
        p = ebb_malloc(16384);
    EXPECT_EQ(before + 1000, heap->events);
    for (void *p : blocks)
        ebb_free(p);
    EXPECT_EQ(before + 2000, heap->events);
    EXPECT_LE(2000 * EBBI_EVENT_WORK, heap->slow_work);
}

// A thread that had to wait for a processor did nothing meanwhile.
TEST_F(Hot, WhatComesAfterAPauseIsMeasuredByTwentyMilliseconds)
{
    tell_time(1000, 20 * 200 - 1);
    EXPECT_FALSE(is_hot());
    tell_time(1, 0);
    tell_time(1000, 20 * 200);
    EXPECT_TRUE(is_hot());
}

TEST_F(Hot, AHeapIsHotForHalfASecondAndNoLonger)
{
    tell_time(1, 0);
    tell_time(1, 1000);
    tell_time(500, 0);
    EXPECT_TRUE(is_hot());
    tell_time(1, 0);
    tell_time(1, 1000);
    tell_time(501, 0);
    EXPECT_FALSE(is_hot());
}

// What is allocated and freed in batches of up to so many blocks meets no slow path.
TEST_F(Hot, ItsArraysHoldTwiceAsMuchAndMore)
{
    const struct {
        std::size_t bytes;
        unsigned calm, hot;
    } classes[] = {{16, 256, 1024}, {64, 256, 1024}, {128, 256, 512},
                   {512, 64, 128},  {1024, 32, 64},  {2048, 32, 32}};
    set_cache("16m");
    for (const auto &c : classes) {
        fill_and_empty(c.bytes, 2 * static_cast<int>(c.calm));
        EXPECT_EQ(c.calm, magazine(c.bytes).slots) << c.bytes;
    }
    EXPECT_EQ(nullptr, heap->more_slots);
    ebb_trim();
    for (const auto &c : classes) {
        tell_time(1, 20 * 200);
        fill_and_empty(c.bytes, 3 * static_cast<int>(c.hot) / 2);
        EXPECT_EQ(c.hot, magazine(c.bytes).slots) << c.bytes;
        const std::uint32_t before = heap->events;
        fill_and_empty(c.bytes, static_cast<int>(c.hot) / 2 - 1);
        EXPECT_GE(before + 2, heap->events) << c.bytes;
    }
    ebbi_magazines_audit(heap);
}

TEST_F(Hot, ACalmHeapHalvesWhatIsTooLarge)
{
    set_cache("16m");
    tell_time(1, 20 * 200);
    fill_and_empty(64, 1500);
    ASSERT_EQ(1024U, magazine(64).slots);
    const std::size_t charged = heap->charged_bytes;
    tell_time(501, 0);
    for (int i = 0; i < 2; i++)
        fill_and_empty(64, 1500);
    EXPECT_EQ(256U, magazine(64).slots);
    EXPECT_EQ(charged - std::size_t{768} * 64, heap->charged_bytes);
}

// A free looks at what lies below the first slots of an array.
TEST_F(Hot, NoArrayBeginsAtTheGranulesFirstSlots)
{
    set_cache("16m");
    tell_time(1, 20 * 200);
    heap->slot_next = heap->slot_end - 15;
    std::fill(std::begin(heap->slot_free), std::end(heap->slot_free), nullptr);
    heap->lacks_slots = true;
    ebbi_magazines_extend(heap);
    auto *more = static_cast<void **>(heap->more_slots);
    ASSERT_NE(nullptr, more);
    ebb_free(ebb_malloc(64));
    EXPECT_LE(more + EBBI_LATELY - 1, magazine(64).base);
    EXPECT_EQ(more + EBBI_GRANULE / sizeof(void *), heap->slot_end);
    for (const int left : {8, 4, 2, 1}) // what the first part had, to its end
        EXPECT_EQ(heap->slots + EBBI_SLOTS - 2 * left + 1,
                  heap->slot_free[std::bit_width(unsigned(left)) - 1]);
}

// Where another heap has ended there.
TEST_F(Hot, MoreSlotsMayLieBelowTheHeap)
{
    set_cache("16m");
    void *below = ebbi_own_take();
    std::thread([&] {
        heap = ebbi_heap_get();
        ASSERT_LT(below, static_cast<void *>(heap));
        ebbi_own_give(below);
        tell_time(1, 20 * 200);
        heap->slot_next = heap->slot_end - 15;
        std::fill(std::begin(heap->slot_free), std::end(heap->slot_free), nullptr);
        ebb_free(ebb_malloc(64));
        ebb_free(ebb_malloc(64));
        ASSERT_EQ(below, heap->more_slots);
        ebb_free(ebb_malloc(16384)); // what the first part had left
        EXPECT_LE(heap->slots, magazine(16384).base);
        EXPECT_GE(heap->slots + EBBI_SLOTS, magazine(16384).base + magazine(16384).slots);
        ebbi_magazines_audit(heap);
    }).join();
}

// More slabs than a flush remembers at a time, each of which comes up again and again.
TEST_F(Hot, WhatLiesInManySlabsIsCountedInEach)
{
    std::vector<void *> blocks(16 * 40);
    for (void *&p : blocks)
        p = ebb_malloc(4096);
    ebbi_flush_all(heap);
    ebbi_owner *owner = owner_of(heap, ebbi_class_for(4096));
    std::set<ebbi_slab *> slabs;
    for (void *p : blocks)
        slabs.insert(ebbi_slab_of(p));
    ASSERT_LE(40U, slabs.size());
    std::vector<void *> mixed;
    for (std::size_t i = 0; i < blocks.size(); i++)
        if (i / 80 != 2)
            mixed.push_back(blocks[i / 2 % 40 * 16 + i / 80 * 2 + i % 2]);
    const std::size_t before = owner->out_bytes;
    ebbi_lock_take(&owner->lock);
    ebbi_give_blocks(owner, mixed.data(), mixed.size());
    EXPECT_EQ(before - mixed.size() * 4096, owner->out_bytes);
    for (ebbi_slab *slab : slabs)
        ebbi_slab_audit(slab, true);
    ebbi_owner_audit(owner);
    ebbi_lock_drop(&owner->lock);
}

TEST_F(Hot, EveryArrayIsOnePlaceOfItsOwn)
{
    set_cache("16m");
    Random random(5);
    std::vector<void *> live;
    for (int i = 0; i < 400000; i++) {
        if (i % 1000 == 0)
            tell_time(1, i % 7000 == 0 ? 0 : 20 * 200);
        if (i % 50000 == 0)
            tell_time(600, 0);
        if (live.empty() || random.below(4000) > live.size()) {
            live.push_back(ebb_malloc(1 + random.below(i % 100000 < 50000 ? 200 : 1000)));
        } else {
            const std::size_t k = random.below(live.size());
            ebb_free(live[k]);
            live[k] = live.back();
            live.pop_back();
        }
    }
    std::vector<std::pair<void **, void **>> places;
    for (const ebbi_magazine &m : heap->magazines)
        if (m.slots != 0)
            places.emplace_back(m.base, m.base + m.slots);
    std::sort(places.begin(), places.end());
    for (std::size_t i = 1; i < places.size(); i++)
        EXPECT_LE(places[i - 1].second, places[i].first);
    EXPECT_NE(nullptr, heap->more_slots);
    ebbi_magazines_audit(heap);
    for (void *p : live)
        ebb_free(p);
}

TEST_F(Hot, WhereNoMoreSlotsAreToBeHadItAsksAgainHalfASecondLater)
{
    set_cache("16m");
    tell_time(1, 20 * 200);
    ebb_free(ebb_malloc(64));
    ebbi_flush_all(heap);
    for (fake_call call : {FAKE_COMMIT, FAKE_RESERVE, FAKE_MAP})
        fake_os_refuse(call, 1, true);
    std::vector<void *> places;
    while (void *place = ebbi_own_take())
        places.push_back(place);
    heap->slot_next = heap->slot_end;
    std::fill(std::begin(heap->slot_free), std::end(heap->slot_free), nullptr);
    void *p = ebb_malloc(64);
    ASSERT_NE(nullptr, p);
    EXPECT_EQ(now, heap->refused_ms);
    for (void *place : places)
        ebbi_own_give(place);
    fake_os_allow();
    tell_time(500, 20 * 200);
    ebb_free(p);
    ebb_free(ebb_malloc(64));
    EXPECT_EQ(0U, magazine(64).slots);
    EXPECT_EQ(nullptr, heap->more_slots);
    tell_time(1, 20 * 200);
    ebb_free(ebb_malloc(64));
    EXPECT_EQ(16U, magazine(64).slots);
    EXPECT_NE(nullptr, heap->more_slots);
}

TEST_F(Hot, AHeapThatEndsGivesItsSlotsBack)
{
    const std::size_t before = ebbi_arena_used_bytes();
    for (int i = 0; i < 100; i++) {
        ebbi_heap *other = ebbi_heap_make(0);
        ASSERT_NE(nullptr, other);
        other->more_slots = ebbi_own_take();
        ASSERT_NE(nullptr, other->more_slots);
        ebbi_heap_end(other);
    }
    EXPECT_GE(before + MiB, ebbi_arena_used_bytes());
}

} // namespace
