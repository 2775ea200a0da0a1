// SPDX-License-Identifier: MIT OR Apache-2.0
// What labels say of threads that sleep: to the program, and on the board that others read.
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "ebbtide.h"
#include "ebbtide/region.h"
extern "C" {
#define _Static_assert static_assert
#include "region/label.h"
#undef _Static_assert
}

namespace {

constexpr std::size_t threads = 4, scopes = 10;

// Each thread enters the domain ten times, leaves one touched block in it, and sleeps.
void with_sleepers(ebb_domain *domain, const std::function<void()> &look)
{
    std::atomic<std::size_t> asleep{0};
    std::atomic<bool> stop{false};
    std::vector<std::thread> running;
    for (std::size_t t = 0; t < threads; t++)
        running.emplace_back([&] {
            void *kept = nullptr;
            for (std::size_t i = 0; i < scopes; i++) {
                const ebb_scope before = ebb_domain_enter(domain);
                if (i == 0)
                    std::memset(kept = ebb_malloc(100), 1, 100);
                ebb_free(ebb_malloc(100));
                ebb_leave(before);
            }
            asleep++;
            while (!stop.load())
                std::this_thread::yield();
            ebb_free(kept);
        });
    while (asleep.load() < threads)
        std::this_thread::yield();
    look();
    stop.store(true);
    for (std::thread &thread : running)
        thread.join();
}

const ebbi_label *row_of(const char *name)
{
    for (const ebbi_label &row : ebbi_labels.row)
        if (std::strcmp(row.name, name) == 0)
            return &row;
    return nullptr;
}

TEST(Labels, CountWhatSleepersHaveNotTold)
{
    ebb_domain *domain = ebb_domain_open("sleepers");
    ASSERT_EQ(0, ebb_domain_set_policy(domain, EBB_DOMAIN_SCOPES, 1));
    with_sleepers(domain, [&] {
        ebb_lifetime_stats s;
        ebb_domain_stats_get(domain, &s);
        EXPECT_EQ(threads, s.open);
        EXPECT_EQ(threads * scopes, s.opened);
        EXPECT_EQ(threads * scopes, s.closed);
        EXPECT_EQ(threads, s.live_blocks);
        EXPECT_GE(s.live_bytes, threads * 100);
        EXPECT_LE(s.live_bytes, threads * 128);
    });
}

// As much as is free and resident; a block that nobody has touched makes up for none of it.
TEST(Labels, WhatIsPinnedIsWhatLiesUnderNoBlockInUse)
{
    ebb_region_options options = {};
    options.label = "untouched";
    ebb_region *region = ebb_region_open(&options);
    ASSERT_NE(nullptr, ebb_region_alloc(region, 20U << 20));
    std::vector<void *> blocks(1000);
    for (void *&block : blocks)
        std::memset(block = ebb_region_alloc(region, 10000), 1, 10000);
    ebb_lifetime_stats full, freed;
    ASSERT_EQ(1U, ebb_lifetimes_get(&full, 1));
    for (void *block : blocks)
        ebb_free(block);
    ASSERT_EQ(1U, ebb_lifetimes_get(&freed, 1));
    EXPECT_STREQ("untouched", freed.label);
    EXPECT_LE(full.pinned_bytes, 1000000U);
    EXPECT_GE(freed.pinned_bytes, 9000000U);
    EXPECT_LE(freed.pinned_bytes, freed.resident_bytes);
    ebb_region_close(region);
}

TEST(Labels, TheBoardKnowsSleepersWhateverThePolicy)
{
    for (auto policy : {EBB_DOMAIN_NEVER, EBB_DOMAIN_SCOPES}) {
        const char *name = policy == EBB_DOMAIN_NEVER ? "never" : "scopes";
        ebb_domain *domain = ebb_domain_open(name);
        ASSERT_EQ(0, ebb_domain_set_policy(domain, policy, 3));
        with_sleepers(domain, [&] {
            const ebbi_label *row = row_of(name);
            ASSERT_NE(nullptr, row);
            EXPECT_GE(row->opened, threads * scopes / 2) << name;
            EXPECT_GE(row->live_bytes, threads * 100) << name;
        });
        EXPECT_EQ(threads * scopes, row_of(name)->opened) << name;
        EXPECT_EQ(0U, row_of(name)->live_bytes) << name;
    }
}

TEST(Labels, MayBeAskedForWhileThreadsEnter)
{
    ebb_domain *domain = ebb_domain_open("busy");
    ASSERT_EQ(0, ebb_domain_set_policy(domain, EBB_DOMAIN_SCOPES, 2));
    std::atomic<bool> stop{false};
    std::thread busy([&] {
        while (!stop.load()) {
            const ebb_scope before = ebb_domain_enter(domain);
            ebb_free(ebb_malloc(100));
            ebb_leave(before);
        }
    });
    for (int i = 0; i < 50; i++) {
        ebb_lifetime_stats s;
        ebb_domain_stats_get(domain, &s);
        EXPECT_LE(s.live_blocks, 1U);
    }
    stop.store(true);
    busy.join();
}

} // namespace
