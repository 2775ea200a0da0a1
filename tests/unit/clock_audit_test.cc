// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer epoch: the audit finds each property of epoch/clock.h that is broken.
#include "support/engine.h"

namespace {

using namespace unit;

struct ClockAudit : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        clock.now = EBBI_CLOCK_FIRST;
        ebbi_lock_rank(&clock.lock, EBBI_RANK_CLOCK);
        ebbi_clock_audit(&clock);
        ebbi_clock_decide(&clock, false);
        for (ebb_participant &p : threads)
            ebbi_clock_join(&clock, &p, ebbi_os_thread_number());
        ebbi_announce(&threads[1], 0);
        ASSERT_TRUE(ebbi_clock_advance(&clock, true));
    }
    void audit() const { ebbi_clock_audit(&clock); }

    struct ebbi_clock clock = {};
    ebb_participant threads[4] = {};
};

TEST_F(ClockAudit, IsWhole)
{
    audit();
    EXPECT_FALSE(ebbi_clock_advance(&clock, true)); // which moves the one in the way to the front
    audit();
    ebbi_unpin(&threads[1]);
    EXPECT_TRUE(ebbi_clock_advance(&clock, true));
    audit();
    ebbi_clock_leave(&clock, &threads[2]);
    audit();
    ebbi_clock_keep_only(&clock, &threads[0]);
    audit();
}

TEST_F(ClockAudit, C1TheWord)
{
    const std::uint64_t now = clock.now;
    for (std::uint64_t broken :
         {now | 2, now | EBB_PIN_ATTENTION, std::uint64_t{0}, EBB_EPOCH_ONE}) {
        clock.now = broken;
        EXPECT_DEATH(audit(), "ebbtide: .*: clock C1: the word") << broken;
    }
}

TEST_F(ClockAudit, C2TheList)
{
    clock.count--;
    EXPECT_DEATH(audit(), "ebbtide: .*: clock C2: more participants");
    clock.count += 2;
    EXPECT_DEATH(audit(), "ebbtide: .*: clock C2: fewer participants");
    clock.count--;
    threads[1].previous = nullptr;
    EXPECT_DEATH(audit(), "ebbtide: .*: clock C2: a participant's link");
}

TEST_F(ClockAudit, C2TheirClock)
{
    threads[2].now = &ebbi_clock.now;
    EXPECT_DEATH(audit(), "ebbtide: .*: clock C2: a participant looks at another clock");
}

TEST_F(ClockAudit, C3Decided)
{
    clock.decided = false;
    clock.now &= ~std::uint64_t{1};
    EXPECT_DEATH(audit(), "ebbtide: .*: clock C3: biased before");
    clock.decided = true;
    clock.turned_ms = 1;
    EXPECT_DEATH(audit(), "ebbtide: .*: clock C3: it became fenced, and is biased");
}

TEST_F(ClockAudit, C4Released)
{
    threads[3].released = EBB_EPOCH_ONE | 1;
    EXPECT_DEATH(audit(), "ebbtide: .*: clock C4: a participant was released while");
    threads[3].released = clock.now & ~EBB_PIN_DEPTH;
    EXPECT_DEATH(audit(), "ebbtide: .*: clock C4: a participant was released in");
}

TEST_F(ClockAudit, C5Announced)
{
    threads[3].state = clock.now + EBB_EPOCH_ONE;
    EXPECT_DEATH(audit(), "ebbtide: .*: clock C5: a participant announces");
    threads[3].state = EBB_PIN_NONE;
    EXPECT_DEATH(audit(), "ebbtide: .*: clock C5: a participant is as deep");
}

} // namespace
