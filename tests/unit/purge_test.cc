// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: when memory goes home. A fake clock; no helper unless a case says so.
#include <sys/wait.h>
#include <unistd.h>

#include "ebbtide/reclaim.h"
#include "support/slab_walk.h"

namespace {

using namespace unit;

struct Purge : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_clock(100000);
        fake_os_threaded(false);
    }

    static void pretend_helper()
    {
        fake_os_threaded(true);
        fake_os_pretend_threads();
        ebbi_threads_more();
        ebbi_helper_start();
    }

    // So many passes that find nothing old enough.
    static void turn_windows(int count)
    {
        for (int i = 0; i < count; i++) {
            struct ebbi_pass pass = {};
            pass.delay_ms = 50000;
            ebbi_purge_pass(&pass);
        }
    }

    // Frees enough, small, to be past a few refills and flushes, so that the clock is looked at.
    static void tick()
    {
        std::vector<void *> blocks;
        for (int i = 0; i < 2400; i++)
            blocks.push_back(ebb_malloc(16));
        for (void *p : blocks)
            ebb_free(p);
    }
};

TEST_F(Purge, SpansWaitForTheDelay)
{
    tick();
    void *p = ebb_malloc(5 * MiB), *guard = ebb_malloc(5 * MiB);
    ASSERT_NE(nullptr, guard);
    ebb_free(p);
    std::size_t dirty = ebbi_arena_dirty_bytes();
    EXPECT_GE(dirty, 5 * MiB);
    fake_os_clock_advance(300);
    tick();
    EXPECT_GE(ebbi_arena_dirty_bytes(), 5 * MiB) << "too young";
    fake_os_clock_advance(700);
    tick();
    EXPECT_LE(ebbi_arena_dirty_bytes(), 4 * EBBI_GRANULE);
}

TEST_F(Purge, SmallFreesAloneBringItHome)
{
    void *p = ebb_malloc(5 * MiB);
    ebb_free(p);
    fake_os_clock_advance(2000);
    tick();
    fake_os_clock_advance(2000);
    tick();
    EXPECT_LE(ebbi_arena_dirty_bytes(), MiB);
}

TEST_F(Purge, PagesInPartFullSlabsGoAfterTheDelay)
{
    tick();
    std::vector<void *> blocks;
    for (int i = 0; i < 10000; i++)
        blocks.push_back(ebb_malloc(64));
    for (std::size_t i = 0; i < blocks.size(); i++)
        if (i % 1000 != 0)
            ebb_free(blocks[i]);
    std::size_t before = fake_os_count(FAKE_PURGE);
    fake_os_clock_advance(100);
    tick();
    EXPECT_EQ(before, fake_os_count(FAKE_PURGE));
    fake_os_clock_advance(5000);
    tick();
    EXPECT_GT(fake_os_count(FAKE_PURGE), before);
    EXPECT_GT(ebbi_arena_purged_bytes(), 400 * KiB);
}

// However many slabs before them are kept by a block on each page.
TEST_F(Purge, PagesBehindManyThatStayGoInTheSamePass)
{
    pretend_helper();
    std::vector<void *> kept, behind;
    for (int i = 0; i < 40000; i++) // of 64 KiB each some 625 slabs
        kept.push_back(ebb_malloc(1000));
    for (int i = 0; i < 40000; i++)
        behind.push_back(ebb_malloc(64));
    for (std::size_t i = 0; i < kept.size(); i++)
        if (i % 4 != 0)
            ebb_free(kept[i]);
    for (std::size_t i = 0; i < behind.size(); i++)
        if (i % 1000 != 0)
            ebb_free(behind[i]);
    fake_os_clock_advance(2000);
    const std::size_t before = ebbi_arena_purged_bytes();
    struct ebbi_pass pass = {};
    pass.delay_ms = 500;
    ebbi_purge_pass(&pass);
    EXPECT_GT(ebbi_arena_purged_bytes() - before, 40000 * 64 / 2);
    EXPECT_FALSE(pass.waiting) << "nothing is left to look at";
}

TEST_F(Purge, AmountsAreBoundedWhateverTheClock)
{
    std::vector<void *> blocks;
    for (int i = 0; i < 200; i++) {
        blocks.push_back(ebb_malloc(MiB));
        std::memset(blocks.back(), 1, MiB);
    }
    for (void *p : blocks)
        ebb_free(p);
    EXPECT_LE(ebbi_arena_dirty_bytes(), 50 * MiB) << "spans";
    blocks.clear();
    for (int i = 0; i < 100000; i++)
        blocks.push_back(ebb_malloc(1000));
    for (std::size_t i = 0; i < blocks.size(); i++)
        if (i % 60 != 0)
            ebb_free(blocks[i]);
    const ebbi_owner *owner = ebbi_slab_of(blocks[0])->owner;
    EXPECT_LE(owner->dirty_bytes, std::max<std::size_t>(8 * MiB, owner->held_bytes / 3) + 2 * MiB);
}

TEST_F(Purge, WithAHelperNoFreePurgesTheBurstThatItEnds)
{
    pretend_helper();
    std::vector<void *> blocks;
    for (int i = 0; i < 200; i++)
        blocks.push_back(ebb_malloc(MiB));
    for (void *p : blocks)
        ebb_free(p);
    EXPECT_GE(ebbi_arena_dirty_bytes(), 195 * MiB);
    turn_windows(1);
    ebb_free(ebb_malloc(6 * MiB));
    EXPECT_GE(ebbi_arena_dirty_bytes(), 195 * MiB) << "it was in the window before";
    turn_windows(1);
    ebb_free(ebb_malloc(6 * MiB));
    EXPECT_LE(ebbi_arena_dirty_bytes(), 50 * MiB);
}

// In use and free together are at most the peak and half of it, whatever does not fit where.
TEST_F(Purge, WhatDoesNotFitIsBoundedByThePeak)
{
    pretend_helper();
    std::vector<void *> live(20);
    Random random(3);
    std::size_t most = 0;
    for (int i = 0; i < 3000; i++) {
        void *&p = live[random.below(live.size())];
        ebb_free(p);
        p = ebb_malloc((random.chance(8) ? 33 : 5) * MiB + random.below(20 * MiB));
        most = std::max(most, ebbi_arena_used_bytes());
        ASSERT_LE(ebbi_arena_used_bytes() + ebbi_arena_dirty_bytes(),
                  most + std::max(most / 2, 32 * MiB));
    }
}

// And nearly nothing that is needed again goes home for it.
TEST_F(Purge, WithoutAHelperTheSameHoldsWhileAThirdOfThePeakIsInUse)
{
    std::size_t most = 0; // of both loops: no pass forgets the first
    for (const int replacements : {3000, 3001}) {
        std::vector<void *> live(8);
        Random random(7);
        std::size_t taken = 0, before = 0;
        for (int i = 0; i < replacements; i++) {
            if (i == 100) // all have their places
                before = ebbi_arena_purged_bytes();
            void *&p = live[random.below(live.size())];
            ebb_free(p);
            const std::size_t bytes = 5 * MiB + random.below(20 * MiB);
            p = ebb_malloc(bytes);
            taken += bytes;
            most = std::max(most, ebbi_arena_used_bytes());
            ASSERT_LE(ebbi_arena_used_bytes() + ebbi_arena_dirty_bytes(),
                      most + std::max(most / 2, 48 * MiB));
        }
        EXPECT_LE(ebbi_arena_purged_bytes() - before, taken / 20);
        for (std::size_t i = 1; i < live.size(); i++)
            ebb_free(live[i]);
        EXPECT_LE(ebbi_arena_dirty_bytes(), std::max(ebbi_arena_used_bytes(), 48 * MiB))
            << "the free that ends a burst may be the last call";
        ebb_free(live[0]);
    }
}

TEST_F(Purge, BlocksAreBoundedByTheirOwnersPeak)
{
    pretend_helper();
    fake_os_cpu(0); // one depot
    std::vector<void *> blocks;
    for (int i = 0; i < 100000; i++)
        blocks.push_back(ebb_malloc(1000));
    ebbi_owner *owner = ebbi_slab_of(blocks[0])->owner;
    for (std::size_t i = 1; i < blocks.size(); i++)
        if (i % 60 >= 30) {
            ebb_free(blocks[i]);
            blocks[i] = nullptr;
        }
    EXPECT_GE(owner->dirty_bytes, 20 * MiB) << "it was in use a moment ago";
    turn_windows(2);
    for (std::size_t i = 1; i < blocks.size(); i++)
        if (i % 60 != 0)
            ebb_free(blocks[i]);
    EXPECT_LE(owner->dirty_bytes, 76 * MiB) << "half of the blocks, and half of that";
}

TEST_F(Purge, WhoLeavesASlowCallMakesThePassThatIsWanted)
{
    ebbi_pass_ask();
    ebb_free(ebb_malloc(MiB));
    EXPECT_FALSE(ebbi_pass_is_wanted()) << "a free";

    ebb_pin();
    ebb_retire(ebb_malloc(MiB));
    (void)ebbi_pass_claim();
    ebbi_pass_ask();
    ebb_unpin();
    EXPECT_FALSE(ebbi_pass_is_wanted()) << "an unpin that took something home";

    ebbi_pass_ask();
    ebb_pin();
    ebb_unpin();
    EXPECT_TRUE(ebbi_pass_is_wanted()) << "an unpin without work may be a signal handler's";
}

TEST_F(Purge, AThreadThatIsDyingMakesNoPass)
{
    void *p = ebb_malloc(MiB);
    ebbi_dying = true; // it may hold the locks that a pass takes
    ebbi_pass_ask();
    ebb_free(p);
    EXPECT_TRUE(ebbi_pass_is_wanted());
    ebbi_dying = false;
}

std::vector<std::pair<std::uintptr_t, std::uintptr_t>> live_ranges;
std::size_t trespasses;

void watch(std::uintptr_t start, std::size_t bytes)
{
    for (auto [from, to] : live_ranges)
        trespasses += from < start + bytes && to > start;
}

TEST_F(Purge, NeverTouchesALiveBlock)
{
    Random random(9);
    std::vector<Block> live;
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < 3000; i++) {
            std::size_t bytes = random.chance(100) ? random.below(400000) : random.below(6000);
            live.push_back({static_cast<unsigned char *>(ebb_malloc(bytes)), bytes,
                            static_cast<unsigned char>(i)});
            live.back().fill();
        }
        while (live.size() > 300) {
            std::size_t k = random.below(live.size());
            ebb_free(live[k].bytes);
            live[k] = live.back();
            live.pop_back();
        }
        live_ranges.clear();
        for (const Block &b : live)
            live_ranges.emplace_back(address(b.bytes), address(b.bytes) + b.size);
        fake_os_watch_purge(watch);
        ebb_trim();
        fake_os_watch_purge(nullptr);
        for (const Block &b : live)
            ASSERT_TRUE(b.intact());
    }
    EXPECT_EQ(0U, trespasses);
    EXPECT_GT(fake_os_count(FAKE_PURGE), 100U);
    live_ranges.emplace_back(0, UINTPTR_MAX); // negative control
    watch(4096, 4096);
    EXPECT_EQ(1U, trespasses);
}

TEST_F(Purge, TrimReturnsAllThatIsFree)
{
    std::vector<void *> blocks;
    for (int i = 0; i < 3000; i++)
        blocks.push_back(ebb_malloc(5000));
    for (void *p : blocks)
        std::memset(p, 1, 5000);
    for (void *p : blocks)
        ebb_free(p);
    EXPECT_GT(ebb_trim(), 0U);
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes());
    EXPECT_EQ(0U, ebb_trim()) << "nothing is left";
}

// No slab is as large as what is returned there.
TEST_F(Purge, SlabsWithoutBlocksEndWherePagesAreHuge)
{
    ebbi_arena_advice = EBBI_HUGE_ALWAYS;
    std::vector<void *> blocks;
    for (std::size_t size = 16; size <= 16 * KiB; size += 16)
        blocks.push_back(ebb_malloc(size));
    const ebbi_owner *owner = &ebbi_heap_get()->own;
    ASSERT_LT(10U, owner->slab_count);
    for (void *p : blocks)
        ebb_free(p);
    EXPECT_GT(ebb_trim(), 0U);
    EXPECT_EQ(0U, owner->slab_count);
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes());
}

TEST_F(Purge, MallocAndFreeCreateNoThread)
{
    fake_os_pretend_threads();
    fake_os_threaded(true);
    ebbi_threads_more();
    for (int i = 0; i < 100; i++)
        ebb_free(ebb_malloc(MiB));
    EXPECT_EQ(0U, fake_os_count(FAKE_START_THREAD));
}

TEST_F(Purge, AnIdleProcessWithThreadsIsHelpedByOne)
{
    fake_os_pretend_threads();
    ebb_free(ebb_malloc(MiB));
    ebbi_helper_look();
    EXPECT_EQ(0U, fake_os_count(FAKE_START_THREAD)) << "a process of one thread stays one";
    ebbi_threads_more();
    ebbi_helper_look();
    ebbi_helper_look();
    ebbi_helper_start();
    EXPECT_EQ(1U, fake_os_count(FAKE_START_THREAD));
}

TEST_F(Purge, ARefusedHelperLeavesItToTheFreesAndIsAskedForAgain)
{
    fake_os_threaded(true);
    ebbi_threads_more();
    fake_os_refuse(FAKE_START_THREAD, 1, false);
    ebbi_helper_start();
    EXPECT_EQ(1U, fake_os_count(FAKE_START_THREAD));
    EXPECT_FALSE(ebbi_helper_is_there());
    ebb_free(ebb_malloc(MiB));
    fake_os_clock_advance(2000);
    tick();
    EXPECT_LE(ebbi_arena_dirty_bytes(), 4 * EBBI_GRANULE);
    fake_os_pretend_threads();
    ebbi_helper_start();
    EXPECT_EQ(2U, fake_os_count(FAKE_START_THREAD));
    EXPECT_TRUE(ebbi_helper_is_there());
}

TEST_F(Purge, TheHelperReturnsMemoryWhileAllSleep)
{
    fake_os_reset(); // true clock, true thread
    fake_os_threaded(true);
    ebbi_threads_more();
    ebbi_helper_start();
    std::vector<void *> blocks;
    for (int i = 0; i < 4000; i++)
        blocks.push_back(ebb_malloc(5000));
    for (void *p : blocks)
        std::memset(p, 1, 5000);
    for (void *p : blocks)
        ebb_free(p);
    for (int i = 0; i < 600 && ebbi_arena_dirty_bytes() > 0; i++)
        usleep(100000);
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes());
    EXPECT_EQ(1U, fake_os_count(FAKE_START_THREAD));
    ebbi_helper_stop();
    EXPECT_FALSE(ebbi_helper_is_there());
}

// The last thread has ended: the helper waits a little for the next one, and ends.
TEST_F(Purge, TheHelperEndsWithTheThreads)
{
    fake_os_reset();
    ebbi_threads_more();
    ebbi_helper_start();
    ASSERT_TRUE(ebbi_helper_is_there());
    ebbi_threads_less();
    for (int i = 0; i < 100 && ebbi_helper_is_there(); i++)
        usleep(10000);
    EXPECT_FALSE(ebbi_helper_is_there());
    ebbi_threads_more();
    ebbi_helper_start();
    EXPECT_TRUE(ebbi_helper_is_there());
    ebbi_helper_stop();
    EXPECT_FALSE(ebbi_helper_is_there());
}

// Forks, and tells how many helpers the child has asked for by then.
void expect_helper_in_child()
{
    fake_os_pretend_threads();
    fake_os_threaded(true);
    ebb_free(ebb_malloc(MiB));
    ebbi_threads_more();
    ebbi_helper_start();
    ASSERT_EQ(1U, fake_os_count(FAKE_START_THREAD));
    pid_t child = fork();
    if (child == 0) {
        if (ebbi_helper_is_there())
            _exit(99);
        ebbi_threads_more();
        ebbi_helper_start();
        _exit(static_cast<int>(fake_os_count(FAKE_START_THREAD)));
    }
    int status = -1;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(2, WEXITSTATUS(status)) << "one in the parent, one in the child";
}

TEST_F(Purge, TheChildOfAForkGetsAHelperOfItsOwn)
{
    ebb_free(ebb_malloc(10));
    expect_helper_in_child();
}

TEST_F(Purge, ForkIsWatchedAfterALargeBlockAlone) { expect_helper_in_child(); }

// A slab used after the pass began is young, not 2^32 ms old.
TEST_F(Purge, ASlabTouchedAfterThePassBeganIsYoung)
{
    tick();
    std::vector<void *> blocks;
    for (int i = 0; i < 5000; i++)
        blocks.push_back(ebb_malloc(64));
    ebbi_slab_of(blocks[0])->owner->clock_ms =
        100000 + 4; // another thread looked at the clock a moment later
    for (std::size_t i = 0; i < blocks.size(); i++)
        if (i % 1000 != 0)
            ebb_free(blocks[i]);
    std::size_t before = fake_os_count(FAKE_PURGE);
    ebbi_heap_get()->events = 7; // the next flush looks at all queues
    fake_os_clock(99999);
    for (std::size_t i = 0; i < blocks.size(); i += 1000)
        ebb_free(blocks[i]);
    tick();
    EXPECT_EQ(before, fake_os_count(FAKE_PURGE));
}

// The delay counts from the free, however seldom the thread is heard of.
TEST_F(Purge, ASlowThreadsFreesAreYoungToo)
{
    std::vector<void *> blocks;
    for (int i = 0; i < 200; i++)
        blocks.push_back(ebb_malloc(5000));
    ebbi_heap *heap = ebbi_heap_get();
    fake_os_clock_advance(3600000); // it sleeps for an hour
    heap->events = 1;
    for (std::size_t i = 0; i < 60; i++)
        ebb_free(blocks[i]); // a few flushes of whole pages
    ASSERT_LT(heap->events, 8U);
    ASSERT_GT(ebbi_slab_of(blocks[100])->owner->dirty_bytes, 0U);
    std::size_t before = fake_os_count(FAKE_PURGE);
    ebb_free(ebb_malloc(200000)); // somebody else's tick
    EXPECT_EQ(before, fake_os_count(FAKE_PURGE));
}

} // namespace
