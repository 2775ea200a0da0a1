// SPDX-License-Identifier: MIT OR Apache-2.0
// ebb::region_allocator and ebb::promote: where the blocks of containers are after copies, moves and
// swaps between regions, and what is left of a result when its region is gone.
#include <list>
#include <map>
#include <memory_resource>
#include <new>
#include <queue>
#include <scoped_allocator>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "ebbtide/region.hpp"
#include "support.h"

namespace {

template <typename T> using Vector = std::vector<T, ebb::region_allocator<T>>;
using Text = std::basic_string<char, std::char_traits<char>, ebb::region_allocator<char>>;
using Texts = std::vector<Text, std::scoped_allocator_adaptor<ebb::region_allocator<Text>>>;
using Numbers = Vector<int>;

struct Point {
    int x, y;
};

using Traits = std::allocator_traits<ebb::region_allocator<int>>;
static_assert(!Traits::propagate_on_container_copy_assignment::value);
static_assert(!Traits::propagate_on_container_move_assignment::value);
static_assert(Traits::propagate_on_container_swap::value);
static_assert(!Traits::is_always_equal::value);
static_assert(std::is_convertible_v<ebb::region &, ebb::region_allocator<int>>);
static_assert(!std::is_convertible_v<ebb_region *, ebb::region_allocator<int>>);

// What promote refuses while compiling: an object that owns something it cannot copy.
template <typename T, typename = void> inline constexpr bool can_promote = false;
template <typename T>
inline constexpr bool
    can_promote<T, std::void_t<decltype(ebb::promote(std::declval<const T &>(), ebb::heap()))>> =
        true;
static_assert(can_promote<Point> && can_promote<std::pmr::string> && can_promote<Texts>);
static_assert(!can_promote<std::string> && !can_promote<std::vector<int>>);
static_assert(!can_promote<std::tuple<int, int>> && !can_promote<std::tuple<Text>>);
static_assert(!can_promote<std::priority_queue<int, std::pmr::vector<int>>>);

ebb_region *home(const Numbers &numbers) { return ebb_region_of(numbers.data()); }

class AllocatorCxx : public testing::Test {
protected:
    ebb::region one{"one"}, two{"two"};
    Numbers first{{1, 2, 3, 4}, one}, second{{5, 6, 7, 8}, two};
};

TEST_F(AllocatorCxx, EqualIsTheSameRegion)
{
    EXPECT_TRUE(one.allocator<int>() == one.allocator<char>());
    EXPECT_TRUE(one.allocator<int>() != two.allocator<int>());
    EXPECT_TRUE(ebb::region_allocator<int>() == ebb::heap().allocator());
    EXPECT_EQ(one.get(), home(first));
    EXPECT_EQ(two.get(), home(second));
}

// Whichever allocator a member wants, and whatever it lies in.
TEST_F(AllocatorCxx, MembersOfWhatIsMadeAreInTheRegionToo)
{
    const char *text = "longer than any string that needs no block of its own";
    const auto is_in = [&](const auto &string) {
        return ebb_region_of(string.data()) == one.get();
    };
    const auto *pair = one.make<std::pair<Text, std::pmr::string>>(text, text);
    EXPECT_TRUE(is_in(pair->first) && is_in(pair->second));
    const auto *tuple = one.make<std::tuple<std::pmr::string, int, Text>>(text, 1, text);
    EXPECT_TRUE(is_in(std::get<0>(*tuple)) && is_in(std::get<2>(*tuple)));
    const auto *nested = one.make<std::pair<std::tuple<std::pmr::string>, Text>>(text, text);
    EXPECT_TRUE(is_in(std::get<0>(nested->first)) && is_in(nested->second));
    auto *texts = one.make<std::pmr::vector<std::pmr::string>>();
    EXPECT_TRUE(is_in(texts->emplace_back(text)) && is_in(*texts));
    auto *lines = one.make<Texts>();
    EXPECT_TRUE(is_in(lines->emplace_back(text)) && is_in(*lines));
    EXPECT_TRUE(is_in(*one.make<const std::pmr::string>(text)));
    EXPECT_TRUE(is_in(*one.make<const Text>(text)));
    EXPECT_EQ(std::string(text), *one.make<std::string>(text));
    EXPECT_EQ(7, *one.make<const int>(7));
    EXPECT_EQ(7, *one.make_unique<const int>(7));
}

TEST_F(AllocatorCxx, ACopyLeavesTheRegion)
{
    const ebb::scope even_inside(one);
    const Numbers copy(first);
    EXPECT_EQ(nullptr, home(copy));
    EXPECT_EQ(first, copy);
}

TEST_F(AllocatorCxx, ACopyByNameGoesWhereItSays)
{
    const Numbers copy(first, two);
    EXPECT_EQ(two.get(), home(copy));
    EXPECT_EQ(first, copy);
}

TEST_F(AllocatorCxx, AMovedContainerTakesItsBlockAlong)
{
    const int *block = first.data();
    const Numbers moved(std::move(first));
    EXPECT_EQ(block, moved.data());
    EXPECT_EQ(one.get(), moved.get_allocator().region());
}

TEST_F(AllocatorCxx, AssignmentStaysInTheTarget)
{
    Numbers copied(one), moved(one);
    copied = second;
    moved = std::move(second);
    EXPECT_EQ(one.get(), home(copied));
    EXPECT_EQ(one.get(), home(moved));
    EXPECT_EQ((std::vector<int>{5, 6, 7, 8}), std::vector<int>(copied.begin(), copied.end()));
    EXPECT_EQ(copied, moved);
}

TEST_F(AllocatorCxx, AssignmentInOneRegionTakesTheBlock)
{
    const int *block = first.data();
    Numbers moved(one);
    moved = std::move(first);
    EXPECT_EQ(block, moved.data());
}

TEST_F(AllocatorCxx, ASwapExchangesBlocksAndRegions)
{
    const int *in_one = first.data(), *in_two = second.data();
    std::swap(first, second);
    EXPECT_EQ(in_two, first.data());
    EXPECT_EQ(in_one, second.data());
    EXPECT_EQ(two.get(), first.get_allocator().region());
    first.resize(1000);
    EXPECT_EQ(two.get(), home(first));
    EXPECT_EQ(one.get(), home(second));
}

TEST_F(AllocatorCxx, OutlivesAMoveOfTheRegionObject)
{
    ebb::region moved(std::move(one));
    first.resize(1000, 9);
    EXPECT_EQ(moved.get(), home(first));
    first = Numbers(moved);
}

TEST_F(AllocatorCxx, NodesAndPairs)
{
    using Map =
        std::map<int, Text, std::less<>,
                 std::scoped_allocator_adaptor<ebb::region_allocator<std::pair<const int, Text>>>>;
    const std::size_t before = one.stats().live_blocks;
    {
        Map map{Map::allocator_type(one)};
        for (int i = 0; i < 200; i++)
            map.try_emplace(i, 100U, 'x');
        EXPECT_EQ(before + 400, one.stats().live_blocks);
        for (const auto &entry : map)
            EXPECT_EQ(one.get(), ebb_region_of(entry.second.data()));
        std::list<int, ebb::region_allocator<int>> list(one);
        list.assign(100, 3);
        EXPECT_EQ(before + 500, one.stats().live_blocks);
    }
    EXPECT_EQ(before, one.stats().live_blocks);
}

TEST_F(AllocatorCxx, MakeHandsItOn)
{
    auto *texts = one.make<Texts>();
    texts->emplace_back(100U, 'y');
    EXPECT_EQ(one.get(), ebb_region_of(texts->data()));
    EXPECT_EQ(one.get(), ebb_region_of(texts->front().data()));
}

TEST_F(AllocatorCxx, AnExceptionInTheMiddleLeavesNothing)
{
    struct Third {
        explicit Third(int n)
        {
            if (n == 2)
                throw std::runtime_error("third");
        }
    };
    const std::size_t before = one.stats().live_blocks;
    const int source[] = {0, 1, 2, 3};
    for (int i = 0; i < 50; i++) {
        EXPECT_THROW(Vector<Third>(source, source + 4, one), std::runtime_error);
    }
    EXPECT_EQ(before, one.stats().live_blocks);
}

TEST_F(AllocatorCxx, ALengthThatOverflowsThrows)
{
    ebb::region_allocator<Point> points(one);
    EXPECT_THROW(static_cast<void>(points.allocate(support::opaque(SIZE_MAX / 4))),
                 std::bad_array_new_length);
    EXPECT_THROW(static_cast<void>(points.allocate(support::opaque(PTRDIFF_MAX / sizeof(Point)))),
                 std::bad_alloc);
}

// ---- promote -------------------------------------------------------------------------------------

TEST_F(AllocatorCxx, PromotedBlocksOutliveTheirRegion)
{
    auto *bytes = static_cast<char *>(one.allocate(1000));
    support::fill_pattern(bytes, 0, 1000, 3);
    char *in_two = ebb::promote(bytes, two);
    void *in_heap = ebb::promote(static_cast<const void *>(bytes), ebb::heap());
    first = Numbers(one);
    one.release();
    EXPECT_EQ(two.get(), ebb_region_of(in_two));
    EXPECT_EQ(nullptr, ebb_region_of(in_heap));
    EXPECT_EQ(1000U, support::find_mismatch(in_two, 1000, 3));
    EXPECT_EQ(1000U, support::find_mismatch(in_heap, 1000, 3));
    ebb_free(in_heap);
}

TEST_F(AllocatorCxx, PromotedObjectsMayHaveBeenInsideABlock)
{
    auto *points = static_cast<Point *>(one.allocate(10 * sizeof(Point), alignof(Point)));
    points[7] = {7, 8};
    Point *copy = ebb::promote(points[7], two);
    const Point on_stack{1, 2};
    Point *other = ebb::promote(on_stack, two);
    EXPECT_EQ(two.get(), ebb_region_of(copy));
    EXPECT_EQ(7, copy->x);
    EXPECT_EQ(8, copy->y);
    EXPECT_EQ(2, other->y);
}

TEST_F(AllocatorCxx, PromotedContainersTakeTheirElementsAlong)
{
    std::pmr::unordered_map<int, std::pmr::string> result;
    result.emplace(1, std::pmr::string(50, 'r'));
    {
        ebb::region request("request");
        std::pmr::unordered_map<int, std::pmr::string> map(&request);
        for (int i = 0; i < 50; i++)
            map.try_emplace(i, 100U, 's');
        result = ebb::promote(map, ebb::heap());
        const auto in_two = ebb::promote(map, two);
        for (const auto &entry : in_two)
            EXPECT_EQ(two.get(), ebb_region_of(entry.second.data()));
    }
    ASSERT_EQ(50U, result.size());
    for (const auto &entry : result)
        EXPECT_EQ(100U, entry.second.size());
}

TEST_F(AllocatorCxx, PromotedContainersOfTheAllocatorToo)
{
    auto *texts = one.make<Texts>();
    for (int i = 0; i < 20; i++)
        texts->emplace_back(100U, 't');
    const Texts kept = ebb::promote(*texts, two);
    const Numbers numbers = ebb::promote(first, two);
    first = Numbers(one);
    one.release();
    EXPECT_EQ(two.get(), ebb_region_of(kept.data()));
    EXPECT_EQ(two.get(), ebb_region_of(kept.back().data()));
    EXPECT_EQ(Text(100U, 't'), kept.back());
    EXPECT_EQ(4, numbers.back());
}

} // namespace
