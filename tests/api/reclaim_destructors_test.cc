// SPDX-License-Identifier: MIT OR Apache-2.0
// Where destructors run: how many in one unpin, none in a signal handler or a pin, and what becomes of
// the others when one ends its thread.
#include <csignal>
#include <cstdlib>

#include "reclaim_support.h"

namespace {

using namespace reclaim;

using Destructor = void (*)(void *p, void *context);
constexpr int one_unpin = 80, last_few = 200;

// Unpins until all `count` calls but a few have run; the most of them that ran within one.
int most_in_one_unpin(const std::atomic<int> &calls, int count)
{
    int most = 0;
    EXPECT_TRUE(eventually([&] {
        const int before = (ebb_pin(), calls.load());
        ebb_unpin();
        most = std::max(most, calls.load() - before);
        return calls.load() >= count - last_few;
    }));
    return most;
}

// Nothing but pins, and no helper.
TEST(Destructors, OneUnpinRunsAFewAndTheNextOnesTheRest)
{
    std::atomic<int> calls{0};
    constexpr int count = 20000;
    ebb_pin();
    for (int i = 0; i < count; i++)
        ASSERT_EQ(0, ebb_retire_with(nullptr, count_call, &calls));
    ebb_unpin();
    EXPECT_LE(calls.load(), one_unpin);
    EXPECT_LE(most_in_one_unpin(calls, count), one_unpin);
    EXPECT_TRUE(drain());
}

TEST(Destructors, OneCallOutsideOfPinsRunsAFew)
{
    constexpr int count = 20000;
    static thread_local int mine;
    static std::atomic<int> calls;
    const auto here = [](void *, void *) {
        mine++;
        calls.fetch_add(1);
    };
    {
        Staller reader;
        for (int i = 0; i < count; i++)
            ASSERT_EQ(0, ebb_retire_with(nullptr, here, nullptr));
    }
    int most = 0;
    for (int i = 0; i < count; i++) {
        const int before = mine;
        ASSERT_EQ(0, ebb_retire_with(nullptr, here, nullptr));
        most = std::max(most, mine - before);
    }
    EXPECT_LE(most, one_unpin);
    ebb_barrier();
    EXPECT_EQ(2 * count, calls.load());
}

// What piled up while somebody else held up the clock does not all go in one unpin.
TEST(Destructors, OneUnpinRunsAFewAfterAStall)
{
    constexpr int pins = 1000, each = 100;
    static thread_local int mine;
    static std::atomic<int> calls;
    const Destructor here = [](void *, void *) { mine++, calls.fetch_add(1); };
    std::atomic<bool> stalls{false}, ends{false};
    std::thread other([&] {
        const Pin pin;
        stalls = true;
        while (!ends)
            usleep(1000);
    });
    while (!stalls)
        usleep(1000);
    int most = 0;
    const auto pin_once = [&](int count) {
        const int before = mine;
        ebb_pin();
        for (int i = 0; i < count; i++)
            ASSERT_EQ(0, ebb_retire_with(nullptr, here, nullptr));
        ebb_unpin();
        most = std::max(most, mine - before);
    };
    for (int i = 0; i < pins; i++)
        pin_once(each);
    ends = true;
    other.join();
    for (int i = 0; i < pins; i++)
        pin_once(i % 2 == 0 ? each : 0);
    EXPECT_LE(most, 2 * each + one_unpin);
    EXPECT_TRUE(drain());
    ebb_barrier(); // the helper may have some in hand, which do not wait any more
    EXPECT_EQ(pins * each * 3 / 2, calls.load());
}

// Each destructor passes on two more: the unpins keep up with a tree that each pin gives away.
TEST(Destructors, KeepUpWithTheirOwn)
{
    static std::atomic<int> waiting_calls;
    static const Destructor destroy = [](void *depth, void *) {
        waiting_calls.fetch_sub(1);
        const auto left = reinterpret_cast<std::uintptr_t>(depth);
        for (int i = 0; left > 1 && i < 2; i++) {
            waiting_calls.fetch_add(1);
            ASSERT_EQ(0, ebb_retire_with(reinterpret_cast<void *>(left - 1), destroy, nullptr));
        }
    };
    constexpr int nodes = 1023;
    int most = 0;
    for (int i = 0; i < 5000; i++) {
        ebb_pin();
        waiting_calls.fetch_add(1);
        ASSERT_EQ(0, ebb_retire_with(reinterpret_cast<void *>(10), destroy, nullptr));
        ebb_unpin();
        most = std::max(most, waiting_calls.load());
    }
    EXPECT_LE(most, 30 * nodes);
    EXPECT_TRUE(drain());
    EXPECT_EQ(0, waiting_calls.load());
}

// A pin that is only begun anew ends often enough, but not inside another.
TEST(Destructors, RunWhereAThreadRepins)
{
    std::atomic<int> calls{0};
    constexpr int count = 100000;
    int most = 0;
    ebb_pin();
    for (int i = 0; i < count; i++) {
        ASSERT_EQ(0, ebb_retire_with(nullptr, count_call, &calls));
        ebb_repin();
        most = std::max(most, i + 1 - calls.load());
    }
    EXPECT_LE(most, 1000);
    EXPECT_TRUE(ebb_is_pinned());
    for (int i = 0; i < 1000; i++)
        ASSERT_EQ(0, ebb_retire_with(nullptr, count_call, &calls));
    const int before = calls.load();
    ebb_pin();
    for (int i = 0; i < 100; i++)
        ebb_repin();
    EXPECT_EQ(before, calls.load());
    ebb_unpin();
    ebb_unpin();
    EXPECT_TRUE(drain());
    EXPECT_EQ(count + 1000, calls.load());
}

// What an earlier pin has left is no work for a signal handler.
TEST(Destructors, NothingRunsInASignalHandlersUnpin)
{
    static std::atomic<int> calls, in_handler;
    const auto handler = [](int) {
        const int before = calls.load();
        for (int i = 0; i < 10; i++) {
            ebb_pin();
            ebb_unpin();
        }
        in_handler.fetch_add(calls.load() - before);
    };
    struct sigaction action = {};
    action.sa_handler = handler;
    ASSERT_EQ(0, sigaction(SIGUSR1, &action, nullptr));
    constexpr int count = 5000;
    ebb_pin();
    for (int i = 0; i < count; i++)
        ASSERT_EQ(0, ebb_retire_with(nullptr, count_call, &calls));
    ebb_unpin();
    EXPECT_TRUE(eventually([] {
        raise(SIGUSR1);
        const Pin pin;
        raise(SIGUSR1);
        return calls.load() >= count - last_few;
    }));
    EXPECT_EQ(0, in_handler.load());
}

// The destructors of a private collector whose pins lie within pins of the default one.
TEST(Destructors, RunsWhenThePinAroundAnotherCollectorsEnds)
{
    std::atomic<int> calls{0};
    ebb_collector *inner = ebb_collector_create(0);
    ebb_participant *me = ebb_collector_attach(inner);
    EXPECT_TRUE(eventually([&] {
        const Pin pin;
        ebb_participant_pin(me);
        EXPECT_EQ(0, ebb_participant_retire_with(me, nullptr, count_call, &calls));
        ebb_participant_unpin(me);
        return calls.load() > 100;
    }));
    ebb_collector_destroy(inner);
}

std::atomic<int> ending_calls;
std::atomic<bool> barrier_returned;

void retire_around(ebb_participant *me, Destructor one_that_ends)
{
    ebb_participant_pin(me); // so that all are there when the first runs
    for (int i = 0; i < 300; i++)
        EXPECT_EQ(0, ebb_participant_retire_with(me, nullptr, i == 200 ? one_that_ends : count_call,
                                                 &ending_calls));
    ebb_participant_unpin(me);
}

// C++ ends a thread through no function that has cleanups and calls one that is noexcept: these have
// none.
void *barrier_that_ends(void *collector)
{
    retire_around(ebb_collector_attach(static_cast<ebb_collector *>(collector)),
                  [](void *, void *) {
                      ending_calls.fetch_add(1);
                      pthread_exit(nullptr);
                  });
    ebb_collector_barrier(static_cast<ebb_collector *>(collector));
    barrier_returned.store(true);
    return nullptr;
}

void *barrier_that_is_cancelled(void *collector)
{
    retire_around(ebb_collector_attach(static_cast<ebb_collector *>(collector)),
                  [](void *, void *) {
                      ending_calls.fetch_add(1);
                      support::cancel_myself();
                      // Not in a call that TSan intercepts: it would not see the thread's locks any more.
                      pthread_testcancel();
                  });
    ebb_collector_barrier(static_cast<ebb_collector *>(collector));
    barrier_returned.store(true);
    return nullptr;
}

// What its thread was in the middle of goes on elsewhere.
void expect_barrier_after(void *(*ends)(void *), ebb_collector *collector)
{
    pthread_t thread;
    ending_calls.store(0);
    barrier_returned.store(false);
    ASSERT_EQ(0, pthread_create(&thread, nullptr, ends, collector));
    ASSERT_EQ(0, pthread_join(thread, nullptr));
    EXPECT_FALSE(barrier_returned.load());
    ebb_collector_barrier(collector);
    EXPECT_EQ(300, ending_calls.load());
    EXPECT_EQ(0U, stats(collector).destructors);
}

// One call makes no full record: no unpin and no retire of this thread runs it.
void retire_one_that_ends(std::atomic<int> *ends)
{
    ASSERT_EQ(0, ebb_retire_with(
                     nullptr,
                     [](void *, void *count) {
                         static_cast<std::atomic<int> *>(count)->fetch_add(1);
                         pthread_exit(nullptr);
                     },
                     ends));
}

TEST(Destructors, ADestructorMayEndTheHelper)
{
    static std::atomic<int> calls;
    for (int round = 1; round <= 3; round++) {
        retire_one_that_ends(&calls);
        // The next one, as soon as the last has ended.
        ASSERT_TRUE(eventually([=] { return ebb_helper_start() == 0 && calls.load() == round; }));
    }
    ebb_barrier();
}

// Objects with hooks and calls, of which the first ends it: another helper runs the others, and nobody has to ask.
TEST(Destructors, WhatTheHelperTookGoesOnWithoutIt)
{
    static std::atomic<int> ends, calls, hooked;
    static ebb_hook hooks[10];
    for (int round = 1; round <= 3; round++) {
        retire_one_that_ends(&ends);
        for (ebb_hook &hook : hooks) {
            ASSERT_EQ(0, ebb_retire_with(nullptr, count_call, &calls));
            ebb_retire_hooked(&hook, nullptr, [](void *, ebb_hook *) { hooked.fetch_add(1); });
        }
        ASSERT_EQ(0, ebb_helper_start());
        ASSERT_TRUE(eventually([=] {
            return ends.load() == round && calls.load() == 10 * round &&
                   hooked.load() == 10 * round;
        })) << ends.load()
            << ", " << calls.load() << ", " << hooked.load();
        ebb_barrier(); // does not hang
    }
}

TEST(Destructors, ADestructorMayEndItsThread)
{
    // Not in the helper, which is not the program's to end.
    setenv("EBB_PURGE_THREAD", "0", 1);
    ebb_collector *own = ebb_collector_create(0);
    for (ebb_collector *collector : {own, static_cast<ebb_collector *>(nullptr)}) {
        expect_barrier_after(barrier_that_ends, collector);
        expect_barrier_after(barrier_that_is_cancelled, collector);
    }
    ebb_collector_destroy(own);
    EXPECT_TRUE(drain());
}

// More than a thread has rounds of its last destructors; TSan leaves it behind the fourth.
constexpr int ENDS = support::under_tsan ? 2 : 50;

// Not inline: its caller has no cleanups, see above.
[[gnu::noinline]] ebb_collector *collector_of_ends()
{
    ebb_collector *collector = ebb_collector_create(0);
    ebb_participant *me = ebb_collector_attach(collector);
    ebb_participant_pin(me);
    for (int i = 0; i < ENDS; i++)
        EXPECT_EQ(0, ebb_participant_retire_with(
                         me, nullptr,
                         [](void *, void *) {
                             ending_calls.fetch_add(1);
                             pthread_exit(nullptr);
                         },
                         nullptr));
    ebb_participant_unpin(me);
    return collector;
}

TEST(Destructors, EachMayEndTheThreadThatDestroysItsCollector)
{
    setenv("EBB_PURGE_THREAD", "0", 1);
    ending_calls.store(0);
    pthread_t thread;
    ASSERT_EQ(0, pthread_create(
                     &thread, nullptr,
                     [](void *) -> void * {
                         ebb_collector_destroy(collector_of_ends());
                         return nullptr;
                     },
                     nullptr));
    ASSERT_EQ(0, pthread_join(thread, nullptr));
    EXPECT_EQ(ENDS, ending_calls.load()) << "the thread's end goes on with what it was in";
    ebb_barrier(); // does not hang
}

struct Again {
    int left = 100000, depth = 0, deepest = 0;
    bool by_hook = false;
    ebb_hook hook{};

    void retire()
    {
        if (by_hook)
            ebb_retire_hooked(&hook, this, [](void *p, ebb_hook *) { run(p, nullptr); });
        else
            ASSERT_EQ(0, ebb_retire_with(this, run, nullptr));
    }
    static void run(void *p, void *)
    {
        Again *const me = static_cast<Again *>(p);
        me->deepest = std::max(me->deepest, ++me->depth);
        if (--me->left > 0) {
            me->retire();
            ebb_reclaim();
        }
        me->depth--;
    }
};

// Each ebb_reclaim in a destructor would run the next one.
TEST(Destructors, OnesThatReclaimNestEightDeepAtMost)
{
    setenv("EBB_PURGE_THREAD", "0", 1);
    for (const bool by_hook : {false, true}) {
        Again again;
        again.by_hook = by_hook;
        again.retire();
        EXPECT_TRUE(eventually([&] {
            ebb_reclaim();
            return again.left == 0;
        }));
        EXPECT_EQ(0, again.depth);
        EXPECT_LE(again.deepest, 8);
        EXPECT_GT(again.deepest, 1) << "they do nest";
        ebb_barrier();
    }
}

} // namespace
