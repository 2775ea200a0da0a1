// SPDX-License-Identifier: MIT OR Apache-2.0
// EBB_GUARD at rest: a loop that goes on keeps its memory, its address space and its mappings, whatever it does.
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "../api/guarded.h"

namespace {

std::size_t mappings()
{
    std::ifstream maps("/proc/self/maps");
    std::size_t count = 0;
    for (std::string line; std::getline(maps, line);)
        count++;
    return count;
}

void churn(std::size_t at_once, int rounds)
{
    std::vector<void *> blocks(at_once);
    for (int round = 0; round < rounds; round++) {
        for (std::size_t i = 0; i < at_once; i++)
            std::memset(blocks[i] = ebb_malloc(100 + i * 37 % 9000), 1, 100);
        for (void *p : blocks)
            ebb_free(p);
        std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
}

TEST(GuardAtRest, ALoopKeepsItsMappingsAndItsMemory)
{
    ASSERT_NE(nullptr, guarded::make(101));
    for (std::size_t at_once : {1U, 2U, 1001U, 3000U}) {
        const int rounds = static_cast<int>(support::scaled(400));
        churn(at_once, rounds);
        ebb_trim();
        const std::size_t mapped = mappings();
        EXPECT_GT(4U * 1024 + 500, mapped);
        churn(at_once, rounds);
        ebb_trim();
        EXPECT_GT(mapped + 1100, mappings()) << at_once << " at once";
    }
    ebb_stats stats;
    ebb_stats_get(&stats);
    EXPECT_TRUE(support::under_sanitizer || 16 * support::MiB > stats.resident) // has more for each
        << stats.resident;
}

TEST(GuardAtRest, ThreadsShareTheRecords)
{
    ASSERT_NE(nullptr, guarded::make(101));
    std::vector<std::thread> threads;
    std::vector<std::atomic<char *>> places(64);
    for (unsigned number = 0; number < 8; number++)
        threads.emplace_back([number, &places] {
            std::uint64_t random = number;
            for (std::size_t i = 0; i < support::scaled(2000000); i++) {
                random = random * 6364136223846793005U + 1442695040888963407U;
                const std::size_t bytes = 1 + (random >> 40) % 6000;
                char *p = static_cast<char *>(ebb_malloc(bytes));
                p[0] = p[bytes - 1] = 1;
                ebb_free(places[random >> 33 & 63].exchange(p));
            }
        });
    for (std::thread &each : threads)
        each.join();
    for (auto &place : places)
        ebb_free(place.load());
    EXPECT_GT(4U * 1024 + 500, mappings());
}

} // namespace
