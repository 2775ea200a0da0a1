// SPDX-License-Identifier: MIT OR Apache-2.0
// Collectors, with and without fences, by the text of ebbtide/reclaim.h.
#include "reclaim_support.h"

#include <algorithm>

#include "ebbtide.h"
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
    for (std::size_t bytes : {std::size_t{100}, 200 * KiB}) {
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
    for (std::size_t bytes : {std::size_t{100}, 20 * KiB, MiB}) {
        ebb_participant_pin(me);
        for (int i = 0; i < 3; i++)
            ASSERT_EQ(ebb_participant_retire(me, ebb_malloc(bytes)), 0);
        const ebb_reclaim_stats held = stats(mine);
        EXPECT_EQ(held.retired_blocks, 3U);
        EXPECT_GE(held.retired_bytes, 3 * bytes);
        EXPECT_EQ(held.destructors, 0U);
        EXPECT_EQ(stats().retired_bytes, 0U) << "they wait for another clock";
        ebb_participant_unpin(me);
        const std::size_t left = stats(mine).retired_bytes; // large ones may go at once
        EXPECT_TRUE(left == held.retired_bytes || bytes == MiB);
        EXPECT_EQ(ebb_collector_reclaim(mine), left);
        EXPECT_EQ(stats(mine).retired_bytes, 0U);
        EXPECT_EQ(stats().retired_bytes, 0U);
    }
}

// Each pin retires more than an unpin looks at when nothing is new.
TEST_P(Collectors, KeepUpWithWhatEachPinRetires)
{
    for (const auto &[each, bytes] : {std::pair{60, 100 * KiB}, {300, 100 * KiB}, {1000, 100}}) {
        std::size_t most = 0;
        int most_calls = 0, passed = 0;
        for (int i = 0; i < 200; i++) {
            ebb_participant_pin(me);
            for (int k = 0; k < each; k++) {
                ASSERT_EQ(ebb_participant_retire(me, ebb_malloc(bytes)), 0);
                ASSERT_EQ(ebb_participant_retire_with(me, ebb_malloc(64), count_and_free, &calls),
                          0);
            }
            passed += each;
            ebb_participant_unpin(me);
            most = std::max(most, stats(mine).retired_blocks);
            most_calls = std::max(most_calls, passed - calls.load());
        }
        EXPECT_LE(most, 8U * each) << bytes;
        EXPECT_LE(most_calls, 8 * each) << bytes;
        EXPECT_TRUE(drain(mine));
        EXPECT_EQ(passed, calls.exchange(0));
    }
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

TEST(Collector, CountsEmptyBlocksAsBlocks)
{
    ebb_collector *mine = ebb_collector_create(0);
    ebb_participant *me = ebb_collector_attach(mine);
    ASSERT_NE(nullptr, me);
    {
        Staller reader(mine);
        for (int i = 0; i < 200; i++)
            ASSERT_EQ(0, ebb_participant_retire(me, ebb_malloc(0)));
        EXPECT_EQ(200U, stats(mine).retired_blocks);
        EXPECT_EQ(0U, stats(mine).destructors);
    }
    EXPECT_TRUE(drain(mine));
    ebb_collector_destroy(mine);
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

// The last rounds of a thread's end, in which its records are gone.
void retire_behind_the_end(bool blocks)
{
    struct Late {
        pthread_key_t key;
        int rounds;
        bool blocks;
        ebb_participant *me;
    };
    static Late late = {};
    late.blocks = blocks;
    pthread_key_create(&late.key, [](void *) {
        if (late.rounds++ < 2) { // TSan leaves a thread in the fourth
            pthread_setspecific(late.key, &late);
        } else if (late.blocks) {
            ebb_participant_retire(late.me, ebb_malloc(64));
        } else {
            ebb_participant_retire_with(
                late.me, nullptr, [](void *, void *) {}, nullptr);
        }
    });
    in_thread([] {
        late.me = ebb_collector_attach(ebb_collector_create(0));
        ebb_participant_retire_with(
            late.me, nullptr, [](void *, void *) {}, nullptr);
        pthread_setspecific(late.key, &late);
    });
}

TEST(CollectorMisuse, OfARecordBehindTheEndOfItsThread)
{
    const char *const line = "^ebbtide: .*used behind the end of its thread";
    EXPECT_DEATH(retire_behind_the_end(false), line);
    EXPECT_DEATH(retire_behind_the_end(true), line);
}

} // namespace
