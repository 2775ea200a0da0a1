// SPDX-License-Identifier: MIT OR Apache-2.0
// A reader that stops for long. Under a hazard pointer it holds back one bag while a million blocks
// go by; in a pin it holds back everything, and that is seen and given back when it ends.
#include "../api/reclaim_support.h"

namespace {

using namespace reclaim;
using support::KiB;
using support::MiB;

constexpr std::size_t bound = 64 * MiB;

struct Peak {
    std::size_t bytes = 0, blocks = 0;
    void look()
    {
        const ebb_reclaim_stats now = stats();
        bytes = std::max(bytes, now.retired_bytes);
        blocks = std::max(blocks, now.retired_blocks);
    }
};

// Retires `count` blocks of `bytes` from two threads; nobody calls reclaim.
Peak retire_many(std::size_t count, std::size_t bytes)
{
    Peak peak;
    const auto work = [=](Peak *seen) {
        for (std::size_t i = 0; i < count / 2; i++) {
            void *block = ebb_malloc(bytes);
            *static_cast<char *>(block) = 1;
            const Pin pin;
            ebb_retire(block); // one that this pin holds back, if no other
            if (seen != nullptr && i % 256 == 255)
                seen->look();
        }
    };
    std::thread other(work, nullptr);
    work(&peak);
    other.join();
    return peak;
}

void expect_bounded_beside_hazard(std::size_t held_bytes, std::size_t count, std::size_t bytes)
{
    void *link = ebb_malloc(held_bytes);
    support::fill_pattern(link, 0, held_bytes, 7);
    ebb_hazard *hazard = ebb_hazard_open();
    void *held = ebb_hazard_protect(hazard, &link);
    link = nullptr;
    ebb_retire(held);
    const Peak peak = retire_many(count, bytes);
    EXPECT_LT(peak.bytes, bound);
    EXPECT_GT(peak.blocks, 0U) << "it was looked at";
    EXPECT_EQ(held_bytes, support::find_mismatch(held, held_bytes, 7));
    push_on();
    EXPECT_GE(stats().retired_blocks, 1U) << "the one that it holds";
    EXPECT_LT(stats().retired_bytes, MiB + held_bytes);
    ebb_hazard_close(hazard);
    EXPECT_TRUE(drain());
}

TEST(Stalled, UnderAHazardPointerAMillionBlocksGoBy)
{
    expect_bounded_beside_hazard(64, support::scaled(1000000), 64);
}

TEST(Stalled, UnderAHazardPointerBlocksOfSharedLinesGoBy)
{
    expect_bounded_beside_hazard(48, support::scaled(1000000), 48);
}

TEST(Stalled, UnderAHazardPointerLargeBlocksGoBy)
{
    expect_bounded_beside_hazard(100 * KiB, support::scaled(20000), 100 * KiB);
}

TEST(Stalled, UnderManyHazardPointersTheRestGoesBy)
{
    std::vector<ebb_hazard *> hazards;
    std::vector<void *> held;
    for (int i = 0; i < 500; i++) {
        hazards.push_back(ebb_hazard_open());
        held.push_back(ebb_malloc(64));
        support::fill_pattern(held.back(), 0, 64, static_cast<unsigned>(i));
        ebb_hazard_set(hazards.back(), held.back());
    }
    for (void *block : held) {
        ebb_retire(block);
        for (int i = 0; i < 20; i++)
            ebb_retire(ebb_malloc(64));
    }
    const Peak peak = retire_many(support::scaled(200000), 64);
    EXPECT_LT(peak.bytes, bound);
    for (std::size_t i = 0; i < held.size(); i++)
        ASSERT_EQ(64U, support::find_mismatch(held[i], 64, static_cast<unsigned>(i)));
    for (ebb_hazard *hazard : hazards)
        ebb_hazard_close(hazard);
    EXPECT_TRUE(drain());
}

TEST(Stalled, DestructorsGoByAHazardPointer)
{
    const std::size_t count = support::scaled(300000);
    std::atomic<int> calls{0};
    std::size_t most = 0;
    void *held = ebb_malloc(64);
    ebb_hazard *hazard = ebb_hazard_open();
    ebb_hazard_set(hazard, held);
    EXPECT_EQ(0, ebb_retire_with(held, count_and_free, &calls));
    for (std::size_t i = 0; i < count; i++) {
        const Pin pin;
        EXPECT_EQ(0, ebb_retire_with(ebb_malloc(64), count_and_free, &calls));
        if (i % 1000 == 0)
            most = std::max(most, stats().destructors);
    }
    push_on();
    EXPECT_LT(most, 200000U);
    EXPECT_GE(stats().destructors, 1U);
    EXPECT_LE(stats().destructors, 64U) << "one record of calls";
    ebb_hazard_close(hazard);
    ebb_barrier();
    EXPECT_EQ(count + 1, static_cast<std::size_t>(calls.load()));
}

// The negative control of the bound: a pin has none, and the statistics say so and name it.
TEST(Stalled, InAPinEverythingWaitsIsSeenAndComesBack)
{
    const std::size_t count = support::scaled(200000);
    drain();
    const std::size_t live = heap_stats().live_bytes;
    Staller reader;
    (void)retire_many(count, 512);
    push_on();
    const ebb_reclaim_stats now = stats();
    EXPECT_GE(now.retired_blocks, count / 2);
    EXPECT_GE(now.retired_bytes, count / 2 * 512);
    EXPECT_EQ(reader.number(), now.oldest_pin_thread);
    EXPECT_TRUE(eventually([] { return stats().oldest_pin_ms > 0; }));
    reader.let_go();
    EXPECT_TRUE(drain());
    EXPECT_LE(heap_stats().live_bytes, live + MiB);
}

} // namespace
