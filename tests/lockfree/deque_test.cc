// SPDX-License-Identifier: MIT OR Apache-2.0
// The work-stealing deque: order, growth, races for the last item, and where its buffers go.
#include "ebbtide/deque.h"
#include "lockfree/support.h"

namespace {

using lockfree::item;
using lockfree::number;

class Deque : public testing::Test {
protected:
    ~Deque() override { ebb_deque_destroy(deque_); }

    std::intptr_t pop()
    {
        void *got = nullptr;
        return ebb_deque_pop(deque_, &got) ? static_cast<std::intptr_t>(number(got)) : -1;
    }
    std::intptr_t steal()
    {
        void *got = nullptr;
        return ebb_deque_steal(deque_, &got) == EBB_STEAL_SUCCESS
                   ? static_cast<std::intptr_t>(number(got))
                   : -1;
    }
    void push(std::uintptr_t value) { ASSERT_EQ(ebb_deque_push(deque_, item(value)), 0); }
    std::uint64_t capacity() const { return deque_->buffer->mask + 1; }

    ebb_deque *deque_ = ebb_deque_create(0);
};

TEST_F(Deque, EmptyGivesNothing)
{
    void *untouched = item(77);
    EXPECT_FALSE(ebb_deque_pop(deque_, &untouched));
    EXPECT_EQ(ebb_deque_steal(deque_, &untouched), EBB_STEAL_EMPTY);
    EXPECT_EQ(untouched, item(77));
    EXPECT_EQ(ebb_deque_size(deque_), 0U);
}

TEST_F(Deque, PopsTheYoungestAndStealsTheOldest)
{
    for (std::uintptr_t i = 1; i <= 4; i++)
        push(i);
    EXPECT_EQ(ebb_deque_size(deque_), 4U);
    EXPECT_EQ(pop(), 4);
    EXPECT_EQ(steal(), 1);
    EXPECT_EQ(pop(), 3);
    EXPECT_EQ(steal(), 2);
    EXPECT_EQ(pop(), -1);
    EXPECT_EQ(steal(), -1);
}

TEST_F(Deque, TakesNullAsAnItem)
{
    push(0);
    EXPECT_EQ(pop(), 0);
    push(0);
    EXPECT_EQ(steal(), 0);
}

TEST_F(Deque, KeepsOrderThroughGrowthAndAroundTheEnd)
{
    for (std::uintptr_t i = 0; i < 20; i++) // so that the next ones wrap around
        push(i);
    for (std::intptr_t i = 0; i < 20; i++)
        ASSERT_EQ(steal(), i);
    for (std::uintptr_t i = 0; i < 1000; i++)
        push(i);
    EXPECT_EQ(capacity(), 1024U);
    for (std::intptr_t i = 0; i < 500; i++) {
        ASSERT_EQ(steal(), i);
        ASSERT_EQ(pop(), 999 - i);
    }
    EXPECT_EQ(pop(), -1);
}

TEST_F(Deque, DoesNotGrowWhereStealingMakesRoom)
{
    for (std::uintptr_t i = 0; i < 10000; i++) {
        push(i);
        if (i >= 20) {
            ASSERT_EQ(steal(), static_cast<std::intptr_t>(i - 20));
        }
    }
    EXPECT_EQ(capacity(), 32U);
}

TEST_F(Deque, ShrinksToWhatIsThere)
{
    for (std::uintptr_t i = 0; i < 5000; i++)
        push(i);
    for (std::intptr_t i = 0; i < 4900; i++)
        ASSERT_EQ(steal(), i);
    EXPECT_EQ(capacity(), 8192U);
    EXPECT_EQ(ebb_deque_shrink(deque_), 0);
    EXPECT_EQ(capacity(), 128U);
    push(5000);
    for (std::intptr_t i = 5000; i >= 4900; i--)
        ASSERT_EQ(pop(), i);
    EXPECT_EQ(ebb_deque_shrink(deque_), 0);
    EXPECT_EQ(capacity(), 32U);
}

TEST(DequeCreate, RoundsItsCapacityUp)
{
    ebb_deque *deque = ebb_deque_create(1000);
    ASSERT_NE(deque, nullptr);
    EXPECT_EQ(deque->buffer->mask, 1023U);
    ebb_deque_destroy(deque);
    ebb_deque_destroy(nullptr);
    EXPECT_EQ(ebb_deque_create(SIZE_MAX), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

void drain(ebb_deque *deque, lockfree::Ledger &ledger, const std::atomic<bool> &done)
{
    for (;;) {
        const bool last_round = done.load();
        void *got;
        ebb_steal result;
        while ((result = ebb_deque_steal(deque, &got)) != EBB_STEAL_EMPTY)
            if (result == EBB_STEAL_SUCCESS)
                ledger.take(got);
        if (last_round)
            return;
        std::this_thread::yield();
    }
}

// The owner pushes in bursts, which make the buffer grow, and pops, shrinks in between.
void own(ebb_deque *deque, lockfree::Ledger &ledger, std::size_t items)
{
    support::Random random(1);
    void *got;
    for (std::size_t next = 0; next < items;) {
        const std::size_t burst = std::min(random.between(1, 300), items - next);
        for (std::size_t i = 0; i < burst; i++)
            ASSERT_EQ(ebb_deque_push(deque, item(next++)), 0);
        for (std::size_t i = random.below(burst + 1); i > 0 && ebb_deque_pop(deque, &got); i--)
            ledger.take(got);
        if (random.below(20) == 0) {
            ASSERT_EQ(ebb_deque_shrink(deque), 0);
        }
    }
}

TEST_F(Deque, WhatGoesInComesOutOnceWhileItGrowsUnderThieves)
{
    const std::size_t items = support::scaled(2000000);
    const std::size_t before = lockfree::live_blocks();
    lockfree::Ledger ledger(items);
    std::atomic<bool> done{false};
    lockfree::run_together(3, [&](unsigned id) {
        if (id != 0) {
            drain(deque_, ledger, done);
            return;
        }
        own(deque_, ledger, items);
        done.store(true);
    });
    ledger.expect_each_once();
    EXPECT_EQ(ebb_deque_size(deque_), 0U);
    lockfree::expect_drained(before);
}

// One item at a time: the owner's pop and two steals meet over it.
TEST_F(Deque, TheLastItemGoesToOne)
{
    const std::size_t items = support::scaled(2000000);
    lockfree::Ledger ledger(items);
    std::atomic<bool> done{false};
    lockfree::run_together(3, [&](unsigned id) {
        if (id != 0) {
            drain(deque_, ledger, done);
            return;
        }
        void *got;
        for (std::size_t i = 0; i < items; i++) {
            ASSERT_EQ(ebb_deque_push(deque_, item(i)), 0);
            if (ebb_deque_pop(deque_, &got))
                ledger.take(got);
        }
        done.store(true);
    });
    ledger.expect_each_once();
}

// A pinned reader holds back the buffers that growth leaves behind; afterwards all of them go.
TEST_F(Deque, OldBuffersWaitForPinsAndThenGo)
{
    lockfree::expect_drained(lockfree::live_blocks());
    const std::size_t before = lockfree::reclaim_stats().retired_bytes;
    ebb_pin();
    for (std::uintptr_t i = 0; i < 100000; i++)
        push(i);
    EXPECT_GE(lockfree::reclaim_stats().retired_bytes, before + 65536 * sizeof(void *));
    ebb_unpin();
    lockfree::expect_drained(lockfree::live_blocks());
    EXPECT_LE(lockfree::reclaim_stats().retired_bytes, before + 64 * 1024);
}

} // namespace
