// SPDX-License-Identifier: MIT OR Apache-2.0
// The accounts of the heap (ebb_snapshot_get), against what the program knows, and as another process gets them.
#include "control.h"
#include "support.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <ebbtide/reclaim.h>
#include <ebbtide/region.h>

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

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
                    static_cast<double>(amid->pinned_bytes),
                    0.2 * static_cast<double>(stats.resident_pinned))
            << bytes;
        const std::size_t before = row_of(*amid, bytes).pinned_bytes;
        EXPECT_GT(before, amid->pinned_bytes / 10 * 9) << bytes;
        const std::vector<void *> again = blocks_of(bytes, 20000); // into what is pinned, mostly
        EXPECT_LT(row_of(*take(), bytes).pinned_bytes, before) << bytes;
        free_all(again);
        free_all(kept);
        ebb_trim();
        EXPECT_LT(row_of(*take(), bytes).pinned_bytes, before / 4) << bytes;
    }
}

// One of two blocks stays, so that no slab ends; what lies in magazines is not in slabs.
TEST(Snapshot, WhatWasFreedIsDirtyInItsClassUntilItHasBeenLookedAt)
{
    for (const std::size_t bytes : {40U, 512U, 2048U}) {
        ebb_trim();
        const auto before = take();
        const std::vector<void *> blocks =
            blocks_of(bytes, 3000); // too few to be returned by amount
        std::vector<void *> kept;
        for (std::size_t i = 0; i < blocks.size(); i++)
            i % 2 == 0 ? kept.push_back(blocks[i]) : ebb_free(blocks[i]);
        const auto amid = take();
        const auto &row = row_of(*amid, bytes);
        const std::size_t freed = 1500 * row.block_bytes;
        EXPECT_LE(row.dirty_bytes, row_of(*before, bytes).dirty_bytes + freed / 20 * 21) << bytes;
        EXPECT_GE(row.dirty_bytes + row.cached_blocks * row.block_bytes, freed) << bytes;
        EXPECT_GT(row.dirty_bytes, freed / 2) << bytes;
        ebb_trim();
        const auto after = take();
        EXPECT_EQ(0U, row_of(*after, bytes).dirty_bytes) << bytes;
        EXPECT_GT(row_of(*after, bytes).pinned_bytes, row_of(*before, bytes).pinned_bytes) << bytes;
        free_all(kept);
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
    free_all(blocks_of(0, 5000));
    const auto taken = take();
    std::size_t live = 0;
    std::size_t free_bytes = 0;
    std::size_t slabs = 0;
    std::size_t dirty = 0;
    std::size_t pinned = 0;
    std::size_t next = 0; // the first row is of blocks of 0 bytes
    ASSERT_LE(taken->class_count, EBB_SNAPSHOT_CLASSES);
    for (std::size_t i = 0; i < taken->class_count; i++) {
        const ebb_class_stats &row = taken->classes[i];
        EXPECT_GE(row.block_bytes, next);
        next = row.block_bytes + 1;
        live += row.live_blocks * row.block_bytes;
        free_bytes += row.free_blocks * row.block_bytes;
        slabs += row.slabs;
        dirty += row.dirty_bytes;
        pinned += row.pinned_bytes;
        EXPECT_LE(row.dirty_bytes + row.pinned_bytes, row.free_blocks * row.block_bytes);
    }
    EXPECT_EQ(taken->live_bytes, live);
    EXPECT_EQ(taken->free_bytes, free_bytes);
    EXPECT_EQ(taken->slabs, slabs);
    EXPECT_EQ(taken->dirty_bytes, dirty);
    EXPECT_EQ(taken->pinned_bytes, pinned);
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

void expect_trimmed(std::size_t at_least, const char *what)
{
    const std::size_t before = take()->purged_bytes;
    const std::size_t returned = ebb_trim();
    EXPECT_GE(returned, at_least) << what;
    EXPECT_EQ(before + returned, take()->purged_bytes) << what;
}

// But for the last, which keeps what it lies in.
void free_all_but_last(std::vector<void *> &blocks)
{
    void *last = blocks.back();
    blocks.pop_back();
    free_all(blocks);
    blocks = {last};
}

TEST(Snapshot, ATrimReturnsWhatIsReturned)
{
    std::vector<void *> small = blocks_of(1000, 60), objects = blocks_of(3000000, 4), held;
    ebb_region *region = ebb_region_open(nullptr);
    for (int i = 0; i < 3000; i++)
        held.push_back(std::memset(ebb_region_alloc(region, 1000), 1, 1000));
    ebb_region_close(region);
    ebb_trim();
    free_all_but_last(small);
    expect_trimmed(40000, "a part of a slab");
    free_all_but_last(objects);
    expect_trimmed(8500000, "objects");
    free_all_but_last(held);
    expect_trimmed(2500000, "a closed region");
    for (const std::vector<void *> &each : {small, objects, held})
        free_all(each);
    expect_trimmed(3000000, "all");
    expect_trimmed(0, "nothing");
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

std::vector<ebb_thread_stats> threads_now()
{
    std::vector<ebb_thread_stats> rows(4096);
    const std::size_t count = ebb_threads_get(rows.data(), rows.size());
    EXPECT_LE(count, rows.size());
    rows.resize(std::min(count, rows.size()));
    return rows;
}

const ebb_thread_stats *find(const std::vector<ebb_thread_stats> &rows, std::uint64_t thread)
{
    const auto at = std::find_if(rows.begin(), rows.end(),
                                 [&](const auto &each) { return each.thread == thread; });
    return at != rows.end() ? &*at : nullptr;
}

std::uint64_t this_thread() { return static_cast<std::uint64_t>(syscall(SYS_gettid)); }

TEST(Threads, EachThreadHasALineWithWhatItKeepsAndHasTaken)
{
    free_all(blocks_of(1000, 10));
    std::atomic<std::uint64_t> number{0};
    std::atomic<bool> over{false};
    std::thread other([&] {
        const std::vector<void *> blocks = blocks_of(3000, 400);
        free_all(blocks);
        number.store(this_thread());
        while (!over.load())
            std::this_thread::yield();
    });
    while (number.load() == 0)
        std::this_thread::yield();
    const auto rows = threads_now();
    const auto *mine = find(rows, this_thread());
    const auto *its = find(rows, number.load());
    ASSERT_NE(nullptr, mine);
    ASSERT_NE(nullptr, its);
    EXPECT_GE(its->taken_bytes, 400U * 3000);
    EXPECT_GT(its->cached_bytes, 3000U);
    EXPECT_LE(its->cached_bytes, its->taken_bytes + 4096);
    EXPECT_GT(mine->taken_bytes, 10000U);
    over.store(true);
    other.join();
    EXPECT_EQ(nullptr, find(threads_now(), number.load())) << "it has ended";
}

TEST(Threads, WhatALineDoesNotHoldIsCountedYet)
{
    free_all(blocks_of(100, 3));
    const std::size_t count = ebb_threads_get(nullptr, 0);
    EXPECT_GE(count, 1U);
    ebb_thread_stats two[2] = {{7, 7, 7, 7}, {7, 7, 7, 7}};
    EXPECT_EQ(count, ebb_threads_get(two, 1));
    EXPECT_NE(7U, two[0].thread);
    EXPECT_EQ(7U, two[1].thread);
}

TEST(Threads, WhatAThreadRetiresIsItsOwnUntilItsGracePeriodIsOver)
{
    free_all(blocks_of(1024, 10));
    const std::size_t before = find(threads_now(), this_thread())->retired_bytes;
    ebb_pin();
    for (int i = 0; i < 4000; i++)
        ebb_retire(ebb_malloc(1024));
    const std::size_t amid = find(threads_now(), this_thread())->retired_bytes;
    ebb_unpin();
    EXPECT_GT(amid, before + (3U << 20));
    ebb_barrier();
    EXPECT_LT(find(threads_now(), this_thread())->retired_bytes, amid);
}

// The one line that is left is the forking thread's, by the number that it has in the child.
TEST(Threads, OfAForkTheChildHasOneLine)
{
    free_all(blocks_of(500, 100));
    std::atomic<bool> over{false};
    std::atomic<int> ready{0};
    std::vector<std::thread> others;
    for (int t = 0; t < 3; t++)
        others.emplace_back([&] {
            free_all(blocks_of(500, 100));
            ready++;
            while (!over.load())
                std::this_thread::yield();
        });
    while (ready.load() < 3)
        std::this_thread::yield();
    const pid_t child = fork();
    if (child == 0) {
        ebb_thread_stats rows[8];
        const std::size_t count = ebb_threads_get(rows, 8);
        _exit(count == 1 && rows[0].thread == this_thread() ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
    over.store(true);
    for (std::thread &each : others)
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
    const Published &published = *ebbi_board.snapshot;
    ASSERT_GE(published.thread_count, 1U);
    const auto *end = published.threads + std::min<std::size_t>(published.thread_count, 1024);
    EXPECT_TRUE(std::any_of(published.threads, end,
                            [](const auto &each) { return each.thread == this_thread(); }));
    free_all(blocks);
}

} // namespace
