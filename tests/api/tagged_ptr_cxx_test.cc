// SPDX-License-Identifier: MIT OR Apache-2.0
// ebb::tagged_ptr, and ebb::atomic_ptr with tags, by the text of ebbtide/tagged_ptr.hpp and ebbtide.hpp.
#include "reclaim_support.h"

#include "ebbtide.hpp"

namespace {

using namespace reclaim;

struct Node { // its links are of its own, incomplete type
    explicit Node(long v = 0) : value(v) { alive++; }
    ~Node() { alive--; }
    long value;
    ebb::atomic_ptr<Node, 1> next;
    static std::atomic<int> alive;
};
std::atomic<int> Node::alive{0};

using One = ebb::tagged_ptr<Node, 1>;
using Three = ebb::tagged_ptr<Node, 3>;

static_assert(sizeof(One) == sizeof(void *) && std::is_trivially_copyable_v<One>);
static_assert(std::is_nothrow_default_constructible_v<One> && One::mask == 1 && Three::mask == 7);
static_assert(sizeof(ebb::atomic_ptr<Node, 1>) == sizeof(void *));
static_assert(std::is_same_v<ebb::atomic_ptr<Node>::value_type, Node *> &&
              std::is_same_v<ebb::atomic_ptr<Node, 3>::value_type, Three>);
static_assert(!std::is_convertible_v<One, Node *> && std::is_convertible_v<Node *, One>);
[[maybe_unused]] constinit ebb::atomic_ptr<Node, 3> at_compile_time;

class Tagged : public testing::Test {
protected:
    void TearDown() override
    {
        ebb::rcu_barrier();
        EXPECT_EQ(0, Node::alive.load());
    }
};

TEST_F(Tagged, PointerAndTag)
{
    Node node(5);
    const Three none, null(nullptr), tagged_null(nullptr, 3), plain(&node), six(&node, 6);
    EXPECT_EQ(none, null);
    EXPECT_NE(none, tagged_null);
    EXPECT_FALSE(tagged_null) << "whatever the tag";
    EXPECT_EQ(3U, tagged_null.tag());
    EXPECT_EQ(nullptr, tagged_null.get());
    EXPECT_TRUE(six);
    EXPECT_EQ(&node, six.get());
    EXPECT_EQ(6U, six.tag());
    EXPECT_EQ(5, six->value);
    EXPECT_EQ(&node, &*six);
    EXPECT_NE(plain, six);
    EXPECT_EQ(plain, six.with_tag(0));
    EXPECT_EQ(six, Three(&node, 6 + 8 * 5)) << "the low bits count";
    EXPECT_EQ(&node, Three(&node, ~std::uintptr_t{0}).get());
}

struct alignas(64) Wide {
    ebb::atomic_ptr<Wide, 6> next;
};

TEST_F(Tagged, AsManyBitsAsTheAlignmentLeaves)
{
    Wide wide;
    for (std::uintptr_t tag = 0; tag < 64; tag++) {
        wide.next.store({&wide, tag});
        EXPECT_EQ(&wide, wide.next.load_unprotected().get());
        EXPECT_EQ(tag, wide.next.load_unprotected().tag());
    }
}

TEST_F(Tagged, CompareExchangeComparesBoth)
{
    Node a(1), b(2);
    ebb::atomic_ptr<Node, 1> link(&a);
    const ebb::guard pinned;
    One expected(&a, 1);
    EXPECT_FALSE(link.compare_exchange_strong(expected, &b)) << "the tag differs";
    EXPECT_EQ(One(&a), expected);
    expected = &b;
    EXPECT_FALSE(link.compare_exchange_strong(expected, &b)) << "the pointer differs";
    EXPECT_TRUE(link.compare_exchange_strong(expected, expected.with_tag(1)));
    EXPECT_EQ(One(&a, 1), link.load(pinned));
    expected = {&a, 1};
    while (!link.compare_exchange_weak(expected, {&b, 0})) {
    }
    EXPECT_EQ(One(&b), link.exchange(nullptr));
    EXPECT_FALSE(link.load(pinned));
}

TEST_F(Tagged, ReplaceRetiresThePointerWithoutItsTag)
{
    ebb::atomic_ptr<Node, 1> link({ebb::make<Node>(1), 1});
    {
        const ebb::guard pinned;
        const One old = link.load(pinned);
        link.replace({ebb::make<Node>(2), 1});
        EXPECT_EQ(1, old->value);
        EXPECT_EQ(2, Node::alive.load());
    }
    link.replace(nullptr);
}

TEST_F(Tagged, AHazardPointerProtectsThePointerWithoutItsTag)
{
    ebb::atomic_ptr<Node, 1> link({ebb::make<Node>(1), 1});
    ebb::hazard_pointer hazard = ebb::make_hazard_pointer();
    const One held = link.protect(hazard);
    EXPECT_EQ(1U, held.tag());
    link.replace({nullptr, 1});
    push_on();
    EXPECT_EQ(1, Node::alive.load());
    EXPECT_EQ(1, held->value);
    EXPECT_EQ(One(nullptr, 1), link.protect(hazard)); // protects nothing
    push_on();
    EXPECT_EQ(0, Node::alive.load());
    ebb::atomic_ptr<Node> plain(ebb::make<Node>(2));
    EXPECT_EQ(2, plain.protect(hazard)->value);
    EXPECT_EQ(2, hazard.protect(plain.source())->value);
    plain.replace(nullptr);
}

// Threads add up in the tag and in the pointee; no change is lost.
TEST_F(Tagged, UnderThreads)
{
    ebb::atomic_ptr<Wide, 6> link(nullptr);
    Wide wide[2];
    std::vector<std::thread> threads;
    std::atomic<std::size_t> turns{0};
    for (int t = 0; t < 3; t++)
        threads.emplace_back([&] {
            for (std::size_t i = 0; i < support::scaled(20000); i++) {
                auto seen = link.load_unprotected();
                while (!link.compare_exchange_weak(
                    seen, {&wide[seen.get() == &wide[0] ? 1 : 0], seen.tag() + 1})) {
                }
                turns++;
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(turns.load() % 64, link.load_unprotected().tag());
    EXPECT_EQ(&wide[turns.load() % 2 == 1 ? 0 : 1], link.load_unprotected().get());
}

} // namespace
