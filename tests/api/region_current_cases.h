// SPDX-License-Identifier: MIT OR Apache-2.0
// What is current, tasks that move between threads, and the statistics of regions.
// The file that includes this one has chosen the form of the API before.
#pragma once

#include <algorithm>

#include "region_support.h"

namespace {

using namespace regions;
using support::KiB;
using support::MiB;

TEST(RegionCurrent, PlainMallocComesFromTheInnermost)
{
    ebb_region *outer = open();
    ebb_region *inner = open();
    void *blocks[5];
    {
        const InRegion in_outer(outer);
        blocks[0] = api::allocate(100);
        {
            const InRegion in_inner(inner);
            blocks[1] = api::allocate_zeroed(10, 20);
            const InHeap in_heap;
            blocks[2] = api::allocate(100);
        }
        blocks[3] = api::allocate_aligned(256, 100);
    }
    blocks[4] = api::allocate(100);
    ebb_region *const owners[] = {outer, inner, nullptr, outer, nullptr};
    for (int i = 0; i < 5; i++) {
        EXPECT_EQ(ebb_region_of(blocks[i]), owners[i]) << i;
        api::release(blocks[i]);
    }
    EXPECT_EQ(stats(outer).live_blocks + stats(inner).live_blocks, 0U);
    ebb_region_close(inner);
    ebb_region_close(outer);
}

TEST(RegionCurrent, PlainReallocKeepsContents)
{
    ebb_region *region = open();
    void *from_heap = api::allocate(1000);
    support::fill_pattern(from_heap, 0, 1000, 1);
    void *inside = nullptr;
    {
        const InRegion scope(region);
        from_heap = api::resize(from_heap, 90 * KiB);
        EXPECT_EQ(support::find_mismatch(from_heap, 1000, 1), 1000U);
        inside = api::resize(nullptr, 500);
        support::fill_pattern(inside, 0, 500, 2);
    }
    inside = api::resize(inside, 300 * KiB);
    EXPECT_EQ(support::find_mismatch(inside, 500, 2), 500U);
    api::release(from_heap);
    api::release(inside);
    EXPECT_EQ(stats(region).live_blocks, 0U);
    ebb_region_close(region);
}

// A task of an event loop: each poll in another thread, its memory in one region all the while.
TEST(RegionCurrent, TaskMovesFromThreadToThread)
{
    Worker workers[4];
    ebb_region *region = open("task");
    ebb_region_detach(region);
    support::MappedArray<void *> blocks(4000);
    for (std::size_t i = 0; i < blocks.size(); i++)
        workers[i % 7 % 4].run([&, i] {
            const InRegion scope(region);
            blocks[i] = api::allocate(i % 500);
            support::fill_pattern(blocks[i], 0, i % 500, seed_of(i));
            if (i >= 100 && i % 3 == 0) {
                api::release(blocks[i - 100]);
                blocks[i - 100] = nullptr;
            }
        });
    std::size_t live = 0;
    for (std::size_t i = 0; i < blocks.size(); i++) {
        if (blocks[i] == nullptr)
            continue;
        live++;
        ASSERT_EQ(ebb_region_of(blocks[i]), region) << i;
        ASSERT_TRUE(is_filled(blocks[i], i % 500, i)) << i;
    }
    EXPECT_EQ(stats(region).live_blocks, live);
    ebb_region_release(region);
}

TEST(RegionStats, AddUp)
{
    ebb_region *all[5];
    std::size_t held = 0, slabs = 0, live = 0;
    for (std::size_t r = 0; r < 5; r++) {
        all[r] = open("added up");
        for (std::size_t i = 0; i < 500 * (r + 1); i++)
            take_filled(all[r], 200, i);
        take_filled(all[r], 300 * KiB, 0);
        const ebb_region_stats one = stats(all[r]);
        EXPECT_EQ(one.live_blocks, 500 * (r + 1) + 1);
        EXPECT_EQ(one.large_blocks, 1U);
        EXPECT_GE(one.slabs, 1U);
        EXPECT_LE(one.resident_bytes, one.held_bytes);
        EXPECT_GE(one.resident_bytes, 500 * (r + 1) * 200 + 300 * KiB);
        EXPECT_GE(one.peak_bytes, one.held_bytes);
        held += one.held_bytes;
        slabs += one.slabs;
        live += one.live_blocks;
    }
    const ebb_lifetime_stats sum = line("added up");
    EXPECT_EQ(sum.is_domain, 0);
    EXPECT_EQ(sum.open, 5U);
    EXPECT_EQ(sum.opened, 5U);
    EXPECT_EQ(sum.held_bytes, held);
    EXPECT_EQ(sum.slabs, slabs);
    EXPECT_EQ(sum.live_blocks, live);
    EXPECT_GE(sum.live_bytes, 7500 * 200 + 5 * 300 * KiB);
    EXPECT_LE(sum.live_bytes, sum.held_bytes);
    EXPECT_LE(sum.pinned_bytes, sum.resident_bytes);
    EXPECT_GE(sum.peak_bytes, held);
    for (ebb_region *region : all)
        ebb_region_release(region);
    const ebb_lifetime_stats after = trimmed_line("added up");
    EXPECT_EQ(after.open + after.held_bytes + after.live_blocks + after.live_bytes + after.slabs,
              0U);
    EXPECT_EQ(after.released, 5U);
    EXPECT_GE(after.peak_bytes, held);
}

TEST(RegionStats, SurvivorsOfACloseAreToldApart)
{
    ebb_region *drained = open("closed");
    api::release(take(drained, 100));
    ebb_region_close(drained);
    ebb_region *pinned = open("closed");
    void *survivor = take_filled(pinned, 100, 1);
    for (int i = 0; i < 300; i++)
        api::release(take(pinned, 200));
    ebb_region_close(pinned);
    ebb_lifetime_stats now = line("closed");
    EXPECT_EQ(now.closed, 2U);
    EXPECT_EQ(now.drained, 1U);
    EXPECT_EQ(now.demoted, 1U);
    EXPECT_EQ(now.live_blocks, 1U);
    EXPECT_EQ(now.open, 0U);
    EXPECT_TRUE(is_filled(survivor, 100, 1));
    usleep(60 * 1000);
    EXPECT_GE(line("closed").oldest_ms, 20U) << "the survivor is 60 ms old at least";
    api::release(survivor);
    now = line("closed");
    EXPECT_EQ(now.live_blocks + now.held_bytes + now.demoted + now.oldest_ms, 0U);
}

TEST(RegionStats, IdentitiesAreNeverUsedAgain)
{
    support::MappedArray<std::uint64_t> ids(10000);
    for (std::uint64_t &id : ids) {
        ebb_region *region = open();
        id = stats(region).id;
        ebb_region_release(region);
    }
    std::sort(ids.begin(), ids.end());
    EXPECT_GE(ids[0], 1U);
    EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
}

TEST(RegionStats, LabelsAreKeptAndCut)
{
    ebb_region *unnamed = ebb_region_open(nullptr);
    EXPECT_STREQ(ebb_region_label(unnamed), "region");
    const std::string long_name(200, 'x');
    ebb_region *named = open(long_name.c_str());
    EXPECT_EQ(std::string(ebb_region_label(named)), std::string(EBB_LABEL_BYTES - 1, 'x'));
    ebb_region_release(named);
    ebb_region_release(unnamed);
}

} // namespace
