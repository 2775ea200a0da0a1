// SPDX-License-Identifier: MIT OR Apache-2.0
// The queue: order, of each producer too, counting in = out, and where its segments go.
#include "ebbtide/queue.h"
#include "lockfree/support.h"

namespace {

using lockfree::item;
using lockfree::number;

class Queue : public testing::Test {
protected:
    ~Queue() override { ebb_queue_destroy(queue_); }
    std::intptr_t pop()
    {
        void *got = nullptr;
        return ebb_queue_pop(queue_, &got) ? static_cast<std::intptr_t>(number(got)) : -1;
    }

    ebb_queue *queue_ = ebb_queue_create();
};

TEST_F(Queue, EmptyGivesNothing)
{
    void *untouched = item(7);
    EXPECT_FALSE(ebb_queue_pop(queue_, &untouched));
    EXPECT_EQ(untouched, item(7));
    EXPECT_EQ(ebb_queue_size(queue_), 0U);
    ebb_queue_destroy(nullptr);
}

TEST_F(Queue, KeepsOrderThroughManySegments)
{
    for (std::uintptr_t i = 0; i < 5000; i++) // item 0 is NULL
        ASSERT_EQ(ebb_queue_push(queue_, item(i)), 0);
    EXPECT_EQ(ebb_queue_size(queue_), 5000U);
    for (std::intptr_t i = 0; i < 5000; i++)
        ASSERT_EQ(pop(), i);
    EXPECT_EQ(pop(), -1);
    EXPECT_EQ(ebb_queue_size(queue_), 0U);
}

TEST_F(Queue, StaysSmallWhilePushesAndPopsAlternate)
{
    lockfree::expect_drained(lockfree::live_blocks());
    const std::size_t before = lockfree::live_blocks();
    for (std::intptr_t i = 0; i < 100000; i++) {
        ASSERT_EQ(ebb_queue_push(queue_, item(static_cast<std::uintptr_t>(i))), 0);
        ASSERT_EQ(pop(), i);
    }
    lockfree::expect_drained(before);
}

TEST_F(Queue, IsDestroyedWithItemsInIt)
{
    const std::size_t before = lockfree::live_blocks();
    for (int round = 0; round < 20; round++) {
        ebb_queue *queue = ebb_queue_create();
        for (std::uintptr_t i = 0; i < 50000; i++)
            ASSERT_EQ(ebb_queue_push(queue, item(i)), 0);
        ebb_queue_destroy(queue);
    }
    lockfree::expect_drained(before);
}

constexpr unsigned producers = 2;
constexpr unsigned consumers = 2;

// Items are number * producers + producer: a consumer sees each producer's in their order.
void consume(ebb_queue *queue, lockfree::Ledger &ledger, const std::atomic<unsigned> &running)
{
    std::intptr_t last[producers] = {-1, -1};
    for (;;) {
        const bool last_round = running.load() == 0;
        void *got;
        while (ebb_queue_pop(queue, &got)) {
            ledger.take(got);
            const auto value = static_cast<std::intptr_t>(number(got));
            ASSERT_GT(value, last[value % producers]);
            last[value % producers] = value;
        }
        if (last_round)
            return;
        std::this_thread::yield();
    }
}

TEST_F(Queue, WhatGoesInComesOutOnceInEachProducersOrder)
{
    const std::size_t each = support::scaled(200000);
    const std::size_t before = lockfree::live_blocks();
    lockfree::Ledger ledger(each * producers);
    std::atomic<unsigned> running{producers};
    lockfree::run_together(producers + consumers, [&](unsigned id) {
        if (id >= producers) {
            consume(queue_, ledger, running);
            return;
        }
        for (std::size_t i = 0; i < each; i++)
            ASSERT_EQ(ebb_queue_push(queue_, item(i * producers + id)), 0);
        running.fetch_sub(1);
    });
    ledger.expect_each_once();
    lockfree::expect_drained(before);
}

// Every thread does both, so consumers keep spoiling cells of slow producers.
TEST_F(Queue, HoldsUnderEverybodyPushingAndPopping)
{
    const std::size_t each = support::scaled(100000);
    lockfree::Ledger ledger(each * 3);
    lockfree::run_together(3, [&](unsigned id) {
        void *got;
        for (std::size_t i = 0; i < each; i++) {
            ASSERT_EQ(ebb_queue_push(queue_, item(i * 3 + id)), 0);
            if (ebb_queue_pop(queue_, &got))
                ledger.take(got);
        }
    });
    void *got;
    while (ebb_queue_pop(queue_, &got))
        ledger.take(got);
    ledger.expect_each_once();
}

} // namespace
