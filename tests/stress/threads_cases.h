// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads that come and go: churn without residue, threads that only free, allocation in and after
// TLS destructors, blocks that outlive their thread, producer and consumer with bounded memory.
// The file that includes this one has chosen the form of the API before.
#pragma once

#include <atomic>
#include <climits>
#include <thread>

#include <pthread.h>

namespace {

using support::KiB;
using support::MiB;

void allocate_some(unsigned seed)
{
    support::Random random(seed);
    void *blocks[40];
    for (void *&block : blocks) {
        const std::size_t bytes = random.between(1, 4000);
        block = api::allocate(bytes);
        std::memset(block, 1, bytes);
    }
    for (void *block : blocks)
        api::release(block);
}

void churn_threads(std::size_t count)
{
    for (std::size_t i = 0; i < count; i += 2) {
        std::thread first(allocate_some, static_cast<unsigned>(i));
        std::thread second(allocate_some, static_cast<unsigned>(i + 1));
        first.join();
        second.join();
    }
}

TEST(Threads, TenThousandShortLivedLeaveNoResidue)
{
    churn_threads(support::scaled(2000));
    const std::size_t early = support::resident_bytes();
    churn_threads(support::scaled(8000));
    const std::size_t late = support::resident_bytes();
    support::expect_at_most(late, early + 2 * MiB, "each exited thread leaves memory behind");
}

TEST(Threads, ManyAtOnceThenNone)
{
    const std::size_t before = support::resident_bytes();
    for (int round = 0; round < 4; round++) {
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < 200; i++)
            threads.emplace_back(allocate_some, i);
        for (std::thread &thread : threads)
            thread.join();
    }
    support::expect_resident_at_most(before + 100 * MiB, "memory ratchets");
}

// An ended thread's free pages stay for the delay, for its successor, and leave then; without a helper at once,
// but for what the arena may keep.
TEST(Threads, WhatEndedThreadsHadFreeGoesHome)
{
    constexpr std::size_t count = 40000;
    constexpr unsigned threads_count = 32; // 140 MB together
    const std::size_t before = support::resident_bytes();
    pthread_barrier_t all;
    pthread_barrier_init(&all, nullptr, threads_count);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < threads_count; i++)
        threads.emplace_back([&all] {
            support::MappedArray<void *> blocks(count);
            for (void *&block : blocks)
                std::memset(block = api::allocate(100), 1, 100);
            pthread_barrier_wait(&all);
            for (void *block : blocks)
                api::release(block);
        });
    for (std::thread &thread : threads)
        thread.join();
    for (int i = 0; i < 10 && support::resident_bytes() > before + 64 * MiB; i++)
        usleep(1000000);
    support::expect_resident_at_most(before + 64 * MiB, "what ended threads had stays");
    pthread_barrier_destroy(&all);
}

TEST(Threads, BlocksOutliveTheirThread)
{
    support::MappedArray<void *> blocks(5000);
    for (unsigned round = 0; round < 5; round++) {
        std::thread maker([&] {
            for (std::size_t i = 0; i < blocks.size(); i++) {
                blocks[i] = api::allocate(i % 700 + 1);
                support::fill_pattern(blocks[i], 0, i % 700 + 1, static_cast<unsigned>(i));
            }
        });
        maker.join();
        std::thread(allocate_some, round).join();
        for (std::size_t i = 0; i < blocks.size(); i++) {
            ASSERT_EQ(support::find_mismatch(blocks[i], i % 700 + 1, static_cast<unsigned>(i)),
                      i % 700 + 1);
            api::release(blocks[i]);
        }
    }
}

TEST(Threads, ThatOnlyFreeReturnEverything)
{
    const std::size_t rounds = support::scaled(40);
    support::MappedArray<void *> blocks(20000);
    std::size_t early = 0;
    for (std::size_t round = 0; round < rounds; round++) {
        for (std::size_t i = 0; i < blocks.size(); i++) {
            blocks[i] = api::allocate(100 + i % 300);
            std::memset(blocks[i], 1, 100);
        }
        std::thread([&] {
            for (void *block : blocks)
                api::release(block);
        }).join();
        if (round == 1)
            early = support::resident_bytes();
    }
    support::expect_resident_at_most(early + 4 * MiB, "remote frees are not reused");
}

TEST(Threads, FreeingThreadThatNeverAllocatesSurvivesLarge)
{
    for (int round = 0; round < 20; round++) {
        void *blocks[] = {api::allocate(16), api::allocate(5000), api::allocate(100 * KiB),
                          api::allocate(3 * MiB)};
        std::thread([&] {
            for (void *block : blocks)
                api::release(block);
        }).join();
    }
}

// The first calls of these threads are frees of nothing, so they meet the state before any heap.
TEST(Threads, FreeingNullBeforeAnyAllocation)
{
    for (int round = 0; round < 4; round++) {
        pthread_t thread;
        const auto free_nothing = [](void *) -> void * {
            for (int i = 0; i < 50000; i++)
                api::release(nullptr);
            allocate_some(13);
            return nullptr;
        };
        ASSERT_EQ(pthread_create(&thread, nullptr, free_nothing, nullptr), 0);
        ASSERT_EQ(pthread_join(thread, nullptr), 0);
    }
    allocate_some(14);
}

std::atomic<int> destructor_rounds{0};
pthread_key_t late_key;

// TSan ends its own record of a thread in the last round and may be called no more after it.
constexpr int rounds_per_thread = support::under_tsan ? 3 : PTHREAD_DESTRUCTOR_ITERATIONS;

// Runs up to PTHREAD_DESTRUCTOR_ITERATIONS times, so at least once after the allocator's own.
void allocate_in_destructor(void *block)
{
    api::release(block);
    allocate_some(7);
    void *large = api::allocate(200 * KiB);
    static_cast<char *>(large)[0] = 1;
    api::release(large);
    if (destructor_rounds.fetch_add(1) % rounds_per_thread != rounds_per_thread - 1)
        pthread_setspecific(late_key, api::allocate(100));
}

TEST(ThreadExit, DestructorsMayAllocateInEveryRound)
{
    ASSERT_EQ(pthread_key_create(&late_key, allocate_in_destructor), 0);
    destructor_rounds = 0;
    const std::size_t before = support::resident_bytes();
    for (int i = 0; i < 200; i++)
        std::thread([] {
            pthread_setspecific(late_key, api::allocate(100));
            allocate_some(3);
        }).join();
    EXPECT_EQ(destructor_rounds.load(), 200 * rounds_per_thread);
    pthread_key_delete(late_key);
    support::expect_resident_at_most(before + 8 * MiB, "memory ratchets");
}

// The first allocation of this thread happens in its destructor.
TEST(ThreadExit, FirstAllocationInADestructor)
{
    pthread_key_t key;
    ASSERT_EQ(pthread_key_create(&key, [](void *) { allocate_some(9); }), 0);
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        ASSERT_EQ(pthread_create(
                      &thread, nullptr,
                      [](void *own_key) -> void * {
                          pthread_setspecific(*static_cast<pthread_key_t *>(own_key), own_key);
                          return nullptr;
                      },
                      &key),
                  0);
        ASSERT_EQ(pthread_join(thread, nullptr), 0);
    }
    pthread_key_delete(key);
}

struct Keeper {
    void *block = nullptr;
    ~Keeper()
    {
        api::release(block);
        allocate_some(11);
    }
};

TEST(ThreadExit, ThreadLocalObjectsFreeLate)
{
    for (int i = 0; i < 200; i++)
        std::thread([] {
            static thread_local Keeper keeper;
            keeper.block = api::allocate(300);
            allocate_some(5);
        }).join();
}

TEST(ThreadExit, DetachedThreadsBesideAllocation)
{
    std::atomic<int> running{0};
    for (unsigned i = 0; i < 300; i++) {
        running.fetch_add(1);
        std::thread([&running, i] {
            allocate_some(i);
            running.fetch_sub(1);
        }).detach();
        allocate_some(i + 1000);
    }
    while (running.load() != 0)
        usleep(1000);
}

// A bounded ring: the producer is never more than this many blocks ahead.
constexpr std::size_t ring_slots = 1024;
std::atomic<void *> ring[ring_slots];

void *take(std::atomic<void *> &slot)
{
    void *block = slot.exchange(nullptr, std::memory_order_acq_rel);
    while (block == nullptr) {
        std::this_thread::yield();
        block = slot.exchange(nullptr, std::memory_order_acq_rel);
    }
    return block;
}

void give(std::atomic<void *> &slot, void *block)
{
    void *expected = nullptr;
    while (!slot.compare_exchange_weak(expected, block, std::memory_order_acq_rel)) {
        expected = nullptr;
        std::this_thread::yield();
    }
}

// Returns how much resident memory grew between the first fifth of the traffic and its end.
std::size_t growth_of_traffic(std::size_t blocks, std::size_t smallest, std::size_t largest)
{
    std::size_t early = 0;
    std::thread consumer([=] {
        for (std::size_t i = 0; i < blocks; i++)
            api::release(take(ring[i % ring_slots]));
    });
    support::Random random(77);
    for (std::size_t i = 0; i < blocks; i++) {
        const std::size_t bytes = random.between(smallest, largest);
        void *block = api::allocate(bytes);
        std::memset(block, 1, bytes);
        give(ring[i % ring_slots], block);
        if (i == blocks / 5)
            early = support::resident_bytes();
    }
    consumer.join();
    const std::size_t late = support::resident_bytes();
    return late > early ? late - early : 0;
}

TEST(ProducerConsumer, SmallTrafficIsBounded)
{
    const std::size_t growth = growth_of_traffic(support::scaled(500000), 16, 500);
    support::expect_at_most(growth, 8 * MiB, "memory ratchets");
}

TEST(ProducerConsumer, MixedTrafficIsBounded)
{
    const std::size_t growth = growth_of_traffic(support::scaled(60000), 16, 20000);
    support::expect_at_most(growth, 48 * MiB, "memory ratchets");
}

TEST(ProducerConsumer, LargeTrafficIsBounded)
{
    const std::size_t growth = growth_of_traffic(support::scaled(6000), 40 * KiB, 200 * KiB);
    support::expect_at_most(growth, 200 * MiB, "memory ratchets");
}

} // namespace
