// SPDX-License-Identifier: MIT OR Apache-2.0
// The accounts of the heap (ebb_snapshot_get), against what the program knows, and as another process gets them.
#include "control.h"
#include "support.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace {

using control::ask, control::is_answered, control::snapshot;

std::unique_ptr<ebb_snapshot> take()
{
    auto taken = std::make_unique<ebb_snapshot>();
    ebb_snapshot_get(taken.get());
    return taken;
}

const ebb_class_stats &row_of(const ebb_snapshot &taken, std::size_t bytes)
{
    for (std::size_t i = 0; i < taken.class_count; i++)
        if (taken.classes[i].block_bytes >= bytes)
            return taken.classes[i];
    ADD_FAILURE() << "no class for " << bytes;
    return taken.classes[0];
}

std::vector<void *> blocks_of(std::size_t bytes, int count)
{
    std::vector<void *> blocks;
    blocks.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; i++)
        blocks.push_back(ebb_malloc(bytes));
    return blocks;
}

void free_all(const std::vector<void *> &blocks)
{
    for (void *p : blocks)
        ebb_free(p);
}

// What pages show, against what the accounts say without a look at them.
TEST(Snapshot, WhatIsPinnedIsFreeAndNotReturned)
{
    for (const std::size_t bytes : {64U, 208U, 3000U}) {
        const std::vector<void *> blocks = blocks_of(bytes, 40000);
        std::vector<void *> kept;
        for (std::size_t i = 0; i < blocks.size(); i++) {
            std::memset(blocks[i], 1, bytes);
            i % 20 == 0 ? kept.push_back(blocks[i]) : ebb_free(blocks[i]);
        }
        ebb_trim();
        ebb_stats stats;
        ebb_stats_get(&stats);
        const auto amid = take();
        EXPECT_GT(stats.resident_pinned, kept.size() * 900) << bytes;
        EXPECT_NEAR(static_cast<double>(stats.resident_pinned),
                    static_cast<double>(amid->dirty_bytes),
                    0.2 * static_cast<double>(stats.resident_pinned))
            << bytes;
        const std::size_t before = amid->dirty_bytes;
        const std::vector<void *> again = blocks_of(bytes, 20000); // into what is pinned, mostly
        EXPECT_LT(take()->dirty_bytes, before) << bytes;
        free_all(again);
        free_all(kept);
        ebb_trim();
        EXPECT_LT(take()->dirty_bytes, before / 4) << bytes;
    }
}

TEST(Snapshot, CountsTheBlocksOfEachClassExactlyWhileNobodyElseWorks)
{
    for (const std::size_t bytes : {16U, 24U, 64U, 100U, 1000U, 5000U, 20000U, 100000U}) {
        const std::vector<void *> first = blocks_of(bytes, 10); // the class has its slab
        const auto before = take();
        const std::vector<void *> more = blocks_of(bytes, 777);
        const auto amid = take();
        const auto &row = row_of(*amid, bytes);
        EXPECT_EQ(row_of(*before, bytes).live_blocks + 777, row.live_blocks) << bytes;
        EXPECT_GE(amid->live_bytes, before->live_bytes + 777 * bytes);
        EXPECT_EQ(before->live_bytes + 777 * row.block_bytes, amid->live_bytes) << bytes;
        free_all(more);
        const auto after = take();
        EXPECT_EQ(before->live_bytes, after->live_bytes) << bytes;
        free_all(first);
    }
}

TEST(Snapshot, RowsAddUpToTheTotals)
{
    const std::vector<void *> blocks = blocks_of(300, 5000);
    const auto taken = take();
    std::size_t live = 0;
    std::size_t free_bytes = 0;
    std::size_t slabs = 0;
    std::size_t next = 0; // the first row is of blocks of 0 bytes
    ASSERT_LE(taken->class_count, EBB_SNAPSHOT_CLASSES);
    for (std::size_t i = 0; i < taken->class_count; i++) {
        const ebb_class_stats &row = taken->classes[i];
        EXPECT_GE(row.block_bytes, next);
        next = row.block_bytes + 1;
        live += row.live_blocks * row.block_bytes;
        free_bytes += row.free_blocks * row.block_bytes;
        slabs += row.slabs;
    }
    EXPECT_EQ(taken->live_bytes, live);
    EXPECT_EQ(taken->free_bytes, free_bytes);
    EXPECT_EQ(taken->slabs, slabs);
    EXPECT_LE(taken->dirty_bytes, taken->free_bytes);
    EXPECT_GE(taken->slab_bytes, live + free_bytes);
    free_all(blocks);
}

TEST(Snapshot, LargeAndHugeObjectsAreCounted)
{
    const auto before = take();
    void *large = ebb_malloc(1 << 20);
    void *huge = ebb_malloc(64 << 20);
    const auto amid = take();
    EXPECT_GE(amid->span_bytes, before->span_bytes + (1 << 20));
    EXPECT_EQ(before->huge_count + 1, amid->huge_count);
    EXPECT_GE(amid->huge_bytes, before->huge_bytes + (64 << 20));
    ebb_free(large);
    ebb_free(huge);
    EXPECT_EQ(before->huge_count, take()->huge_count);
}

// Another thread frees them, the row is right once they are home again: what it keeps is cached.
TEST(Snapshot, BlocksThatCrossThreadsAreCountedOnce)
{
    const auto before = take();
    for (int round = 0; round < 5; round++) {
        const std::vector<void *> blocks = blocks_of(256, 3000);
        std::thread([&] { free_all(blocks); }).join();
    }
    (void)ebb_trim();
    EXPECT_EQ(row_of(*before, 256).live_blocks, row_of(*take(), 256).live_blocks);
}

// Without a trim: what threads have sent home and nobody has taken in is free.
TEST(Snapshot, ItIsExactWhenAllThreadsHaveEnded)
{
    const auto before = take();
    std::vector<std::thread> threads;
    for (int t = 0; t < 16; t++)
        threads.emplace_back([] {
            for (const std::size_t bytes : {40U, 256U, 4096U, 20000U, 60000U})
                free_all(blocks_of(bytes, 500));
        });
    for (std::thread &each : threads)
        each.join();
    const auto after = take();
    for (const std::size_t bytes : {40U, 256U, 4096U, 20000U, 60000U})
        EXPECT_EQ(row_of(*before, bytes).live_blocks, row_of(*after, bytes).live_blocks) << bytes;
}

TEST(Snapshot, ThreadsGoOnMeanwhile)
{
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&] {
            while (!over.load())
                for (const std::size_t bytes : {30U, 600U, 9000U, 70000U})
                    free_all(blocks_of(bytes, 300));
        });
    for (int i = 0; i < 300; i++) {
        const auto taken = take();
        for (std::size_t c = 0; c < taken->class_count; c++) {
            const ebb_class_stats &row = taken->classes[c];
            EXPECT_LE(row.live_blocks + row.cached_blocks, 1000000U) << row.block_bytes;
        }
    }
    over.store(true);
    for (std::thread &each : threads)
        each.join();
}

TEST(Snapshot, AnotherProcessIsAnsweredOnTheBoard)
{
    const std::vector<void *> blocks = blocks_of(200, 4000);
    const std::uint64_t turn = ebbi_board.snapshot->turn;
    ask(snapshot, 0);
    for (int i = 0; i < 1000 && !is_answered(); i++)
        free_all(blocks_of(5000, 100));
    ASSERT_TRUE(is_answered());
    EXPECT_EQ(0, ebbi_board.control->result);
    EXPECT_EQ(turn + 2, ebbi_board.snapshot->turn);
    EXPECT_EQ(0U, turn % 2);
    EXPECT_GE(row_of(ebbi_board.snapshot->taken, 200).live_blocks, 4000U);
    free_all(blocks);
}

} // namespace
