// SPDX-License-Identifier: MIT OR Apache-2.0
// The C++ faces: ebbtide.hpp (guards, atomic pointers, retire with destructors, hazard pointers, RCU,
// collectors) and ebbtide/lockfree.hpp (the blocks, values in place and boxed).
#include <memory>
#include <mutex>
#include <string>

#include "ebbtide.hpp"
#include "ebbtide/lockfree.hpp"
#include "ebbtide/region.hpp"
#include "lockfree/support.h"

namespace {

std::atomic<int> alive{0};

struct Counted {
    explicit Counted(int v = 0) : value(v) { alive++; }
    Counted(const Counted &other) : value(other.value) { alive++; }
    Counted &operator=(const Counted &) = default;
    virtual ~Counted() { alive--; }
    int value;
};

struct alignas(128) Wide : Counted {
    using Counted::Counted;
    char more[200] = {};
};

// Its Counted is not where its block begins.
struct Second {
    virtual ~Second() = default;
    long first = 1;
};
struct Offset : Second, Counted {
    using Counted::Counted;
};

// Every object has gone by the end of each test.
class Faces : public testing::Test {
protected:
    void TearDown() override
    {
        ebb::rcu_barrier();
        EXPECT_EQ(alive.load(), 0);
    }
};

TEST_F(Faces, MakeAndDestroyRespectAlignment)
{
    Wide *wide = ebb::make<Wide>(3);
    EXPECT_EQ(support::address(wide) % 128, 0U);
    EXPECT_EQ(wide->value, 3);
    ebb::destroy(wide);
    Counted *base = ebb::make<Offset>(4);
    EXPECT_EQ(base->value, 4);
    ebb::destroy(base);
    ebb::destroy(static_cast<Counted *>(nullptr));
}

struct Throws {
    Throws() { throw 1; }
};

TEST_F(Faces, MakeLeavesNothingBehindWhenAConstructorThrows)
{
    const std::size_t before = lockfree::live_blocks();
    for (int i = 0; i < 10000; i++)
        EXPECT_THROW(ebb::make<Throws>(), int);
    lockfree::expect_drained(before);
}

TEST_F(Faces, RetireRunsTheDestructorAfterThePin)
{
    {
        ebb::guard pinned;
        ebb::retire(ebb::make<Counted>());
        ebb::retire(static_cast<Counted *>(ebb::make<Offset>()));
        ebb::retire(ebb::make<Wide>());
        ebb::retire(ebb::make<long>(1)); // without a destructor
        ebb::retire(static_cast<Counted *>(nullptr));
        ebb::retire(static_cast<long *>(nullptr));
        EXPECT_EQ(alive.load(), 3);
    }
    ebb::rcu_barrier();
    EXPECT_EQ(alive.load(), 0);
}

TEST_F(Faces, AtomicPtrUnderThreads)
{
    ebb::atomic_ptr<Counted> current(ebb::make<Counted>(1));
    std::atomic<int> wrong{0};
    lockfree::run_together(3, [&](unsigned id) {
        for (std::size_t i = 0; i < support::scaled(50000); i++) {
            if (id == 0) {
                current.replace(ebb::make<Counted>(1));
                continue;
            }
            ebb::guard pinned;
            wrong += current.load(pinned)->value != 1;
            pinned.repin();
            wrong += current.load(pinned)->value != 1;
        }
    });
    EXPECT_EQ(wrong.load(), 0);
    Counted *expected = nullptr;
    EXPECT_FALSE(current.compare_exchange_strong(expected, nullptr));
    EXPECT_TRUE(current.compare_exchange_strong(expected, nullptr));
    ebb::retire(expected);
    current.store(nullptr);
    EXPECT_EQ(current.load_unprotected(), nullptr);
}

TEST_F(Faces, CollectorIsAClockOfItsOwn)
{
    for (unsigned flags : {0U, static_cast<unsigned>(EBB_COLLECTOR_FENCED)}) {
        ebb::collector clock(flags);
        EXPECT_TRUE(clock.is_fenced() || flags == 0);
        ebb_participant *me = clock.attach();
        {
            ebb::guard pinned(me);
            ebb::guard deeper(clock);
            const std::scoped_lock deepest(clock);
            clock.retire(ebb::make<Counted>());
            clock.retire(ebb::make<long>(1));
            EXPECT_TRUE(ebb_participant_is_pinned(me));
            EXPECT_FALSE(ebb_is_pinned());
            EXPECT_EQ(alive.load(), 1);
        }
        EXPECT_FALSE(ebb_participant_is_pinned(me));
        clock.barrier();
        EXPECT_EQ(alive.load(), 0);
        clock.retire(ebb::make<Counted>());
        clock.synchronize();
        clock.reclaim();
        clock.retire(ebb::make<Counted>()); // destroyed with the collector
    }
    EXPECT_THROW(ebb::collector(~0U), std::invalid_argument);
}

struct Hazardous : Counted, ebb::hazard_pointer_obj_base<Hazardous> {
    using Counted::Counted;
};

TEST_F(Faces, HazardPointerHoldsOneObject)
{
    std::atomic<Hazardous *> source{new Hazardous(1)};
    ebb::hazard_pointer hazard = ebb::make_hazard_pointer();
    EXPECT_FALSE(hazard.empty());
    Hazardous *held = hazard.protect(source);
    source.exchange(new Hazardous(2))->retire();
    for (int i = 0; i < 5; i++) {
        ebb::rcu_synchronize();
        ebb_reclaim();
    }
    EXPECT_EQ(alive.load(), 2);
    EXPECT_EQ(held->value, 1);
    Hazardous *stale = held;
    EXPECT_FALSE(hazard.try_protect(stale, source)); // lets go, and tells what is there
    EXPECT_EQ(stale->value, 2);
    EXPECT_TRUE(hazard.try_protect(stale, source));
    ebb::hazard_pointer moved = std::move(hazard);
    EXPECT_TRUE(hazard.empty());
    moved.reset_protection();
    source.load()->retire();
}

struct Rcu : Counted, ebb::rcu_obj_base<Rcu> {
    using Counted::Counted;
};

TEST_F(Faces, RcuNamesOfTheStandard)
{
    int deleted = 0;
    ebb::rcu_domain &domain = ebb::rcu_default_domain();
    {
        const std::scoped_lock reader(domain);
        (new Rcu(1))->retire();
        ebb::rcu_retire(new Counted(2));
        ebb::rcu_retire(new Counted(3), [&deleted](Counted *p) { // a deleter with a state
            deleted = p->value;
            delete p;
        });
        EXPECT_EQ(alive.load(), 3);
    }
    ebb::rcu_synchronize();
    ebb::rcu_barrier();
    EXPECT_EQ(alive.load(), 0);
    EXPECT_EQ(deleted, 3);
}

template <typename Line> void use_line()
{
    Line line;
    line.push(1);
    line.push(2);
    const auto first = line.pop(), second = line.pop();
    ASSERT_TRUE(first && second);
    EXPECT_FALSE(line.pop());
    line.push(3); // goes with the block
}

TEST_F(Faces, BlocksKeepSmallValuesInPlace)
{
    use_line<ebb::deque<int>>();
    use_line<ebb::queue<short>>();
    use_line<ebb::stack<double>>();
    const std::size_t before = lockfree::live_blocks();
    ebb::deque<std::uint32_t> deque(4096);
    for (std::uint32_t i = 0; i < 4096; i++)
        deque.push(i);
    EXPECT_LE(lockfree::live_blocks(), before + 300); // none for each item
    EXPECT_EQ(deque.size(), 4096U);
    EXPECT_EQ(deque.steal(), 0U);
    EXPECT_EQ(deque.pop(), 4095U);
}

struct Big {
    Big(int v) : counted(v), text(100, 'x') {}
    Counted counted;
    std::string text;
};

TEST_F(Faces, BlocksBoxWhatIsLarge)
{
    use_line<ebb::deque<Big>>();
    use_line<ebb::queue<Big>>();
    use_line<ebb::stack<Big>>();
    ebb::deque<std::unique_ptr<int>> deque;
    for (int i = 0; i < 100; i++)
        deque.push(std::make_unique<int>(i));
    ebb_steal result;
    EXPECT_EQ(**deque.try_steal(&result), 0);
    EXPECT_EQ(result, EBB_STEAL_SUCCESS);
    EXPECT_EQ(**deque.pop(), 99);
    deque.shrink();
    ebb::deque<int> empty;
    EXPECT_FALSE(empty.try_steal(&result));
    EXPECT_EQ(result, EBB_STEAL_EMPTY);
}

struct Unaddressed {
    void operator&() const = delete;
    int value = 0;
};

TEST_F(Faces, BlocksTakeNoAddressByAnOverload)
{
    ebb::queue<Unaddressed> queue;
    queue.push(Unaddressed{3});
    EXPECT_EQ(queue.pop()->value, 3);
    ebb::map<int, Unaddressed> map;
    map.insert(1, Unaddressed{4});
    struct Visitor {
        void operator&() const = delete;
        void operator()(int, const Unaddressed &seen) { sum += seen.value; }
        int sum = 0;
    } visitor;
    map.for_each(visitor);
    EXPECT_EQ(visitor.sum, 4);
    const ebb::guard guard;
    EXPECT_EQ(map.find(guard, 1)->value, 4);
}

int sum_of_pairs = 0;
void add_pair(const int &key, const int &value) { sum_of_pairs += key * value; }

TEST_F(Faces, AMapCallsAPlainFunction)
{
    ebb::map<int, int> map;
    map.insert(2, 3);
    map.for_each(add_pair);
    map.for_each(&add_pair);
    EXPECT_EQ(12, sum_of_pairs);
}

TEST_F(Faces, AValueNeedsNoAssignment)
{
    struct Fixed {
        explicit Fixed(int v) : value(v) {}
        Fixed(Fixed &&) = default;
        const int value;
        std::unique_ptr<int> boxed;
    };
    ebb::deque<Fixed> deque;
    deque.push(Fixed(1));
    deque.push(Fixed(2));
    EXPECT_EQ(1, deque.steal()->value);
    EXPECT_EQ(2, deque.pop()->value);
    EXPECT_FALSE(deque.steal().has_value());
}

// A namespace whose own functions of these names must not be found beside its types.
namespace own {
struct Odd : Counted {
    using Counted::Counted;
};
void destroy(Odd *) = delete;
void retire(Odd *) = delete;
struct Deleter {
    int state = 1;
    void operator()(Odd *p) const { ebb::destroy(p); }
};
template <typename T> void destroy(T *) = delete;
} // namespace own

TEST_F(Faces, CallTheirOwnFunctions)
{
    ebb::queue<own::Odd> left_behind;
    left_behind.push(own::Odd(1));
    ebb::retire(ebb::make<own::Odd>());
    ebb::atomic_ptr<own::Odd> current(ebb::make<own::Odd>());
    current.replace(nullptr);
    ebb::rcu_retire(ebb::make<own::Odd>(), own::Deleter());
    ebb::region region;
    region.make<own::Odd>();
    EXPECT_EQ(region.make_unique<own::Odd>(2)->value, 2);
}

TEST_F(Faces, QueueOfBoxesUnderThreads)
{
    ebb::queue<Big> queue;
    std::atomic<long> sum{0};
    const std::size_t each = support::scaled(20000);
    lockfree::run_together(2, [&](unsigned id) {
        for (std::size_t i = 0; i < each; i++) {
            if (id == 0)
                queue.push(Big(1));
            else if (const std::optional<Big> got = queue.pop())
                sum += got->counted.value;
        }
    });
    while (const std::optional<Big> got = queue.pop())
        sum += got->counted.value;
    EXPECT_EQ(sum.load(), static_cast<long>(each));
    EXPECT_EQ(queue.size(), 0U);
}

TEST_F(Faces, MapOfObjects)
{
    ebb::map<std::string, Counted> map;
    EXPECT_TRUE(map.insert("one", Counted(1)));
    EXPECT_FALSE(map.insert("one", Counted(7)));
    EXPECT_FALSE(map.insert_or_assign("one", Counted(2)));
    EXPECT_TRUE(map.insert_or_assign("two", Counted(3)));
    EXPECT_EQ(map.find("one")->value, 2);
    EXPECT_FALSE(map.find("three"));
    EXPECT_FALSE(map.visit("three", [](const Counted &) { FAIL(); }));
    int sum = 0;
    map.for_each([&sum](const std::string &key, const Counted &value) {
        sum += value.value * static_cast<int>(key.size());
    });
    EXPECT_EQ(sum, 3 * (2 + 3));
    {
        ebb::guard pinned;
        const Counted *held = map.find(pinned, "one");
        EXPECT_TRUE(map.erase("one"));
        EXPECT_FALSE(map.erase("one"));
        EXPECT_FALSE(map.contains("one"));
        EXPECT_EQ(held->value, 2); // the pin keeps it
    }
    EXPECT_EQ(map.size(), 1U);
    ebb::rcu_barrier();
    EXPECT_EQ(alive.load(), 1); // the other goes with the map
}

TEST_F(Faces, MapUnderThreads)
{
    ebb::map<int, std::string> map;
    const std::size_t each = support::scaled(30000);
    lockfree::run_together(3, [&](unsigned id) {
        support::Random random(id);
        for (std::size_t i = 0; i < each; i++) {
            const int key = static_cast<int>(random.below(64));
            map.insert_or_assign(key, std::string(40, static_cast<char>('a' + key % 26)));
            map.visit(key + 1, [key](const std::string &text) {
                EXPECT_EQ(text, std::string(40, static_cast<char>('a' + (key + 1) % 26)));
            });
            if (random.below(3) == 0)
                map.erase(key);
        }
    });
    EXPECT_LE(map.size(), 64U);
}

} // namespace
