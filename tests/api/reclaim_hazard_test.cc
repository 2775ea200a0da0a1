// SPDX-License-Identifier: MIT OR Apache-2.0
// Hazard pointers, by the text of ebbtide/reclaim.h.
#include "reclaim_support.h"

#include <algorithm>
#include <functional>

#include "ebbtide.h"
#include "ebbtide/region.h"

namespace {

using namespace reclaim;
using support::KiB;
using support::MiB;

bool goes_away(std::atomic<int> &calls)
{
    return eventually([&] {
        ebb_reclaim();
        return calls.load() != 0;
    });
}

TEST(Hazard, HoldsBackTheBlockThatItProtects)
{
    for (std::size_t bytes : {std::size_t{16}, std::size_t{40}, 5 * KiB, 100 * KiB, 40 * MiB}) {
        void *link = ebb_malloc(bytes);
        support::fill_pattern(link, 0, bytes, 3);
        ebb_hazard *hazard = ebb_hazard_open();
        ASSERT_NE(nullptr, hazard);
        void *held = ebb_hazard_protect(hazard, &link);
        EXPECT_EQ(link, held);
        link = nullptr;
        ebb_retire(held);
        for (int i = 0; i < 200; i++) {
            void *other = ebb_malloc(bytes);
            std::memset(other, 0xEE, bytes < 64 * KiB ? bytes : 64);
            ebb_retire(other);
        }
        push_on();
        ASSERT_EQ(bytes, support::find_mismatch(held, bytes, 3));
        EXPECT_GE(stats().retired_blocks, 1U);
        EXPECT_LE(stats().retired_blocks, 125U) << "the others have gone";
        ebb_hazard_clear(hazard);
        EXPECT_TRUE(drain());
        ebb_hazard_close(hazard);
    }
}

TEST(Hazard, MayPointIntoTheBlock)
{
    for (std::size_t bytes : {std::size_t{48}, 5 * KiB, 100 * KiB, 40 * MiB}) {
        auto *block = static_cast<char *>(ebb_malloc(bytes));
        support::fill_pattern(block, 0, bytes, 3);
        ebb_hazard *hazard = ebb_hazard_open();
        ebb_hazard_set(hazard, block + bytes - 1);
        ebb_retire(block);
        push_on();
        ASSERT_EQ(1U, stats().retired_blocks) << bytes;
        EXPECT_EQ(bytes, support::find_mismatch(block, bytes, 3));
        ebb_hazard_close(hazard); // ends the protection too
        EXPECT_TRUE(drain());
    }
}

// One of 200 is protected. Bytes that still wait when the others have had time enough.
std::size_t held_back(const std::vector<void *> &blocks, ebb_collector *collector,
                      const std::function<void(void *)> &retire)
{
    ebb_hazard *hazard = ebb_hazard_open();
    ebb_hazard_set(hazard, blocks[blocks.size() / 2]);
    for (void *block : blocks)
        retire(block);
    push_on(collector);
    const std::size_t bytes = stats(collector).retired_bytes;
    ebb_hazard_close(hazard);
    EXPECT_TRUE(drain(collector));
    return bytes;
}

TEST(Hazard, HoldsBackLittleOfLargeBlocks)
{
    ebb_collector *collector = ebb_collector_create(0);
    ebb_participant *me = ebb_collector_attach(collector);
    for (std::size_t bytes : {std::size_t{600}, 3 * KiB, 14 * KiB, 60 * KiB, 120 * KiB}) {
        std::vector<void *> blocks(200);
        const auto fill = [&](const std::function<void *()> &allocate) {
            std::generate(blocks.begin(), blocks.end(), allocate);
            return 64 * KiB + ebb_malloc_usable_size(blocks[0]);
        };
        std::size_t most = 0;
        in_thread([&] { most = fill([&] { return ebb_malloc(bytes); }); });
        most = std::max(most, 4 * ebb_malloc_usable_size(blocks[0]));
        EXPECT_LE(held_back(blocks, nullptr, ebb_retire), most) << bytes << ", a thread's";

        ebb_scope scope = ebb_domain_enter(ebb_domain_open("held back"));
        most = fill([&] { return ebb_malloc(bytes); });
        ebb_leave(scope);
        EXPECT_LE(held_back(blocks, nullptr, ebb_retire), most) << bytes << ", a domain's";

        most = fill([&] { return ebb_malloc(bytes); });
        const auto into_collector = [me](void *p) { ASSERT_EQ(0, ebb_participant_retire(me, p)); };
        EXPECT_LE(held_back(blocks, collector, into_collector), most) << bytes << ", a collector's";

        ebb_region *region = ebb_region_open(nullptr);
        most = fill([&] { return ebb_region_alloc(region, bytes); });
        EXPECT_LE(held_back(blocks, nullptr, ebb_retire), most) << bytes << ", a region's";
        ebb_region_release(region);
    }
    ebb_collector_destroy(collector);
}

TEST(Hazard, HoldsBackDestructorsAndBlocksOfEveryCollector)
{
    std::atomic<int> calls{0};
    ebb_collector *collector = ebb_collector_create(0);
    ebb_participant *me = ebb_collector_attach(collector);
    char *first = static_cast<char *>(ebb_malloc(200)),
         *second = static_cast<char *>(ebb_malloc(200));
    void *third = ebb_malloc(200);
    ebb_hazard *hazards[] = {ebb_hazard_open(), ebb_hazard_open(), ebb_hazard_open()};
    ebb_hazard_set(hazards[0], first);
    ebb_hazard_set(hazards[1], second + 100);
    ebb_hazard_set(hazards[2], third);
    support::fill_pattern(second, 0, 200, 9);
    ASSERT_EQ(0, ebb_retire_with(first, count_and_free, &calls));
    ASSERT_EQ(0, ebb_participant_retire(me, second));
    ASSERT_EQ(0, ebb_participant_retire_with(me, third, count_and_free, &calls));
    push_on();
    push_on(collector);
    EXPECT_EQ(0, calls.load());
    EXPECT_EQ(2U, waiting(collector)) << "also where the hazard pointer points into the block";
    ebb_hazard_close(hazards[0]);
    EXPECT_TRUE(goes_away(calls));
    ebb_hazard_close(hazards[1]);
    ebb_hazard_close(hazards[2]);
    EXPECT_TRUE(drain(collector));
    EXPECT_EQ(2, calls.load());
    ebb_collector_destroy(collector);
}

TEST(Hazard, AreCountedAndClosedOnesServeAgain)
{
    const std::size_t before = stats().hazards;
    std::vector<ebb_hazard *> many(1000);
    for (int round = 0; round < 3; round++) {
        for (ebb_hazard *&hazard : many)
            ASSERT_NE(nullptr, hazard = ebb_hazard_open());
        EXPECT_EQ(before + many.size(), stats().hazards);
        for (ebb_hazard *hazard : many)
            ebb_hazard_close(hazard);
        EXPECT_EQ(before, stats().hazards);
    }
    ebb_hazard_close(nullptr);
    EXPECT_LE(heap_stats().live_bytes, MiB);
}

TEST(Hazard, AndPinBothHoldTheSameBlock)
{
    std::atomic<int> calls[2] = {};
    ebb_hazard *hazards[] = {ebb_hazard_open(), ebb_hazard_open()};
    Staller reader;
    for (int i = 0; i < 2; i++) {
        void *block = ebb_malloc(64);
        ebb_hazard_set(hazards[i], block);
        ASSERT_EQ(0, ebb_retire_with(block, count_and_free, &calls[i]));
    }
    ebb_hazard_clear(hazards[0]);
    push_on();
    EXPECT_EQ(0, calls[0].load()) << "the pin";
    reader.let_go();
    push_on();
    EXPECT_EQ(0, calls[1].load()) << "the hazard pointer";
    ebb_hazard_close(hazards[1]);
    EXPECT_TRUE(goes_away(calls[0]));
    EXPECT_TRUE(goes_away(calls[1]));
    ebb_hazard_close(hazards[0]);
}

// In any order: no hazard pointer to a block delays a destructor, and no barrier waits for blocks.
TEST(Hazard, ToABlockHoldsBackNoBarrier)
{
    ebb_hazard *hazard = ebb_hazard_open();
    ebb_region *region = ebb_region_open(nullptr);
    ASSERT_NE(region, nullptr);
    for (int i = 0; i < 100; i++) {
        std::atomic<int> calls{0};
        const int before = i % 5, behind = i % 3;
        for (int n = 0; n < before; n++)
            ASSERT_EQ(0, ebb_retire_with(ebb_malloc(40), count_and_free, &calls));
        void *block = ebb_region_alloc(region, 40);
        ebb_hazard_set(hazard, block);
        ebb_retire(block);
        for (int n = 0; n < behind; n++)
            ASSERT_EQ(0, ebb_retire_with(ebb_malloc(40), count_and_free, &calls));
        ebb_barrier();
        EXPECT_EQ(before + behind, calls.load());
        EXPECT_EQ(1U, stats().retired_blocks);
        ebb_hazard_clear(hazard);
    }
    ebb_hazard_close(hazard);
    EXPECT_TRUE(drain());
    ebb_region_release(region);
}

} // namespace
