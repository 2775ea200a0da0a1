// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads that cache much and then go on with a call now and then.
#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

#include "../api/api_libc.h"

namespace {

using support::MiB;

void cache_much()
{
    for (unsigned round = 0; round < 300; round++) {
        std::vector<void *> blocks;
        for (unsigned i = 0; i < 60; i++) {
            const std::size_t bytes = 600 + (i * 7919 + round * 104729) % 15000;
            blocks.push_back(std::memset(api::allocate(bytes), 1, bytes));
        }
        for (void *block : blocks)
            api::release(block);
    }
}

// None sleeps for so long that its cache is taken for that of one that sleeps.
TEST(Ticks, KeepLittle)
{
    constexpr unsigned count = 8;
    std::atomic<bool> leave{false};
    std::barrier<> filled(count + 1);
    const auto run = [&] {
        cache_much();
        filled.arrive_and_wait();
        while (!leave) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
            api::release(api::allocate(40));
        }
    };
    const std::size_t before = support::resident_bytes();
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < count; i++)
        threads.emplace_back(run);
    filled.arrive_and_wait();
    const std::size_t most = support::resident_bytes();
    std::size_t now = most;
    for (int i = 0; i < 1200 && now > before + 3 * MiB; i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        now = support::resident_bytes();
    }
    leave = true;
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_LT(before + 7 * MiB, most);
    EXPECT_GE(before + 3 * MiB, now);
}

} // namespace
