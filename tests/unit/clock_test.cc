// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer epoch: when the clock may move on, and what a stamp's passing means, in a fenced clock and in
// a biased one. Clocks of the test's own; its participants stand for other threads.
#include "support/engine.h"

namespace {

using namespace unit;

struct Clock : Fake, testing::WithParamInterface<bool> {
    void SetUp() override
    {
        Fake::SetUp();
        clock.now = EBBI_CLOCK_FIRST;
        ebbi_lock_rank(&clock.lock, EBBI_RANK_CLOCK);
        ebbi_clock_decide(&clock, GetParam());
        for (ebb_participant &p : threads)
            ebbi_clock_join(&clock, &p, ebbi_os_thread_number());
    }
    void pin(int i)
    {
        if (threads[i].state == EBB_PIN_ATTENTION) // the first one; else its heap's affair
            ebbi_announce(&threads[i], 0);
        else
            ebbi_pin(&threads[i]);
    }
    void unpin(int i) { ebbi_unpin(&threads[i]); }
    bool advance() { return ebbi_clock_advance(&clock, true); }
    std::uint64_t epoch() { return state().epoch; }
    struct ebbi_clock_state state()
    {
        struct ebbi_clock_state out;
        ::ebbi_clock_state(&clock, &out);
        return out;
    }
    struct ebbi_clock clock = {};
    ebb_participant threads[4] = {};
};

INSTANTIATE_TEST_SUITE_P(Fenced, Clock, testing::Values(true));
INSTANTIATE_TEST_SUITE_P(Biased, Clock, testing::Values(false));

TEST_P(Clock, MovesWhileNobodyIsPinned)
{
    std::uint64_t before = epoch();
    for (unsigned i = 1; i <= 5; i++) {
        EXPECT_TRUE(advance());
        EXPECT_EQ(before + i, epoch());
    }
}

TEST_P(Clock, MovesOnceWhileSomebodyStays)
{
    pin(2);
    EXPECT_TRUE(advance());
    for (int i = 0; i < 5; i++)
        EXPECT_FALSE(advance());
    unpin(2);
    EXPECT_TRUE(advance());
}

TEST_P(Clock, APinInThePresentEpochIsNotInTheWay)
{
    for (int i = 0; i < 10; i++) {
        pin(i % 4);
        EXPECT_TRUE(advance()) << i;
        unpin(i % 4);
    }
}

TEST_P(Clock, EachLaggardHoldsItUpWhereverItStandsInTheList)
{
    for (int i = 0; i < 4; i++) {
        pin(i);
        pin((i + 1) % 4);
        EXPECT_TRUE(advance());
        EXPECT_FALSE(advance());
        unpin(i);
        EXPECT_FALSE(advance()) << "the other one is still there";
        unpin((i + 1) % 4);
        EXPECT_TRUE(advance());
    }
    EXPECT_EQ(4U, state().participants) << "looking for them loses none";
}

TEST_P(Clock, NestingHoldsTheFirstEpoch)
{
    pin(0);
    EXPECT_TRUE(advance());
    pin(0);
    EXPECT_FALSE(advance());
    unpin(0);
    EXPECT_FALSE(advance());
    unpin(0);
    EXPECT_TRUE(advance());
}

TEST_P(Clock, RepinJoinsThePresent)
{
    pin(0);
    EXPECT_TRUE(advance());
    EXPECT_FALSE(advance());
    ebbi_repin(&threads[0]);
    EXPECT_TRUE(advance());
    pin(0);
    ebbi_repin(&threads[0]);
    EXPECT_FALSE(advance()) << "nested: nothing happens";
}

// One epoch is not enough: a pin of the stamp's own epoch may hold the block.
TEST_P(Clock, ATagPassesAfterTwoEpochsAndNotBefore)
{
    pin(1);
    std::uint64_t stamp = ebbi_clock_stamp(&clock);
    EXPECT_FALSE(ebbi_clock_passed(&clock, stamp));
    EXPECT_TRUE(advance());
    EXPECT_FALSE(ebbi_clock_passed(&clock, stamp));
    for (int i = 0; i < 10; i++)
        (void)advance();
    EXPECT_FALSE(ebbi_clock_passed(&clock, stamp));
    unpin(1);
    EXPECT_TRUE(advance());
    EXPECT_TRUE(ebbi_clock_passed(&clock, stamp));
}

// The pin that saw the epoch before the advance and stored after its scan.
TEST_P(Clock, APinThatReadTheTimeBeforeAnAdvanceStillHoldsTheTag)
{
    std::uint64_t stale = ebbi_load_relaxed(&clock.now);
    EXPECT_TRUE(advance());
    ebbi_store_full(&threads[3].state, stale | 1);
    std::uint64_t stamp = ebbi_clock_stamp(&clock);
    for (int i = 0; i < 10; i++)
        (void)advance();
    EXPECT_FALSE(ebbi_clock_passed(&clock, stamp));
    unpin(3);
}

TEST_P(Clock, LeavingEndsThePinAndTheMembership)
{
    pin(0);
    pin(3);
    EXPECT_TRUE(advance());
    ebbi_clock_leave(&clock, &threads[3]);
    ebbi_clock_leave(&clock, &threads[0]);
    EXPECT_TRUE(advance());
    EXPECT_EQ(2U, state().participants);
    ebbi_clock_join(&clock, &threads[0], ebbi_os_thread_number());
    EXPECT_EQ(3U, state().participants);
    EXPECT_EQ(0U, state().pinned);
    pin(0);
    EXPECT_EQ(1U, state().pinned);
}

TEST_P(Clock, TheChildOfAForkKeepsOnlyItself)
{
    pin(0);
    pin(1);
    EXPECT_TRUE(advance());
    ebbi_clock_keep_only(&clock, &threads[1]);
    EXPECT_EQ(1U, state().participants);
    EXPECT_EQ(1U, state().pinned) << "its own pin goes on";
    EXPECT_FALSE(advance());
    unpin(1);
    EXPECT_TRUE(advance());
    ebbi_clock_keep_only(&clock, nullptr);
    EXPECT_EQ(0U, state().participants);
}

// What a thread was in the middle of, it will not end in a child.
TEST_P(Clock, NobodyIsBusyInTheChildOfAForkButItself)
{
    for (ebb_participant &p : threads)
        p.busy = 1;
    ebbi_clock_keep_only(&clock, &threads[1]);
    for (int i = 0; i < 4; i++)
        EXPECT_EQ(i == 1, threads[i].busy != 0) << i;
    threads[2].busy = 1;
    ebbi_clock_join(&clock, &threads[2], ebbi_os_thread_number());
    EXPECT_EQ(0U, threads[2].busy) << "of the next thread";
}

TEST_P(Clock, ABusyLockIsNotWaitedFor)
{
    ebbi_clock_lock(&clock);
    EXPECT_FALSE(advance());
    ebbi_clock_unlock(&clock);
    EXPECT_TRUE(advance());
}

TEST_P(Clock, SaysWhoIsOldestAndForHowLong)
{
    fake_os_clock(1000);
    for (unsigned i = 0; i < 4; i++)
        threads[i].thread = FAKE_THREAD + i;
    EXPECT_EQ(0U, state().oldest_thread);
    pin(2);
    EXPECT_EQ(FAKE_THREAD + 2, state().oldest_thread);
    EXPECT_EQ(0U, state().oldest_ms);
    EXPECT_TRUE(advance());
    pin(0);
    pin(3);
    fake_os_clock_advance(250);
    EXPECT_FALSE(advance());
    EXPECT_EQ(FAKE_THREAD + 2, state().oldest_thread);
    EXPECT_EQ(250U, state().oldest_ms);
    EXPECT_EQ(3U, state().pinned);
    fake_os_clock_advance(50);
    EXPECT_EQ(300U, state().oldest_ms);
    unpin(2);
    EXPECT_NE(FAKE_THREAD + 2, state().oldest_thread);
    EXPECT_EQ(0U, state().oldest_ms) << "the others began after the clock moved";
}

TEST_P(Clock, WhoHasEndedPinnedIsLetGo)
{
    fake_os_clock(1000);
    for (unsigned i = 0; i < 4; i++)
        threads[i].thread = FAKE_THREAD + i;
    pin(1);
    pin(2);
    EXPECT_TRUE(advance());
    fake_os_clock_advance(EBBI_CLOCK_STALL_MS * 10);
    EXPECT_FALSE(advance()) << "both live";
    unpin(1);
    fake_os_thread_ends(FAKE_THREAD + 2);
    EXPECT_FALSE(advance()) << "asked just now";
    fake_os_clock_advance(EBBI_CLOCK_STALL_MS);
    EXPECT_TRUE(advance());
    EXPECT_EQ(0U, state().pinned);
    EXPECT_TRUE(advance());
}

TEST_P(Clock, WhatSeveralThreadsShareStays)
{
    fake_os_clock(1000);
    threads[2].thread = 0;
    pin(2);
    EXPECT_TRUE(advance());
    fake_os_clock_advance(EBBI_CLOCK_STALL_MS * 10);
    EXPECT_FALSE(advance());
    ebbi_clock_keep_only(&clock, &threads[2]);
    EXPECT_FALSE(advance());
}

// ---- what only a biased clock does ---------------------------------------------------------------

struct Biased : Clock {
    void SetUp() override
    {
        Clock::SetUp();
        if (ebbi_clock_is_fenced(&clock))
            GTEST_SKIP() << "this kernel has no membarrier";
    }
};

INSTANTIATE_TEST_SUITE_P(, Biased, testing::Values(false));

TEST_P(Biased, TheAbsentAreInTheWayUnlessPressedFor)
{
    pin(0);
    unpin(0);
    EXPECT_TRUE(ebbi_clock_advance(&clock, false)) << "it is in the present epoch";
    EXPECT_FALSE(ebbi_clock_advance(&clock, false)) << "it may pin again without a fence";
    EXPECT_EQ(0U, fake_os_count(FAKE_MEMBARRIER));
    EXPECT_TRUE(ebbi_clock_advance(&clock, true));
    EXPECT_EQ(1U, fake_os_count(FAKE_MEMBARRIER));
    for (int i = 0; i < 5; i++)
        EXPECT_TRUE(ebbi_clock_advance(&clock, false)) << "released: it announces before it pins";
    EXPECT_EQ(1U, fake_os_count(FAKE_MEMBARRIER));
    pin(0);
    EXPECT_TRUE(ebbi_clock_advance(&clock, false));
    EXPECT_FALSE(ebbi_clock_advance(&clock, true)) << "pinned";
}

// Its depth may be on its way to memory. After a second it has arrived, and later pins make fences.
TEST_P(Biased, BecomesFencedWhenTheBarrierIsRefusedAndWaitsForASecond)
{
    fake_os_clock(5000);
    pin(0);
    unpin(0);
    pin(1);
    unpin(1);
    EXPECT_TRUE(advance());
    fake_os_refuse(FAKE_MEMBARRIER, 1, true);
    EXPECT_FALSE(advance());
    EXPECT_TRUE(ebbi_clock_is_fenced(&clock));
    for (int ms = 0; ms < 1000; ms += 333) {
        EXPECT_FALSE(advance()) << ms;
        fake_os_clock_advance(ms == 999 ? 1 : 333);
    }
    fake_os_allow();
    EXPECT_EQ(1U, fake_os_count(FAKE_MEMBARRIER)) << "it is not asked for again";
    std::uint64_t stamp = ebbi_clock_stamp(&clock);
    pin(2);
    EXPECT_EQ(ebbi_load_relaxed(&clock.now), threads[2].state) << "announced, depth 1";
    pin(2);
    unpin(2);
    unpin(2);
    for (int i = 0; i < 3; i++)
        EXPECT_TRUE(ebbi_clock_advance(&clock, false)) << "nobody is pinned";
    EXPECT_TRUE(ebbi_clock_passed(&clock, stamp));
    pin(0);
    EXPECT_TRUE(advance());
    EXPECT_FALSE(advance()) << "pinned";
    unpin(0);
    EXPECT_TRUE(advance());
    EXPECT_EQ(4U, state().participants);
}

TEST_P(Biased, ThoseWhoWerePinnedAsItBecameFencedStayInTheWay)
{
    fake_os_clock(5000);
    pin(0);
    pin(1);
    unpin(1);
    EXPECT_TRUE(advance());
    unpin(0);
    pin(0); // anew, in the present epoch
    fake_os_refuse(FAKE_MEMBARRIER, 1, true);
    EXPECT_FALSE(advance());
    EXPECT_TRUE(ebbi_clock_is_fenced(&clock));
    pin(0);
    ebbi_repin(&threads[0]);
    fake_os_clock_advance(2000);
    EXPECT_TRUE(advance());
    EXPECT_FALSE(advance());
    unpin(0);
    EXPECT_FALSE(advance());
    unpin(0);
    EXPECT_TRUE(advance());
}

// A child is alone: it knows its own pins.
TEST_P(Biased, BecomesFencedInTheChildOfAForkThatIsRefused)
{
    fake_os_clock(5000);
    pin(0);
    unpin(0);
    pin(1);
    unpin(1);
    EXPECT_TRUE(advance());
    fake_os_refuse(FAKE_MEMBARRIER_REGISTER, 1, true);
    fake_os_refuse(FAKE_MEMBARRIER, 1, true);
    ebbi_clock_keep_only(&clock, &threads[1]);
    EXPECT_TRUE(ebbi_clock_is_fenced(&clock));
    for (int i = 0; i < 3; i++)
        EXPECT_TRUE(advance());
    pin(1);
    EXPECT_TRUE(advance());
    EXPECT_FALSE(advance());
    unpin(1);
}

TEST_P(Biased, APinThatFindsTheClockMovedAnnouncesAnew)
{
    pin(0);
    unpin(0);
    EXPECT_TRUE(advance());
    EXPECT_TRUE(advance()); // releases it
    pin(0);
    EXPECT_EQ(ebbi_load_relaxed(&clock.now) + 1, threads[0].state);
    EXPECT_TRUE(advance());
    EXPECT_FALSE(advance());
}

TEST_P(Biased, ThoseThatNeverPinnedAreNotAskedFor)
{
    for (int i = 0; i < 6; i++)
        EXPECT_TRUE(ebbi_clock_advance(&clock, false));
    EXPECT_EQ(0U, fake_os_count(FAKE_MEMBARRIER));
}

TEST_P(Clock, IsDecidedOnce)
{
    std::uint64_t before = clock.now;
    ebbi_clock_decide(&clock, !GetParam());
    EXPECT_EQ(before, clock.now);
    struct ebbi_clock refused = {};
    refused.now = EBBI_CLOCK_FIRST;
    ebbi_lock_rank(&refused.lock, EBBI_RANK_CLOCK);
    fake_os_refuse(FAKE_MEMBARRIER_REGISTER, 1, true);
    ebbi_clock_decide(&refused, false);
    EXPECT_TRUE(ebbi_clock_is_fenced(&refused)) << "without the kernel's help";
}

} // namespace
