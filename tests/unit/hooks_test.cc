// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: objects that bring their hooks: where they wait, and that nothing is allocated.
#include "support/engine.h"

#include "ebbtide/reclaim.h"

extern "C" {
#include "process/process.h"
#include "reclaim/queues.h"
}

namespace {

using namespace unit;

int ran;

struct Hooks : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_pretend_threads(); // the helper would run what the tests count
        ebb_free(ebb_malloc(1));   // a heap
        ran = 0;
    }
};

struct Node {
    ebb_hook hook;
    long filler;
};

void destroy(void *, ebb_hook *) { ran++; }

void retire(Node *node) { ebb_retire_hooked(&node->hook, node, destroy); }

ebbi_hooked *hooked() { return &ebbi_heap_mine()->deferred.hooked; }

std::size_t waiting()
{
    ebb_reclaim_stats now;
    ebb_reclaim_stats_get(nullptr, &now);
    return now.destructors;
}

TEST_F(Hooks, NeedNoMemory)
{
    static Node nodes[10000];
    retire(&nodes[0]); // a heap
    for (fake_call call : {FAKE_COMMIT, FAKE_RESERVE, FAKE_MAP})
        fake_os_refuse(call, 1, true);
    std::vector<void *> taken;
    for (std::size_t bytes : {std::size_t{32768}, std::size_t{1024}, std::size_t{256}}) {
        void *p;
        while ((p = ebb_malloc(bytes)) != nullptr)
            taken.push_back(p);
    }
    const std::size_t committed = fake_os_count(FAKE_COMMIT), mapped = fake_os_count(FAKE_MAP);
    errno = 0;
    ebb_pin();
    for (std::size_t i = 1; i < 10000; i++)
        retire(&nodes[i]);
    ebb_unpin();
    EXPECT_EQ(0, errno);
    ebb_barrier();
    EXPECT_EQ(committed, fake_os_count(FAKE_COMMIT)) << "nor asks for any";
    EXPECT_EQ(mapped, fake_os_count(FAKE_MAP));
    EXPECT_EQ(10000, ran);
    fake_os_allow();
    for (void *p : taken)
        ebb_free(p);
}

// H2: however the epochs go, two stamps are enough, and none passes early.
TEST_F(Hooks, TwoStampsAreEnough)
{
    static Node nodes[20000];
    std::size_t next = 0;
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 1 + round % 90; i++)
            retire(&nodes[next++]);
        ebb_pin(); // the calls run at barriers and unpins alone
        const int before = ran;
        ebbi_lock_take(&ebbi_heap_mine()->own.lock);
        ebbi_deferred_seal(&ebbi_clock, &ebbi_heap_mine()->deferred);
        const ebbi_hooked now = *hooked();
        ebbi_lock_drop(&ebbi_heap_mine()->own.lock);
        EXPECT_EQ(0U, now.filling.count);
        EXPECT_TRUE(now.young.chain.count == 0 ||
                    (now.old.chain.count > 0 && now.old.stamp + EBB_EPOCH_ONE == now.young.stamp));
        EXPECT_EQ(now.sealed, now.young.chain.count + now.old.chain.count + now.passed.count);
        EXPECT_EQ(next, static_cast<std::size_t>(ran) + now.sealed);
        EXPECT_EQ(waiting(), now.sealed);
        EXPECT_EQ(before, ran);
        ebb_unpin();
        (void)ebbi_clock_advance(&ebbi_clock, true);
    }
    ebb_barrier();
    EXPECT_EQ(next, static_cast<std::size_t>(ran));
    EXPECT_EQ(0U, waiting());
}

// Whoever goes on retiring does not put off what was retired before.
TEST_F(Hooks, WhatComesLaterHoldsBackNothing)
{
    static Node nodes[100];
    for (int i = 0; i < 100; i++) {
        ebbi_lock_take(&ebbi_heap_mine()->own.lock);
        ebbi_hook_mark(&nodes[i].hook, &nodes[i], destroy);
        (void)ebbi_hooks_add(&ebbi_clock, hooked(), &nodes[i].hook);
        ebbi_heap_mine()->deferred.count++;
        ebbi_hooks_seal(&ebbi_clock, hooked());
        EXPECT_LE(hooked()->old.chain.count + hooked()->young.chain.count, 2U);
        ebbi_lock_drop(&ebbi_heap_mine()->own.lock);
        ASSERT_TRUE(ebbi_clock_advance(&ebbi_clock, true));
    }
    ebb_barrier();
    EXPECT_EQ(100, ran);
}

TEST_F(Hooks, AnUnpinRunsABoundedPart)
{
    static Node nodes[5000];
    ebb_pin();
    for (Node &node : nodes)
        retire(&node);
    ebb_unpin();
    for (int i = 0; i < 4; i++)
        (void)ebbi_clock_advance(&ebbi_clock, true);
    int most = 0;
    for (int i = 0; i < 1000 && ran < 5000; i++) {
        const int before = ran;
        ebb_pin();
        ebb_unpin();
        most = i > 0 ? std::max(most, ran - before) : 0;
    }
    EXPECT_LE(most, 2 * EBBI_CALLS) << "the first: twice what has come";
    ebb_barrier();
    EXPECT_EQ(5000, ran);
}

TEST_F(Hooks, HeldOnesAreInAChainOfTheirOwn)
{
    static Node nodes[300];
    std::vector<ebb_hazard *> hazards(10);
    for (std::size_t i = 0; i < hazards.size(); i++) {
        hazards[i] = ebb_hazard_open();
        ebb_hazard_set(hazards[i], &nodes[i * 29]);
    }
    for (Node &node : nodes)
        retire(&node);
    ebb_barrier();
    EXPECT_EQ(290, ran);
    EXPECT_EQ(10U, hooked()->held.count);
    EXPECT_EQ(0U, hooked()->sealed);
    EXPECT_EQ(10U, waiting());
    ebb_hazard_set(hazards[0], reinterpret_cast<char *>(&nodes[0]) + 1); // into it: not enough
    ebb_reclaim();
    EXPECT_EQ(291, ran);
    for (ebb_hazard *hazard : hazards)
        ebb_hazard_close(hazard);
    ebb_reclaim();
    EXPECT_EQ(300, ran);
    EXPECT_EQ(0U, waiting());
}

// The helper comes back while a hazard pointer holds one, and runs it then.
TEST_F(Hooks, APassComesBackForWhatIsHeld)
{
    static Node node;
    ebbi_pass pass = {};
    pass.heap_for_calls = ebbi_heap_get;
    ebb_hazard *hazard = ebb_hazard_open();
    ebb_hazard_set(hazard, &node);
    retire(&node);
    for (int i = 0; i < 5; i++)
        ebbi_purge_pass(&pass); // nothing else waits then
    EXPECT_EQ(1U, hooked()->held.count);
    EXPECT_TRUE(pass.waiting);
    ebb_hazard_close(hazard);
    for (int i = 0; i < 5; i++)
        ebbi_purge_pass(&pass);
    EXPECT_EQ(1, ran);
    EXPECT_FALSE(pass.waiting);
}

// As an ending thread leaves it: amid a destructor, others taken.
TEST_F(Hooks, WhatAThreadHadTakenGoesBackWhenItEnds)
{
    static Node nodes[200];
    static bool amid;
    amid = false;
    std::thread([] {
        retire(&nodes[0]);
        ebbi_heap *const heap = ebbi_heap_mine();
        for (int i = 1; i < 200; i++)
            retire(&nodes[i]);
        ebbi_expired expired = {};
        expired.calls_end = &expired.calls;
        for (int i = 0; i < 4; i++)
            (void)ebbi_clock_advance(&ebbi_clock, true);
        ebbi_lock_take(&heap->own.lock);
        ebbi_limbo_take_calls(heap, &expired);
        ebbi_lock_drop(&heap->own.lock);
        amid = heap->hooks.waits.count > 0 && ebbi_calls_in_flight(UINT64_MAX);
    }).join();
    EXPECT_TRUE(amid);
    EXPECT_FALSE(ebbi_calls_in_flight(UINT64_MAX));
    EXPECT_EQ(200U, waiting() + static_cast<std::size_t>(ran));
    ebb_barrier();
    EXPECT_EQ(200, ran);
}

} // namespace
