// SPDX-License-Identifier: MIT OR Apache-2.0
// What another process asks for by writing into this one's memory (src/os/control.h): here by this one itself.
#include "control.h"
#include "support.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "ebbtide/profile.h"

namespace {

using control::ask, control::is_answered, control::nothing, control::nothing_known, control::pins,
    control::profile, control::trim;

// Slow calls, as a program makes them.
void work()
{
    std::vector<void *> blocks;
    for (int i = 0; i < 1000; i++)
        blocks.push_back(ebb_malloc(static_cast<std::size_t>(i) % 200 + 1));
    for (void *p : blocks)
        ebb_free(p);
    ebb_free(ebb_malloc(1 << 20)); // the others may all go round in magazines
}

std::int32_t answer()
{
    for (int i = 0; i < 1000 && !is_answered(); i++)
        work();
    EXPECT_TRUE(is_answered());
    return __atomic_load_n(&ebbi_board.control->result, __ATOMIC_RELAXED);
}

bool is_on() { return __atomic_load_n(&ebbi_board.profile.state->round, __ATOMIC_ACQUIRE) != 0; }

TEST(Asked, AProfileBeginsAndEnds)
{
    work();
    EXPECT_FALSE(is_on());
    ask(profile, 4096);
    EXPECT_EQ(0, answer());
    EXPECT_TRUE(is_on());
    EXPECT_EQ(4096U, ebbi_board.profile.state->mean);
    const std::size_t before = ebbi_board.profile.book->entry_count;
    work();
    EXPECT_GT(ebbi_board.profile.book->entry_count, before);
    ask(profile, 0);
    EXPECT_EQ(0, answer());
    EXPECT_FALSE(is_on());
}

std::size_t resident()
{
    ebb_stats stats;
    ebb_stats_get(&stats);
    return stats.resident;
}

void leave_free(std::size_t bytes)
{
    char *p = static_cast<char *>(ebb_malloc(bytes));
    std::memset(p, 1, bytes);
    ebb_free(p);
}

TEST(Asked, MemoryThatIsFreeGoesBack)
{
    leave_free(20 << 20);
    const std::size_t before = resident();
    ask(trim, 0);
    EXPECT_EQ(0, answer());
    const std::size_t now = resident();
    EXPECT_TRUE(support::under_sanitizer || before > now + 10 * support::MiB)
        << before << ", now " << now;
}

TEST(Asked, TheHelperDoesIt)
{
    ASSERT_EQ(0, ebb_helper_start());
    work();
    ask(trim, 0);
    for (int i = 0; i < 6000 && !is_answered(); i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(10)); // no slow call of ours
    EXPECT_TRUE(is_answered());
}

TEST(Asked, WhatItDoesNotKnowIsRefused)
{
    work();
    ask(nothing_known, 0);
    EXPECT_EQ(-ENOSYS, answer());
    ask(profile, (std::uint64_t{1} << 40) + 1);
    EXPECT_EQ(-EINVAL, answer());
    ask(profile, 4096, UINT64_MAX);
    EXPECT_EQ(-EINVAL, answer());
    EXPECT_FALSE(is_on());
}

TEST(Asked, AQuestionThatWasTakenBackIsNone)
{
    work();
    ask(profile, 4096);
    __atomic_store_n(&ebbi_board.control->what, nothing, __ATOMIC_RELAXED);
    EXPECT_EQ(0, answer());
    EXPECT_FALSE(is_on());
}

// Bytes that the samples in use keep, when that was looked at last.
std::size_t all_keep()
{
    std::size_t sum = 0;
    for (std::uint32_t i = 1; i < ebbi_board.profile.live->count; i++)
        sum += ebbi_board.profile.live->at[i].keeps;
    return sum;
}

// Every block is a sample, and what is held in its stead lies where it would have. Of 8 blocks of a page one is left, of
// the next page two.
TEST(Asked, WhatEachSampleKeeps)
{
    constexpr std::size_t size = 512, pages = 1000, on_page = 8;
    work();
    ask(profile, 1);
    EXPECT_EQ(0, answer());
    std::vector<void *> blocks(pages * on_page), left;
    for (void *&p : blocks)
        p = ebb_malloc(size);
    for (std::size_t i = 0; i < blocks.size(); i++) {
        const std::size_t page = i / on_page, place = i % on_page;
        if (place == 3 || (place == 6 && page % 2 == 1))
            left.push_back(blocks[i]);
        else
            ebb_free(blocks[i]);
    }
    ask(profile, 0);
    EXPECT_EQ(0, answer());
    ebb_trim(); // what is in magazines counts as in use
    EXPECT_EQ(0U, all_keep());
    ask(pins, 0);
    EXPECT_EQ(0, answer());
    const auto keep = static_cast<double>(all_keep());
    const double free_bytes = static_cast<double>(pages * (on_page - 1) - pages / 2) * size;
    EXPECT_NEAR(free_bytes, keep, free_bytes / 20);
    for (void *p : left)
        ebb_free(p);
    EXPECT_EQ(0U, all_keep());
    ask(pins, 0);
    EXPECT_EQ(0, answer());
    EXPECT_EQ(0U, all_keep());
}

// Samples come and go while what is held for them is lent.
TEST(Asked, WhatIsLentComesBackOrIsFreed)
{
    std::atomic<bool> stop{false};
    ask(profile, 1);
    EXPECT_EQ(0, answer());
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; t++)
        threads.emplace_back([&stop] {
            while (!stop) {
                std::vector<void *> blocks(50);
                for (void *&p : blocks)
                    p = ebb_malloc(100);
                for (void *p : blocks)
                    ebb_free(p);
            }
        });
    for (int i = 0; i < 40; i++) {
        ask(pins, 0);
        for (int wait = 0; wait < 10000 && !is_answered(); wait++)
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        EXPECT_TRUE(is_answered());
    }
    stop = true;
    for (std::thread &thread : threads)
        thread.join();
    ask(profile, 0);
    EXPECT_EQ(0, answer());
    for (std::uint32_t i = 1; i < ebbi_board.profile.live->count; i++)
        EXPECT_TRUE(ebbi_board.profile.live->at[i].entry != 0 ||
                    ebbi_board.profile.live->at[i].held == nullptr)
            << i;
    ebb_trim();
    ebb_stats stats;
    ebb_stats_get(&stats);
    EXPECT_LT(stats.live_blocks, 1000U) << "all that was held is free";
}

std::uint64_t until()
{
    return __atomic_load_n(&ebbi_board.profile.state->until_ms, __ATOMIC_RELAXED);
}

TEST(Asked, WhatTheProgramBeganStaysOn)
{
    ASSERT_EQ(0, ebb_profile_start(5000));
    ask(profile, 4096);
    EXPECT_EQ(0, answer());
    EXPECT_EQ(5000U, ebbi_board.profile.state->mean);
    EXPECT_EQ(0U, until());
    ask(profile, 0);
    EXPECT_EQ(0, answer());
    EXPECT_TRUE(is_on());
    ebb_profile_stop();
    EXPECT_FALSE(is_on());
}

TEST(Asked, WhatWasAskedForIsTheProgramsOnceItBeginsOne)
{
    work();
    ask(profile, 4096, 1);
    EXPECT_EQ(0, answer());
    ASSERT_EQ(0, ebb_profile_start(5000));
    EXPECT_EQ(0U, until());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    work();
    EXPECT_TRUE(is_on());
    EXPECT_EQ(5000U, ebbi_board.profile.state->mean);
    ebb_profile_stop();
}

// A tool that was killed takes nothing back.
TEST(Asked, ItEndsByItselfWhenTheTimeIsOver)
{
    work();
    ask(profile, 1, 1000); // more than a loaded machine takes to the next look
    EXPECT_EQ(0, answer());
    EXPECT_TRUE(is_on());
    EXPECT_NE(0U, until());
    std::this_thread::sleep_for(std::chrono::milliseconds(1020));
    ebb_free(ebb_malloc(1000)); // the next sample sees it
    EXPECT_FALSE(is_on());
    EXPECT_EQ(0U, until());
}

TEST(Asked, OfSeveralTheLastToEndCounts)
{
    work();
    ask(profile, 4096, 90000);
    EXPECT_EQ(0, answer());
    const std::uint64_t first = until();
    ask(profile, 8192, 10);
    EXPECT_EQ(0, answer());
    EXPECT_EQ(first, until());
    EXPECT_EQ(4096U, ebbi_board.profile.state->mean);
    ask(profile, 8192, 190000);
    EXPECT_EQ(0, answer());
    EXPECT_GE(until(), first + 90000);
    ask(profile, 0);
    EXPECT_EQ(0, answer());
    EXPECT_FALSE(is_on());
}

// A child that took the question over would answer in vain, and begin a profile.
TEST(Asked, TheChildOfAForkWasNotAsked)
{
    work();
    ask(profile, 4096);
    const pid_t child = fork();
    if (child == 0) {
        const bool asked = !is_answered();
        work();
        _exit(asked || is_on() ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
    EXPECT_EQ(0, answer());
    EXPECT_TRUE(is_on());
    ask(profile, 0);
    EXPECT_EQ(0, answer());
}

// Of questions that overlap the last one counts, and none is left open.
TEST(Asked, ManyMayAskAtOnce)
{
    std::vector<std::thread> threads;
    std::atomic<int> asks{0};
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&] {
            while (asks.fetch_add(1) < 2000) {
                ask(profile, asks.load() % 2 == 0 ? 100000 : 0);
                ebb_free(ebb_malloc(1 << 20));
            }
        });
    for (std::thread &each : threads)
        each.join();
    EXPECT_EQ(0, answer());
    ask(profile, 0);
    EXPECT_EQ(0, answer());
    EXPECT_FALSE(is_on());
    EXPECT_TRUE(is_answered());
}

TEST(Asked, ManyThreadsAnswerOnceEach)
{
    std::atomic<bool> ends{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++)
        threads.emplace_back([&] {
            while (!ends)
                work();
        });
    for (int i = 0; i < 100; i++) {
        ask(profile, i % 2 == 0 ? 100000 : 0);
        while (!is_answered())
            std::this_thread::yield();
        EXPECT_EQ(0, __atomic_load_n(&ebbi_board.control->result, __ATOMIC_RELAXED));
        EXPECT_EQ(i % 2 == 0, is_on()) << i;
    }
    ends = true;
    for (std::thread &each : threads)
        each.join();
}

} // namespace
