// SPDX-License-Identifier: MIT OR Apache-2.0
// A signal handler may pin in a thread that has pinned before, until the thread's very end (x86-64 alone).
#if defined __x86_64__
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

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

void pin_in_pairs()
{
    for (int i = 0; i < pairs; i++) {
        ebb_pin();
        ebb_unpin();
    }
}

void fork_once()
{
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    EXPECT_EQ(child, TEMP_FAILURE_RETRY(waitpid(child, nullptr, 0)));
}

struct Late {
    void (*work)();
    pthread_key_t key = 0;
    int round = 0;
    std::atomic<bool> done = false;
};

void work_in_second_round(void *p)
{
    auto &late = *static_cast<Late *>(p);
    if (++late.round == 1) {
        pthread_setspecific(late.key, p);
        return;
    }
    for (int i = 0; i < 20; i++)
        late.work();
    late.done = true;
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

    // While signals come, in the second round of a thread's key destructors.
    void works_late(void (*work)()) const
    {
        Late late{work};
        ASSERT_EQ(0, pthread_key_create(&late.key, work_in_second_round));
        std::thread thread([&] {
            pin_first();
            pthread_setspecific(late.key, &late);
        });
        while (!late.done) {
            pthread_kill(thread.native_handle(), SIGUSR1);
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
        thread.join();
        EXPECT_EQ(0, pthread_key_delete(late.key));
    }

private:
    sigset_t both_;
};

TEST_F(ReclaimSignal, PinsBehindTheFirstRoundOfKeyDestructors)
{
    if (support::under_tsan)
        GTEST_SKIP()
            << "it has ended its own record of the thread when the library's last round comes";
    works_late(pin_in_pairs);
    EXPECT_LT(0, handled.load());
}

TEST_F(ReclaimSignal, PinsBehindTheFirstRoundAmidItsOwnFork)
{
    if (support::under_tsan)
        GTEST_SKIP() << "as above";
    for (int i = 0; i < 10; i++)
        works_late(fork_once);
    EXPECT_LT(0, handled.load());
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
