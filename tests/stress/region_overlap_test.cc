// SPDX-License-Identifier: MIT OR Apache-2.0
// One region for a long time: blocks of many sizes come, grow, shrink and go, some stay, and the region is
// reset now and then. A map of intervals knows what is in use: no two blocks ever share a byte, and each is
// known to the region.
#include "../api/api_ebb.h"

#include <map>

#include "../api/region_support.h"

namespace {

using namespace regions;

class Churn {
public:
    Churn(ebb_region *region, unsigned seed) : region_(region), random_(seed) {}
    void step(bool may_reset = true)
    {
        const std::size_t choice = random_.below(1000);
        if (choice < resets_ && may_reset)
            reset();
        else if (choice < 100)
            resize(pick());
        else if (blocks_.size() < most_ && (blocks_.empty() || choice < 560))
            allocate();
        else
            free_one(pick());
    }

private:
    using Blocks = std::map<std::uintptr_t, std::size_t>; // start, bytes

    std::size_t size()
    {
        const std::size_t top = std::size_t{1} << random_.below(17);
        return 1 +
               random_.below(random_.below(8) == 0 ? 100000 : std::min<std::size_t>(top, 100000));
    }
    Blocks::iterator pick()
    {
        if (blocks_.empty())
            return blocks_.end();
        const auto first = blocks_.begin()->first, last = blocks_.rbegin()->first;
        auto at = blocks_.lower_bound(first + random_.below(last - first + 1));
        return at == blocks_.end() ? blocks_.begin() : at;
    }
    void enter(void *p, std::size_t bytes)
    {
        ASSERT_NE(p, nullptr);
        const auto start = reinterpret_cast<std::uintptr_t>(p);
        const auto after = blocks_.lower_bound(start);
        if (after != blocks_.end()) {
            ASSERT_LE(start + bytes, after->first) << "overlaps the block behind it";
        }
        if (after != blocks_.begin()) {
            const auto before = std::prev(after);
            ASSERT_LE(before->first + before->second, start) << "overlaps the block before it";
        }
        ASSERT_EQ(ebb_region_of(p), region_);
        ASSERT_GE(ebb_malloc_usable_size(p), bytes);
        blocks_[start] = bytes;
    }
    void allocate()
    {
        const std::size_t bytes = size();
        if (random_.below(16) != 0) {
            enter(take(region_, bytes), bytes);
            return;
        }
        const std::size_t align = std::size_t{1} << random_.below(17);
        void *p = ebb_region_aligned_alloc(region_, align, bytes);
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(p) % align, 0U);
        enter(p, bytes);
    }
    void resize(Blocks::iterator block)
    {
        if (block == blocks_.end())
            return;
        const auto [start, old_bytes] = *block;
        const std::size_t bytes = size();
        blocks_.erase(block);
        void *to = ebb_region_realloc(region_, reinterpret_cast<void *>(start), bytes);
        enter(to, bytes);
    }
    void free_one(Blocks::iterator block)
    {
        if (block == blocks_.end())
            return;
        ebb_free(reinterpret_cast<void *>(block->first));
        blocks_.erase(block);
    }
    void reset()
    {
        ebb_region_reset(region_);
        blocks_.clear();
        const bool few =
            random_.below(4) != 0; // and many resets: what is left of a sheet matters then
        most_ = few ? 2 + random_.below(4) : 4 + random_.below(60);
        resets_ = few ? 20 : 1;
    }

    ebb_region *region_;
    support::Random random_;
    Blocks blocks_;
    std::size_t most_ = 20, resets_ = 1;
};

void churn(ebb_region *region, unsigned seed, std::size_t steps)
{
    Churn life(region, seed);
    for (std::size_t i = 0; i < steps; i++) {
        life.step();
        if (testing::Test::HasFatalFailure())
            FAIL() << "at step " << i << " of seed " << seed;
    }
    ebb_region_release(region);
}

TEST(RegionOverlap, FoundByHand)
{
    ebb_region *region = open();
    void *small = take(region, 32);
    void *freed = take(region, 30000);
    take(region, 60000);
    ebb_free(freed);
    take(region, 40000);
    ebb_free(small);
    ebb_region_reset(region);
    void *block = take_filled(region, 32, 1);
    EXPECT_EQ(ebb_region_of(block), region);
    freed = take(region, 30000);
    take(region, 60000);
    ebb_free(freed);
    take_filled(region, 40000, 2);
    EXPECT_TRUE(is_filled(block, 32, 1));
    ebb_region_release(region);
}

TEST(RegionOverlap, NeverThroughTheOwnersCursor) { churn(open(), 1, support::scaled(700000)); }

TEST(RegionOverlap, NeverThroughTheCommonCursor)
{
    ebb_region *region = open();
    ebb_region_detach(region);
    churn(region, 2, support::scaled(300000));
}

// The owner changes: each of the two cursors has sheets of its own.
TEST(RegionOverlap, NeverWhereOwnersComeAndGo)
{
    ebb_region *region = open();
    Churn life(region, 3);
    for (std::size_t i = 0; i < support::scaled(2000); i++) {
        for (int n = 0; n < 32; n++)
            life.step();
        const InRegion owner(region);
        for (int n = 0; n < 32; n++)
            life.step(false); // nobody resets what is current
        ASSERT_FALSE(testing::Test::HasFatalFailure()) << "in round " << i;
    }
    ebb_region_release(region);
}

} // namespace
