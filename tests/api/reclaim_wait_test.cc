// SPDX-License-Identifier: MIT OR Apache-2.0
// Destructors, and those who wait: ebb_retire_with, synchronize, barrier, cookies, the statistics
// and the limit.
#include <set>

#include "reclaim_support.h"

namespace {

using namespace reclaim;
using support::KiB;
using support::MiB;

TEST(RetireWith, RunsEachOnceWithItsContext)
{
    constexpr std::size_t count = 3000;
    std::vector<std::atomic<int>> calls(count);
    std::vector<int> targets(count);
    static int *first;
    first = targets.data();
    const auto destroy = [](void *p, void *context) {
        const auto which = static_cast<int *>(p) - first;
        (*static_cast<std::vector<std::atomic<int>> *>(context))[std::size_t(which)].fetch_add(1);
    };
    for (int &target : targets)
        ASSERT_EQ(0, ebb_retire_with(&target, destroy, &calls));
    ebb_barrier();
    for (std::atomic<int> &call : calls)
        ASSERT_EQ(1, call.load());
    EXPECT_TRUE(drain());
    for (std::atomic<int> &call : calls)
        ASSERT_EQ(1, call.load());
}

TEST(RetireWith, WaitsForThePinsThatWereThere)
{
    std::atomic<int> calls{0};
    Staller reader;
    for (int i = 0; i < 500; i++)
        ASSERT_EQ(0, ebb_retire_with(ebb_malloc(100), count_and_free, &calls));
    for (int i = 0; i < 100; i++) {
        const Pin pin;
    }
    push_on();
    EXPECT_EQ(0, calls.load());
    EXPECT_EQ(500U, stats().destructors);
    reader.let_go();
    ebb_barrier();
    EXPECT_EQ(500, calls.load());
    EXPECT_EQ(0U, stats().destructors);
}

// Without a call of any waiting function, and in a process that may have no helper.
TEST(RetireWith, RunsInTheEndAtTheThreadsOwnUnpins)
{
    static std::atomic<int> calls;
    for (int i = 0; i < 200; i++)
        ASSERT_EQ(0, ebb_retire_with(nullptr, count_call, &calls));
    EXPECT_TRUE(eventually([&] {
        const Pin pin;
        EXPECT_EQ(0, ebb_retire_with(nullptr, count_call, &calls));
        return calls.load() >= 200;
    }));
    ebb_barrier();
}

TEST(RetireWith, NeverRunsInsideAPin)
{
    static std::atomic<int> calls, inside;
    const auto destroy = [](void *p, void *) {
        calls.fetch_add(1);
        inside.fetch_add(ebb_is_pinned());
        ebb_free(p);
    };
    const int rounds = static_cast<int>(support::scaled(20000));
    const auto work = [&] {
        for (int i = 0; i < rounds; i++) {
            const Pin pin;
            if (i % 3 == 0) {
                const Pin inner;
                ebb_retire(ebb_malloc(40));
            }
            EXPECT_EQ(0, ebb_retire_with(ebb_malloc(40), destroy, nullptr));
        }
    };
    std::thread first(work), second(work);
    first.join();
    second.join();
    ebb_barrier();
    EXPECT_EQ(2 * rounds, calls.load());
    EXPECT_EQ(0, inside.load());
}

struct Chain {
    int left;
    std::atomic<int> *calls;
};

void do_everything(void *p, void *)
{
    auto *link = static_cast<Chain *>(p);
    void *block = ebb_malloc(5000);
    {
        const Pin pin;
        ebb_retire(block);
        ebb_retire(ebb_malloc(40));
        ebb_retire(ebb_malloc(2 * MiB));
        ebb_free(ebb_realloc(ebb_malloc(10), 100));
    }
    link->calls->fetch_add(1);
    if (--link->left > 0) {
        EXPECT_EQ(0, ebb_retire_with(link, do_everything, nullptr));
    } else {
        ebb_free(link);
    }
}

TEST(RetireWith, ADestructorMayAllocateFreePinRetireAndRetireWith)
{
    std::atomic<int> calls{0};
    for (int i = 0; i < 20; i++) {
        auto *chain = static_cast<Chain *>(ebb_malloc(sizeof(Chain)));
        *chain = {30, &calls};
        ASSERT_EQ(0, ebb_retire_with(chain, do_everything, nullptr));
    }
    EXPECT_TRUE(drain());
    EXPECT_EQ(600, calls.load());
}

TEST(RetireWith, ADestructorMayRetireItsOwnBlock)
{
    for (int i = 0; i < 1000; i++)
        ASSERT_EQ(0, ebb_retire_with(
                         ebb_malloc(64), [](void *p, void *) { ebb_retire(p); }, nullptr));
    EXPECT_TRUE(drain());
}

TEST(RetireWith, OfAnExitedThreadRunsToo)
{
    std::atomic<int> calls{0};
    for (int i = 0; i < 20; i++)
        in_thread([&] {
            const Pin pin;
            EXPECT_EQ(0, ebb_retire_with(ebb_malloc(64), count_and_free, &calls));
        });
    ebb_barrier();
    EXPECT_EQ(20, calls.load());
}

TEST(Synchronize, WaitsForThePinsThatAreThere)
{
    std::atomic<bool> released{false}, pinned{false};
    std::thread reader([&] {
        ebb_pin();
        pinned.store(true);
        for (int i = 0; i < 50; i++)
            std::this_thread::yield();
        released.store(true);
        ebb_unpin();
    });
    while (!pinned.load())
        std::this_thread::yield();
    ebb_synchronize();
    EXPECT_TRUE(released.load());
    reader.join();
}

// Always one of the two is pinned.
TEST(Synchronize, DoesNotWaitForPinsThatComeLater)
{
    std::atomic<bool> stop{false};
    std::atomic<int> turn{0};
    const auto overlap = [&](int me) {
        while (!stop.load()) {
            ebb_pin();
            turn.store(me);
            while (turn.load() == me && !stop.load())
                std::this_thread::yield();
            ebb_unpin();
        }
    };
    std::thread first(overlap, 1), second(overlap, 2);
    for (int i = 0; i < 20; i++)
        ebb_synchronize();
    stop.store(true);
    first.join();
    second.join();
}

TEST(Barrier, WaitsForDestructorsOfAllThreadsAlsoThoseThatRunNow)
{
    static std::atomic<int> calls;
    constexpr int threads = 4, each = 50;
    const auto slow = [](void *, void *) {
        usleep(200);
        calls.fetch_add(1);
    };
    std::vector<std::thread> all;
    std::atomic<int> added{0};
    std::atomic<bool> stop{false};
    for (int t = 0; t < threads; t++)
        all.emplace_back([&] {
            for (int i = 0; i < each; i++)
                EXPECT_EQ(0, ebb_retire_with(nullptr, slow, nullptr));
            added.fetch_add(1);
            while (!stop.load()) { // so that these threads run destructors beside the barrier
                const Pin pin;
                ebb_retire(ebb_malloc(64));
            }
        });
    while (added.load() < threads)
        std::this_thread::yield();
    ebb_barrier();
    EXPECT_EQ(threads * each, calls.load());
    stop.store(true);
    for (std::thread &thread : all)
        thread.join();
}

// Others go on retiring all the time: ten barriers are over before a hundred million have been retired.
TEST(Barrier, DoesNotWaitForWhatComesLater)
{
    struct Node {
        ebb_hook hook;
        char filler[8];
    };
    constexpr std::size_t most = 100000000;
    std::atomic<std::size_t> retired{0};
    std::atomic<bool> stop{false};
    std::vector<std::thread> writers;
    for (int t = 0; t < 2; t++)
        writers.emplace_back([&, t] {
            const auto free_both = [](void *p, void *) { ebb_free(p); };
            const auto free_node = [](void *p, ebb_hook *) { ebb_free(p); };
            for (; !stop && retired < most; retired++) {
                const Pin pin;
                Node *const node = static_cast<Node *>(ebb_calloc(1, sizeof(Node)));
                if (t == 0)
                    EXPECT_EQ(0, ebb_retire_with(node, free_both, nullptr));
                else
                    ebb_retire_hooked(&node->hook, node, free_node);
            }
        });
    EXPECT_TRUE(eventually([&] { return retired > 100000; }));
    for (int i = 0; i < 10; i++) {
        std::atomic<int> calls{0};
        ASSERT_EQ(0, ebb_retire_with(nullptr, count_call, &calls));
        ebb_barrier();
        EXPECT_EQ(1, calls.load());
    }
    EXPECT_LT(retired.load(), most);
    stop = true;
    for (std::thread &writer : writers)
        writer.join();
    EXPECT_TRUE(drain());
}

TEST(Cookie, PassesWhenThePinsOfItsTimeHaveEnded)
{
    Staller reader;
    const std::uint64_t cookie = ebb_epoch_cookie();
    push_on();
    EXPECT_FALSE(ebb_epoch_passed(cookie));
    reader.let_go();
    EXPECT_TRUE(eventually([=] {
        push_on();
        return ebb_epoch_passed(cookie) != 0;
    }));
    EXPECT_TRUE(ebb_epoch_passed(cookie)) << "for ever after";
}

TEST(Cookie, OfAPinnedThreadWaitsForItToo)
{
    ebb_pin();
    const std::uint64_t cookie = ebb_epoch_cookie();
    in_thread([] { push_on(); });
    EXPECT_FALSE(ebb_epoch_passed(cookie));
    ebb_unpin();
    ebb_synchronize();
    EXPECT_TRUE(ebb_epoch_passed(cookie));
}

TEST(ReclaimStats, NameTheOneWhoStalls)
{
    EXPECT_EQ(0U, stats().pinned);
    EXPECT_EQ(0U, stats().oldest_pin_thread);
    EXPECT_EQ(0U, stats().oldest_pin_ms);
    Staller reader;
    push_on();
    const Pin younger;
    const ebb_reclaim_stats now = stats();
    EXPECT_EQ(2U, now.pinned);
    EXPECT_LE(now.pinned, now.participants);
    EXPECT_EQ(reader.number(), now.oldest_pin_thread);
    std::uint64_t age = 0;
    EXPECT_TRUE(eventually([&] { return (age = stats().oldest_pin_ms) > 0; }));
    EXPECT_TRUE(eventually([&] { return stats().oldest_pin_ms > age; })) << "it grows";
    reader.let_go();
    EXPECT_EQ(static_cast<std::uint32_t>(gettid()), stats().oldest_pin_thread);
    EXPECT_EQ(1U, stats().pinned);
}

TEST(ReclaimStats, TheEpochGoesOnUnlessSomebodyStalls)
{
    const std::uint64_t first = stats().epoch;
    EXPECT_TRUE(eventually([=] {
        ebb_reclaim();
        return stats().epoch >= first + 3;
    }));
    Staller reader;
    push_on();
    const std::uint64_t stuck = stats().epoch;
    push_on();
    EXPECT_EQ(stuck, stats().epoch);
}

TEST(ReclaimStats, MayBeAskedForWhileThreadsRun)
{
    std::atomic<bool> stop{false};
    std::thread busy([&] {
        while (!stop.load()) {
            const Pin pin;
            ebb_retire(ebb_malloc(100));
        }
    });
    for (int i = 0; i < 500; i++) {
        const ebb_reclaim_stats now = stats();
        EXPECT_LE(now.pinned, now.participants);
    }
    stop.store(true);
    busy.join();
    EXPECT_TRUE(drain());
}

struct Notified {
    std::atomic<int> calls{0};
    std::atomic<std::size_t> bytes{0};
};

void note(std::size_t bytes, void *context)
{
    auto *notified = static_cast<Notified *>(context);
    notified->calls.fetch_add(1);
    notified->bytes.store(bytes);
    EXPECT_GE(stats().retired_bytes, 1U) << "it may read statistics";
}

void retire_bytes(std::size_t bytes, std::size_t each)
{
    for (std::size_t done = 0; done < bytes; done += each)
        ebb_retire(ebb_malloc(each));
}

TEST(Limit, IsToldOncePerCrossing)
{
    constexpr std::size_t limit = 8 * MiB;
    Notified notified;
    ebb_reclaim_set_limit(limit, note, &notified);
    for (int crossing = 0; crossing < 3; crossing++) {
        Staller reader;
        retire_bytes(limit / 2, 1000);
        EXPECT_EQ(crossing, notified.calls.load()) << "below the limit";
        retire_bytes(limit, crossing == 1 ? MiB : 1000);
        EXPECT_EQ(crossing + 1, notified.calls.load());
        EXPECT_GT(notified.bytes.load(), limit);
        retire_bytes(limit, 1000);
        EXPECT_EQ(crossing + 1, notified.calls.load()) << "once";
        reader.let_go();
        ASSERT_TRUE(drain());
    }
    ebb_reclaim_set_limit(0, nullptr, nullptr);
    Staller reader;
    retire_bytes(2 * limit, 1000);
    EXPECT_EQ(3, notified.calls.load());
}

TEST(Limit, MayBeCrossedInsideAPin)
{
    Notified notified;
    ebb_reclaim_set_limit(MiB, note, &notified);
    {
        const Pin pin;
        retire_bytes(4 * MiB, 500);
        EXPECT_EQ(1, notified.calls.load());
    }
    EXPECT_TRUE(drain());
    ebb_reclaim_set_limit(0, nullptr, nullptr);
}

} // namespace
