// SPDX-License-Identifier: MIT OR Apache-2.0
// <hazard_pointer> of C++26 under the names of ebbtide/hazard_pointer.hpp, by the sentences of [saferecl.hp].
#include <mutex>

#include "reclaim_support.h"

#include "ebbtide.hpp"
#include "ebbtide/hazard_pointer.hpp"

namespace {

using namespace reclaim;

// ---- the synopsis ----------------------------------------------------------------------------------

struct Incomplete;
static_assert(sizeof(ebb::hazard_pointer_obj_base<Incomplete>) == 3 * sizeof(void *));
static_assert(std::is_trivially_copyable_v<ebb::hazard_pointer_obj_base<Incomplete>>);
static_assert(!std::is_default_constructible_v<ebb::hazard_pointer_obj_base<Incomplete>>);
static_assert(!std::is_destructible_v<ebb::hazard_pointer_obj_base<Incomplete>>);

using Hp = ebb::hazard_pointer;
static_assert(std::is_nothrow_default_constructible_v<Hp> &&
              std::is_nothrow_move_constructible_v<Hp> && std::is_nothrow_move_assignable_v<Hp> &&
              std::is_nothrow_destructible_v<Hp> && std::is_nothrow_swappable_v<Hp>);
static_assert(!std::is_copy_constructible_v<Hp> && !std::is_copy_assignable_v<Hp>);
static_assert(!noexcept(ebb::make_hazard_pointer()) &&
              std::is_same_v<decltype(ebb::make_hazard_pointer()), Hp>);
static_assert(noexcept(std::declval<const Hp &>().empty()) &&
              std::is_same_v<decltype(std::declval<const Hp &>().empty()), bool>);

std::atomic<int> deleted{0};

struct First {
    virtual ~First() { deleted++; }
    long filler = 0;
};
struct Node : First, ebb::hazard_pointer_obj_base<Node> {
    explicit Node(int v = 0) : value(v) {}
    ~Node() override { value = -1; }
    int value;
};
using Source = std::atomic<Node *>;

static_assert(noexcept(std::declval<Hp &>().protect(std::declval<const Source &>())) &&noexcept(
    std::declval<Hp &>().try_protect(std::declval<Node *&>(), std::declval<const Source &>()))
                  &&noexcept(std::declval<Hp &>().reset_protection(std::declval<const Node *>()))
                      &&noexcept(std::declval<Hp &>().reset_protection(nullptr))
                          &&noexcept(std::declval<Hp &>().reset_protection()) &&noexcept(
                              std::declval<Hp &>().swap(std::declval<Hp &>())));
static_assert(noexcept(std::declval<Node &>().retire()) &&noexcept(
    std::declval<Node &>().retire(std::default_delete<Node>())));

// ---- what they do ----------------------------------------------------------------------------------

class HazardPointer : public testing::Test {
protected:
    void SetUp() override { deleted = 0; }
    void TearDown() override { EXPECT_TRUE(drain()); }
    // Whether what was retired before has been deleted as soon as it could.
    static int after_all()
    {
        push_on();
        return deleted.load();
    }
};

TEST_F(HazardPointer, AnEmptyOneOwnsNothing)
{
    const std::size_t open = stats().hazards;
    Hp empty;
    EXPECT_TRUE(empty.empty());
    Hp made = ebb::make_hazard_pointer();
    EXPECT_FALSE(made.empty());
    EXPECT_EQ(open + 1, stats().hazards);
    Hp moved(std::move(made));
    EXPECT_TRUE(made.empty());
    EXPECT_FALSE(moved.empty());
    empty = std::move(moved);
    EXPECT_TRUE(moved.empty());
    EXPECT_EQ(open + 1, stats().hazards);
    empty = Hp();
    EXPECT_TRUE(empty.empty());
    EXPECT_EQ(open, stats().hazards);
}

TEST_F(HazardPointer, AssignmentEndsTheProtectionThatWasThere)
{
    Node *const first = new Node(1), *const second = new Node(2);
    Hp a = ebb::make_hazard_pointer(), b = ebb::make_hazard_pointer();
    a.reset_protection(first);
    b.reset_protection(second);
    first->retire();
    second->retire();
    EXPECT_EQ(0, after_all());
    a = std::move(b);
    EXPECT_EQ(1, after_all());
    EXPECT_EQ(2, second->value);
    Hp &self = a;
    a = std::move(self); // no effect
    EXPECT_FALSE(a.empty());
    EXPECT_EQ(1, after_all());
    a = Hp();
    EXPECT_EQ(2, after_all());
}

TEST_F(HazardPointer, SwapExchangesOwnersAndNoProtection)
{
    Node *const first = new Node(1), *const second = new Node(2);
    Hp a = ebb::make_hazard_pointer(), b = ebb::make_hazard_pointer(), none;
    a.reset_protection(first);
    b.reset_protection(second);
    first->retire();
    second->retire();
    a.swap(b);
    swap(a, a);
    using std::swap;
    swap(b, none);
    EXPECT_TRUE(b.empty());
    EXPECT_EQ(0, after_all());
    a = Hp(); // which held the second
    EXPECT_EQ(1, after_all());
    EXPECT_EQ(1, first->value);
    none.reset_protection();
    EXPECT_EQ(2, after_all());
}

TEST_F(HazardPointer, TryProtect)
{
    Node *const first = new Node(1), *const second = new Node(2);
    Source source{first};
    Hp hp = ebb::make_hazard_pointer();
    Node *p = first;
    EXPECT_TRUE(hp.try_protect(p, source));
    EXPECT_EQ(first, p);
    source = second;
    first->retire();
    EXPECT_EQ(0, after_all());
    EXPECT_FALSE(hp.try_protect(p, source)); // and protects nothing
    EXPECT_EQ(second, p);
    EXPECT_EQ(1, after_all());
    second->retire();
    EXPECT_EQ(2, after_all());
    source = nullptr;
    p = nullptr;
    EXPECT_TRUE(hp.try_protect(p, source));
    EXPECT_EQ(nullptr, hp.protect(source));
}

TEST_F(HazardPointer, ResetProtection)
{
    Node *const first = new Node(1);
    Hp hp = ebb::make_hazard_pointer();
    hp.reset_protection(static_cast<const Node *>(first));
    first->retire();
    EXPECT_EQ(0, after_all());
    hp.reset_protection(static_cast<Node *>(nullptr)); // as without an argument
    EXPECT_EQ(1, after_all());
    Node *const second = new Node(2);
    hp.reset_protection(second);
    second->retire();
    hp.reset_protection(nullptr);
    EXPECT_EQ(2, after_all());
}

TEST_F(HazardPointer, SeveralMayProtectOneObject)
{
    Source source{new Node(1)};
    std::vector<Hp> all(20);
    for (Hp &hp : all) {
        hp = ebb::make_hazard_pointer();
        hp.protect(source);
    }
    source.exchange(nullptr)->retire();
    while (!all.empty()) {
        EXPECT_EQ(0, after_all());
        all.pop_back();
    }
    EXPECT_EQ(1, after_all());
}

// However long they stay, they hold back one object each.
TEST_F(HazardPointer, HoldsBackNoMoreThanItsObject)
{
    Source source{nullptr};
    std::vector<Hp> all(10);
    int retired = 0;
    for (Hp &hp : all) {
        hp = ebb::make_hazard_pointer();
        source = new Node;
        hp.protect(source);
        source.load()->retire();
        retired++;
        for (int i = 0; i < 500; i++, retired++)
            (new Node)->retire();
    }
    EXPECT_EQ(retired - 10, after_all());
}

struct Second : ebb::hazard_pointer_obj_base<Second, std::function<void(Second *)>> {
    int value = 3;
};

TEST_F(HazardPointer, DeletersMayHaveAStateAndRetire)
{
    int calls = 0;
    (new Second)->retire([&](Second *p) {
        calls += p->value;
        p->retire([&](Second *again) { // the same one
            calls += again->value;
            delete again;
            (new Node)->retire();
        });
    });
    for (int i = 0; i < 3; i++)
        EXPECT_TRUE(drain());
    EXPECT_EQ(6, calls);
    EXPECT_EQ(1, deleted.load());
}

// The same thread holds it, and waits for RCU: that is not about this object.
TEST_F(HazardPointer, TheRcuBarrierDoesNotWaitForIt)
{
    Hp hp = ebb::make_hazard_pointer();
    Node *const node = new Node(5);
    hp.reset_protection(node);
    node->retire();
    int run = 0;
    ebb::rcu_retire(new int, [&](int *p) {
        delete p;
        run = 1;
    });
    ebb::rcu_barrier();
    EXPECT_EQ(1, run);
    EXPECT_EQ(5, node->value);
}

TEST_F(HazardPointer, MayOutliveItsThreadAndMoveToAnother)
{
    Source source{new Node(1)};
    Hp hp;
    in_thread([&] {
        Hp own = ebb::make_hazard_pointer();
        own.protect(source);
        hp = std::move(own);
    });
    Node *const held = source.exchange(nullptr);
    held->retire();
    for (int i = 0; i < 10; i++)
        in_thread([] { push_on(); }); // threads that take over what the first has left
    EXPECT_EQ(0, deleted.load());
    std::thread([&, other = std::move(hp)]() mutable {
        EXPECT_EQ(1, held->value);
        other.reset_protection();
        EXPECT_EQ(1, after_all());
    }).join();
}

// Objects without the base: the pointer that is protected is retired.
TEST_F(HazardPointer, ProtectsWhatIsRetiredOtherwise)
{
    std::atomic<First *> source{ebb::make<First>()};
    Hp hp = ebb::make_hazard_pointer();
    First *held = hp.protect(source);
    ebb::retire(held);
    EXPECT_EQ(0, after_all());
    hp.reset_protection();
    EXPECT_EQ(1, after_all());
    std::atomic<const long *> plain{ebb::make<long>(1)};
    EXPECT_EQ(1, *hp.protect(plain));
    ebb::retire(plain.load());
    held = new First;
    hp.reset_protection(held);
    ebb::rcu_retire(held);
    EXPECT_EQ(1, after_all());
    hp.reset_protection();
    EXPECT_EQ(2, after_all());
}

TEST_F(HazardPointer, ReadersOfAListThatChanges)
{
    Source source{new Node(1)};
    std::atomic<bool> stop{false};
    std::atomic<long> wrong{0};
    std::vector<std::thread> readers;
    for (int t = 0; t < 3; t++)
        readers.emplace_back([&] {
            Hp hp = ebb::make_hazard_pointer(), other = ebb::make_hazard_pointer();
            while (!stop) {
                const Node *const node = hp.protect(source);
                std::this_thread::yield();
                wrong += node->value != 1;
                hp.swap(other);
            }
        });
    const std::size_t rounds = support::scaled(50000);
    for (std::size_t i = 0; i < rounds; i++)
        source.exchange(new Node(1))->retire();
    stop = true;
    for (std::thread &reader : readers)
        reader.join();
    EXPECT_EQ(0, wrong.load());
    source.load()->retire();
    EXPECT_EQ(rounds + 1, static_cast<std::size_t>(after_all()));
}

} // namespace
