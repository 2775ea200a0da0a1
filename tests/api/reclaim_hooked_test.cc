// SPDX-License-Identifier: MIT OR Apache-2.0
// Objects that bring the hook in which they wait: ebb_retire_hooked, by the text of ebbtide/reclaim.h.
#include "reclaim_support.h"

#include <algorithm>
#include <memory>
#include <set>

namespace {

using namespace reclaim;

std::atomic<int> ran{0};

// The hook is not at the object's start: a hazard pointer to p is meant, not to the hook.
struct Node {
    explicit Node(std::size_t n = 0) : number(n) {}
    std::size_t number;
    ebb_hook hook{};
    void (*then)(Node *) = nullptr;
};

void destroy(void *p, ebb_hook *hook)
{
    Node *const node = static_cast<Node *>(p);
    EXPECT_EQ(&node->hook, hook);
    if (node->then != nullptr)
        node->then(node);
    delete node;
    ran.fetch_add(1);
}

void retire(Node *node) { ebb_retire_hooked(&node->hook, node, destroy); }

void retire_many(int count)
{
    for (int i = 0; i < count; i++)
        retire(new Node);
}

class Hooked : public testing::Test {
protected:
    void SetUp() override { ran = 0; }
    void TearDown() override { EXPECT_TRUE(drain()); }
};

TEST_F(Hooked, RunsOnceAfterThePin)
{
    for (const int count : {1, 31, 32, 33, 5000}) {
        ran = 0;
        ebb_pin();
        retire_many(count);
        in_thread([] { push_on(); });
        EXPECT_EQ(0, ran.load());
        EXPECT_EQ(static_cast<std::size_t>(count), stats().destructors);
        ebb_unpin();
        ebb_barrier();
        EXPECT_EQ(count, ran.load());
        EXPECT_EQ(0U, stats().destructors);
    }
}

TEST_F(Hooked, WaitsForEveryPinThatWasThere)
{
    Staller reader;
    retire_many(1000);
    push_on();
    EXPECT_EQ(0, ran.load());
    reader.let_go();
    ebb_barrier();
    EXPECT_EQ(1000, ran.load());
}

// The epoch moves on between them: what waits has many ages.
TEST_F(Hooked, OfEveryAgeNoneIsLostAndNoneEarly)
{
    int all = 0;
    for (int i = 0; i < 300; i++) {
        Staller reader;
        Node *const held = new Node(1);
        const int before = all;
        retire(held);
        retire_many(i % 83);
        all += 1 + i % 83;
        push_on();
        EXPECT_LE(ran.load(), before) << "those of the rounds before";
        EXPECT_EQ(1U, held->number);
    }
    ebb_barrier();
    EXPECT_EQ(all, ran.load());
}

TEST_F(Hooked, UnpinsRunThemAndMemoryStaysBounded)
{
    std::size_t most = 0;
    for (std::size_t i = 0; i < support::scaled(100000); i++) {
        const Pin pin;
        retire(new Node);
        if (i % 1000 == 0)
            most = std::max(most, stats().destructors);
    }
    EXPECT_LE(most, 2000U);
}

TEST_F(Hooked, TheHookMayBeAnywhereThatLives)
{
    static int target;
    static ebb_hook hook;
    static std::atomic<int> calls;
    for (int i = 1; i <= 3; i++) { // and serves again
        ebb_retire_hooked(&hook, i == 2 ? nullptr : &target, [](void *p, ebb_hook *at) {
            calls += (p == &target || calls == 1) && at == &hook;
        });
        ebb_barrier();
        EXPECT_EQ(i, calls.load());
    }
}

TEST_F(Hooked, TheDestructorMayRetireTheSameObjectAgain)
{
    struct Again {
        ebb_hook hook{};
        int left = 100;
        static void go(void *p, ebb_hook *hook)
        {
            if (--static_cast<Again *>(p)->left > 0)
                ebb_retire_hooked(hook, p, go);
        }
    } again;
    ebb_retire_hooked(&again.hook, &again, Again::go);
    while (stats().destructors > 0)
        ebb_barrier();
    EXPECT_EQ(0, again.left);
}

TEST_F(Hooked, DestructorsMayDoEverythingButWait)
{
    const auto everything = [](Node *) {
        ebb_free(ebb_malloc(100));
        ebb_pin();
        ebb_retire(ebb_malloc(100));
        retire(new Node);
        ebb_unpin();
        EXPECT_EQ(0, ebb_retire_with(ebb_malloc(10), count_and_free, &ran));
        ebb_synchronize();
        ebb_reclaim();
    };
    for (int i = 0; i < 100; i++) {
        Node *const node = new Node;
        node->then = everything;
        retire(node);
    }
    while (stats().destructors > 0)
        ebb_barrier();
    EXPECT_EQ(300, ran.load());
}

TEST_F(Hooked, BesideOtherDestructorsAndBlocks)
{
    std::atomic<int> others{0};
    ebb_pin();
    for (int i = 0; i < 1000; i++) {
        retire(new Node);
        ASSERT_EQ(0, ebb_retire_with(nullptr, count_call, &others));
        ebb_retire(ebb_malloc(64));
    }
    EXPECT_EQ(2000U, stats().destructors);
    ebb_unpin();
    ebb_barrier();
    EXPECT_EQ(1000, ran.load());
    EXPECT_EQ(1000, others.load());
}

TEST_F(Hooked, OfAThreadThatEndedTheyRun)
{
    ebb_pin();
    for (int i = 0; i < 100; i++)
        in_thread([] { retire_many(7); });
    EXPECT_EQ(0, ran.load());
    ebb_unpin();
    ebb_barrier();
    EXPECT_EQ(700, ran.load());
}

TEST_F(Hooked, TheHelperRunsThoseOfThreadsThatSleep)
{
    std::atomic<bool> leave{false};
    std::thread sleeper([&] {
        retire_many(5);
        leave.wait(false);
    });
    EXPECT_TRUE(eventually([] { return ran.load() == 5; })); // nobody asks
    leave = true;
    leave.notify_all();
    sleeper.join();
}

// ---- hazard pointers -----------------------------------------------------------------------------

TEST_F(Hooked, AHazardPointerHoldsBackItsObjectAlone)
{
    std::vector<Node *> nodes(1000);
    for (std::size_t i = 0; i < nodes.size(); i++)
        nodes[i] = new Node(i);
    ebb_hazard *hazards[] = {ebb_hazard_open(), ebb_hazard_open(), ebb_hazard_open()};
    ebb_hazard_set(hazards[0], nodes[7]);
    ebb_hazard_set(hazards[1], nodes[8]);
    ebb_hazard_set(hazards[2], nodes[999]);
    for (Node *node : nodes)
        retire(node);
    ebb_barrier(); // does not wait for these
    EXPECT_EQ(997, ran.load());
    EXPECT_EQ(3U, stats().destructors);
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(std::size_t{i == 0   ? 7U
                              : i == 1 ? 8U
                                       : 999U},
                  nodes[i == 0   ? 7
                        : i == 1 ? 8
                                 : 999]
                      ->number);
        ebb_hazard_clear(hazards[i]);
        push_on();
        EXPECT_EQ(998 + i, ran.load());
    }
    for (ebb_hazard *hazard : hazards)
        ebb_hazard_close(hazard);
}

TEST_F(Hooked, WhatAHazardPointerHeldTheHelperComesBackFor)
{
    ebb_hazard *hazard = ebb_hazard_open();
    Node *const node = new Node;
    ebb_hazard_set(hazard, node);
    std::atomic<bool> known{false}, leave{false};
    std::thread other([&] { // so there is a helper
        ebb_free(ebb_malloc(1));
        known = true;
        known.notify_all();
        leave.wait(false);
    });
    known.wait(false);
    retire(node);
    ebb_barrier();
    EXPECT_EQ(0, ran.load());
    ebb_hazard_close(hazard);
    EXPECT_TRUE(eventually([] { return ran.load() == 1; })); // nobody asks
    leave = true;
    leave.notify_all();
    other.join();
}

TEST_F(Hooked, NewHazardPointersFindNothingThatWasHeld)
{
    ebb_hazard *hazard = ebb_hazard_open();
    for (int i = 0; i < 200; i++) {
        Node *const node = new Node;
        ebb_hazard_set(hazard, node); // lets the one before go
        retire(node);
        push_on();
        EXPECT_EQ(i, ran.load());
    }
    ebb_hazard_close(hazard);
}

// ---- threads -------------------------------------------------------------------------------------

TEST_F(Hooked, BarrierWaitsForThoseThatOthersRun)
{
    constexpr int each = 2000;
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&wrong, t] {
            std::atomic<int> mine{0};
            struct Own {
                ebb_hook hook{};
                std::atomic<int> *count;
                static void go(void *p, ebb_hook *)
                {
                    static_cast<Own *>(p)->count->fetch_add(1);
                    delete static_cast<Own *>(p);
                }
            };
            for (std::size_t round = 0; round < support::scaled(20); round++) {
                mine = 0;
                for (int i = 0; i < each / 20; i++) {
                    Own *const own = new Own;
                    own->count = &mine;
                    ebb_retire_hooked(&own->hook, own, Own::go);
                    if (i % 7 == t)
                        ebb_reclaim();
                }
                ebb_barrier();
                wrong += mine != each / 20;
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(0, wrong.load());
}

// One thread is amid a destructor when another one asks for a barrier.
TEST_F(Hooked, BarrierWaitsForADestructorThatRuns)
{
    static std::atomic<int> stage;
    stage = 0;
    std::thread runs([] {
        Node *const node = new Node;
        node->then = [](Node *) {
            stage = 1;
            stage.notify_all();
            stage.wait(1);
        };
        retire(node);
        push_on();
    });
    stage.wait(0);
    std::atomic<bool> over{false};
    std::thread waits([&] {
        ebb_barrier();
        over = true;
    });
    for (int i = 0; i < 2000; i++) {
        EXPECT_FALSE(over.load());
        std::this_thread::yield();
    }
    stage = 2;
    stage.notify_all();
    waits.join();
    EXPECT_EQ(1, ran.load());
    runs.join();
}

TEST_F(Hooked, ReadersSeeNoneThatHasRun)
{
    std::atomic<Node *> current{new Node(1)};
    std::atomic<bool> stop{false};
    std::atomic<std::size_t> wrong{0};
    std::vector<std::thread> readers;
    for (int t = 0; t < 2; t++)
        readers.emplace_back([&, t] {
            ebb_hazard *hazard = ebb_hazard_open();
            while (!stop) {
                if (t == 0) {
                    const Pin pin;
                    wrong += current.load()->number != 1;
                } else {
                    void *seen = current.load();
                    do
                        ebb_hazard_set(hazard, seen);
                    while (current.load() != seen && (seen = current.load(), true));
                    wrong += static_cast<Node *>(seen)->number != 1;
                    ebb_hazard_clear(hazard);
                }
            }
            ebb_hazard_close(hazard);
        });
    const std::size_t rounds = support::scaled(100000);
    for (std::size_t i = 0; i < rounds; i++) {
        Node *const old = current.exchange(new Node(1));
        old->then = [](Node *node) { node->number = 0; };
        retire(old);
    }
    stop = true;
    for (std::thread &reader : readers)
        reader.join();
    EXPECT_EQ(0U, wrong.load());
    retire(current.load());
    ebb_barrier();
    EXPECT_EQ(rounds + 1, static_cast<std::size_t>(ran.load()));
}

// Also behind the allocator's own destructor, where the thread has no heap any more.
pthread_key_t late_key;
constexpr int rounds_per_thread = support::under_tsan ? 3 : 4; // see reclaim_safety_test.cc

TEST_F(Hooked, LateDestructorsMayRetireInEveryRound)
{
    const auto late = [](void *round) {
        retire_many(50);
        const auto left = support::address(round) - 1;
        if (left > 0)
            pthread_setspecific(late_key, reinterpret_cast<void *>(left));
    };
    ASSERT_EQ(0, pthread_key_create(&late_key, late));
    for (int i = 0; i < 20; i++)
        in_thread([] {
            retire_many(1);
            pthread_setspecific(late_key,
                                reinterpret_cast<void *>(std::uintptr_t{rounds_per_thread}));
        });
    ebb_barrier();
    EXPECT_EQ(20 * (1 + 50 * rounds_per_thread), ran.load());
    pthread_key_delete(late_key);
}

// ---- errors --------------------------------------------------------------------------------------

using HookedDeathTest = Hooked;

TEST_F(HookedDeathTest, RetiredTwice)
{
    GTEST_FLAG_SET(death_test_style, "fast"); // emulated, nothing can be executed again
    EXPECT_EXIT(
        {
            Node *const node = new Node;
            retire(node);
            retire_many(10);
            retire(node);
        },
        testing::KilledBySignal(SIGABRT), "ebbtide: .*double retire: 0x");
}

} // namespace
