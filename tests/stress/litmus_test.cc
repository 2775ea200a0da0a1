// SPDX-License-Identifier: MIT OR Apache-2.0
// The store-load litmus of pin. A reader fills its store buffer with stores that miss every cache,
// pins, loads the shared pointer and looks at the node for a while; the writer swaps the pointer,
// retires the old node and moves the clock on as fast as it can. A pin whose store is still in the
// buffer is one that the writer does not see: the node is freed under the reader's eyes.
//
// The negative control runs the same program with the pin's fence taken out and must catch the
// reader at a freed node; it proves that the other cases could fail.
#include <pthread.h>
#include <sched.h>

#include "../api/reclaim_support.h"

namespace {

using namespace reclaim;
using support::MiB;

constexpr std::uint64_t alive = 0xA11FEA11FEA11FE1, dead = 0xDEADDEADDEADDEAD;
constexpr int cold_stores = 24;
constexpr std::size_t cold_lines = 64 * MiB / 64;
// Few blocks of this size share a slab: malloc soon comes round to the one that was freed.
constexpr std::size_t quickly_reused = 8192;

struct Node {
    std::atomic<std::uint64_t> canary;
    std::atomic<std::uint64_t> number;
};

void place(unsigned nth)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && nth-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            pthread_setaffinity_np(pthread_self(), sizeof one, &one);
            return;
        }
}

int cpus()
{
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

void poison(void *p, void *)
{
    static_cast<Node *>(p)->canary.store(dead, std::memory_order_relaxed);
    ebb_free(p);
}

// Announces as ebb_participant_pin does, but leaves the store to the store buffer.
void pin_without_fence(ebb_participant *me)
{
    ebbi_store_release(&me->state, ebbi_load_relaxed(me->now) | 1);
    ebbi_compiler_fence();
}

enum Freeing {
    AFTER_COOKIE, // the writer itself, as soon as a cookie has passed
    POISONED,     // a destructor
    REUSED,       // malloc hands it out again, and the writer fills it
};

// A store that misses every cache, and is slow to leave the store buffer where that can be had.
void store_cold(std::uint64_t *line, std::uint64_t value)
{
    __atomic_store_n(line, value, __ATOMIC_RELAXED);
#if defined(__x86_64__)
    __builtin_ia32_clflush(line);
#endif
}

class Litmus {
public:
    // NULL: the default collector.
    Litmus(ebb_collector *collector, bool without_fence, Freeing freeing)
        : collector_(collector), without_fence_(without_fence), freeing_(freeing),
          cold_(cold_lines * 8)
    {
        shared_.store(make(0));
    }
    ~Litmus()
    {
        ebb_free(shared_.load());
        if (collector_ != nullptr)
            ebb_collector_destroy(collector_);
    }

    // Until a read of freed memory was seen or the time is up.
    void run(double seconds)
    {
        const auto end =
            std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                                   std::chrono::duration<double>(seconds));
        std::thread reader([this] { read(); });
        std::thread writer([this] { write(); });
        while (seen_.load() == 0 && std::chrono::steady_clock::now() < end)
            usleep(2000);
        stop_.store(true);
        reader.join();
        writer.join();
    }
    std::uint64_t seen() const { return seen_.load(); }
    std::uint64_t reads() const { return reads_; }
    std::uint64_t swaps() const { return swaps_; }

private:
    Node *make(std::uint64_t number) const
    {
        const std::size_t bytes = freeing_ == REUSED ? quickly_reused : sizeof(Node);
        auto *node = static_cast<Node *>(ebb_malloc(bytes));
        node->number.store(number, std::memory_order_relaxed);
        node->canary.store(alive, std::memory_order_relaxed);
        return node;
    }

    // Whether the node stays what it was for as long as this thread looks at it.
    bool is_steady(const Node *node, std::size_t looks)
    {
        const std::uint64_t number = node->number.load(std::memory_order_relaxed);
        for (std::size_t i = 0; i < looks; i++)
            if (node->canary.load(std::memory_order_relaxed) != alive ||
                node->number.load(std::memory_order_relaxed) != number)
                return false;
        return true;
    }

    static std::size_t next_line(std::uint64_t &at)
    {
        at = support::mix(at + 1);
        return at % cold_lines * 8;
    }

    void read()
    {
        place(0);
        ebb_participant *me = ebb_collector_attach(collector_);
        support::Random random(1);
        const std::size_t most = freeing_ == REUSED ? 100000 : 2000;
        std::uint64_t at = 0;
        while (!stop_.load(std::memory_order_relaxed)) {
            const std::size_t looks = 1 + random.below(most);
            for (int i = 0; i < cold_stores; i++)
                store_cold(&cold_[next_line(at)], at);
            const Node *node = without_fence_ ? pin_late(me, random) : pin_and_load(me);
            if (!is_steady(node, looks))
                seen_.fetch_add(1);
            ebb_participant_unpin(me);
            reads_++;
        }
    }

    Node *pin_and_load(ebb_participant *me)
    {
        ebb_participant_pin(me);
        return shared_.load(std::memory_order_acquire);
    }

    // Reuse takes longer than some processors keep a store back: there the order that the fence
    // forbids, the load before the store, is made by hand.
    Node *pin_late(ebb_participant *me, support::Random &random)
    {
        if (freeing_ != REUSED) {
            pin_without_fence(me);
            return shared_.load(std::memory_order_acquire);
        }
        Node *node = shared_.load(std::memory_order_acquire);
        for (std::size_t i = random.below(1000000); i > 0; i--)
            ebbi_compiler_fence();
        pin_without_fence(me);
        return node;
    }

    void let_go(ebb_participant *me, Node *old)
    {
        if (freeing_ == AFTER_COOKIE) {
            const std::uint64_t cookie = ebb_epoch_cookie();
            while (!ebb_epoch_passed(cookie)) {
            }
            poison(old, nullptr);
            return;
        }
        if (freeing_ == POISONED)
            EXPECT_EQ(0, ebb_participant_retire_with(me, old, poison, nullptr));
        else
            EXPECT_EQ(0, ebb_participant_retire(me, old));
        ebb_collector_reclaim(collector_);
    }

    void write()
    {
        place(1);
        ebb_participant *me = ebb_collector_attach(collector_);
        while (!stop_.load(std::memory_order_relaxed)) {
            Node *old = shared_.exchange(make(++swaps_), std::memory_order_acq_rel);
            let_go(me, old);
        }
    }

    ebb_collector *collector_;
    const bool without_fence_;
    const Freeing freeing_;
    support::MappedArray<std::uint64_t> cold_;
    std::atomic<bool> stop_{false};
    std::atomic<std::uint64_t> seen_{0};
    std::uint64_t reads_ = 0, swaps_ = 0;
    alignas(64) std::atomic<Node *> shared_{nullptr};
};

double seconds() { return std::min(2.0 * support::scale(), 60.0); }

void expect_no_read_of_freed_memory(Litmus &litmus)
{
    litmus.run(seconds());
    EXPECT_EQ(0U, litmus.seen()) << "in " << litmus.reads() << " reads and " << litmus.swaps()
                                 << " swaps";
    EXPECT_GT(litmus.reads(), 0U);
    EXPECT_GT(litmus.swaps(), 0U);
}

struct LitmusOfPin : testing::TestWithParam<Freeing> {};
INSTANTIATE_TEST_SUITE_P(AfterCookie, LitmusOfPin, testing::Values(AFTER_COOKIE));
INSTANTIATE_TEST_SUITE_P(Poisoned, LitmusOfPin, testing::Values(POISONED));
INSTANTIATE_TEST_SUITE_P(Reused, LitmusOfPin, testing::Values(REUSED));

TEST_P(LitmusOfPin, WithItsFence)
{
    Litmus litmus(nullptr, false, GetParam());
    expect_no_read_of_freed_memory(litmus);
}

struct LitmusOfCollector : LitmusOfPin {};
INSTANTIATE_TEST_SUITE_P(Poisoned, LitmusOfCollector, testing::Values(POISONED));
INSTANTIATE_TEST_SUITE_P(Reused, LitmusOfCollector, testing::Values(REUSED));

TEST_P(LitmusOfCollector, WithItsFence)
{
    Litmus litmus(ebb_collector_create(EBB_COLLECTOR_FENCED), false, GetParam());
    expect_no_read_of_freed_memory(litmus);
}

TEST_P(LitmusOfCollector, Biased)
{
    Litmus litmus(ebb_collector_create(0), false, GetParam());
    expect_no_read_of_freed_memory(litmus);
}

// Why the negative control cannot fail here, or NULL.
const char *cannot_fail()
{
    const char *preload = std::getenv("LD_PRELOAD");
#ifdef EBBTEST_SANITIZED
    return "a sanitizer's checks between the pin and the load are as good as a fence";
#endif
    if (preload != nullptr && std::strstr(preload, "vgpreload") != nullptr)
        return "valgrind runs one thread at a time";
#ifdef EBBTEST_EMULATED
    return "an emulator keeps the order of stores and loads";
#endif
    return cpus() < 2 ? "one processor sees its own stores in order" : nullptr;
}

void expect_caught_without_fence(ebb_collector *collector, Freeing freeing)
{
    if (cannot_fail() != nullptr)
        GTEST_SKIP() << cannot_fail();
    Litmus litmus(collector, true, freeing);
    litmus.run(60 * std::max(1.0, support::scale())); // ends at the first violation
    EXPECT_GT(litmus.seen(), 0U) << "in " << litmus.reads() << " reads and " << litmus.swaps()
                                 << " swaps: the litmus proves nothing";
}

TEST_P(LitmusOfPin, NegativeControlWithoutTheFence)
{
    expect_caught_without_fence(nullptr, GetParam());
}

TEST_P(LitmusOfCollector, NegativeControlWithoutTheFence)
{
    expect_caught_without_fence(ebb_collector_create(EBB_COLLECTOR_FENCED), GetParam());
}

} // namespace
