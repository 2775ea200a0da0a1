// SPDX-License-Identifier: MIT OR Apache-2.0
// Collectors, with and without fences, and hazard pointers, by the text of ebbtide/reclaim.h.
#include "reclaim_support.h"

#include "ebbtide/region.h"

namespace {

using namespace reclaim;
using support::KiB;
using support::MiB;

struct Collectors : testing::TestWithParam<unsigned> {
    void SetUp() override
    {
        mine = ebb_collector_create(GetParam());
        ASSERT_NE(nullptr, mine);
        me = ebb_collector_attach(mine);
        ASSERT_NE(nullptr, me);
    }
    void TearDown() override { ebb_collector_destroy(mine); }
    ebb_collector *mine = nullptr;
    ebb_participant *me = nullptr;
    std::atomic<int> calls{0};
};

INSTANTIATE_TEST_SUITE_P(Biased, Collectors, testing::Values(0U));
INSTANTIATE_TEST_SUITE_P(Fenced, Collectors, testing::Values(unsigned{EBB_COLLECTOR_FENCED}));

TEST_P(Collectors, PinsNestAndBelongToTheirCollector)
{
    EXPECT_FALSE(ebb_participant_is_pinned(me));
    ebb_participant_pin(me);
    ebb_participant_pin(me);
    ebb_participant_repin(me);
    EXPECT_TRUE(ebb_participant_is_pinned(me));
    EXPECT_FALSE(ebb_is_pinned());
    ebb_participant_unpin(me);
    EXPECT_TRUE(ebb_participant_is_pinned(me));
    EXPECT_EQ(1U, stats(mine).pinned);
    EXPECT_EQ(0U, stats().pinned);
    ebb_participant_unpin(me);
    EXPECT_FALSE(ebb_participant_is_pinned(me));
}

TEST_P(Collectors, HaveOneRecordAThread)
{
    EXPECT_EQ(me, ebb_collector_attach(mine));
    in_thread([this] {
        ebb_participant *theirs = ebb_collector_attach(mine);
        EXPECT_NE(me, theirs);
        EXPECT_EQ(theirs, ebb_collector_attach(mine));
        EXPECT_EQ(2U, stats(mine).participants);
    });
    EXPECT_TRUE(eventually([this] { return stats(mine).participants == 1; }));
}

TEST_P(Collectors, HoldBackOnlyTheirOwn)
{
    ebb_collector *other = ebb_collector_create(0);
    ebb_participant *there = ebb_collector_attach(other);
    Staller reader(mine);
    ASSERT_EQ(0, ebb_retire_with(nullptr, count_call, &calls));
    ASSERT_EQ(0, ebb_participant_retire_with(there, nullptr, count_call, &calls));
    ASSERT_EQ(0, ebb_participant_retire(there, ebb_malloc(100)));
    ebb_barrier();
    ebb_collector_barrier(other);
    EXPECT_EQ(2, calls.load());
    EXPECT_TRUE(drain(other));
    ASSERT_EQ(0, ebb_participant_retire_with(me, nullptr, count_call, &calls));
    push_on(mine);
    push_on(other);
    push_on();
    EXPECT_EQ(2, calls.load());
    reader.let_go();
    ebb_collector_barrier(mine);
    EXPECT_EQ(3, calls.load());
    ebb_collector_destroy(other);
}

TEST_P(Collectors, TheDefaultOneHoldsBackNothingOfThem)
{
    Staller reader;
    ASSERT_EQ(0, ebb_participant_retire_with(me, nullptr, count_call, &calls));
    ebb_collector_barrier(mine);
    EXPECT_EQ(1, calls.load());
    const std::uint64_t cookie = ebb_epoch_cookie();
    ebb_collector_synchronize(mine);
    EXPECT_FALSE(ebb_epoch_passed(cookie));
}

TEST_P(Collectors, KeepEveryByteUntilTheLastPinEnds)
{
    constexpr std::size_t count = 2000;
    const std::size_t sizes[] = {16, 40, 64, 1000, 30000, 100 * KiB};
    std::vector<std::pair<void *, std::size_t>> all;
    for (std::size_t i = 0; i < count; i++) {
        all.emplace_back(ebb_malloc(sizes[i % 6]), sizes[i % 6]);
        support::fill_pattern(all[i].first, 0, all[i].second, static_cast<unsigned>(i));
    }
    Staller reader(mine);
    for (const auto &[block, bytes] : all)
        ASSERT_EQ(0, ebb_participant_retire(me, block));
    for (std::size_t i = 0; i < count; i++) {
        void *other = ebb_malloc(sizes[i % 6]);
        std::memset(other, 0xEE, sizes[i % 6]);
        ebb_free(other);
    }
    push_on(mine);
    for (std::size_t i = 0; i < count; i++)
        ASSERT_EQ(all[i].second,
                  support::find_mismatch(all[i].first, all[i].second, static_cast<unsigned>(i)));
    EXPECT_EQ(count, waiting(mine));
    reader.let_go();
    EXPECT_TRUE(drain(mine));
}

TEST_P(Collectors, DestroyRunsEverythingAlsoOfThreadsThatLeft)
{
    ebb_collector *doomed = ebb_collector_create(GetParam());
    const ebb_stats before = heap_stats();
    for (int t = 0; t < 10; t++)
        in_thread([&] {
            ebb_participant *own = ebb_collector_attach(doomed);
            ebb_participant_pin(own);
            for (int i = 0; i < 100; i++) {
                EXPECT_EQ(0,
                          ebb_participant_retire_with(own, ebb_malloc(64), count_and_free, &calls));
                EXPECT_EQ(0, ebb_participant_retire(own, ebb_malloc(10 * KiB)));
            }
            ebb_participant_unpin(own);
        });
    ebb_collector_destroy(doomed);
    EXPECT_EQ(1000, calls.load());
    EXPECT_LE(heap_stats().live_bytes, before.live_bytes + MiB);
}

TEST_P(Collectors, DestroyRunsWhatDestructorsRetireMeanwhile)
{
    struct Again {
        ebb_collector *collector;
        std::atomic<int> *calls;
        int left;
        static void run(void *p, void *)
        {
            auto *self = static_cast<Again *>(p);
            self->calls->fetch_add(1);
            if (--self->left > 0) {
                ebb_participant *own = ebb_collector_attach(self->collector);
                EXPECT_EQ(0, ebb_participant_retire_with(own, p, run, nullptr));
            }
        }
    };
    ebb_collector *doomed = ebb_collector_create(GetParam());
    Again again = {doomed, &calls, 10};
    ASSERT_EQ(
        0, ebb_participant_retire_with(ebb_collector_attach(doomed), &again, Again::run, nullptr));
    ebb_collector_destroy(doomed);
    EXPECT_EQ(10, calls.load());
}

TEST_P(Collectors, DestroyInADestructorComesAfterIt)
{
    struct Last {
        ebb_collector *collector, *next;
        std::atomic<int> *calls;
        bool is_running;
    };
    const auto destroy = [](void *p, void *) {
        auto *last = static_cast<Last *>(p);
        last->is_running = true;
        ebb_collector_destroy(last->collector);
        if (last->next != nullptr)
            ebb_collector_destroy(last->next);
        last->is_running = false;
    };
    const auto is_outside = [](void *p, void *) {
        auto *last = static_cast<Last *>(p);
        last->calls->fetch_add(last->is_running ? 1000 : 1);
    };
    for (int where = 0; where < 3; where++) {
        calls.store(0);
        Last last = {ebb_collector_create(GetParam()), ebb_collector_create(GetParam()), &calls,
                     false};
        for (ebb_collector *doomed : {last.collector, last.next}) {
            ebb_participant *own = ebb_collector_attach(doomed);
            for (int i = 0; i < 50; i++)
                ASSERT_EQ(0, ebb_participant_retire_with(own, &last, is_outside, nullptr));
        }
        ASSERT_EQ(0, where == 2 ? ebb_participant_retire_with(me, &last, destroy, nullptr)
                                : ebb_retire_with(&last, destroy, nullptr));
        if (where == 0)
            ebb_barrier();
        else if (where == 1)
            EXPECT_TRUE(drain());
        else
            ebb_collector_barrier(mine);
        EXPECT_TRUE(eventually([&] { return calls.load() == 100; })) << calls.load();
    }
}

// A destructor of the first destroys the second, and so on.
TEST_P(Collectors, DestroyInDestructorsMayBeAChain)
{
    static std::atomic<int> ended;
    ended.store(0);
    struct Chain {
        static void run(void *next, void *)
        {
            ended.fetch_add(1);
            if (next != nullptr)
                ebb_collector_destroy(static_cast<ebb_collector *>(next));
        }
    };
    ebb_collector *first = nullptr;
    constexpr int count = 300;
    for (int i = 0; i < count; i++) {
        ebb_collector *one = ebb_collector_create(GetParam());
        ASSERT_EQ(
            0, ebb_participant_retire_with(ebb_collector_attach(one), first, Chain::run, nullptr));
        first = one;
    }
    ebb_collector_destroy(first);
    EXPECT_TRUE(eventually([] { return ended.load() == count; }));
}

TEST_P(Collectors, ReclaimInsideAPinOfTheDefaultOneRunsNothing)
{
    static std::atomic<int> inside;
    inside.store(0);
    const auto destroy = [](void *, void *counter) {
        inside.fetch_add(ebb_is_pinned());
        count_call(nullptr, counter);
    };
    {
        const Pin pin;
        for (int i = 0; i < 500; i++) {
            ASSERT_EQ(0, ebb_participant_retire_with(me, nullptr, destroy, &calls));
            ebb_collector_reclaim(mine);
        }
    }
    EXPECT_EQ(0, inside.load());
    EXPECT_TRUE(drain(mine));
    ebb_collector_barrier(mine);
    EXPECT_EQ(500, calls.load());
    EXPECT_EQ(0, inside.load());
}

TEST_P(Collectors, SynchronizeAndReclaimAreTheirs)
{
    std::atomic<bool> released{false}, pinned{false};
    std::thread reader([&] {
        ebb_participant *own = ebb_collector_attach(mine);
        ebb_participant_pin(own);
        pinned.store(true);
        for (int i = 0; i < 50; i++)
            std::this_thread::yield();
        released.store(true);
        ebb_participant_unpin(own);
    });
    while (!pinned.load())
        std::this_thread::yield();
    const Pin beside; // of the default collector: no matter
    ebb_collector_synchronize(mine);
    EXPECT_TRUE(released.load());
    reader.join();
}

// And those that come after have memory of their own.
TEST_P(Collectors, KeepBlocksOfRegionsBeyondTheirRelease)
{
    for (std::size_t bytes : {100 * std::size_t{1}, 200 * KiB}) {
        ebb_region *region = ebb_region_open(nullptr);
        std::vector<char *> retired, later;
        ebb_participant_pin(me);
        for (int i = 0; i < 50; i++) {
            retired.push_back(static_cast<char *>(ebb_region_alloc(region, bytes)));
            std::memset(retired.back(), i, bytes);
            ASSERT_EQ(ebb_participant_retire(me, retired.back()), 0);
        }
        ebb_region_release(region);
        region = ebb_region_open(nullptr);
        for (int i = 0; i < 50; i++) {
            later.push_back(static_cast<char *>(ebb_region_alloc(region, bytes)));
            std::memset(later.back(), 60 + i, bytes);
        }
        for (int i = 0; i < 50; i++)
            EXPECT_TRUE(retired[i][0] == i && retired[i][bytes - 1] == i) << "block " << i;
        ebb_participant_unpin(me);
        ebb_collector_barrier(mine);
        EXPECT_EQ(stats(mine).retired_bytes, 0U);
        for (int i = 0; i < 50; i++)
            EXPECT_TRUE(later[i][0] == 60 + i && later[i][bytes - 1] == 60 + i) << "block " << i;
        for (char *p : later)
            ebb_free(p); // each is there still
        ebb_region_release(region);
    }
}

TEST_P(Collectors, CountTheBlocksThatWaitAndThoseFreed)
{
    ebb_participant_pin(me);
    for (int i = 0; i < 3; i++)
        ASSERT_EQ(ebb_participant_retire(me, ebb_malloc(MiB)), 0);
    const ebb_reclaim_stats held = stats(mine);
    EXPECT_EQ(held.retired_blocks, 3U);
    EXPECT_GE(held.retired_bytes, 3 * MiB);
    EXPECT_EQ(held.destructors, 0U);
    EXPECT_EQ(stats().retired_bytes, 0U) << "they wait for another clock";
    ebb_participant_unpin(me);
    EXPECT_GE(ebb_collector_reclaim(mine), 3 * MiB);
    EXPECT_EQ(stats(mine).retired_bytes, 0U);
    EXPECT_EQ(stats().retired_bytes, 0U);
}

TEST(Collector, NullIsTheDefaultOne)
{
    ebb_participant *me = ebb_collector_attach(nullptr);
    ASSERT_NE(nullptr, me);
    ebb_participant_pin(me);
    EXPECT_TRUE(ebb_is_pinned());
    ebb_pin();
    ebb_participant_unpin(me);
    EXPECT_TRUE(ebb_participant_is_pinned(me));
    ebb_unpin();
    EXPECT_FALSE(ebb_is_pinned());
    EXPECT_EQ(me, ebb_collector_attach(nullptr));
    EXPECT_EQ(ebb_collector_is_fenced(nullptr), stats().fenced);
    std::atomic<int> calls{0};
    ASSERT_EQ(0, ebb_participant_retire(me, ebb_malloc(64)));
    ASSERT_EQ(0, ebb_participant_retire_with(me, nullptr, count_call, &calls));
    ebb_collector_synchronize(nullptr);
    ebb_collector_barrier(nullptr);
    EXPECT_EQ(1, calls.load());
    EXPECT_TRUE(drain(nullptr));
}

TEST(Collector, SaysWhetherItIsFenced)
{
    ebb_collector *biased = ebb_collector_create(0);
    ebb_collector *fenced = ebb_collector_create(EBB_COLLECTOR_FENCED);
    EXPECT_EQ(1, ebb_collector_is_fenced(fenced));
    EXPECT_EQ(1, stats(fenced).fenced);
    EXPECT_EQ(ebb_collector_is_fenced(biased), stats(biased).fenced);
    ebb_collector_destroy(fenced);
    ebb_collector_destroy(biased);
}

TEST(Collector, UnknownFlagsAreRefused)
{
    for (unsigned flags : {2U, 3U, 1U << 31, ~0U}) {
        errno = 0;
        EXPECT_EQ(nullptr, ebb_collector_create(flags));
        EXPECT_EQ(EINVAL, errno);
    }
}

TEST(Collector, ManyOfThemLeaveNothing)
{
    std::atomic<int> calls{0};
    const auto use_one = [&] {
        ebb_collector *one = ebb_collector_create(0);
        ebb_participant *me = ebb_collector_attach(one);
        ebb_participant_pin(me);
        EXPECT_EQ(0, ebb_participant_retire_with(me, ebb_malloc(64), count_and_free, &calls));
        ebb_participant_unpin(me);
        ebb_collector_destroy(one);
    };
    for (int i = 0; i < 100; i++)
        use_one();
    const ebb_stats before = heap_stats();
    for (int i = 0; i < 2000; i++)
        use_one();
    EXPECT_LE(heap_stats().live_bytes, before.live_bytes + 256 * KiB);
    EXPECT_EQ(2100, calls.load());
}

// ---- hazard pointers -----------------------------------------------------------------------------

bool goes_away(std::atomic<int> &calls)
{
    return eventually([&] {
        ebb_reclaim();
        return calls.load() != 0;
    });
}

TEST(Hazard, HoldsBackTheBlockThatItProtects)
{
    for (std::size_t bytes : {std::size_t{16}, std::size_t{40}, 5 * KiB, 100 * KiB, 40 * MiB}) {
        void *link = ebb_malloc(bytes);
        support::fill_pattern(link, 0, bytes, 3);
        ebb_hazard *hazard = ebb_hazard_open();
        ASSERT_NE(nullptr, hazard);
        void *held = ebb_hazard_protect(hazard, &link);
        EXPECT_EQ(link, held);
        link = nullptr;
        ebb_retire(held);
        for (int i = 0; i < 200; i++) {
            void *other = ebb_malloc(bytes);
            std::memset(other, 0xEE, bytes < 64 * KiB ? bytes : 64);
            ebb_retire(other);
        }
        push_on();
        ASSERT_EQ(bytes, support::find_mismatch(held, bytes, 3));
        EXPECT_GE(stats().retired_blocks, 1U);
        EXPECT_LE(stats().retired_blocks, 125U) << "the others have gone";
        ebb_hazard_clear(hazard);
        EXPECT_TRUE(drain());
        ebb_hazard_close(hazard);
    }
}

TEST(Hazard, MayPointIntoTheBlock)
{
    for (std::size_t bytes : {std::size_t{48}, 5 * KiB, 100 * KiB, 40 * MiB}) {
        auto *block = static_cast<char *>(ebb_malloc(bytes));
        support::fill_pattern(block, 0, bytes, 3);
        ebb_hazard *hazard = ebb_hazard_open();
        ebb_hazard_set(hazard, block + bytes - 1);
        ebb_retire(block);
        push_on();
        ASSERT_EQ(1U, stats().retired_blocks) << bytes;
        EXPECT_EQ(bytes, support::find_mismatch(block, bytes, 3));
        ebb_hazard_close(hazard); // ends the protection too
        EXPECT_TRUE(drain());
    }
}

TEST(Hazard, HoldsBackDestructorsAndBlocksOfEveryCollector)
{
    std::atomic<int> calls{0};
    ebb_collector *collector = ebb_collector_create(0);
    ebb_participant *me = ebb_collector_attach(collector);
    char *first = static_cast<char *>(ebb_malloc(200)),
         *second = static_cast<char *>(ebb_malloc(200));
    void *third = ebb_malloc(200);
    ebb_hazard *hazards[] = {ebb_hazard_open(), ebb_hazard_open(), ebb_hazard_open()};
    ebb_hazard_set(hazards[0], first);
    ebb_hazard_set(hazards[1], second + 100);
    ebb_hazard_set(hazards[2], third);
    support::fill_pattern(second, 0, 200, 9);
    ASSERT_EQ(0, ebb_retire_with(first, count_and_free, &calls));
    ASSERT_EQ(0, ebb_participant_retire(me, second));
    ASSERT_EQ(0, ebb_participant_retire_with(me, third, count_and_free, &calls));
    push_on();
    push_on(collector);
    EXPECT_EQ(0, calls.load());
    EXPECT_EQ(2U, waiting(collector)) << "also where the hazard pointer points into the block";
    ebb_hazard_close(hazards[0]);
    EXPECT_TRUE(goes_away(calls));
    ebb_hazard_close(hazards[1]);
    ebb_hazard_close(hazards[2]);
    EXPECT_TRUE(drain(collector));
    EXPECT_EQ(2, calls.load());
    ebb_collector_destroy(collector);
}

TEST(Hazard, AreCountedAndClosedOnesServeAgain)
{
    const std::size_t before = stats().hazards;
    std::vector<ebb_hazard *> many(1000);
    for (int round = 0; round < 3; round++) {
        for (ebb_hazard *&hazard : many)
            ASSERT_NE(nullptr, hazard = ebb_hazard_open());
        EXPECT_EQ(before + many.size(), stats().hazards);
        for (ebb_hazard *hazard : many)
            ebb_hazard_close(hazard);
        EXPECT_EQ(before, stats().hazards);
    }
    ebb_hazard_close(nullptr);
    EXPECT_LE(heap_stats().live_bytes, MiB);
}

TEST(Hazard, AndPinBothHoldTheSameBlock)
{
    std::atomic<int> calls[2] = {};
    ebb_hazard *hazards[] = {ebb_hazard_open(), ebb_hazard_open()};
    Staller reader;
    for (int i = 0; i < 2; i++) {
        void *block = ebb_malloc(64);
        ebb_hazard_set(hazards[i], block);
        ASSERT_EQ(0, ebb_retire_with(block, count_and_free, &calls[i]));
    }
    ebb_hazard_clear(hazards[0]);
    push_on();
    EXPECT_EQ(0, calls[0].load()) << "the pin";
    reader.let_go();
    push_on();
    EXPECT_EQ(0, calls[1].load()) << "the hazard pointer";
    ebb_hazard_close(hazards[1]);
    EXPECT_TRUE(goes_away(calls[0]));
    EXPECT_TRUE(goes_away(calls[1]));
    ebb_hazard_close(hazards[0]);
}

} // namespace
