// SPDX-License-Identifier: MIT OR Apache-2.0
// Random operations against the shadow heap: one thread, four threads, and four threads that hand
// half of their blocks to each other. The file that includes this one has chosen the form of the
// API.
#pragma once

#include "shadow_heap.h"

#include <thread>

namespace {

using shadow::Block;
using shadow::Mix;
using shadow::ShadowHeap;
using shadow::Territory;
using support::KiB;
using support::MiB;

constexpr Mix small_mix = {1200, 5, 15};
constexpr Mix medium_mix = {40 * KiB, 5, 20};
constexpr Mix large_mix = {8 * MiB, 2, 30};
constexpr unsigned thread_count = 4;

void run_alone(Mix mix, std::size_t slots, std::size_t steps)
{
    Territory territory;
    ShadowHeap heap(slots, 1, mix, &territory);
    for (std::size_t i = 0; i < support::scaled(steps); i++)
        heap.step();
    heap.errors().expect_none();
}

TEST(Shadow, SmallBlocks) { run_alone(small_mix, 4000, 400000); }

TEST(Shadow, MediumBlocks) { run_alone(medium_mix, 1000, 100000); }

TEST(Shadow, LargeBlocks) { run_alone(large_mix, 60, 20000); }

TEST(Shadow, FewSlotsReuseAtOnce) { run_alone(medium_mix, 8, 200000); }

void run_threads(Mix mix, std::size_t slots, std::size_t steps, Territory *territory)
{
    shadow::Errors errors[thread_count];
    std::vector<std::thread> threads;
    for (unsigned id = 0; id < thread_count; id++)
        threads.emplace_back([=, &errors] {
            ShadowHeap heap(slots, id + 10, mix, territory);
            for (std::size_t i = 0; i < support::scaled(steps); i++)
                heap.step();
            errors[id] = heap.errors();
        });
    for (std::thread &thread : threads)
        thread.join();
    for (const shadow::Errors &error : errors)
        error.expect_none();
}

TEST(ShadowThreads, NoOverlapAnywhere)
{
    Territory territory;
    run_threads(medium_mix, 500, 40000, &territory);
}

TEST(ShadowThreads, RunFree) { run_threads(small_mix, 1000, 200000, nullptr); }

TEST(ShadowThreads, LargeRunFree) { run_threads(large_mix, 30, 4000, nullptr); }

// A ring of blocks in flight to one thread. Any thread pushes, its owner pops.
class Mailbox {
public:
    bool push(const Block &block)
    {
        const std::lock_guard<std::mutex> guard(lock_);
        if (count_ == capacity)
            return false;
        ring_[(first_ + count_++) % capacity] = block;
        return true;
    }
    bool pop(Block &block)
    {
        const std::lock_guard<std::mutex> guard(lock_);
        if (count_ == 0)
            return false;
        block = ring_[first_];
        first_ = (first_ + 1) % capacity;
        count_--;
        return true;
    }

private:
    static constexpr std::size_t capacity = 2000;
    std::mutex lock_;
    std::size_t first_ = 0;
    std::size_t count_ = 0;
    Block ring_[capacity] = {};
};

void exchange_blocks(unsigned id, Mailbox *boxes, ShadowHeap &heap, std::size_t steps)
{
    support::Random random(id + 100);
    for (std::size_t i = 0; i < steps; i++) {
        heap.step();
        Block made = heap.create();
        if (made.data != nullptr && !boxes[random.below(thread_count)].push(made))
            heap.drop(made);
        Block received = {};
        for (int taken = 0; taken < 2 && boxes[id].pop(received); taken++)
            heap.drop(received);
    }
}

void run_exchange(Mix mix, std::size_t steps, Territory *territory)
{
    static Mailbox boxes[thread_count];
    shadow::Errors errors[thread_count];
    std::vector<std::thread> threads;
    for (unsigned id = 0; id < thread_count; id++)
        threads.emplace_back([=, &errors] {
            ShadowHeap heap(200, id + 50, mix, territory);
            exchange_blocks(id, boxes, heap, support::scaled(steps));
            errors[id] = heap.errors();
        });
    for (std::thread &thread : threads)
        thread.join();
    ShadowHeap sweeper(1, 0, mix, territory);
    Block left = {};
    for (Mailbox &box : boxes)
        while (box.pop(left))
            sweeper.drop(left);
    sweeper.errors().expect_none();
    for (const shadow::Errors &error : errors)
        error.expect_none();
}

TEST(ShadowExchange, NoOverlapAnywhere)
{
    Territory territory;
    run_exchange(medium_mix, 15000, &territory);
}

TEST(ShadowExchange, SmallRunFree) { run_exchange(small_mix, 100000, nullptr); }

TEST(ShadowExchange, LargeRunFree) { run_exchange({2 * MiB, 2, 30}, 2000, nullptr); }

} // namespace
