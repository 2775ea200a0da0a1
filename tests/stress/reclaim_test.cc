// SPDX-License-Identifier: MIT OR Apache-2.0
// Reclamation under load: readers and writers of a shared table whose nodes have plain contents, so
// that a sanitizer sees a reader that is not behind its writer, or a free that is not behind its
// readers; short threads by the thousand; memory that comes back.
#include "../api/reclaim_support.h"

namespace {

using namespace reclaim;
using support::KiB;
using support::MiB;

constexpr std::size_t slots = 64;
constexpr std::uint64_t alive = 0xA11FEA11FEA11FE1;

struct Node { // plain: published by the slot's release, ended by the grace period
    std::uint64_t canary;
    std::uint64_t number;
    std::uint64_t check;
};

Node *make(std::uint64_t number, std::size_t bytes)
{
    auto *node = static_cast<Node *>(ebb_malloc(sizeof(Node) + bytes));
    *node = {alive, number, ~number};
    return node;
}

bool is_whole(const Node *node) { return node->canary == alive && node->check == ~node->number; }

void end(Node *node)
{
    *node = {0xDEAD, 1, 1};
    ebb_free(node);
}

void destroy(void *p, void *) { end(static_cast<Node *>(p)); }

enum Way { PLAIN, WITH_DESTRUCTOR, BOTH };

// The table, its readers and its writers in one collector (NULL: the default one).
class Table {
public:
    explicit Table(ebb_collector *collector, Way way) : collector_(collector), way_(way)
    {
        for (auto &slot : slots_)
            slot.store(make(1, 0));
    }
    ~Table()
    {
        for (auto &slot : slots_)
            end(slot.load());
    }
    void read(std::size_t rounds)
    {
        ebb_participant *me = ebb_collector_attach(collector_);
        support::Random random(rounds);
        for (std::size_t i = 0; i < rounds; i++) {
            ebb_participant_pin(me);
            const std::size_t looks = random.between(1, 8);
            for (std::size_t k = 0; k < looks; k++) {
                const Node *node = slots_[random.below(slots)].load(std::memory_order_acquire);
                if (!is_whole(node))
                    broken_.fetch_add(1);
                if (k == 4)
                    ebb_participant_repin(me);
            }
            ebb_participant_unpin(me);
        }
    }
    void write(std::size_t rounds, std::uint64_t seed)
    {
        ebb_participant *me = ebb_collector_attach(collector_);
        support::Random random(seed);
        for (std::size_t i = 0; i < rounds; i++) {
            Node *fresh = make(random.next(), random.below(random.below(200) == 0 ? 40000 : 300));
            const bool pinned = random.below(2) == 0;
            if (pinned)
                ebb_participant_pin(me);
            Node *old = slots_[random.below(slots)].exchange(fresh, std::memory_order_acq_rel);
            retire(me, old, i);
            if (pinned)
                ebb_participant_unpin(me);
        }
    }
    int broken() const { return broken_.load(); }

private:
    void retire(ebb_participant *me, Node *old, std::size_t i)
    {
        const bool plain = way_ == PLAIN || (way_ == BOTH && i % 2 == 0);
        EXPECT_EQ(0, plain ? ebb_participant_retire(me, old)
                           : ebb_participant_retire_with(me, old, destroy, nullptr));
    }
    ebb_collector *collector_;
    const Way way_;
    std::atomic<Node *> slots_[slots];
    std::atomic<int> broken_{0};
};

void run_table(ebb_collector *collector, Way way)
{
    const std::size_t rounds = support::scaled(200000);
    Table table(collector, way);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 2; i++) {
        threads.emplace_back([&] { table.read(rounds); });
        threads.emplace_back([&, i] { table.write(rounds, i + 1); });
    }
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(0, table.broken());
    EXPECT_TRUE(drain(collector));
}

TEST(ReclaimLoad, BlocksInTheDefaultCollector) { run_table(nullptr, PLAIN); }
TEST(ReclaimLoad, DestructorsInTheDefaultCollector) { run_table(nullptr, WITH_DESTRUCTOR); }
TEST(ReclaimLoad, BothInTheDefaultCollector) { run_table(nullptr, BOTH); }

TEST(ReclaimLoad, BothInACollector)
{
    ebb_collector *collector = ebb_collector_create(0);
    run_table(collector, BOTH);
    ebb_collector_destroy(collector);
}

TEST(ReclaimLoad, BothInAFencedCollector)
{
    ebb_collector *collector = ebb_collector_create(EBB_COLLECTOR_FENCED);
    run_table(collector, BOTH);
    ebb_collector_destroy(collector);
}

// Hazard pointers and pins read the same nodes.
TEST(ReclaimLoad, HazardPointersBesidePins)
{
    const std::size_t rounds = support::scaled(200000);
    std::atomic<bool> stop{false};
    std::atomic<int> broken{0};
    void *link = make(1, 0);
    const auto protect = [&] {
        ebb_hazard *hazard = ebb_hazard_open();
        while (!stop.load(std::memory_order_relaxed)) {
            const auto *node = static_cast<const Node *>(ebb_hazard_protect(hazard, &link));
            for (int i = 0; i < 20; i++)
                broken.fetch_add(!is_whole(node));
        }
        ebb_hazard_close(hazard);
    };
    const auto pin = [&] {
        while (!stop.load(std::memory_order_relaxed)) {
            const Pin pinned;
            broken.fetch_add(
                !is_whole(static_cast<Node *>(__atomic_load_n(&link, __ATOMIC_ACQUIRE))));
        }
    };
    std::thread readers[] = {std::thread(protect), std::thread(protect), std::thread(pin)};
    for (std::size_t i = 0; i < rounds; i++) {
        void *old = __atomic_exchange_n(&link, make(i, i % 100), __ATOMIC_ACQ_REL);
        if (i % 3 == 0)
            EXPECT_EQ(0, ebb_retire_with(old, destroy, nullptr));
        else
            ebb_retire(old);
    }
    stop.store(true);
    for (std::thread &reader : readers)
        reader.join();
    EXPECT_EQ(0, broken.load());
    end(static_cast<Node *>(link));
    EXPECT_TRUE(drain());
}

std::atomic<std::size_t> destroyed;

void count_destroyed(void *p, void *)
{
    ebb_free(p);
    destroyed.fetch_add(1);
}

void short_life(std::size_t i)
{
    ebb_pin();
    EXPECT_EQ(0, ebb_retire_with(ebb_malloc(50), count_destroyed, nullptr));
    ebb_retire(ebb_malloc(1 + i % 3000));
    if (i % 4 != 0) // every fourth ends pinned
        ebb_unpin();
}

TEST(ReclaimThreads, TenThousandShortOnesLeaveNothing)
{
    const std::size_t count = support::scaled(10000);
    drain();
    const ebb_stats before = heap_stats();
    for (std::size_t i = 0; i < count; i += 4) {
        std::vector<std::thread> threads;
        for (std::size_t k = i; k < std::min(i + 4, count); k++)
            threads.emplace_back(short_life, k);
        for (std::thread &thread : threads)
            thread.join();
    }
    ebb_barrier();
    EXPECT_EQ(count, destroyed.load());
    EXPECT_TRUE(drain());
    EXPECT_EQ(0U, stats().pinned);
    EXPECT_LE(stats().participants, 2U) << "this thread, and perhaps the helper";
    const ebb_stats after = heap_stats();
    EXPECT_LE(after.heaps, before.heaps + 16);
    EXPECT_LE(after.live_bytes, before.live_bytes + MiB);
}

// All at once, and while another thread is pinned: their limbo waits in heaps without a thread.
TEST(ReclaimThreads, ManyThatEndWhileAReaderIsPinned)
{
    constexpr std::size_t count = 300;
    destroyed.store(0);
    Staller reader;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; i++)
        threads.emplace_back(short_life, i);
    for (std::thread &thread : threads)
        thread.join();
    push_on();
    EXPECT_EQ(0U, destroyed.load());
    EXPECT_EQ(count, stats().destructors);
    EXPECT_EQ(1U, stats().pinned);
    reader.let_go();
    ebb_barrier();
    EXPECT_EQ(count, destroyed.load());
    EXPECT_TRUE(drain());
    ebb_trim();
    EXPECT_LE(heap_stats().heaps, 32U);
}

TEST(ReclaimThreads, ShortOnesInACollector)
{
    const std::size_t count = support::scaled(2000);
    destroyed.store(0);
    ebb_collector *collector = ebb_collector_create(0);
    for (std::size_t i = 0; i < count; i++)
        in_thread([=] {
            ebb_participant *me = ebb_collector_attach(collector);
            ebb_participant_pin(me);
            EXPECT_EQ(0, ebb_participant_retire(me, ebb_malloc(100)));
            EXPECT_EQ(0, ebb_participant_retire_with(me, ebb_malloc(9), count_destroyed, nullptr));
            if (i % 3 != 0)
                ebb_participant_unpin(me);
        });
    ebb_collector_barrier(collector);
    EXPECT_EQ(count, destroyed.load());
    EXPECT_EQ(0U, stats(collector).pinned);
    EXPECT_TRUE(drain(collector));
    ebb_collector_destroy(collector);
}

// The thread looks through its records while another destroys a collector that one of them is in.
TEST(ReclaimThreads, LooksForItsRecordWhileAnotherCollectorEnds)
{
    ebb_collector *kept = ebb_collector_create(0);
    std::atomic<ebb_collector *> passing{nullptr};
    std::atomic<bool> stop{false};
    std::thread user([&] {
        while (!stop.load()) {
            if (ebb_collector *offered = passing.load(); offered != nullptr) {
                EXPECT_NE(nullptr, ebb_collector_attach(offered));
                passing.store(nullptr);
            }
            EXPECT_NE(nullptr, ebb_collector_attach(kept));
        }
    });
    for (std::size_t i = 0; i < support::scaled(2000); i++) {
        ebb_collector *ending = ebb_collector_create(0);
        passing.store(ending);
        while (passing.load() != nullptr)
            std::this_thread::yield();
        ebb_collector_destroy(ending);
    }
    stop.store(true);
    user.join();
    ebb_collector_destroy(kept);
}

} // namespace
