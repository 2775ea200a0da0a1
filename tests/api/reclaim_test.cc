// SPDX-License-Identifier: MIT OR Apache-2.0
// Pin and retire by the text of ebbtide/reclaim.h: nesting, what waits and for how long, that
// nothing is touched before and nothing is left after.
#include "reclaim_support.h"

namespace {

using namespace reclaim;
using support::KiB;
using support::MiB;

TEST(Pin, NestsAndSaysSo)
{
    EXPECT_FALSE(ebb_is_pinned());
    for (int depth = 0; depth < 3; depth++) {
        ebb_pin();
        EXPECT_TRUE(ebb_is_pinned());
    }
    for (int depth = 0; depth < 3; depth++) {
        EXPECT_TRUE(ebb_is_pinned());
        ebb_unpin();
    }
    EXPECT_FALSE(ebb_is_pinned());
}

TEST(Pin, BelongsToItsThread)
{
    const Pin pin;
    in_thread([] {
        EXPECT_FALSE(ebb_is_pinned());
        const Pin own;
        EXPECT_TRUE(ebb_is_pinned());
    });
    EXPECT_TRUE(ebb_is_pinned());
}

TEST(Pin, IsCountedAndMayBeTheFirstCallOfAThread)
{
    const std::size_t pinned = stats().pinned, participants = stats().participants;
    in_thread([=] {
        const Pin pin;
        EXPECT_EQ(pinned + 1, stats().pinned);
        EXPECT_LE(stats().participants, participants + 1);
    });
    EXPECT_EQ(pinned, stats().pinned);
}

TEST(Pin, TheFunctionsBehindTheInlineOnesDoTheSame)
{
    void (*const pin)() = support::opaque(&ebb_pin);
    void (*const unpin)() = support::opaque(&ebb_unpin);
    void (*const repin)() = support::opaque(&ebb_repin);
    pin();
    ebb_pin();
    repin();
    unpin();
    EXPECT_TRUE(ebb_is_pinned());
    repin();
    ebb_unpin();
    EXPECT_FALSE(ebb_is_pinned());
}

TEST(Pin, NestsAsDeeplyAsTheHeaderSays)
{
    constexpr int deepest = 32766;
    for (int depth = 0; depth < deepest; depth++)
        ebb_pin();
    for (int depth = 0; depth < deepest; depth++) {
        ASSERT_TRUE(ebb_is_pinned());
        ebb_unpin();
    }
    EXPECT_FALSE(ebb_is_pinned());
    ebb_retire(ebb_malloc(100));
    EXPECT_TRUE(drain());
}

TEST(Pin, AnInnerUnpinDoesNotEndIt)
{
    std::atomic<int> destroyed{0};
    ebb_pin();
    ebb_pin();
    ASSERT_EQ(0, ebb_retire_with(nullptr, count_call, &destroyed));
    ebb_unpin();
    in_thread([] { push_on(); });
    EXPECT_EQ(0, destroyed.load());
    ebb_unpin();
    EXPECT_TRUE(drain());
    EXPECT_EQ(1, destroyed.load());
}

// `before` what is retired, in the pin; the other thread pushes.
void expect_repin_lets_go(int before)
{
    std::atomic<int> destroyed{0};
    const std::uint64_t cookie = (ebb_pin(), ebb_epoch_cookie());
    for (int i = 0; i < before; i++)
        ASSERT_EQ(0, ebb_retire_with(nullptr, count_call, &destroyed));
    std::atomic<bool> stop{false};
    std::thread pusher([&] {
        while (!stop.load())
            ebb_reclaim();
    });
    EXPECT_TRUE(eventually([&] {
        ebb_repin();
        return ebb_epoch_passed(cookie) != 0;
    }));
    stop.store(true);
    pusher.join();
    EXPECT_TRUE(ebb_is_pinned());
    ebb_unpin();
    EXPECT_TRUE(drain());
    EXPECT_EQ(before, destroyed.load());
}

TEST(Repin, LetsTimeGoOn) { expect_repin_lets_go(0); }
TEST(Repin, LetsTimeGoOnWithDestructorsWaiting) { expect_repin_lets_go(1); }
TEST(Repin, LetsTimeGoOnWithManyDestructorsWaiting) { expect_repin_lets_go(1000); }

TEST(Repin, InANestedPinKeepsEverything)
{
    const Pin outer;
    const Pin inner;
    const std::uint64_t cookie = ebb_epoch_cookie();
    for (int i = 0; i < 10; i++) {
        ebb_repin();
        in_thread([] { push_on(); });
    }
    EXPECT_FALSE(ebb_epoch_passed(cookie));
}

TEST(Repin, KeepsWhatIsRetiredAfterIt)
{
    auto *block = static_cast<unsigned char *>(ebb_malloc(300));
    support::fill_pattern(block, 0, 300, 5);
    ebb_pin();
    in_thread([] { push_on(); });
    ebb_repin();
    in_thread([=] {
        ebb_retire(block);
        push_on();
    });
    EXPECT_EQ(300U, support::find_mismatch(block, 300, 5));
    ebb_unpin();
    EXPECT_TRUE(drain());
}

struct Sample {
    void *block;
    std::size_t bytes;
    unsigned seed;
};

// One of each class, and large and huge ones, plain and aligned.
std::vector<Sample> samples(std::size_t of_each)
{
    std::vector<std::pair<std::size_t, std::size_t>> kinds; // alignment, bytes
    for (std::size_t bytes = 1; bytes <= 32 * KiB;) {
        void *probe = ebb_malloc(bytes);
        const std::size_t usable = ebb_malloc_usable_size(probe);
        ebb_free(probe);
        kinds.emplace_back(16, usable);
        bytes = usable + 1;
    }
    for (std::size_t bytes : {33 * KiB, 100 * KiB, MiB, 5 * MiB, 32 * MiB, 40 * MiB})
        kinds.emplace_back(16, bytes);
    kinds.insert(kinds.end(), {{64, 100},
                               {256, 1000},
                               {4096, 5000},
                               {64 * KiB, 100 * KiB},
                               {2 * MiB, 3 * MiB},
                               {64 * MiB, 33 * MiB}});
    std::vector<Sample> out;
    for (const auto &[align, bytes] : kinds)
        for (std::size_t i = 0; i < (bytes < MiB ? of_each : 1); i++)
            out.push_back(
                {ebb_aligned_alloc(align, bytes), bytes, static_cast<unsigned>(out.size())});
    return out;
}

void fill(const std::vector<Sample> &all)
{
    for (const Sample &s : all)
        support::fill_pattern(s.block, 0, s.bytes, s.seed);
}

void expect_untouched(const std::vector<Sample> &all)
{
    for (const Sample &s : all)
        ASSERT_EQ(s.bytes, support::find_mismatch(s.block, s.bytes, s.seed)) << s.bytes;
}

void retire(const std::vector<Sample> &all)
{
    for (const Sample &s : all)
        ebb_retire(s.block);
}

// Allocates, writes and frees blocks of every class, so that what is free is handed out.
void churn()
{
    const std::vector<Sample> others = samples(20);
    for (const Sample &s : others)
        std::memset(s.block, 0xEE, s.bytes < MiB ? s.bytes : 4096);
    for (const Sample &s : others)
        ebb_free(s.block);
    push_on();
    ebb_trim();
}

std::size_t usable_sum(const std::vector<Sample> &all)
{
    std::size_t sum = 0;
    for (const Sample &s : all)
        sum += ebb_malloc_usable_size(s.block);
    return sum;
}

TEST(Retire, KeepsEveryByteWhileAnotherThreadIsPinned)
{
    const std::vector<Sample> all = samples(8);
    fill(all);
    const std::size_t bytes = usable_sum(all);
    Staller reader;
    retire(all);
    for (int round = 0; round < 3; round++) {
        churn();
        ASSERT_NO_FATAL_FAILURE(expect_untouched(all));
    }
    EXPECT_EQ(all.size(), stats().retired_blocks);
    EXPECT_EQ(bytes, stats().retired_bytes);
    reader.let_go();
    EXPECT_TRUE(drain());
}

// A batch that is not full waits for its thread, which sleeps: it is counted, of the thread and of all.
TEST(Retire, WhatASleepingThreadHasInHandIsCounted)
{
    constexpr std::size_t sizes[] = {24, 100, 3000, 40000};
    constexpr std::size_t each = 3;
    ASSERT_TRUE(drain());
    std::atomic<std::size_t> bytes = 0;
    std::atomic<bool> over = false;
    std::thread thread([&] {
        std::size_t sum = 0;
        for (const std::size_t size : sizes)
            for (std::size_t i = 0; i < each; i++) {
                void *p = ebb_malloc(size);
                sum += ebb_malloc_usable_size(p);
                ebb_retire(p);
            }
        bytes = sum;
        bytes.notify_all();
        over.wait(false);
    });
    bytes.wait(0);
    EXPECT_EQ(std::size(sizes) * each, stats().retired_blocks);
    EXPECT_EQ(bytes, stats().retired_bytes);
    std::vector<ebb_thread_stats> lines(100);
    lines.resize(std::min(lines.size(), ebb_threads_get(lines.data(), lines.size())));
    EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [&](const ebb_thread_stats &line) {
        return line.retired_bytes == bytes;
    }));
    over = true;
    over.notify_all();
    thread.join();
    EXPECT_TRUE(drain());
}

TEST(Retire, KeepsEveryByteWhileTheThreadItselfIsPinned)
{
    const std::vector<Sample> all = samples(8);
    fill(all);
    ebb_pin();
    retire(all);
    for (int round = 0; round < 3; round++)
        in_thread(churn);
    expect_untouched(all);
    ebb_unpin();
    EXPECT_TRUE(drain());
}

// Blocks that share lines belong to the lane of the thread that allocated them.
TEST(Retire, OfAnotherThreadsBlocksKeepsThemToo)
{
    std::vector<Sample> all;
    std::vector<std::thread> threads;
    Staller reader;
    ebb_free(ebb_malloc(1));
    in_thread([&] {
        all = samples(200);
        fill(all);
        in_thread([&] { retire(all); });
    });
    in_thread(churn);
    churn();
    ASSERT_NO_FATAL_FAILURE(expect_untouched(all));
    reader.let_go();
    EXPECT_TRUE(drain());
}

TEST(Retire, GivesAllMemoryBack)
{
    drain();
    const ebb_stats before = heap_stats();
    for (int round = 0; round < 3; round++) {
        retire(samples(300));
        in_thread([] { retire(samples(100)); });
    }
    EXPECT_TRUE(drain());
    const ebb_stats after = heap_stats();
    EXPECT_LE(after.live_bytes, before.live_bytes + MiB);
    EXPECT_LE(after.live_blocks, before.live_blocks + 512);
    EXPECT_EQ(before.huge_bytes, after.huge_bytes);
    EXPECT_LE(after.large_bytes, before.large_bytes + MiB);
}

TEST(Retire, OfNullDoesNothingAndErrnoStays)
{
    errno = 77;
    ebb_retire(nullptr);
    in_thread([] { ebb_retire(nullptr); });
    {
        const Pin pin;
        ebb_retire(nullptr);
    }
    for (int i = 0; i < 2000; i++)
        ebb_retire(ebb_malloc(64));
    EXPECT_EQ(77, errno);
    EXPECT_TRUE(drain());
}

TEST(Retire, ReclaimSaysHowManyBytesItFreed)
{
    drain();
    constexpr std::size_t each = 8 * MiB;
    Staller reader;
    for (int i = 0; i < 4; i++)
        ebb_retire(ebb_malloc(each));
    EXPECT_EQ(0U, ebb_reclaim());
    reader.let_go();
    std::size_t freed = 0;
    EXPECT_TRUE(eventually([&] {
        freed += ebb_reclaim();
        return waiting() == 0;
    }));
    EXPECT_LE(freed, 4 * (each + MiB));
    EXPECT_GE(heap_stats().live_bytes + 4 * each, 4 * each); // a sum that has not gone below zero
}

// Nobody calls reclaim: allocation and retirement themselves keep the clock going.
TEST(Retire, InALoopKeepsMemoryBounded)
{
    const std::size_t rounds = support::scaled(300000);
    std::size_t most = 0;
    for (std::size_t i = 0; i < rounds; i++) {
        void *block = ebb_malloc(1 + i % 2000);
        const Pin pin;
        ebb_retire(block);
        if (i % 1024 == 0)
            most = std::max(most, stats().retired_bytes);
    }
    EXPECT_LE(most, 16 * MiB);
    EXPECT_TRUE(drain());
}

// A process with one thread has no helper: its unpins bring home what a long pin has held back.
void expect_unpins_free(std::size_t bytes, std::size_t all_bytes)
{
    drain();
    ebb_pin();
    for (std::size_t done = 0; done < all_bytes; done += bytes) {
        void *block = ebb_malloc(bytes);
        std::memset(block, 1, bytes < MiB ? bytes : 64);
        ebb_retire(block);
    }
    EXPECT_GE(stats().retired_bytes, all_bytes / 2) << "held back until now";
    ebb_unpin();
    for (int i = 0; i < 30000; i++) {
        const Pin pin;
        ebb_free(ebb_malloc(48));
    }
    EXPECT_LE(stats().retired_bytes, 4 * MiB) << bytes;
    const ebb_stats now = heap_stats();
    EXPECT_LE(now.resident - now.resident_other, all_bytes / 3 * 2) << bytes; // not an emulator's
}

TEST(Retire, OfBlocksInALongPinIsFreedByTheNextUnpins)
{
    for (std::size_t bytes : {64U, 1000U, 20000U})
        expect_unpins_free(bytes, 128 * MiB);
}

TEST(Retire, OfLargeBlocksInALongPinIsFreedByTheNextUnpins) { expect_unpins_free(MiB, 256 * MiB); }

TEST(Retire, OfLargeOnesInALoopKeepsMemoryBounded)
{
    const std::size_t rounds = support::scaled(2000);
    std::size_t most = 0;
    for (std::size_t i = 0; i < rounds; i++) {
        void *block = ebb_malloc(MiB + i % 5 * 300 * KiB);
        static_cast<char *>(block)[0] = 1;
        const Pin pin;
        ebb_retire(block);
        most = std::max(most, stats().retired_bytes);
    }
    EXPECT_LE(most, 32 * MiB);
    EXPECT_TRUE(drain());
}

} // namespace
