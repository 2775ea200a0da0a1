// SPDX-License-Identifier: MIT OR Apache-2.0
// fork() and reclamation: the child goes on with its own pins, the others' are gone, and all that
// waited can be reclaimed there.
#include "reclaim_fork_support.h"

#include <algorithm>
#include <array>

namespace {

using namespace reclaim;
using support::KiB;
using support::MiB;

TEST(ReclaimFork, OfASingleThreadWithLimbo)
{
    std::atomic<int> calls{0};
    for (int i = 0; i < 1000; i++) {
        ebb_retire(ebb_malloc(100));
        ASSERT_EQ(0, ebb_retire_with(nullptr, count_call, &calls));
    }
    ASSERT_NO_FATAL_FAILURE(expect_ends_well(fork_child(true)));
    ebb_barrier();
    EXPECT_EQ(1000, calls.load());
    EXPECT_TRUE(drain());
}

TEST(ReclaimFork, OthersPinsAndLimboAreTakenOver)
{
    if (support::under_tsan)
        GTEST_SKIP() << "TSan ends a child forked from several threads";
    std::atomic<int> calls{0};
    ebb_collector *collector = ebb_collector_create(0);
    Staller reader, elsewhere(collector);
    std::thread([&] {
        for (int i = 0; i < 300; i++) {
            ebb_retire(ebb_malloc(200));
            EXPECT_EQ(0, ebb_retire_with(nullptr, count_call, &calls));
            EXPECT_EQ(0, ebb_participant_retire_with(ebb_collector_attach(collector), nullptr,
                                                     count_call, &calls));
        }
    }).join();
    push_on();
    ASSERT_EQ(0, calls.load());
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);
        ebb_barrier();
        ebb_collector_barrier(collector);
        const bool ran = calls.load() == 600;
        ebb_collector_destroy(collector);
        if (!ran || !drain())
            _exit(1);
        live_as_child(true);
    }
    ASSERT_NO_FATAL_FAILURE(expect_ends_well(child));
    EXPECT_EQ(0, calls.load()) << "in the parent they still wait";
    EXPECT_EQ(1U, stats().pinned);
    reader.let_go();
    elsewhere.let_go();
    ebb_barrier();
    ebb_collector_destroy(collector);
    EXPECT_EQ(600, calls.load());
}

TEST(ReclaimFork, InsideAPinItGoesOn)
{
    auto *block = static_cast<unsigned char *>(ebb_malloc(500));
    support::fill_pattern(block, 0, 500, 3);
    ebb_pin();
    ebb_pin();
    ebb_retire(block);
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);
        std::thread([] { push_on(); }).join();
        bool right = ebb_is_pinned() && support::find_mismatch(block, 500, 3) == 500;
        ebb_unpin();
        right = right && ebb_is_pinned() && stats().pinned == 1;
        right = right && stats().oldest_pin_thread == static_cast<std::uint32_t>(gettid());
        ebb_unpin();
        if (!right)
            _exit(1);
        live_as_child(false);
    }
    ASSERT_NO_FATAL_FAILURE(expect_ends_well(child));
    std::thread([] { push_on(); }).join();
    EXPECT_EQ(500U, support::find_mismatch(block, 500, 3));
    ebb_unpin();
    ebb_unpin();
    EXPECT_TRUE(drain());
}

TEST(ReclaimFork, InsideADestructor)
{
    static pid_t child;
    static std::atomic<int> calls;
    calls.store(0);
    ASSERT_EQ(0, ebb_retire_with(
                     nullptr, [](void *, void *) { child = fork(); }, nullptr));
    for (int i = 0; i < 100; i++)
        ASSERT_EQ(0, ebb_retire_with(nullptr, count_call, &calls));
    ebb_barrier();
    if (child == 0) {
        alarm(30);
        ebb_barrier();
        if (calls.load() != 100)
            _exit(1);
        live_as_child(true);
    }
    ASSERT_NO_FATAL_FAILURE(expect_ends_well(child));
    EXPECT_EQ(100, calls.load());
}

// The destructor runs in another thread while this one forks: the child cannot wait for it.
TEST(ReclaimFork, WhileAnotherThreadIsInADestructor)
{
    if (support::under_tsan)
        GTEST_SKIP() << "TSan ends a child forked from several threads";
    if (support::under_asan)
        GTEST_SKIP() << "ASan's own locks stay taken in a child forked beside a thread that starts";
    static std::atomic<int> inside;
    static std::atomic<bool> leave;
    const auto stay = [](void *, void *) {
        inside.store(1);
        inside.notify_all();
        leave.wait(false);
    };
    std::thread other([&] {
        EXPECT_EQ(0, ebb_retire_with(nullptr, stay, nullptr));
        ebb_barrier();
    });
    inside.wait(0);
    const pid_t child = fork_child(true);
    leave.store(true);
    leave.notify_all();
    other.join();
    ASSERT_NO_FATAL_FAILURE(expect_ends_well(child));
}

// What the other had taken runs in the child, but the rest of the container that it is amid; nothing
// runs twice.
TEST(ReclaimFork, WhatAnotherThreadHadTakenRunsInTheChild)
{
    if (support::under_tsan)
        GTEST_SKIP() << "TSan ends a child forked from several threads";
    constexpr std::size_t count = 5000, container = 40;
    static std::atomic<int> inside;
    static std::atomic<bool> waits, leave; // waits: in the barrier, which has taken all
    static std::array<std::atomic<int>, count> ran;
    const auto stay = [](void *, void *index) {
        ran[reinterpret_cast<std::size_t>(index)].fetch_add(1);
        if (waits && inside.exchange(1) == 0) {
            inside.notify_all();
            leave.wait(false);
        }
    };
    const auto how_many = [](int times) {
        return static_cast<std::size_t>(std::count(ran.begin(), ran.end(), times));
    };
    for (ebb_collector *collector :
         {static_cast<ebb_collector *>(nullptr), ebb_collector_create(0)}) {
        inside = 0, waits = false, leave = false;
        std::fill(ran.begin(), ran.end(), 0);
        std::thread other([&] {
            ebb_participant *me = collector == nullptr ? nullptr : ebb_collector_attach(collector);
            me == nullptr ? ebb_pin() : ebb_participant_pin(me); // none runs before all wait
            for (std::size_t i = 0; i < count; i++) {
                void *index = reinterpret_cast<void *>(i);
                ASSERT_EQ(0, me == nullptr ? ebb_retire_with(nullptr, stay, index)
                                           : ebb_participant_retire_with(me, nullptr, stay, index));
            }
            me == nullptr ? ebb_unpin() : ebb_participant_unpin(me);
            waits = true;
            collector == nullptr ? ebb_barrier() : ebb_collector_barrier(collector);
        });
        inside.wait(0);
        const pid_t child = fork();
        if (child == 0) {
            alarm(30);
            collector == nullptr ? ebb_barrier() : ebb_collector_barrier(collector);
            _exit(how_many(0) < container && how_many(0) + how_many(1) == count ? 0 : 1);
        }
        leave = true;
        leave.notify_all();
        other.join();
        ASSERT_NO_FATAL_FAILURE(expect_ends_well(child));
        EXPECT_EQ(count, how_many(1));
        if (collector != nullptr)
            ebb_collector_destroy(collector);
    }
}

// The same for objects that bring their hooks: but one lot.
TEST(ReclaimFork, WhatAnotherThreadHadTakenByHooksRunsInTheChild)
{
    if (support::under_tsan)
        GTEST_SKIP() << "TSan ends a child forked from several threads";
    constexpr std::size_t count = 5000, lot = 40;
    struct Node {
        ebb_hook hook{};
        std::atomic<int> ran{0};
    };
    static std::array<Node, count> nodes;
    static std::atomic<int> inside;
    static std::atomic<bool> waits, leave;
    const auto stay = [](void *p, ebb_hook *) {
        static_cast<Node *>(p)->ran.fetch_add(1);
        if (waits && inside.exchange(1) == 0) {
            inside.notify_all();
            leave.wait(false);
        }
    };
    const auto how_many = [](int times) {
        return static_cast<std::size_t>(std::count_if(
            nodes.begin(), nodes.end(), [=](const Node &node) { return node.ran == times; }));
    };
    std::thread other([&] {
        ebb_pin();
        for (Node &node : nodes)
            ebb_retire_hooked(&node.hook, &node, stay);
        ebb_unpin();
        waits = true;
        ebb_barrier();
    });
    inside.wait(0);
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);
        ebb_barrier();
        const bool right = how_many(0) < lot && how_many(0) + how_many(1) == count;
        for (Node &node : nodes) // and they serve again
            if (node.ran == 1)
                ebb_retire_hooked(&node.hook, &node, stay);
        ebb_barrier();
        _exit(right && how_many(0) + how_many(2) == count && stats().destructors == 0 ? 0 : 1);
    }
    leave = true;
    leave.notify_all();
    other.join();
    ASSERT_NO_FATAL_FAILURE(expect_ends_well(child));
    EXPECT_EQ(count, how_many(1));
}

TEST(ReclaimFork, WhileAnotherThreadSetsTheLimit)
{
    if (support::under_tsan)
        GTEST_SKIP() << "TSan ends a child forked from several threads";
    const auto ignore = [](std::size_t, void *) {};
    std::atomic<bool> stop{false}, running{false};
    std::thread setter([&] {
        for (; !stop.load(); running.store(true))
            ebb_reclaim_set_limit(MiB, ignore, nullptr);
    });
    EXPECT_TRUE(eventually([&] { return running.load(); }));
    for (int i = 0; i < 200 && !testing::Test::HasFatalFailure(); i++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(10);
            ebb_reclaim_set_limit(MiB, ignore, nullptr);
            _exit(0);
        }
        expect_ends_well(child);
    }
    stop.store(true);
    setter.join();
    ebb_reclaim_set_limit(0, nullptr, nullptr);
}

void stay_busy(const std::atomic<bool> &stop, unsigned seed, std::atomic<int> *calls)
{
    support::Random random(seed);
    while (!stop.load(std::memory_order_relaxed)) {
        const std::size_t bytes =
            random.below(50) == 0 ? random.between(40 * KiB, MiB) : random.between(1, 3000);
        void *block = ebb_malloc(bytes);
        const Pin pin;
        if (random.below(4) == 0)
            EXPECT_EQ(0, ebb_retire_with(block, count_and_free, calls));
        else
            ebb_retire(block);
    }
}

TEST(ReclaimFork, HundredsWhileThreadsRetire)
{
    if (support::under_tsan)
        GTEST_SKIP() << "TSan ends a child forked from several threads";
    // ASan's allocator has no fork handlers: no thread may start meanwhile, the helper neither.
    if (support::under_sanitizer)
        setenv("EBB_PURGE_THREAD", "0", 1);
    static std::atomic<int> calls;
    std::atomic<bool> stop{false};
    std::atomic<int> running{0};
    std::vector<std::thread> busy;
    for (unsigned seed = 1; seed <= 3; seed++)
        busy.emplace_back([&, seed] {
            ebb_free(ebb_malloc(1));
            running++;
            stay_busy(stop, seed, &calls);
        });
    while (running < 3) // a thread that is still starting is the runtime's affair
        std::this_thread::yield();
    const std::size_t forks = support::scaled(300);
    for (std::size_t i = 0; i < forks && !testing::Test::HasFatalFailure(); i++)
        expect_ends_well(fork_child(i % 10 == 0));
    stop.store(true);
    for (std::thread &thread : busy)
        thread.join();
    ebb_barrier();
    EXPECT_TRUE(drain());
}

} // namespace
