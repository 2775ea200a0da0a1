// SPDX-License-Identifier: MIT OR Apache-2.0
// A signal handler may pin in a thread that has pinned before, until the thread's very end (x86-64 alone).
#if defined __x86_64__
#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sys/time.h>

#include <gtest/gtest.h>

#include "support.h"

#include "ebbtide/reclaim.h"

namespace {

constexpr int pairs = 2000;
std::atomic<int> handled;

void handler(int)
{
    ebb_pin();
    ebb_unpin();
    handled++;
}

struct ReclaimSignal : testing::Test {
    void SetUp() override
    {
        struct sigaction action = {};
        action.sa_handler = handler;
        ASSERT_EQ(0, sigaction(SIGALRM, &action, nullptr));
        ASSERT_EQ(0, sigaction(SIGUSR1, &action, nullptr));
        handled = 0;
        sigemptyset(&both_);
        sigaddset(&both_, SIGALRM);
        sigaddset(&both_, SIGUSR1);
        ASSERT_EQ(0, pthread_sigmask(SIG_BLOCK, &both_, nullptr)); // threads begin so
    }
    void TearDown() override
    {
        constexpr itimerval none = {};
        setitimer(ITIMER_REAL, &none, nullptr);
    }
    void pin_first() const
    {
        ebb_pin();
        ebb_unpin();
        pthread_sigmask(SIG_UNBLOCK, &both_, nullptr);
    }

private:
    sigset_t both_;
};

void pin_in_pairs()
{
    for (int i = 0; i < pairs; i++) {
        ebb_pin();
        ebb_unpin();
    }
}

struct Ending {
    pthread_key_t key;
    int round = 0;
    std::atomic<bool> done = false;
};

void pin_in_second_round(void *p)
{
    auto &ending = *static_cast<Ending *>(p);
    if (++ending.round == 1) {
        pthread_setspecific(ending.key, p);
        return;
    }
    pin_in_pairs();
    ending.done = true;
}

TEST_F(ReclaimSignal, PinsBehindTheFirstRoundOfKeyDestructors)
{
    if (support::under_tsan)
        GTEST_SKIP()
            << "it has ended its own record of the thread when the library's last round comes";
    Ending ending;
    ASSERT_EQ(0, pthread_key_create(&ending.key, pin_in_second_round));
    std::thread thread([&] {
        pin_first();
        pthread_setspecific(ending.key, &ending);
    });
    while (!ending.done) {
        pthread_kill(thread.native_handle(), SIGUSR1);
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    thread.join();
    EXPECT_LT(0, handled.load());
    EXPECT_EQ(0, pthread_key_delete(ending.key));
}

TEST_F(ReclaimSignal, PinsWhileThreadsEnd)
{
    constexpr itimerval often = {{0, 50}, {0, 50}};
    ASSERT_EQ(0, setitimer(ITIMER_REAL, &often, nullptr));
    for (int round = 0; round < 20; round++) {
        std::vector<std::thread> threads;
        for (int i = 0; i < 10; i++)
            threads.emplace_back([this] {
                pin_first();
                pin_in_pairs();
            });
        for (std::thread &thread : threads)
            thread.join();
    }
    EXPECT_LT(0, handled.load());
}

} // namespace
#endif
