// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads that take turns: what others have freed of a thread's slabs is used by whoever needs memory next,
// before the process grows, although that thread has not looked at it since.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "../api/api_ebb.h"

namespace {

using support::MiB;

constexpr std::size_t blocks_bytes = 265; // about, of each

void fill(support::MappedArray<void *> &blocks, std::size_t from, std::size_t to)
{
    for (std::size_t i = from; i < to; i++) {
        const std::size_t bytes = 16 + i * 7 % 500;
        std::memset(blocks[i] = api::allocate(bytes), 1, bytes);
    }
}

void empty(support::MappedArray<void *> &blocks)
{
    for (void *block : blocks)
        api::release(block);
}

// In their turns; what each of them does, until all are done.
template <typename Body> void by_turns(unsigned count, unsigned rounds, Body body)
{
    std::atomic<unsigned> turn{0};
    const auto run = [&](unsigned first) {
        for (unsigned mine = first; mine < count * rounds; mine += count) {
            for (unsigned now = turn; now != mine; now = turn)
                turn.wait(now);
            body();
            turn++;
            turn.notify_all();
        }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < count; i++)
        threads.emplace_back(run, i);
    for (std::thread &thread : threads)
        thread.join();
}

TEST(Turns, UseWhatOthersHaveFreed)
{
    constexpr unsigned count = 8, rounds = 3;
    support::MappedArray<void *> blocks(11 * MiB / blocks_bytes);
    std::size_t most = 0;
    const std::size_t before = support::resident_bytes();
    by_turns(count, rounds, [&] {
        empty(blocks);
        fill(blocks, 0, blocks.size());
        most = std::max(most, support::resident_bytes());
    });
    empty(blocks);
    support::expect_at_most(most, before + 40 * MiB, "each thread has what it once filled");
}

// Magazines that each may have 16 MiB have 64 MiB together, and each 1 MiB and the least of each size.
TEST(Turns, KeepTogetherWhatAllMayHave)
{
    constexpr unsigned count = 48, rounds = 8;
    std::size_t most = 0;
    std::uint64_t seed = 0;
    by_turns(count, rounds, [&] {
        support::Random random(seed++);
        std::vector<void *> blocks;
        for (int i = 0; i < 4 * 60; i++) {
            blocks.push_back(api::allocate(random.between(2000, 100000)));
            if (i % 60 == 59) {
                for (void *block : blocks)
                    api::release(block);
                blocks.clear();
            }
        }
        ebb_snapshot now;
        ebb_snapshot_get(&now);
        most = std::max<std::size_t>(most, now.cached_bytes);
    });
    EXPECT_GT(64 * MiB + count * 3 * MiB, most);
}

// As that thread sleeps, and this one has nothing but its wish for more.
TEST(Turns, TheHelperLooksForIt)
{
    ASSERT_EQ(0, ebb_helper_start());
    support::MappedArray<void *> theirs(20 * MiB / blocks_bytes);
    std::atomic<bool> filled{false}, leave{false};
    std::thread sleeper([&] {
        fill(theirs, 0, theirs.size());
        filled = true;
        filled.notify_all();
        leave.wait(false);
    });
    filled.wait(false);
    empty(theirs);
    const std::size_t before = support::resident_bytes();
    support::MappedArray<void *> mine(20 * MiB / blocks_bytes);
    for (std::size_t i = 0; i < 100; i++) {
        fill(mine, mine.size() * i / 100, mine.size() * (i + 1) / 100);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    support::expect_at_most(support::resident_bytes(), before + 5 * MiB, "as much was there");
    empty(mine);
    leave = true;
    leave.notify_all();
    sleeper.join();
}

} // namespace
