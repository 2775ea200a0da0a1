// SPDX-License-Identifier: MIT OR Apache-2.0
// The stack: order, counting in = out, and where its nodes go.
#include "ebbtide/stack.h"
#include "lockfree/support.h"

namespace {

using lockfree::item;
using lockfree::number;

class Stack : public testing::Test {
protected:
    ~Stack() override { ebb_stack_destroy(stack_); }
    ebb_stack *stack_ = ebb_stack_create();
};

TEST_F(Stack, PopsTheYoungest)
{
    void *got = item(7);
    EXPECT_TRUE(ebb_stack_is_empty(stack_));
    EXPECT_FALSE(ebb_stack_pop(stack_, &got));
    EXPECT_EQ(got, item(7));
    for (std::uintptr_t i = 0; i < 1000; i++)
        ASSERT_EQ(ebb_stack_push(stack_, item(i)), 0);
    EXPECT_FALSE(ebb_stack_is_empty(stack_));
    for (std::uintptr_t i = 1000; i-- > 0;) {
        ASSERT_TRUE(ebb_stack_pop(stack_, &got));
        ASSERT_EQ(got, item(i));
    }
    EXPECT_FALSE(ebb_stack_pop(stack_, &got));
    ebb_stack_destroy(nullptr);
}

TEST_F(Stack, IsDestroyedWithItemsInIt)
{
    const std::size_t before = lockfree::live_blocks();
    for (int round = 0; round < 20; round++) {
        ebb_stack *stack = ebb_stack_create();
        for (std::uintptr_t i = 0; i < 10000; i++)
            ASSERT_EQ(ebb_stack_push(stack, item(i)), 0);
        ebb_stack_destroy(stack);
    }
    lockfree::expect_drained(before);
}

// Pops and pushes of the same few nodes: the ABA problem's home.
TEST_F(Stack, WhatGoesInComesOutOnce)
{
    const std::size_t each = support::scaled(300000);
    const std::size_t before = lockfree::live_blocks();
    lockfree::Ledger ledger(each * 4);
    lockfree::run_together(4, [&](unsigned id) {
        support::Random random(id);
        void *got;
        for (std::size_t i = 0; i < each; i++) {
            ASSERT_EQ(ebb_stack_push(stack_, item(i * 4 + id)), 0);
            for (std::size_t pops = random.below(3); pops > 0; pops--)
                if (ebb_stack_pop(stack_, &got))
                    ledger.take(got);
        }
    });
    void *got;
    while (ebb_stack_pop(stack_, &got))
        ledger.take(got);
    ledger.expect_each_once();
    lockfree::expect_drained(before);
}

} // namespace
