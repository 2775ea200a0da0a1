// SPDX-License-Identifier: MIT OR Apache-2.0
// What regions leave behind when they end, many of them, in other threads than their openers, or with
// somebody in the way: handles come back, memory goes home by itself, and no end costs more than the one
// before.
#include "../api/api_ebb.h"

#include <ctime>
#include <set>

#include "../api/region_support.h"

namespace {

using namespace regions;
using support::KiB;
using support::MiB;

TEST(RegionHandles, ComeBackFromTheThreadThatEndsThem)
{
    Worker other;
    std::set<ebb_region *> handles;
    ebb_region *batch[10] = {};
    for (std::size_t i = 0; i < support::scaled(500); i++) {
        for (ebb_region *&region : batch)
            handles.insert(region = open("ended elsewhere"));
        other.run([&] {
            for (ebb_region *region : batch)
                i % 2 == 0 ? ebb_region_release(region) : ebb_region_close(region);
        });
    }
    EXPECT_LE(handles.size(), 20U);
}

// Threads come, go and fork while regions are opened and ended: lists of live regions are walked by one
// and changed by others.
TEST(RegionHandles, AreWalkedWhileRegionsComeAndGo)
{
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (unsigned id = 0; id < 2; id++)
        threads.emplace_back([&stop, id] {
            support::Random random(id + 1);
            std::vector<ebb_region *> open_ones(300, nullptr);
            while (!stop) {
                ebb_region *&region = open_ones[random.below(open_ones.size())];
                ebb_region_release(region);
                region = open("comes and goes");
                *static_cast<char *>(take(region, 100)) = 1;
            }
            for (ebb_region *region : open_ones)
                ebb_region_release(region);
        });
    for (std::size_t i = 0; i < support::scaled(200); i++) {
        std::thread([] { ebb_region_release(open("of a thread that ends")); }).join();
        ebb_trim();
        (void)line("comes and goes");
    }
    stop = true;
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(line("comes and goes").open, 0U);
}

// Many at once, each with one sheet, and then nobody does anything any more.
TEST(RegionMemory, GoesHomeInAnIdleProcess)
{
    ASSERT_EQ(0, ebb_helper_start());
    if (support::under_sanitizer)
        GTEST_SKIP() << "the sanitizer's own memory is in the way";
    Worker makes_it_threaded;
    support::MappedArray<ebb_region *> regions(3000);
    const std::size_t before = support::resident_bytes();
    for (int round = 0; round < 2; round++) {
        for (ebb_region *&region : regions) {
            region = open("many");
            std::memset(take(region, 60 * KiB), 1, 60 * KiB);
        }
        EXPECT_GT(support::resident_bytes(), before + 150 * MiB);
        for (ebb_region *region : regions)
            round == 0 ? ebb_region_release(region) : ebb_region_reset(region);
        if (round == 1) // the sheets of the closed ones are empty
            for (ebb_region *region : regions)
                ebb_region_close(region);
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (support::resident_bytes() > before + 20 * MiB &&
               std::chrono::steady_clock::now() < end)
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        EXPECT_LE(support::resident_bytes(), before + 20 * MiB) << "round " << round;
    }
}

// Of the calling thread's work: not while it waits for a processor.
double thread_seconds()
{
    timespec now = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Somebody is pinned all the time, so nothing that is released may go.
TEST(RegionMemory, AReleaseUnderAPinCostsWhatTheFirstOneCost)
{
    constexpr std::size_t batch = 2000;
    const std::size_t batches = support::under_sanitizer ? 4 : 12;
    Worker reader;
    reader.run([] { ebb_pin(); });
    std::vector<double> medians, times(batch);
    for (std::size_t n = 0; n < batches; n++) {
        for (double &time : times) {
            ebb_region *region = open("pinned");
            *static_cast<char *>(take(region, 100)) = 1;
            const double begin = thread_seconds();
            ebb_region_release(region);
            time = thread_seconds() - begin;
        }
        std::nth_element(times.begin(), times.begin() + batch / 2, times.end());
        medians.push_back(times[batch / 2]);
    }
    std::printf("first batch %.2f us, last %.2f us a release\n", medians.front() * 1e6,
                medians.back() * 1e6);
    EXPECT_LT(medians.back(), 4 * medians.front());
    EXPECT_GE(line("pinned").held_bytes, batch * batches * 64 * KiB) << "they wait";
    reader.run([] { ebb_unpin(); });
    EXPECT_TRUE(reclaim::eventually([] { return trimmed_line("pinned").held_bytes == 0; }));
}

// One thread, no helper: what is free is bounded by its amount at once.
TEST(RegionMemory, IsBoundedByItsAmountWithoutAHelper)
{
    if (support::under_sanitizer)
        GTEST_SKIP() << "the sanitizer's own memory is in the way";
    support::MappedArray<ebb_region *> regions(3000);
    const std::size_t before = support::resident_bytes();
    for (ebb_region *&region : regions) {
        region = open("many");
        std::memset(take(region, 60 * KiB), 1, 60 * KiB);
    }
    for (ebb_region *region : regions)
        ebb_region_release(region);
    EXPECT_LE(support::resident_bytes(), before + 60 * MiB);
}

} // namespace
