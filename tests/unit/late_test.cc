// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: threads that were refused a heap when they first pinned, and go without for good.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/engine.h"

#include "ebbtide/reclaim.h"

namespace {

using namespace unit;

thread_local bool refuses_words = false; // as libc where it has no memory, see the end

struct Late : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_pretend_threads();
        ebb_free(ebb_malloc(1)); // this thread has one
    }
};

ebb_reclaim_stats now()
{
    ebb_reclaim_stats stats;
    ebb_reclaim_stats_get(nullptr, &stats);
    return stats;
}

void refuse_everything()
{
    for (fake_call call : {FAKE_COMMIT, FAKE_RESERVE, FAKE_MAP})
        fake_os_refuse(call, 1, true);
    for (const std::size_t bytes : {1 * MiB, 256 * KiB, 60 * KiB, std::size_t{16}})
        while (ebb_malloc(bytes) != nullptr) {
        }
    while (ebbi_own_take() != nullptr) { // places for heaps
    }
}

// In a thread whose first call it is.
void pin_without_a_heap()
{
    ebb_pin();
    EXPECT_EQ(ebbi_current(), &ebbi_heap_gone);
    EXPECT_EQ(1, ebb_is_pinned());
    EXPECT_EQ(1U, now().pinned);
}

TEST_F(Late, AThreadThatEndsIsNotPinnedAnyMore)
{
    refuse_everything();
    std::thread([] {
        pin_without_a_heap();
        ebb_pin();
    }).join();
    fake_os_allow();
    EXPECT_EQ(0U, now().pinned);
    ebb_synchronize(); // does not hang
}

TEST_F(Late, EachKnowsItsOwnPins)
{
    refuse_everything();
    std::thread([] {
        pin_without_a_heap();
        std::thread([] {
            ebb_pin();
            ebb_unpin();
            EXPECT_EQ(0, ebb_is_pinned());
            EXPECT_DEATH(ebb_unpin(), "unpin without a pin");
        }).join();
        EXPECT_EQ(1U, now().pinned);
        ebb_unpin();
        EXPECT_EQ(0U, now().pinned);
    }).join();
}

TEST_F(Late, AForkTakesAwayThePinsOfOthers)
{
    refuse_everything();
    pid_t child = -1;
    std::thread([&] {
        pin_without_a_heap();
        ebb_unpin();
        std::atomic<bool> pinned{false}, leave{false};
        std::thread other([&] {
            ebb_pin();
            pinned = true;
            pinned.notify_all();
            leave.wait(false);
            ebb_unpin();
        });
        pinned.wait(false);
        child = fork();
        if (child == 0) {
            alarm(20);
            fake_os_allow();
            const bool right = now().pinned == 0 && ebb_is_pinned() == 0;
            ebb_synchronize();
            ebb_pin();
            _exit(right && now().pinned == 1 ? 0 : 1);
        }
        leave = true;
        leave.notify_all();
        other.join();
    }).join();
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
}

// As a signal handler does that has interrupted what holds them.
void pin_under_other_locks()
{
    ebbi_clock_lock(&ebbi_clock);
    ebbi_arena_lock();
    ebb_pin();
    ebb_unpin();
    ebbi_arena_unlock();
    ebbi_clock_unlock(&ebbi_clock);
}

struct Key {
    pthread_key_t key;
    int round;
};

void pin_in_last_round(void *p)
{
    auto *key = static_cast<Key *>(p);
    if (++key->round < 4)
        pthread_setspecific(key->key, key);
    else
        pin_under_other_locks();
}

TEST_F(Late, PinsWaitForNoOtherLock)
{
    Key key = {};
    ASSERT_EQ(0, pthread_key_create(&key.key, pin_in_last_round));
    std::thread([&] {
        ebb_pin();
        ebb_unpin();
        pthread_setspecific(key.key, &key);
    }).join();
    EXPECT_EQ(4, key.round);
    EXPECT_EQ(0, pthread_key_delete(key.key));
    EXPECT_EQ(0U, now().pinned);
}

// Which waits for the lock that this thread holds when it pins.
TEST_F(Late, PinsDoNotWaitForAFork)
{
    refuse_everything();
    std::thread([] {
        pin_without_a_heap();
        ebb_unpin();
        ebbi_clock_lock(&ebbi_clock);
        std::thread forker([] {
            ebb_pin(); // from now on it is no thread that may be the only one
            ebb_unpin();
            const pid_t child = fork();
            if (child == 0)
                _exit(0);
            EXPECT_EQ(child, waitpid(child, nullptr, 0));
        });
        usleep(300000); // so that it has come as far as it can
        ebb_pin();
        ebb_unpin();
        ebbi_clock_unlock(&ebbi_clock);
        forker.join();
    }).join();
}

// As many as there is room for are known by name; of one more the pins are anybody's.
TEST_F(Late, WithoutRoomPinsAreCountedAllTheSame)
{
    refuse_everything();
    std::atomic<int> pinned{0};
    std::atomic<bool> leave{false};
    std::vector<std::thread> threads(130);
    for (std::thread &each : threads)
        each = std::thread([&] {
            ebb_pin();
            ++pinned;
            leave.wait(false);
            EXPECT_EQ(1, ebb_is_pinned());
            ebb_unpin();
        });
    while (pinned < 130)
        std::this_thread::yield();
    EXPECT_LE(1U, now().pinned);
    leave = true;
    leave.notify_all();
    for (std::thread &each : threads)
        each.join();
    EXPECT_EQ(0U, now().pinned);
    fake_os_allow();
    ebb_synchronize();
}

// Where libc has no memory for a thread's word, either: their pins are anybody's.
TEST_F(Late, WithoutAWordPinsAreCountedAllTheSame)
{
    refuse_everything();
    std::thread([] {
        refuses_words = true; // but for what the sanitizer's own start and end keep there
        pin_without_a_heap();
        ebb_pin();
        ebb_unpin();
        EXPECT_EQ(1, ebb_is_pinned());
        EXPECT_EQ(1U, now().pinned);
        ebb_unpin();
        EXPECT_EQ(0, ebb_is_pinned());
        EXPECT_DEATH(ebb_unpin(), "unpin without a pin");
        refuses_words = false;
    }).join();
    EXPECT_EQ(0U, now().pinned);
    fake_os_allow();
    ebb_synchronize();
}

} // namespace

extern "C" {
int __real_pthread_setspecific(pthread_key_t key, const void *value);
int __wrap_pthread_setspecific(pthread_key_t key, const void *value)
{
    return refuses_words ? ENOMEM : __real_pthread_setspecific(key, value);
}
}
