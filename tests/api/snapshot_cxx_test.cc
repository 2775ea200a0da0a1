// SPDX-License-Identifier: MIT OR Apache-2.0
// ebb::snapshot, against ebb_snapshot_get and what the program knows.
#include "support.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "ebbtide/snapshot.hpp"

namespace {

static_assert(std::is_nothrow_default_constructible_v<ebb::snapshot>);
static_assert(std::is_trivially_copyable_v<ebb::snapshot>);
static_assert(std::is_trivially_copyable_v<ebb::snapshot_difference>);
static_assert(noexcept(ebb::snapshot() - ebb::snapshot()));

class Blocks {
public:
    Blocks(std::size_t bytes, std::size_t count) : blocks_(count)
    {
        for (void *&p : blocks_)
            p = ebb_malloc(bytes);
    }
    Blocks(const Blocks &) = delete;
    Blocks &operator=(const Blocks &) = delete;
    ~Blocks()
    {
        for (void *p : blocks_)
            ebb_free(p);
    }

private:
    std::vector<void *> blocks_;
};

TEST(SnapshotCxx, IsWhatTheLibrarySays)
{
    const ebb::snapshot taken;
    ebb_snapshot plain;
    ebb_snapshot_get(&plain);
    plain.taken_ms = taken->taken_ms;
    EXPECT_EQ(0, std::memcmp(&plain, &*taken, sizeof plain));
}

TEST(SnapshotCxx, RowsAreThoseOfTheClassesAndAddUp)
{
    const Blocks blocks(300, 5000);
    const ebb::snapshot taken;
    EXPECT_EQ(taken->class_count, taken.size());
    EXPECT_TRUE(std::is_sorted(taken.begin(), taken.end(), [](const auto &a, const auto &b) {
        return a.block_bytes < b.block_bytes;
    }));
    EXPECT_EQ(taken->live_bytes, std::accumulate(taken.begin(), taken.end(), std::size_t{0},
                                                 [](std::size_t sum, const ebb_class_stats &row) {
                                                     return sum + row.live_blocks * row.block_bytes;
                                                 }));
}

TEST(SnapshotCxx, FindsTheClassOfASize)
{
    const ebb::snapshot taken;
    for (const std::size_t bytes : {0U, 1U, 16U, 17U, 1000U, 100000U}) {
        const auto row = taken.find(bytes);
        ASSERT_NE(taken.end(), row) << bytes;
        EXPECT_GE(row->block_bytes, bytes);
        EXPECT_TRUE(row == taken.begin() || row[-1].block_bytes < bytes) << bytes;
    }
    EXPECT_EQ(taken.begin(), taken.find(0));
    EXPECT_EQ(taken.end(), taken.find(std::size_t{1} << 40));
}

TEST(SnapshotCxx, TheDifferenceIsWhatChanged)
{
    const Blocks first(1000, 10); // the class has its slab
    const ebb::snapshot before;
    ebb::snapshot_difference shrunk = before - before;
    EXPECT_TRUE(shrunk.empty());
    EXPECT_EQ(0, shrunk.time().count());
    {
        const Blocks more(1000, 777);
        while (ebb::snapshot()->taken_ms == before->taken_ms)
            std::this_thread::yield();
        const ebb::snapshot amid;
        const ebb::snapshot_difference grown = amid - before;
        EXPECT_EQ(std::chrono::milliseconds(amid->taken_ms - before->taken_ms), grown.time());
        EXPECT_GT(grown.time().count(), 0);
        const std::size_t bytes = amid.find(1000)->block_bytes;
        const auto row = std::find_if(grown.begin(), grown.end(),
                                      [=](const auto &one) { return one.block_bytes == bytes; });
        ASSERT_NE(grown.end(), row);
        EXPECT_EQ(777, row->live_blocks);
        EXPECT_EQ(777 * static_cast<std::ptrdiff_t>(bytes), row->live_bytes());
        EXPECT_LT(grown.size(), 4U) << "other classes have not changed, but for the vector's";
        std::ptrdiff_t sum = 0;
        for (const ebb::class_difference &one : grown)
            sum += one.live_bytes();
        EXPECT_EQ(static_cast<std::ptrdiff_t>(amid->live_bytes - before->live_bytes), sum);
        shrunk = before - amid;
        ASSERT_EQ(grown.size(), shrunk.size());
        for (std::size_t i = 0; i < grown.size(); i++) {
            EXPECT_EQ(-grown.begin()[i].slabs, shrunk.begin()[i].slabs);
            EXPECT_EQ(-grown.begin()[i].live_blocks, shrunk.begin()[i].live_blocks);
            EXPECT_EQ(-grown.begin()[i].cached_blocks, shrunk.begin()[i].cached_blocks);
            EXPECT_EQ(-grown.begin()[i].free_blocks, shrunk.begin()[i].free_blocks);
        }
    }
}

} // namespace
