// SPDX-License-Identifier: MIT OR Apache-2.0
// Regions under readers: retired blocks and ended regions stay readable until the last pin that was
// there has ended, and nothing that was on its way when a region ended touches who comes next.
#include "api_ebb.h"

#include "region_support.h"

namespace {

using namespace regions;
using reclaim::drain;
using reclaim::Pin;
using support::KiB;
using support::MiB;

constexpr std::size_t count = 600;

std::size_t bytes_of(std::size_t index) { return index % 50 == 49 ? 200 * KiB : index * 7 % 900; }

void fill(ebb_region *region, support::MappedArray<void *> &blocks)
{
    for (std::size_t i = 0; i < blocks.size(); i++)
        blocks[i] = take_filled(region, bytes_of(i), i);
}

std::size_t count_wrong(const support::MappedArray<void *> &blocks)
{
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < blocks.size(); i++)
        wrong += !is_filled(blocks[i], bytes_of(i), i);
    return wrong;
}

// Writes over whatever memory can be had.
void churn(ebb_region *open_region)
{
    for (int round = 0; round < 20; round++) {
        ebb_region *region = open_region != nullptr ? open_region : open("churn");
        for (std::size_t bytes : {std::size_t{100}, 3 * KiB, 60 * KiB, 200 * KiB, MiB}) {
            void *in_region = take(region, bytes);
            void *in_heap = ebb_malloc(bytes);
            std::memset(in_region, 0, bytes);
            std::memset(in_heap, 0, bytes);
            ebb_free(in_heap);
        }
        if (open_region == nullptr)
            ebb_region_release(region);
    }
    ebb_trim();
}

// A reader that is pinned while the region ends and memory is fought for.
template <typename End> void expect_readable_until_unpinned(End end, ebb_region *region)
{
    support::MappedArray<void *> blocks(count);
    fill(region, blocks);
    Worker reader;
    std::size_t wrong = 0;
    reader.run([] { ebb_pin(); });
    end();
    churn(nullptr);
    reclaim::push_on();
    reader.run([&] { wrong = count_wrong(blocks); });
    EXPECT_EQ(wrong, 0U) << "changed under a pin";
    reader.run([] { ebb_unpin(); });
    EXPECT_TRUE(drain());
}

TEST(RegionReclaim, ReleasedUnderAPinStaysReadable)
{
    ebb_region *region = open("released under a pin");
    expect_readable_until_unpinned([=] { ebb_region_release(region); }, region);
    EXPECT_TRUE(eventually([] {
        ebb_reclaim();
        return line("released under a pin").held_bytes == 0;
    })) << "what waited for the pin never went home";
}

// A process with one thread has no helper: its own unpins see to it.
TEST(RegionReclaim, ReleasedUnderAPinGoesAtTheNextUnpins)
{
    ebb_region *region = open("goes at unpins");
    ebb_pin();
    for (int i = 0; i < 20000; i++)
        ebb_region_alloc(region, 1000);
    ebb_region_release(region);
    EXPECT_GT(line("goes at unpins").held_bytes, 10000000U);
    ebb_unpin();
    for (int i = 0; i < 1000; i++) {
        ebb_pin();
        ebb_unpin();
    }
    EXPECT_EQ(line("goes at unpins").held_bytes, 0U);
}

TEST(RegionReclaim, ResetUnderAPinStaysReadable)
{
    ebb_region *region = open();
    const auto reset_and_reuse = [=] {
        ebb_region_reset(region);
        churn(region);
    };
    expect_readable_until_unpinned(reset_and_reuse, region);
    ebb_region_release(region);
}

TEST(RegionReclaim, ParentReleasedUnderAPinKeepsItsChildrenReadable)
{
    ebb_region *parent = open();
    ebb_region *child = open("child", parent);
    expect_readable_until_unpinned([=] { ebb_region_release(parent); }, child);
}

TEST(RegionReclaim, RegionsReleasedUnderALongPinGoHomeAfterIt)
{
    if (support::under_sanitizer)
        GTEST_SKIP() << "resident memory is the sanitizer's here";
    ebb_trim(); // what lies idle would serve again, and count twice
    const std::size_t before = support::resident_bytes();
    {
        reclaim::Staller staller;
        for (int i = 0; i < 100; i++) {
            ebb_region *region = open("many under a pin");
            for (int block = 0; block < 1000; block++)
                std::memset(take(region, 1000), 1, 1000);
            ebb_region_release(region);
        }
        EXPECT_GE(support::resident_bytes(), before + 90 * MiB) << "taken from under the reader";
    }
    EXPECT_TRUE(eventually([before] {
        ebb_reclaim();
        ebb_trim();
        return support::resident_bytes() < before + 8 * MiB;
    }));
}

TEST(RegionReclaim, RetiredBlocksStayReadableAndGo)
{
    ebb_region *region = open("retired");
    support::MappedArray<void *> blocks(count);
    fill(region, blocks);
    {
        const Pin pin;
        for (void *block : blocks)
            ebb_retire(block);
        churn(nullptr);
        EXPECT_EQ(count_wrong(blocks), 0U);
    }
    EXPECT_TRUE(drain());
    EXPECT_EQ(stats(region).live_blocks, 0U);
    ebb_region_release(region);
}

TEST(RegionReclaim, RetiredElsewhereAndAfterTheClose)
{
    ebb_region *region = open("retired late");
    support::MappedArray<void *> blocks(count);
    fill(region, blocks);
    ebb_region_close(region);
    in_thread([&] {
        for (std::size_t i = 0; i < count / 2; i++)
            ebb_retire(blocks[i]);
    });
    for (std::size_t i = count / 2; i < count; i++)
        ebb_retire(blocks[i]);
    EXPECT_TRUE(drain());
    EXPECT_EQ(line("retired late").live_blocks + line("retired late").held_bytes, 0U);
}

TEST(RegionReclaim, RetiredBlocksAreCounted)
{
    ebb_region *region = open("retired and counted");
    ebb_reclaim_stats before = {}, waiting = {}, after = {};
    std::size_t told = 0;
    ebb_reclaim_stats_get(nullptr, &before);
    ebb_reclaim_set_limit(
        64 * KiB,
        [](std::size_t bytes, void *context) { *static_cast<std::size_t *>(context) = bytes; },
        &told);
    {
        const Pin pin;
        for (int i = 0; i < 100; i++)
            ebb_retire(take(region, KiB));
        ebb_reclaim_stats_get(nullptr, &waiting);
    }
    EXPECT_EQ(waiting.retired_blocks, before.retired_blocks + 100);
    EXPECT_EQ(waiting.retired_bytes, before.retired_bytes + 100 * KiB);
    EXPECT_EQ(waiting.destructors, before.destructors);
    EXPECT_GT(told, 64 * KiB);
    ebb_reclaim_set_limit(0, nullptr, nullptr);
    EXPECT_TRUE(drain());
    ebb_reclaim_stats_get(nullptr, &after);
    EXPECT_EQ(after.retired_blocks + after.retired_bytes, 0U);
    ebb_region_release(region);
}

enum class Ending { release, reset, close };

// Blocks that wait for the grace period when their region ends: they must neither be freed a second
// time nor take a newer block at their place with them.
TEST(RegionReclaim, RetiredBlocksMayWaitWhileTheirRegionEnds)
{
    for (Ending ending : {Ending::release, Ending::reset, Ending::close}) {
        ebb_region *region = open("ends with limbo");
        support::MappedArray<void *> blocks(count);
        support::MappedArray<void *> next(count);
        fill(region, blocks);
        {
            reclaim::Staller staller;
            for (void *block : blocks)
                ebb_retire(block);
            if (ending == Ending::release)
                ebb_region_release(region);
            else if (ending == Ending::reset)
                ebb_region_reset(region);
            else
                ebb_region_close(region);
            if (ending != Ending::reset)
                region = open("after limbo");
            fill(region, next);
            EXPECT_EQ(count_wrong(blocks), 0U) << "changed under a pin";
        }
        EXPECT_TRUE(drain());
        churn(nullptr);
        EXPECT_EQ(count_wrong(next), 0U) << static_cast<int>(ending);
        EXPECT_EQ(stats(region).live_blocks, count) << "an old retirement freed a new block";
        for (void *block : next)
            ebb_free(block);
        ebb_region_release(region);
    }
}

// A thread's frees may travel in batches: those under way when the region ends are nobody's later.
TEST(RegionReclaim, FreesUnderWayMayOutliveTheirRegion)
{
    for (Ending ending : {Ending::release, Ending::reset}) {
        ebb_region *region = open("ends with frees");
        support::MappedArray<void *> blocks(count);
        support::MappedArray<void *> next(count);
        fill(region, blocks);
        Worker other;
        other.run([&] {
            for (std::size_t i = 0; i < count; i += 3)
                ebb_free(blocks[i]);
        });
        if (ending == Ending::release) {
            ebb_region_release(region);
            region = open("after frees");
        } else {
            ebb_region_reset(region);
        }
        fill(region, next);
        other.run([] {
            for (int i = 0; i < 10000; i++)
                ebb_free(ebb_malloc(static_cast<std::size_t>(i % 900)));
            ebb_trim();
        });
        EXPECT_EQ(stats(region).live_blocks, count);
        EXPECT_EQ(count_wrong(next), 0U);
        for (void *block : next)
            ebb_free(block);
        ebb_region_release(region);
    }
}

// A hazard pointer holds a retired block of a region as it does any other.
TEST(RegionReclaim, HazardPointersProtectBlocksOfRegions)
{
    ebb_region *region = open();
    ebb_hazard *hazard = ebb_hazard_open();
    ASSERT_NE(hazard, nullptr);
    void *block = take_filled(region, 500, 1);
    ebb_hazard_set(hazard, block);
    ebb_retire(block);
    reclaim::push_on();
    churn(region);
    EXPECT_TRUE(is_filled(block, 500, 1));
    EXPECT_EQ(ebb_region_of(block), region);
    ebb_hazard_clear(hazard);
    EXPECT_TRUE(drain());
    EXPECT_EQ(ebb_region_of(block), nullptr);
    ebb_hazard_close(hazard);
    ebb_region_release(region);
}

} // namespace
