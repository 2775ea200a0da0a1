// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: what the magazines of all threads may hold together, see src/heap/magazine.c (B1 to B3).
#include <atomic>
#include <barrier>
#include <numeric>

#include "support/arena_walk.h"

namespace {

using namespace unit;

constexpr std::size_t cache = MiB;      // EBB_CACHE
constexpr std::size_t own = cache / 32; // a thread's part
constexpr std::size_t hot = 6 * cache;  // what all share that are hot
std::atomic<std::uint64_t> now;

struct Share : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_clock(now = 1000);
        setenv("EBB_CACHE", "1m", 1);
        ebbi_options_read();
    }
};

// As if it had made many refills and flushes since the last one.
void be_hot()
{
    ebbi_heap_get()->events += 20 * 200;
    fake_os_clock(++now);
}

// Of all sizes from 2 to 8 KiB at once, so that their magazines grow as far as they may, and none is idle.
// ms: until the next of each.
void want(std::uint64_t ms = 0)
{
    std::vector<void *> blocks;
    for (int round = 0; round < 12; round++) {
        for (int i = 0; i < 40; i++, fake_os_clock(now += ms))
            for (unsigned c = ebbi_class_for(2049); c <= ebbi_class_for(8192); c++)
                blocks.push_back(ebb_malloc(ebbi_classes[c].size));
        for (std::size_t i = 0; i < blocks.size(); fake_os_clock(now += ms))
            for (std::size_t end = i + 16; i < end; i++)
                ebb_free(blocks[i]);
        blocks.clear();
    }
}

void want_hot()
{
    be_hot();
    want();
}

// What the heaps of so many threads are charged, of which each does `body` in its turn in every round.
template <typename Body> std::vector<std::size_t> charged(int threads, int rounds, Body body)
{
    std::vector<std::size_t> bytes(static_cast<std::size_t>(threads));
    std::barrier turn(threads);
    std::vector<std::thread> running;
    for (int number = 0; number < threads; number++)
        running.emplace_back([&, number] {
            for (int i = 0; i < rounds * threads; i++) {
                if (i % threads == number)
                    body(number, i / threads);
                turn.arrive_and_wait();
            }
            const ebbi_heap *heap = ebbi_heap_get();
            EXPECT_EQ(ebbi_magazines_charge(heap), heap->charged_bytes);
            bytes[static_cast<std::size_t>(number)] = heap->charged_bytes;
            turn.arrive_and_wait();
        });
    for (std::thread &each : running)
        each.join();
    return bytes;
}

std::size_t sum(const std::vector<std::size_t> &bytes)
{
    return std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
}

TEST_F(Share, AFewThreadsThatAreHotHaveWhatEachMayHave)
{
    for (const std::size_t bytes : charged(4, 2, [](int, int) { want_hot(); })) {
        EXPECT_LT(cache / 2, bytes);
        EXPECT_GE(cache, bytes);
    }
}

TEST_F(Share, ManyThreadsKeepToWhatAllMayHave)
{
    for (int again = 0; again < 3; again++) { // what ended threads had is the next ones'
        const std::size_t bytes = sum(charged(24, 2, [](int, int) { want_hot(); }));
        EXPECT_LT(hot / 2, bytes);
        EXPECT_GE(hot + 24 * own, bytes);
    }
}

TEST_F(Share, ThreadsThatAreNotHotKeepToASixth)
{
    const std::size_t bytes = sum(charged(24, 2, [](int, int) { want(); }));
    EXPECT_LT(cache / 2, bytes);
    EXPECT_GE(cache + 24 * own, bytes);
}

TEST_F(Share, WhatTheProcessUsesMakesRoom)
{
    void *much = ebb_malloc(16 * 4 * cache);
    const std::size_t bytes = sum(charged(24, 2, [](int, int) { want(); }));
    EXPECT_LT(2 * cache, bytes);
    EXPECT_GE(5 * cache + 24 * own, bytes);
    ebb_free(much);
}

TEST_F(Share, WhoIsHotNoMoreGivesBack)
{
    std::atomic<std::size_t> most = 0;
    const auto bytes = charged(16, 40, [&](int, int round) {
        if (round < 4) {
            want_hot();
            most += round == 3 ? ebbi_heap_get()->charged_bytes : 0;
        } else {
            want(1);
        }
    });
    EXPECT_LT(hot / 2, most);
    EXPECT_GE(cache + 16 * own, sum(bytes));
}

// The first take it all, and give what is more than an equal part.
TEST_F(Share, WhoComesLateGetsAPart)
{
    const auto bytes = charged(16, 40, [](int number, int round) {
        if (number < 8 || round >= 10)
            want_hot();
    });
    for (const std::size_t late : bytes)
        EXPECT_LT(hot / 17 / 2, late);
}

TEST_F(Share, WhoLendsMakesRoomAndIsChargedAgain)
{
    std::size_t with_room = 0;
    const auto bytes = charged(8, 4, [&](int number, int round) {
        ebbi_heap *heap = ebbi_heap_get();
        if (number < 6 && round == 0) {
            want_hot();
        } else if (number < 6 && round == 1) {
            ebbi_lock_take(&heap->own.lock);
            ebbi_magazines_lend(heap);
            ebbi_magazines_lend(heap);
            ebbi_lock_drop(&heap->own.lock);
        } else if (number == 7 && round == 1) {
            want_hot();
            with_room = heap->charged_bytes;
        } else if (number < 6 && round == 2) {
            ebbi_magazines_lend_no_more(heap);
        } else if (round == 3) {
            want_hot();
        }
    });
    EXPECT_LT(cache / 2, with_room);
    EXPECT_GE(hot + 8 * own, sum(bytes));
    EXPECT_LT(hot / 2, sum(bytes));
}

} // namespace
