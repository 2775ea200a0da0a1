// SPDX-License-Identifier: MIT OR Apache-2.0
// What the tests of the blocks share: threads that start together, and what has to be gone after.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "api/support.h"
#include "ebbtide/reclaim.h"

namespace lockfree {

inline void *item(std::uintptr_t number) { return reinterpret_cast<void *>(number); }
inline std::uintptr_t number(void *item) { return reinterpret_cast<std::uintptr_t>(item); }

// Calls body(0), body(1), ... in as many threads, which begin together, and waits for them.
inline void run_together(unsigned count, const std::function<void(unsigned)> &body)
{
    std::atomic<unsigned> waiting{count};
    std::vector<std::thread> threads;
    for (unsigned id = 0; id < count; id++)
        threads.emplace_back([&, id] {
            waiting.fetch_sub(1);
            while (waiting.load() != 0)
                std::this_thread::yield();
            body(id);
        });
    for (std::thread &thread : threads)
        thread.join();
}

// Each of `count` items must have come out once.
class Ledger {
public:
    explicit Ledger(std::size_t count) : seen_(count) {}
    void take(void *item) { seen_.at(number(item)).fetch_add(1); }
    void expect_each_once() const
    {
        std::size_t lost = 0, doubled = 0;
        for (const std::atomic<unsigned> &seen : seen_) {
            lost += seen.load() == 0;
            doubled += seen.load() > 1;
        }
        EXPECT_EQ(lost, 0U) << "of " << seen_.size();
        EXPECT_EQ(doubled, 0U) << "of " << seen_.size();
    }

private:
    std::vector<std::atomic<unsigned>> seen_;
};

inline ebb_reclaim_stats reclaim_stats()
{
    ebb_reclaim_stats stats;
    ebb_reclaim_stats_get(nullptr, &stats);
    return stats;
}

inline std::size_t live_blocks()
{
    ebb_stats stats;
    ebb_stats_get(&stats);
    return stats.live_blocks;
}

// Nobody is pinned and the threads have ended: all that was retired goes, and at most `more` blocks
// than `before` are live. A few are the threads' and the engine's own.
inline void expect_drained(std::size_t before, std::size_t more = 256)
{
    for (int i = 0; i < 10; i++) {
        ebb_synchronize();
        ebb_barrier();
        ebb_reclaim();
    }
    const ebb_reclaim_stats stats = reclaim_stats();
    EXPECT_EQ(stats.destructors, 0U);
    EXPECT_LE(stats.retired_blocks, more);
    EXPECT_EQ(stats.pinned, 0U);
    EXPECT_LE(live_blocks(), before + more);
}

} // namespace lockfree
