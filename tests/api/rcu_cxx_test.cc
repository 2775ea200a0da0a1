// SPDX-License-Identifier: MIT OR Apache-2.0
// <rcu> of C++26 under the names of ebbtide/rcu.hpp, by the sentences of [saferecl.rcu].
#include <mutex>

#include "reclaim_support.h"

#include "ebbtide/hazard_pointer.hpp"
#include "ebbtide/rcu.hpp"

namespace {

using namespace reclaim;

// ---- the synopsis ----------------------------------------------------------------------------------

struct Incomplete;
static_assert(sizeof(ebb::rcu_obj_base<Incomplete>) == 3 * sizeof(void *)); // T may be incomplete

struct Pod {
    int count = 0;
    void *where = nullptr;
    void operator()(void *) const {}
};
static_assert(std::is_trivially_copyable_v<ebb::rcu_obj_base<Incomplete>>);
static_assert(std::is_trivially_copyable_v<ebb::rcu_obj_base<Incomplete, Pod>>);
static_assert(!std::is_trivially_copyable_v<
              ebb::rcu_obj_base<Incomplete, std::function<void(Incomplete *)>>>);
static_assert(!std::is_default_constructible_v<ebb::rcu_obj_base<Incomplete>>); // protected
static_assert(!std::is_destructible_v<ebb::rcu_obj_base<Incomplete>>);

struct Plain : ebb::rcu_obj_base<Plain> {
    int value = 0;
};
static_assert(std::is_nothrow_default_constructible_v<Plain>);
static_assert(std::is_nothrow_copy_constructible_v<Plain>);
static_assert(std::is_nothrow_move_assignable_v<Plain>);
[[maybe_unused]] constinit Plain at_compile_time;

using Dom = ebb::rcu_domain;
static_assert(!std::is_default_constructible_v<Dom> && !std::is_copy_constructible_v<Dom> &&
              !std::is_copy_assignable_v<Dom> && !std::is_move_constructible_v<Dom>);
static_assert(noexcept(std::declval<Dom &>().lock()) &&noexcept(
    std::declval<Dom &>().unlock()) &&noexcept(std::declval<Dom &>().try_lock()));
static_assert(std::is_same_v<decltype(std::declval<Dom &>().try_lock()), bool>);
static_assert(std::is_same_v<decltype(ebb::rcu_default_domain()), Dom &> &&noexcept(
    ebb::rcu_default_domain()));
static_assert(noexcept(ebb::rcu_synchronize()) &&noexcept(ebb::rcu_barrier()));
static_assert(noexcept(ebb::rcu_synchronize(ebb::rcu_default_domain())) &&noexcept(
    ebb::rcu_barrier(ebb::rcu_default_domain())));
static_assert(noexcept(std::declval<Plain &>().retire()) &&noexcept(
    std::declval<Plain &>().retire(std::default_delete<Plain>(), ebb::rcu_default_domain())));
static_assert(!noexcept(ebb::rcu_retire(static_cast<int *>(nullptr))));
static_assert(std::is_void_v<decltype(std::declval<Plain &>().retire())> &&
              std::is_void_v<decltype(ebb::rcu_retire(static_cast<int *>(nullptr)))>);

// ---- what they do ----------------------------------------------------------------------------------

std::atomic<int> deleted{0};

class Rcu : public testing::Test {
protected:
    void SetUp() override { deleted = 0; }
    void TearDown() override { EXPECT_TRUE(drain()); }
    ebb::rcu_domain &domain = ebb::rcu_default_domain();
};

// The base is not the first one, and there are virtual functions.
struct Other {
    virtual ~Other() { deleted++; }
    long filler = 1;
};
struct Node : Other, ebb::rcu_obj_base<Node> {
    explicit Node(int v = 0) : value(v) {}
    int value;
};

TEST_F(Rcu, ThereIsOneDefaultDomain) { EXPECT_EQ(&ebb::rcu_default_domain(), &domain); }

TEST_F(Rcu, RegionsNestAndAreOfTheThread)
{
    EXPECT_FALSE(ebb_is_pinned());
    {
        const std::scoped_lock outer(domain);
        const std::unique_lock inner(domain, std::try_to_lock);
        EXPECT_TRUE(inner.owns_lock());
        EXPECT_TRUE(domain.try_lock());
        domain.unlock();
        EXPECT_TRUE(ebb_is_pinned());
        in_thread([] { EXPECT_FALSE(ebb_is_pinned()); });
    }
    EXPECT_FALSE(ebb_is_pinned());
}

TEST_F(Rcu, RetireWaitsForTheRegionsThatWereOpened)
{
    Node *const node = new Node(7);
    {
        const std::scoped_lock reader(domain);
        node->retire();
        in_thread([] { push_on(); });
        EXPECT_EQ(0, deleted.load());
        EXPECT_EQ(7, node->value);
    }
    ebb::rcu_barrier();
    EXPECT_EQ(1, deleted.load());
}

TEST_F(Rcu, SynchronizeWaitsForARegionAndSeesWhatWasDoneInIt)
{
    int plain = 0; // TSan: unlock strongly happens before the return
    std::atomic<int> stage{0};
    std::thread reader([&] {
        const std::scoped_lock region(domain);
        stage = 1;
        stage.notify_all();
        while (stage != 2)
            std::this_thread::yield();
        plain = 1;
    });
    stage.wait(0);
    std::thread other([&] { stage = 2; });
    ebb::rcu_synchronize();
    EXPECT_EQ(1, plain);
    reader.join();
    other.join();
}

// Deleters with a state, of each kind that the wording allows.
struct Counting {
    std::atomic<int> *count = nullptr;
    void operator()(auto *p) const
    {
        delete p; // the deleter was a part of it
        count->fetch_add(1);
    }
};
struct WithState : ebb::rcu_obj_base<WithState, Counting> {};
struct ByFunction : ebb::rcu_obj_base<ByFunction, void (*)(ByFunction *)> {};
struct ByStdFunction : ebb::rcu_obj_base<ByStdFunction, std::function<void(ByStdFunction *)>> {};
struct Final final {
    void operator()(auto *p) const
    {
        delete p;
        deleted++;
    }
};
struct ByFinal : ebb::rcu_obj_base<ByFinal, Final> {};
// Default constructible and move assignable, no more.
struct Assigned {
    Assigned() = default;
    Assigned(const Assigned &) = delete;
    Assigned &operator=(Assigned &&other) noexcept
    {
        set = other.set;
        return *this;
    }
    void operator()(auto *p) const
    {
        delete p;
        deleted += set;
    }
    int set = 1;
};
struct ByAssigned : ebb::rcu_obj_base<ByAssigned, Assigned> {};
struct Unaddressed {
    void operator&() const = delete;
    void operator()(auto *p) const
    {
        delete p;
        deleted++;
    }
};
struct ByUnaddressed : ebb::rcu_obj_base<ByUnaddressed, Unaddressed> {};
static_assert(sizeof(WithState) == 4 * sizeof(void *) && sizeof(Plain) == 4 * sizeof(void *));

TEST_F(Rcu, EveryKindOfDeleter)
{
    std::atomic<int> count{0};
    (new WithState)->retire(Counting{&count});
    (new ByFunction)->retire([](ByFunction *p) {
        delete p;
        deleted++;
    });
    const auto shared = std::make_shared<int>(1);
    (new ByStdFunction)->retire([shared](ByStdFunction *p) {
        delete p;
        deleted += *shared;
    });
    (new ByFinal)->retire();
    (new ByAssigned)->retire();
    (new ByUnaddressed)->retire();
    ebb::rcu_barrier();
    EXPECT_EQ(1, count.load());
    EXPECT_EQ(5, deleted.load());
    EXPECT_EQ(1, shared.use_count()) << "the deleter has gone, too";
}

TEST_F(Rcu, RetireOfObjectsWithoutTheBase)
{
    std::atomic<int> count{0};
    ebb::rcu_retire(static_cast<int *>(nullptr)); // as delete
    ebb::rcu_retire(new Other);
    ebb::rcu_retire(static_cast<const Other *>(new Other));
    ebb::rcu_retire(new int(3), [&](int *p) {
        count += *p;
        delete p;
    });
    ebb::rcu_retire(new int(4), Counting{&count}, domain);
    ebb::rcu_retire(new int[3], std::default_delete<int[]>());
    auto owner = std::make_unique<int>(5); // a deleter that can only be moved
    ebb::rcu_retire(new int(6), [owner = std::move(owner), &count](int *p) {
        count += *owner;
        delete p;
    });
    ebb::rcu_barrier();
    EXPECT_EQ(3 + 1 + 5, count.load());
    EXPECT_EQ(2, deleted.load());
}

std::atomic<bool> unprotected{false};

struct SeesProtection {
    void operator()(int *p) const
    {
        EXPECT_TRUE(unprotected.load());
        delete p;
        deleted++;
    }
};
struct SeesProtectionToo : SeesProtection {
    int state = 1;
};

// A stateless deleter waits in a record with others, one with state in a hook of its own.
TEST_F(Rcu, BarrierWaitsForAHazardPointerOnlyWithAStatelessDeleter)
{
    ebb::hazard_pointer hazard = ebb::make_hazard_pointer();
    unprotected = false;
    int *const with_state = new int(1);
    hazard.reset_protection(with_state);
    ebb::rcu_retire(with_state, SeesProtectionToo());
    in_thread([] { ebb::rcu_barrier(); });
    EXPECT_EQ(0, deleted.load());
    unprotected = true;
    hazard.reset_protection();
    EXPECT_TRUE(drain());
    EXPECT_EQ(1, deleted.load());

    unprotected = false;
    int *const stateless = new int(2);
    hazard.reset_protection(stateless);
    ebb::rcu_retire(stateless, SeesProtection());
    std::thread waits([] {
        ebb::rcu_barrier();
        EXPECT_EQ(2, deleted.load());
    });
    push_on();
    EXPECT_EQ(1, deleted.load());
    unprotected = true;
    hazard.reset_protection();
    waits.join();
}

struct ThrowsWhenMoved {
    ThrowsWhenMoved() = default;
    ThrowsWhenMoved(ThrowsWhenMoved &&) { throw 1; }
    void operator()(int *) const { deleted++; }
};

TEST_F(Rcu, RetireThrowsWhatTheDeleterThrowsWhenItIsMoved)
{
    int mine = 0;
    const std::size_t before = heap_stats().live_bytes;
    for (int i = 0; i < 10000; i++)
        EXPECT_THROW(ebb::rcu_retire(&mine, ThrowsWhenMoved()), int);
    ebb::rcu_barrier();
    EXPECT_EQ(0, deleted.load());
    EXPECT_LE(heap_stats().live_bytes, before + support::MiB);
}

// A list whose nodes retire the next one from their destructors.
struct Chain : ebb::rcu_obj_base<Chain> {
    explicit Chain(Chain *n) : next(n) {}
    ~Chain()
    {
        if (next != nullptr)
            next->retire();
        deleted++;
    }
    Chain *next;
};

TEST_F(Rcu, DeletersMayRetire)
{
    Chain *first = nullptr;
    for (int i = 0; i < 10000; i++)
        first = new Chain(first);
    first->retire();
    while (stats().destructors > 0)
        ebb::rcu_barrier();
    EXPECT_EQ(10000, deleted.load());
}

TEST_F(Rcu, DeletersMayReadAndSynchronize)
{
    ebb::rcu_retire(new int(1), [&](int *p) {
        {
            const std::scoped_lock reader(domain);
            EXPECT_EQ(1, *p);
        }
        ebb::rcu_synchronize();
        delete p;
        deleted++;
    });
    ebb::rcu_barrier();
    EXPECT_EQ(1, deleted.load());
}

TEST_F(Rcu, BarrierWaitsForAllThreadsAndSeesWhatTheDeletersDid)
{
    constexpr int each = 500;
    std::vector<int> plain(4 * each); // TSan: the evaluations strongly happen before the return
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&, t] {
            for (int i = 0; i < each; i++)
                ebb::rcu_retire(&plain[static_cast<std::size_t>(t * each + i)],
                                [&](int *p) { (*p)++; });
        });
    for (std::thread &thread : threads)
        thread.join();
    ebb::rcu_barrier();
    EXPECT_EQ(plain, std::vector<int>(4 * each, 1));
}

// An object that a deleter keeps, and that retires again.
TEST_F(Rcu, AnObjectMayBeUsedAgain)
{
    static std::vector<Plain *> pool;
    struct Keep {
        void operator()(Plain *p) const { pool.push_back(p); }
    };
    struct Kept : ebb::rcu_obj_base<Kept, void (*)(Kept *)> {};
    static std::atomic<Kept *> home;
    Kept *const kept = new Kept;
    for (int i = 0; i < 100; i++) {
        kept->retire([](Kept *p) { home = p; });
        ebb::rcu_barrier();
        EXPECT_EQ(kept, home.exchange(nullptr));
    }
    Kept copy(*kept), moved;
    moved = std::move(copy);
    delete kept;
}

TEST_F(Rcu, ManyReadersAndWritersOfOneList)
{
    struct Item : ebb::rcu_obj_base<Item> {
        Item(int k, Item *n) : key(k), check(~k), next(n) {}
        ~Item() { key = check = 0; }
        int key, check;
        std::atomic<Item *> next;
    };
    std::atomic<Item *> head{nullptr};
    for (int key = 0; key < 64; key++)
        head = new Item(key, head);
    std::mutex writers;
    std::atomic<bool> stop{false};
    std::atomic<long> wrong{0}, seen{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; t++)
        threads.emplace_back([&] {
            while (!stop) {
                const std::scoped_lock reader(domain);
                for (const Item *item = head.load(); item != nullptr; item = item->next.load()) {
                    wrong += item->key != ~item->check;
                    seen++;
                }
            }
        });
    for (unsigned t = 0; t < 2; t++)
        threads.emplace_back([&, t] {
            support::Random random(t);
            for (std::size_t i = 0; i < support::scaled(20000); i++) {
                const std::scoped_lock lock(writers);
                std::atomic<Item *> *link = &head;
                for (std::size_t n = random.below(64); n > 0 && link->load()->next != nullptr; n--)
                    link = &link->load()->next;
                Item *const old = link->load();
                link->store(new Item(old->key, old->next));
                old->retire();
            }
        });
    for (std::size_t t = 2; t < 4; t++)
        threads[t].join();
    stop = true;
    for (std::size_t t = 0; t < 2; t++)
        threads[t].join();
    EXPECT_EQ(0, wrong.load());
    EXPECT_GT(seen.load(), 0);
    while (Item *const item = head.load()) {
        head = item->next.load();
        delete item;
    }
}

using RcuDeathTest = Rcu;

TEST_F(RcuDeathTest, ADeleterThatThrowsEndsTheProcess)
{
    EXPECT_EXIT(
        {
            ebb::rcu_retire(new int, [](int *) { throw 1; });
            ebb::rcu_barrier();
        },
        testing::KilledBySignal(SIGABRT), "terminate");
}

TEST_F(RcuDeathTest, RetiredTwice)
{
    EXPECT_EXIT(
        {
            Node *const node = new Node;
            const std::scoped_lock reader(domain);
            node->retire();
            node->retire();
        },
        testing::KilledBySignal(SIGABRT), "double retire");
}

} // namespace
