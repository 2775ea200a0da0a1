// SPDX-License-Identifier: MIT OR Apache-2.0
// A thread that ends while pinned is no longer pinned, in whichever of libc's rounds of destructors it pinned: behind the
// last one nothing of the library runs in it.
#include "reclaim_support.h"
#include "support.h"

#include <cstdint>
#include <thread>

#include <pthread.h>
#include <unistd.h>

#include <gtest/gtest.h>

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

// More at a time than the library knows by name.
TEST(ReclaimLate, ManyMayPinInTheirLastRound)
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
                  mine.shared->pinned->fetch_add(1);
                  mine.shared->leave->wait(false);
                  ebb_unpin();
              }));
    std::vector<Mine> mine(100, Mine{&shared, 0});
    std::vector<std::thread> threads;
    for (Mine &each : mine)
        threads.emplace_back([&shared, &each] { pthread_setspecific(shared.key, &each); });
    while (pinned < 100)
        std::this_thread::yield();
    ebb_reclaim_stats stats;
    ebb_reclaim_stats_get(nullptr, &stats);
    EXPECT_LE(1U, stats.pinned);
    leave = true;
    leave.notify_all();
    for (std::thread &each : threads)
        each.join();
    ebb_reclaim_stats_get(nullptr, &stats);
    EXPECT_EQ(0U, stats.pinned);
    alarm(60);
    ebb_synchronize();
    alarm(0);
    pthread_key_delete(shared.key);
}

} // namespace
