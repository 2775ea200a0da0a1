// SPDX-License-Identifier: MIT OR Apache-2.0
// ebbtide/region.hpp: regions as memory resources, what they make and destroy, moves, ends, use in
// parallel. Scopes and domains: region_scope_cxx_test.cc; allocators and promote:
// region_allocator_cxx_test.cc; coroutines: region_coroutine_test.cc.
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "ebbtide/region.hpp"
#include "support.h"

namespace {

using support::KiB;

static_assert(std::is_base_of_v<std::pmr::memory_resource, ebb::region>);
static_assert(!std::is_copy_constructible_v<ebb::region> &&
              !std::is_copy_assignable_v<ebb::region>);
static_assert(std::is_nothrow_move_constructible_v<ebb::region>);
static_assert(std::is_nothrow_move_assignable_v<ebb::region>);
static_assert(!std::is_copy_constructible_v<ebb::region_ref> &&
              !std::is_move_constructible_v<ebb::region_ref>);
static_assert(!std::is_copy_constructible_v<ebb::scope> &&
              !std::is_move_constructible_v<ebb::scope>);
static_assert(!std::is_copy_assignable_v<ebb::scope> && !std::is_move_assignable_v<ebb::scope>);
static_assert(std::is_nothrow_constructible_v<ebb::scope, const ebb::region_ref &>);
static_assert(!std::is_convertible_v<ebb::region &, ebb::scope>);

std::size_t live(const ebb::region_ref &region) { return region.stats().live_blocks; }

// Notes its number in a log when it is destroyed.
struct Logged {
    Logged(std::vector<int> &to, int which) : log(to), number(which) {}
    ~Logged() { log.push_back(number); }
    Logged(const Logged &) = delete;
    Logged &operator=(const Logged &) = delete;
    std::vector<int> &log;
    int number;
};

struct Thrower {
    explicit Thrower(ebb::region_ref &in) : kept(&in)
    {
        kept.assign(300, 'x');
        throw std::runtime_error("half made");
    }
    std::pmr::string kept;
};

// ---- as a memory resource ------------------------------------------------------------------------

TEST(RegionCxx, PmrContainersLieInTheRegion)
{
    ebb::region region("pmr");
    std::pmr::vector<int> numbers(&region);
    for (int i = 0; i < 1000; i++)
        numbers.push_back(i);
    std::pmr::string text(200, 'a', &region);
    std::pmr::unordered_map<int, std::pmr::string> map(&region);
    for (int i = 0; i < 100; i++)
        map.emplace(i, std::pmr::string(static_cast<std::size_t>(50 + i), 'b'));
    EXPECT_EQ(region.get(), ebb_region_of(numbers.data()));
    EXPECT_EQ(region.get(), ebb_region_of(text.data()));
    for (const auto &[key, value] : map) {
        EXPECT_EQ(region.get(), ebb_region_of(value.data())) << key;
        EXPECT_EQ(static_cast<std::size_t>(50 + key), value.size());
    }
    EXPECT_EQ(999, numbers.back());
    EXPECT_STREQ("pmr", region.label());
}

TEST(RegionCxx, WhatContainersFreeIsNoLongerLive)
{
    ebb::region region;
    {
        std::pmr::vector<std::pmr::string> strings(&region);
        for (int i = 0; i < 500; i++)
            strings.emplace_back(100, 'c');
        EXPECT_EQ(501U, live(region));
    }
    EXPECT_EQ(0U, live(region));
}

TEST(RegionCxx, MemoryIsUsedAgainWhileTheRegionIsOpen)
{
    ebb::region region;
    for (int round = 0; round < 2000; round++)
        std::pmr::vector<char>(16 * KiB, &region).back() = 'd';
    EXPECT_LE(region.stats().peak_bytes, 4096 * KiB);
    EXPECT_EQ(0U, live(region));
}

TEST(RegionCxx, AlignmentIsKept)
{
    struct alignas(256) Wide {
        char bytes[256];
    };
    ebb::region region;
    for (int i = 0; i < 20; i++) {
        static_cast<void>(region.make<char>('e'));
        EXPECT_EQ(0U, support::address(region.make<Wide>()) % 256);
        EXPECT_EQ(0U, support::address(region.allocate(24, 4 * KiB)) % (4 * KiB));
    }
}

TEST(RegionCxx, EqualIsTheSameRegion)
{
    ebb::region one, other;
    ebb::region_ref again(one.get());
    EXPECT_TRUE(one == one);
    EXPECT_TRUE(one == again);
    EXPECT_FALSE(one == other);
    EXPECT_FALSE(one == *std::pmr::new_delete_resource());
    EXPECT_FALSE(one == ebb::heap());
}

TEST(RegionCxx, TheHardLimitThrowsAndTheRegionGoesOn)
{
    ebb::region_options options;
    options.label = "limited";
    options.hard_limit = 256 * KiB;
    ebb::region region(options);
    std::pmr::vector<char> bytes(&region);
    bytes.assign(1000, 'f');
    EXPECT_THROW(bytes.resize(1024 * KiB), std::bad_alloc);
    EXPECT_EQ(1000U, bytes.size());
    EXPECT_EQ(1U, live(region));
    EXPECT_GE(region.stats().refused, 1U);
    bytes.push_back('g');
    EXPECT_EQ(region.get(), ebb_region_of(bytes.data()));
}

// ---- objects -------------------------------------------------------------------------------------

TEST(RegionCxx, DestructorsRunInReverseOrderAtEveryEnd)
{
    std::vector<int> log;
    const std::vector<int> expected{3, 2, 1};
    const auto fill = [&log](ebb::region &region) {
        region.make<Logged>(log, 1);
        region.at_end([&log] { log.push_back(2); });
        region.make<Logged>(log, 3);
        EXPECT_TRUE(log.empty());
    };
    for (void (*const end)(ebb::region &) :
         {+[](ebb::region &r) { r.release(); }, +[](ebb::region &r) { r.close(); },
          +[](ebb::region &r) { r.reset(); }, +[](ebb::region &r) { r = ebb::region(); }}) {
        ebb::region region;
        fill(region);
        end(region);
        EXPECT_EQ(expected, log);
        log.clear();
    }
    {
        ebb::region region;
        fill(region);
    }
    EXPECT_EQ(expected, log);
}

// Else a close would leave the blocks of objects that are gone to nobody.
TEST(RegionCxx, ACloseFreesWhatMakeMade)
{
    struct Look {
        ebb_region *region;
        std::size_t live_blocks;
    } look{nullptr, 99};
    std::vector<int> log;
    ebb::region region;
    look.region = region.get();
    const auto count = [](void *to) {
        ebb_region_stats now;
        ebb_region_stats_get(static_cast<Look *>(to)->region, &now);
        static_cast<Look *>(to)->live_blocks = now.live_blocks;
    };
    ASSERT_EQ(0, ebb_region_cleanup(region.get(), count, &look));
    region.make<Logged>(log, 1);
    region.at_end([&log] { log.push_back(2); });
    region.close();
    EXPECT_EQ((std::vector<int>{2, 1}), log);
    EXPECT_EQ(0U, look.live_blocks);
}

// However little room is left: what is to be called at the end, and is refused, is not called.
TEST(RegionCxx, ARefusedCallIsNotMade)
{
    int refused = 0;
    for (std::size_t left = 0; left < 8; left++) {
        ebb::region_options options;
        options.hard_limit = 64 * KiB;
        ebb::region region(options);
        std::vector<void *> blocks;
        for (void *p; (p = ebb_region_alloc(region.get(), 16)) != nullptr;)
            blocks.push_back(p);
        ebb::region other(options);
        for (std::size_t i = left; i < blocks.size(); i++)
            (void)other.allocate(16);
        int calls = 0;
        bool threw = false;
        try {
            other.at_end([&calls] { calls++; });
        } catch (const std::bad_alloc &) {
            threw = true;
        }
        EXPECT_EQ(0, calls) << left;
        other.release();
        EXPECT_EQ(threw ? 0 : 1, calls) << left;
        refused += threw;
    }
    EXPECT_GE(refused, 2) << "its own block, and the record of the call";
}

TEST(RegionCxx, AClosedRegionMakesNothing)
{
    ebb_region *const handle = ebb_region_open(nullptr);
    const ebb_scope before = ebb_region_enter(handle);
    ebb::region_ref region(handle);
    ebb_region_close(handle); // it is current, so it lives on
    int calls = 0;
    EXPECT_THROW(region.at_end([&calls] { calls++; }), std::invalid_argument);
    EXPECT_THROW(region.make<std::vector<int>>(3), std::invalid_argument);
    ebb_leave(before);
    EXPECT_EQ(0, calls);
}

TEST(RegionCxx, AResetForgetsTheCleanups)
{
    std::vector<int> log;
    {
        ebb::region region;
        region.make<Logged>(log, 1);
        region.reset();
        EXPECT_EQ(0U, live(region));
        region.make<Logged>(log, 2);
    }
    EXPECT_EQ((std::vector<int>{1, 2}), log);
}

TEST(RegionCxx, ObjectsGetTheRegionsAllocator)
{
    ebb::region region;
    auto *strings = region.make<std::pmr::vector<std::pmr::string>>();
    strings->emplace_back(100, 'h');
    EXPECT_EQ(region.get(), ebb_region_of(strings));
    EXPECT_EQ(region.get(), ebb_region_of(strings->data()));
    EXPECT_EQ(region.get(), ebb_region_of(strings->front().data()));
}

TEST(RegionCxx, AThrowingConstructorLeavesNothing)
{
    std::vector<int> log;
    ebb::region region;
    region.make<Logged>(log, 1);
    const std::size_t before = live(region);
    for (int i = 0; i < 50; i++) {
        EXPECT_THROW(region.make<Thrower>(region), std::runtime_error);
        EXPECT_THROW(region.make_unique<Thrower>(region), std::runtime_error);
    }
    EXPECT_EQ(before, live(region));
    region.reset();
    EXPECT_EQ(std::vector<int>{1}, log);
}

TEST(RegionCxx, AUniqueObjectEndsBeforeTheRegion)
{
    std::vector<int> log;
    ebb::region region;
    {
        const auto unique = region.make_unique<Logged>(log, 1);
        EXPECT_EQ(1U, live(region));
        EXPECT_EQ(region.get(), ebb_region_of(unique.get()));
    }
    EXPECT_EQ(std::vector<int>{1}, log);
    EXPECT_EQ(0U, live(region));
    region.release();
    EXPECT_EQ(1U, log.size());
}

TEST(RegionCxx, TheHeapHasNoEndForMake)
{
    EXPECT_THROW(ebb::heap().make<std::string>("x"), std::invalid_argument);
    int *number = ebb::heap().make<int>(7);
    EXPECT_EQ(nullptr, ebb_region_of(number));
    EXPECT_EQ(7, *number);
    ebb_free(number);
}

// ---- moves and ends ------------------------------------------------------------------------------

TEST(RegionCxx, TheRegionMovesWithItsHandle)
{
    std::vector<int> log;
    ebb::region first("moving");
    ebb_region *const handle = first.get();
    first.make<Logged>(log, 1);
    ebb::region second(std::move(first));
    EXPECT_FALSE(first.is_open());
    EXPECT_EQ(handle, second.get());
    ebb::region third;
    third.make<Logged>(log, 2);
    third = std::move(second);
    EXPECT_EQ(std::vector<int>{2}, log);
    EXPECT_EQ(handle, third.get());
    ebb::region &same = third;
    third = std::move(same);
    EXPECT_EQ(handle, third.get());
}

TEST(RegionCxx, AfterTheEndContainersGoOnInTheHeap)
{
    ebb::region region("ended");
    std::pmr::vector<int> numbers(&region);
    numbers.assign(100, 1);
    region.close();
    numbers.resize(10000, 2);
    EXPECT_EQ(nullptr, ebb_region_of(numbers.data()));
    EXPECT_EQ(1, numbers.front());
    EXPECT_EQ(2, numbers.back());
    EXPECT_STREQ("heap", region.label());
    EXPECT_EQ(0U, live(region));
}

TEST(RegionCxx, EveryEndMayComeTwice)
{
    ebb::region region;
    region.make<int>(1);
    region.release();
    region.release();
    region.close();
    region.reset();
    region.detach();
    EXPECT_FALSE(region.is_open());
}

TEST(RegionCxx, AHandleIsTakenOverAndHandedOver)
{
    ebb::region region(ebb_region_open(nullptr));
    EXPECT_EQ(region.get(), ebb_region_of(region.make<int>(1)));
    ebb_region *handle = region.hand_over();
    EXPECT_FALSE(region.is_open());
    ebb_region_release(handle);
}

TEST(RegionCxx, ChildrenEndBeforeTheirParent)
{
    std::vector<int> log;
    ebb::region parent("parent");
    parent.make<Logged>(log, 1);
    ebb::region child("child", parent);
    child.make<Logged>(log, 2);
    static_cast<void>(child.hand_over());
    parent.release();
    EXPECT_EQ((std::vector<int>{2, 1}), log);
    EXPECT_THROW(ebb::region("orphan", parent), std::invalid_argument);
}

// The escape itself, and beside it the same with the value brought out in time.
TEST(RegionCxxDeathTest, AnEscapeFromAReleasedRegionIsFound)
{
    EXPECT_DEATH(
        {
            ebb::region region("escape");
            std::pmr::string text(100, 'i', &region);
            region.release();
        },
        "ebbtide: ");
    ebb::region region("no escape");
    std::pmr::string kept;
    {
        const std::pmr::string text(100, 'i', &region);
        kept = ebb::promote(text, ebb::heap());
    }
    region.release();
    EXPECT_EQ(std::pmr::string(100, 'i'), kept);
}

TEST(RegionCxx, OneRegionServesManyThreads)
{
    ebb::region region("shared");
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&region, t] {
            std::pmr::vector<std::pmr::string> strings(&region);
            for (int i = 0; i < 500; i++)
                strings.emplace_back(64, static_cast<char>('a' + t));
            for (const auto &text : strings)
                EXPECT_EQ(std::string::npos, text.find_first_not_of(static_cast<char>('a' + t)));
        });
    for (auto &thread : threads)
        thread.join();
    EXPECT_EQ(0U, live(region));
}

} // namespace
