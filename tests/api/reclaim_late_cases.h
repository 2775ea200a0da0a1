// SPDX-License-Identifier: MIT OR Apache-2.0
// A thread that ends while pinned is no longer pinned, in whichever of libc's rounds of destructors it pinned: behind the
// last one nothing of the library runs in it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "support.h"

#include "ebbtide/reclaim.h"

namespace {

// TSan ends its own record of a thread in the last round and may be called no more after it; the library has two more rounds to
// see to the end of a thread that pins.
constexpr int last_round = support::under_tsan ? 1 : 4;

struct Rounds {
    pthread_key_t key;
    int first,
        leave; // rounds: the first that pins, 0 is before all of them; the one that leaves its pin
    int round = 0;
};

void destructor(void *p)
{
    auto &rounds = *static_cast<Rounds *>(p);
    ++rounds.round;
    if (rounds.round == rounds.leave)
        return void(ebb_pin());
    if (rounds.round >= rounds.first) {
        ebb_pin();
        ebb_unpin();
    }
    pthread_setspecific(rounds.key, p);
}

void end_pinned(Rounds rounds)
{
    ASSERT_EQ(0, pthread_key_create(&rounds.key, destructor));
    std::thread([&] {
        if (rounds.first == 0) {
            ebb_pin();
            ebb_unpin();
        }
        pthread_setspecific(rounds.key, &rounds);
    }).join();
    EXPECT_EQ(rounds.leave, rounds.round);
    alarm(60);
    ebb_synchronize();
    ebb_barrier();
    alarm(0);
    pthread_key_delete(rounds.key);
}

TEST(ReclaimLate, AThreadMayEndPinnedInAnyRound)
{
    ebb_pin();
    ebb_unpin();
    for (int first = 0; first <= last_round; first++)
        for (int leave = first > 0 ? first : 1; leave <= last_round; leave++) {
            SCOPED_TRACE(testing::Message() << "first in " << first << ", left in " << leave);
            end_pinned({.key = {}, .first = first, .leave = leave});
        }
}

void expect_nobody_pinned()
{
    ebb_reclaim_stats stats;
    ebb_reclaim_stats_get(nullptr, &stats);
    EXPECT_EQ(0U, stats.pinned);
    alarm(60);
    ebb_synchronize();
    alarm(0);
}

constexpr int many = 150; // at a time: more than the library has room for at first

TEST(ReclaimLate, ManyMayPinInTheirLastRoundAndEndPinned)
{
    std::atomic<int> pinned{0};
    std::atomic<bool> leave{false};
    struct Shared {
        pthread_key_t key;
        std::atomic<int> *pinned;
        std::atomic<bool> *leave;
    } shared{{}, &pinned, &leave};
    struct Mine {
        Shared *shared;
        int round;
    };
    ASSERT_EQ(0, pthread_key_create(&shared.key, [](void *p) {
                  auto &mine = *static_cast<Mine *>(p);
                  if (++mine.round < last_round)
                      return void(pthread_setspecific(mine.shared->key, p));
                  ebb_pin();
                  const bool ends_pinned = mine.shared->pinned->fetch_add(1) % 2 == 1;
                  mine.shared->leave->wait(false);
                  if (!ends_pinned)
                      ebb_unpin();
              }));
    std::vector<Mine> mine(many, Mine{&shared, 0});
    std::vector<std::thread> threads;
    for (Mine &each : mine)
        threads.emplace_back([&shared, &each] { pthread_setspecific(shared.key, &each); });
    while (pinned < many)
        std::this_thread::yield();
    ebb_reclaim_stats stats;
    ebb_reclaim_stats_get(nullptr, &stats);
    EXPECT_LE(1U, stats.pinned);
    leave = true;
    leave.notify_all();
    for (std::thread &each : threads)
        each.join();
    expect_nobody_pinned();
    pthread_key_delete(shared.key);
}

// In the child it is the only thread, and goes on with its pin.
int fork_inside_a_pin()
{
    ebb_pin();
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        const bool pinned = ebb_is_pinned() != 0;
        ebb_unpin();
        const bool unpinned = ebb_is_pinned() == 0;
        ebb_synchronize();
        _exit(pinned && unpinned ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    ebb_unpin();
    return status;
}

// Of the destructors of a thread that has pinned before them.
void in_each_round(const std::function<void(int round)> &run)
{
    struct Runs {
        pthread_key_t key;
        const std::function<void(int round)> *run;
        int round;
    } rounds{{}, &run, 0};
    ASSERT_EQ(0, pthread_key_create(&rounds.key, [](void *p) {
                  auto &mine = *static_cast<Runs *>(p);
                  (*mine.run)(++mine.round);
                  if (mine.round < last_round)
                      pthread_setspecific(mine.key, p);
              }));
    std::thread([&rounds] {
        ebb_pin();
        ebb_unpin();
        pthread_setspecific(rounds.key, &rounds);
    }).join();
    pthread_key_delete(rounds.key);
}

TEST(ReclaimLate, AForkInAnyRoundKeepsThePin)
{
    for (int when = 1; when <= last_round; when++) {
        int status = -1;
        in_each_round([&](int round) {
            if (round == when)
                status = fork_inside_a_pin();
        });
        EXPECT_EQ(0, status) << "in round " << when;
    }
}

struct Across {
    pthread_key_t key;
    int first, pin, unpin; // rounds; 0 is before all of them
    int round;
    std::atomic<int> *freed, *stage;
    bool was_freed, was_pinned;

    void act()
    {
        if (round == first)
            ebb_free(ebb_malloc(1));
        if (round == pin)
            ebb_pin();
        if (round == unpin) {
            *stage = 1;
            while (*stage != 2)
                std::this_thread::yield();
            was_freed = *freed != 0;
            was_pinned = ebb_is_pinned() != 0;
            ebb_unpin();
        }
    }
};

// A paired pin, whichever rounds its ends lie in. The thread's record goes before the others' destructors of a round; what
// it has pinned by then is over in the next one.
TEST(ReclaimLate, APinLastsThroughTheRounds)
{
    for (int first = 0; first < last_round; first++)
        for (int pin = first; pin < last_round; pin++)
            for (int unpin = pin; unpin <= last_round; unpin++) {
                SCOPED_TRACE(testing::Message() << first << ", " << pin << " to " << unpin);
                std::atomic<int> freed{0}, stage{0};
                Across across{{}, first, pin, unpin, 0, &freed, &stage, false, false};
                ASSERT_EQ(0, pthread_key_create(&across.key, [](void *p) {
                              auto &mine = *static_cast<Across *>(p);
                              ++mine.round;
                              mine.act();
                              if (mine.round < last_round)
                                  pthread_setspecific(mine.key, p);
                          }));
                std::thread thread([&across] {
                    across.act();
                    pthread_setspecific(across.key, &across);
                });
                while (stage != 1)
                    std::this_thread::yield();
                ASSERT_EQ(0, ebb_retire_with(
                                 &freed,
                                 [](void *p, void *) { *static_cast<std::atomic<int> *>(p) = 1; },
                                 nullptr));
                for (int i = 0; i < 20; i++)
                    ebb_reclaim();
                stage = 2;
                thread.join();
                // Where malloc is ours, the thread has called it before its first round.
                const int goes = std::getenv("LD_PRELOAD") != nullptr ? 2 : first + 2;
                if (pin >= goes || unpin <= goes) {
                    EXPECT_TRUE(across.was_pinned);
                    EXPECT_FALSE(across.was_freed);
                }
                alarm(60);
                ebb_barrier();
                alarm(0);
                EXPECT_EQ(1, freed);
                pthread_key_delete(across.key);
            }
}

// Within one that it brings it pins anew: that holds in the last round, too.
TEST(ReclaimLate, APinWithinOneThatEndsHolds)
{
    if (support::under_tsan)
        GTEST_SKIP() << "there is one round";
    struct Within {
        pthread_key_t key;
        int round;
        int pinned[3];
    } within{};
    ASSERT_EQ(0, pthread_key_create(&within.key, [](void *p) {
                  auto &mine = *static_cast<Within *>(p);
                  ++mine.round;
                  if (mine.round == 2)
                      ebb_pin();
                  if (mine.round < last_round)
                      return void(pthread_setspecific(mine.key, p));
                  for (int &pinned : mine.pinned) {
                      pinned = ebb_is_pinned();
                      ebb_unpin();
                  }
              }));
    std::thread([&within] {
        ebb_pin();
        ebb_pin();
        pthread_setspecific(within.key, &within);
    }).join();
    EXPECT_EQ(1, within.pinned[0]) << "its own";
    EXPECT_EQ(0, within.pinned[1]) << "what it brought";
    EXPECT_EQ(0, within.pinned[2]);
    expect_nobody_pinned();
    pthread_key_delete(within.key);
}

TEST(ReclaimLate, ManyMayBringTheirPins)
{
    struct Shared {
        pthread_key_t key;
        std::atomic<int> pinned, leave;
    } shared{};
    struct Mine {
        Shared *shared;
        int round;
    };
    ASSERT_EQ(0, pthread_key_create(&shared.key, [](void *p) {
                  auto &mine = *static_cast<Mine *>(p);
                  if (++mine.round < std::min(last_round, 2))
                      return void(pthread_setspecific(mine.shared->key, p));
                  mine.shared->pinned += ebb_is_pinned();
                  mine.shared->leave += 1;
                  while (mine.shared->leave < many)
                      std::this_thread::yield();
                  ebb_unpin();
                  EXPECT_EQ(0, ebb_is_pinned());
              }));
    std::vector<Mine> mine(many, Mine{&shared, 0});
    std::vector<std::thread> threads;
    for (Mine &each : mine)
        threads.emplace_back([&shared, &each] {
            ebb_pin();
            pthread_setspecific(shared.key, &each);
        });
    for (std::thread &each : threads)
        each.join();
    EXPECT_EQ(many, shared.pinned);
    expect_nobody_pinned();
    pthread_key_delete(shared.key);
}

// The end of its only thread is seen by nobody but the kernel.
TEST(ReclaimLate, AChildOfAForkInAnyRoundEndsBesideItsHelper)
{
    if (support::emulated || support::under_tsan)
        GTEST_SKIP() << "neither starts a thread in the child of a process with several";
    for (int when = 1; when <= last_round; when++) {
        pid_t child = -1;
        in_each_round([&](int round) {
            if (round != when)
                return;
            child = fork();
            if (child == 0) {
                alarm(60);
                atexit([] { _exit(0); }); // what other threads held is no leak
                ebb_helper_start();
            }
        });
        int status = -1;
        EXPECT_EQ(child, waitpid(child, &status, 0));
        EXPECT_EQ(0, status) << "in round " << when;
    }
}

// What ended threads have pinned by stays behind in the parent; a new one of the child is seen.
TEST(ReclaimLate, APinInTheLastRoundIsSeenInTheChildOfAFork)
{
    if (support::emulated && std::getenv("LD_PRELOAD") != nullptr) // then the helper runs, too
        GTEST_SKIP() << "the emulator starts no thread in the child of a process with several";
    const auto pins_late = [] {
        std::size_t pinned = 0;
        in_each_round([&pinned](int round) {
            if (round < last_round)
                return;
            ebb_pin();
            ebb_reclaim_stats stats;
            ebb_reclaim_stats_get(nullptr, &stats);
            pinned = stats.pinned;
            ebb_unpin();
        });
        return pinned == 1;
    };
    EXPECT_TRUE(pins_late());
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(pins_late() ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(0, status);
}

} // namespace
