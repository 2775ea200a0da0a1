// SPDX-License-Identifier: MIT OR Apache-2.0
// The statistics: the waterfall adds up to VmRSS, and says what the program did.
#include <atomic>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "ebbtide.h"

namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;

std::size_t vm_rss()
{
    std::ifstream statm("/proc/self/statm");
    std::size_t size = 0, resident = 0;
    statm >> size >> resident;
    return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::vector<void *> fill(std::size_t bytes, std::size_t block)
{
    std::vector<void *> blocks(bytes / block);
    for (void *&p : blocks) {
        p = ebb_malloc(block);
        std::memset(p, 1, block);
    }
    return blocks;
}

void release(const std::vector<void *> &blocks)
{
    for (void *p : blocks)
        ebb_free(p);
}

std::size_t sum(const ebb_stats &s)
{
    return s.resident_live + s.resident_rounding + s.resident_cached + s.resident_pinned +
           s.resident_free + s.resident_metadata + s.resident_other;
}

void expect_near(std::size_t value, std::size_t wanted, std::size_t allowed, const char *what)
{
    EXPECT_LE(value, wanted + allowed) << what;
    EXPECT_GE(value + allowed, wanted) << what;
}

TEST(Stats, TheWaterfallAddsUpToVmRss)
{
    std::vector<void *> blocks = fill(64 * MiB, 1000);
    ebb_stats s;
    ebb_stats_get(&s);
    EXPECT_EQ(s.resident, sum(s));
    expect_near(s.resident, vm_rss(), vm_rss() / 50, "VmRSS");
    release(blocks);
}

TEST(Stats, LiveBlocksAreCounted)
{
    ebb_stats before, during, after;
    ebb_stats_get(&before);
    std::vector<void *> small = fill(32 * MiB, 1024);
    std::vector<void *> large = fill(32 * MiB, MiB);
    std::vector<void *> huge = fill(64 * MiB, 64 * MiB);
    ebb_stats_get(&during);
    expect_near(during.live_bytes - before.live_bytes, 128 * MiB, MiB, "live bytes");
    expect_near(during.resident_live - before.resident_live, 128 * MiB, 2 * MiB, "resident");
    expect_near(during.live_blocks - before.live_blocks, 32 * 1024 + 32 + 1, 512, "blocks");
    release(small);
    release(large);
    release(huge);
    ebb_trim();
    ebb_stats_get(&after);
    expect_near(after.live_bytes, before.live_bytes, MiB, "live bytes afterwards");
    EXPECT_GT(after.purged_bytes, during.purged_bytes);
}

// What one thread holds: `count` touched blocks of changing sizes, some freed in between.
struct Holder {
    std::vector<void *> blocks;
    std::size_t bytes = 0;

    void hold(std::size_t count, unsigned seed)
    {
        for (std::size_t i = 0; i < count; i++) {
            const std::size_t size = ((seed += 0x9E3779B9U) >> 8) % 125 * 16 + 16;
            void *p = ebb_malloc(size);
            std::memset(p, 1, size);
            if (i % 8 == 0) {
                ebb_free(p);
            } else {
                blocks.push_back(p);
                bytes += size;
            }
        }
    }
};

void expect_requested(std::size_t threads, std::size_t count)
{
    std::vector<Holder> holders(threads);
    std::atomic<std::size_t> ready{0};
    std::atomic<bool> stop{false};
    ebb_stats before, during;
    for (Holder &holder : holders)
        holder.blocks.reserve(count);
    ebb_stats_get(&before);
    std::vector<std::thread> running;
    for (std::size_t t = 0; t < threads; t++)
        running.emplace_back([&, t] {
            holders[t].hold(count, static_cast<unsigned>(t));
            ready++;
            while (!stop.load())
                std::this_thread::yield();
        });
    while (ready.load() < threads)
        std::this_thread::yield();
    ebb_stats_get(&during);
    std::size_t bytes = 0, blocks = 0;
    for (const Holder &holder : holders) {
        bytes += holder.bytes;
        blocks += holder.blocks.size();
    }
    expect_near(during.resident_live - before.resident_live, bytes, bytes / 50, "requested");
    expect_near(during.live_blocks - before.live_blocks, blocks, blocks / 100 + threads, "blocks");
    EXPECT_EQ(during.resident, sum(during));
    stop.store(true);
    for (std::thread &thread : running)
        thread.join();
    for (const Holder &holder : holders)
        release(holder.blocks);
}

// Half a magazine of each size is cached on pages that nobody has touched.
TEST(Stats, WhatALittleProgramHoldsIsRequested) { expect_requested(1, 900); }
TEST(Stats, WhatManyThreadsHoldIsRequested) { expect_requested(64, 3000); }

TEST(Stats, CachedBlocksAreNotInUse)
{
    ebb_stats before, during, after;
    ebb_stats_get(&before);
    void *p = ebb_malloc(256);
    ebb_stats_get(&during);
    EXPECT_EQ(before.live_blocks + 1, during.live_blocks);
    EXPECT_EQ(before.live_bytes + 256, during.live_bytes);
    ebb_free(p);
    ebb_stats_get(&after);
    EXPECT_EQ(before.live_blocks, after.live_blocks);
    EXPECT_EQ(before.live_bytes, after.live_bytes);
    EXPECT_EQ(during.cached_bytes + 256, after.cached_bytes);
}

// A block of another lane waits in the outbox of the thread that frees it.
TEST(Stats, BlocksOnTheirWayHomeAreNotInUse)
{
    std::vector<void *> blocks;
    ebb_stats before, after;
    std::thread([&] { blocks = fill(640, 16); }).join();
    ebb_stats_get(&before);
    release(blocks);
    ebb_stats_get(&after);
    EXPECT_EQ(before.live_blocks - blocks.size(), after.live_blocks);
}

// 1100 bytes are given 1152: 4.5 %.
TEST(Stats, RoundingIsToldApart)
{
    ebb_stats before, during;
    ebb_stats_get(&before);
    std::vector<void *> blocks = fill(44 * MiB, 1100);
    ebb_stats_get(&during);
    expect_near(during.resident_live - before.resident_live, 44 * MiB, MiB, "requested");
    expect_near(during.resident_rounding - before.resident_rounding, 2080 * MiB / 1000, MiB / 4,
                "rounding");
    release(blocks);
}

// Whatever lies behind an object in its span, touched by the program or come with a huge page.
TEST(Stats, LargeObjectsAreRoundedToo)
{
    constexpr std::size_t bytes = 131100, count = 200;
    ebb_stats before, during;
    ebb_stats_get(&before);
    std::vector<void *> objects;
    std::size_t usable = 0;
    for (std::size_t i = 0; i < count; i++) {
        objects.push_back(ebb_malloc(bytes));
        const std::size_t all = ebb_malloc_usable_size(objects.back());
        std::memset(objects.back(), 1, all);
        usable += all;
    }
    ebb_stats_get(&during);
    ASSERT_LT(count * bytes + MiB / 2, usable);
    expect_near(during.resident_live - before.resident_live, count * bytes, MiB / 4, "live");
    EXPECT_LT(usable - count * bytes - MiB / 4,
              during.resident_rounding - before.resident_rounding);
    for (void *p : objects)
        ebb_free(p);
}

TEST(Stats, FreeBlocksBesideLiveOnesArePinned)
{
    std::vector<void *> blocks = fill(32 * MiB, 256);
    ebb_stats full, sparse;
    ebb_stats_get(&full);
    for (std::size_t i = 0; i < blocks.size(); i++)
        if (i % 16 != 0) // one survivor in each page
            ebb_free(blocks[i]);
    ebb_trim();
    ebb_stats_get(&sparse);
    EXPECT_GE(sparse.resident_pinned, full.resident_pinned + 28 * MiB);
    for (std::size_t i = 0; i < blocks.size(); i += 16)
        ebb_free(blocks[i]);
}

// Of 16 pages of a slab one has a block.
TEST(Stats, WholePagesThatAreFreeArePinnedByNobody)
{
    std::vector<void *> blocks = fill(32 * MiB, 256);
    ebb_stats full, sparse;
    ebb_stats_get(&full);
    for (std::size_t i = 0; i < blocks.size(); i++)
        if (i % 256 != 0)
            ebb_free(blocks[i]);
    ebb_stats_get(&sparse);
    EXPECT_LE(sparse.resident_pinned, full.resident_pinned + 4 * MiB);
    EXPECT_LE(sparse.resident_live + sparse.resident_rounding + 28 * MiB,
              full.resident_live + full.resident_rounding);
    for (std::size_t i = 0; i < blocks.size(); i += 256)
        ebb_free(blocks[i]);
}

TEST(Stats, OneDescriptorIsEnough)
{
    rlimit limit;
    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &limit));
    const int free_one = dup(0);
    ASSERT_EQ(0, close(free_one));
    const rlimit one = {static_cast<rlim_t>(free_one) + 1, limit.rlim_max};
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &one));
    ebb_stats s;
    ebb_stats_get(&s);
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
    expect_near(s.resident, vm_rss(), MiB / 2, "resident");
}

TEST(Stats, MayBeAskedForWhileThreadsRun)
{
    std::atomic<bool> stop{false};
    std::thread busy([&] {
        while (!stop.load())
            for (std::size_t size = 16; size < 4096; size *= 2)
                ebb_free(ebb_malloc(size));
    });
    for (int i = 0; i < 50; i++) {
        ebb_stats s;
        ebb_stats_get(&s);
        EXPECT_EQ(s.resident, sum(s));
    }
    stop.store(true);
    busy.join();
}

TEST(Stats, TextAndJsonTellTheirLengthAndAreCut)
{
    char text[4096], json[4096], little[8];
    EXPECT_LT(ebb_stats_text(text, sizeof text), sizeof text);
    EXPECT_NE(nullptr, std::strstr(text, "VmRSS"));
    std::size_t length = ebb_stats_json(json, sizeof json);
    ASSERT_LT(length, sizeof json);
    EXPECT_EQ(length, std::strlen(json));
    EXPECT_EQ('{', json[0]);
    EXPECT_NE(nullptr, std::strstr(json, "\"resident_pinned\": "));
    EXPECT_GT(ebb_stats_json(little, sizeof little), sizeof little);
    EXPECT_EQ(sizeof little - 1, std::strlen(little));
}

TEST(Options, AreListedWithTheirSource)
{
    std::size_t value = 0;
    int is_set = -1;
    unsigned count = 0;
    for (; ebb_option_value(count, &value, &is_set) != nullptr; count++)
        EXPECT_EQ(0, std::strncmp("EBB_", ebb_option_value(count, &value, &is_set), 4));
    EXPECT_GE(count, 5U);
    EXPECT_STREQ("0.1.0", ebb_version());
}

} // namespace
