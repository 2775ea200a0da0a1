// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: collectors when the kernel lacks membarrier or memory is refused.
#include "support/engine.h"

#include "ebbtide/reclaim.h"

namespace {

using namespace unit;

struct Collector : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_pretend_threads();
    }
    static void count(void *, void *n) { ++*static_cast<int *>(n); }
    int calls = 0;
};

TEST_F(Collector, IsFencedOnlyWhereItMustBe)
{
    ebb_collector *biased = ebb_collector_create(0);
    ASSERT_NE(nullptr, biased);
    EXPECT_EQ(1U, fake_os_count(FAKE_MEMBARRIER_REGISTER));
    EXPECT_EQ(ebbi_os_membarrier_register() ? 0 : 1, ebb_collector_is_fenced(biased));
    ebb_collector *fenced = ebb_collector_create(EBB_COLLECTOR_FENCED);
    EXPECT_EQ(1, ebb_collector_is_fenced(fenced));
    ebb_collector_destroy(fenced);
    ebb_collector_destroy(biased);
}

TEST_F(Collector, HasFencesWhereTheRegistrationIsRefused)
{
    fake_os_refuse(FAKE_MEMBARRIER_REGISTER, 1, true);
    fake_os_refuse(FAKE_MEMBARRIER, 1, true);
    ebb_collector *c = ebb_collector_create(0);
    ASSERT_NE(nullptr, c);
    EXPECT_TRUE(ebb_collector_is_fenced(c));
    ebb_participant *me = ebb_collector_attach(c);
    ebb_participant_pin(me);
    ASSERT_EQ(0, ebb_participant_retire_with(me, nullptr, count, &calls));
    ebb_participant_unpin(me);
    ebb_collector_barrier(c);
    EXPECT_EQ(1, calls);
    EXPECT_EQ(0U, fake_os_count(FAKE_MEMBARRIER));
    ebb_collector_destroy(c);
}

// Another thread that has pinned, and sleeps, may pin again without a fence: nothing goes until that
// can be no more, and then everything.
TEST_F(Collector, BecomesFencedWhereTheBarrierIsRefused)
{
    ebb_collector *c = ebb_collector_create(0);
    if (ebb_collector_is_fenced(c))
        GTEST_SKIP() << "this kernel has no membarrier";
    std::atomic<int> stage{0};
    std::thread sleeper([&] {
        ebb_participant *own = ebb_collector_attach(c);
        ebb_participant_pin(own);
        ebb_participant_unpin(own);
        stage.store(1);
        stage.notify_all();
        stage.wait(1);
    });
    stage.wait(0);
    fake_os_refuse(FAKE_MEMBARRIER, 1, true);
    ebb_participant *me = ebb_collector_attach(c);
    ASSERT_EQ(0, ebb_participant_retire_with(me, nullptr, count, &calls));
    for (int i = 0; i < 20; i++)
        ebb_collector_reclaim(c);
    EXPECT_EQ(0, calls);
    EXPECT_EQ(1U, fake_os_refused(FAKE_MEMBARRIER));
    EXPECT_TRUE(ebb_collector_is_fenced(c));
    ebb_reclaim_stats now;
    ebb_reclaim_stats_get(c, &now);
    EXPECT_EQ(1, now.fenced);
    ebb_collector_synchronize(c);
    ebb_collector_barrier(c);
    EXPECT_EQ(1, calls);
    EXPECT_EQ(1U, fake_os_count(FAKE_MEMBARRIER));
    stage.store(2);
    stage.notify_all();
    sleeper.join();
    ebb_collector_destroy(c);
}

void refuse_memory()
{
    for (fake_call call : {FAKE_COMMIT, FAKE_RESERVE, FAKE_MAP})
        fake_os_refuse(call, 1, true);
}

TEST_F(Collector, RefusedMemoryIsSaidEverywhereAndNothingChanges)
{
    ebb_collector *c = ebb_collector_create(0);
    refuse_memory();
    std::vector<void *> taken;
    for (std::size_t bytes :
         {std::size_t{32768}, std::size_t{1024}, sizeof(ebbi_record), std::size_t{256}}) {
        void *p;
        while ((p = ebb_malloc(bytes)) != nullptr)
            taken.push_back(p);
    }
    std::vector<ebb_collector *> more;
    errno = 0;
    for (ebb_collector *one = ebb_collector_create(0); one != nullptr;
         one = ebb_collector_create(0))
        more.push_back(one);
    EXPECT_EQ(ENOMEM, errno);
    errno = 0;
    EXPECT_EQ(nullptr, ebb_collector_attach(c));
    EXPECT_EQ(ENOMEM, errno);
    ebb_participant *me = ebb_collector_attach(nullptr);
    errno = 0;
    int added = 0;
    while (ebb_participant_retire_with(me, nullptr, count, &calls) == 0)
        ASSERT_LT(++added, 1000000);
    EXPECT_EQ(ENOMEM, errno);
    fake_os_allow();
    for (void *p : taken)
        ebb_free(p);
    ebb_barrier();
    EXPECT_EQ(added, calls);
    for (ebb_collector *one : more)
        ebb_collector_destroy(one);
    ebb_collector_destroy(c);
}

TEST_F(Collector, RecordsOfThreadsThatLeftAreUsedAgain)
{
    ebb_collector *c = ebb_collector_create(0);
    ebb_participant *first = nullptr, *second = nullptr;
    std::thread([&] { first = ebb_collector_attach(c); }).join();
    std::thread([&] {
        second = ebb_collector_attach(c);
        EXPECT_FALSE(ebb_participant_is_pinned(second));
    }).join();
    ebb_reclaim_stats now;
    ebb_reclaim_stats_get(c, &now);
    EXPECT_EQ(0U, now.participants);
    ebb_collector_destroy(c);
}

} // namespace
