// SPDX-License-Identifier: MIT OR Apache-2.0
// A process of one thread: nobody comes later, so the frees themselves return what is above the ceiling (docs/deploy.md),
// whatever way the memory came, and goes.
#include "support.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include <ebbtide.h>
#include <ebbtide/reclaim.h>
#include <ebbtide/region.h>
#include <gtest/gtest.h>

namespace {

using support::KiB;
using support::MiB;

constexpr std::size_t all = 200 * MiB, ceiling = 76 * MiB, page = 4 * KiB;

struct Alone : testing::TestWithParam<std::size_t> {
    std::vector<void *> blocks = std::vector<void *>(all / GetParam());

    void SetUp() override
    {
        if (support::under_sanitizer)
            GTEST_SKIP() << "resident memory is the sanitizer's here";
        if (support::emulated)
            GTEST_SKIP() << "the emulator's memory is resident, too";
        for (void *&block : blocks)
            block = &block; // the vector's own pages are there before
        before = support::resident_bytes();
    }
    void TearDown() override
    {
        if (!IsSkipped()) {
            EXPECT_LE(support::resident_bytes(), before + ceiling);
        }
    }
    template <class Take> void fill(Take take)
    {
        for (void *&block : blocks) {
            block = take(GetParam());
            ASSERT_NE(block, nullptr);
            std::memset(block, 1, GetParam());
        }
        EXPECT_GE(support::resident_bytes(), before + all - all / 10);
    }
    void fill_in_a_domain()
    {
        const ebb_scope scope = ebb_domain_enter(ebb_domain_open("alone"));
        fill(ebb_malloc);
        ebb_leave(scope);
    }
    void shuffle() { std::shuffle(blocks.begin(), blocks.end(), std::minstd_rand(1)); }
    void free_all()
    {
        for (void *block : blocks)
            ebb_free(block);
    }

    std::size_t before = 0;
};

TEST_P(Alone, FreesBlocks)
{
    fill(ebb_malloc);
    free_all();
}

TEST_P(Alone, FreesADomainsBlocksOutsideOfIt)
{
    fill_in_a_domain();
    free_all();
}

TEST_P(Alone, FreesADomainsBlocksInAnyOrder)
{
    fill_in_a_domain();
    shuffle();
    free_all();
}

TEST_P(Alone, FreesADomainsBlocksButForAFew)
{
    fill_in_a_domain();
    const std::size_t kept = std::max<std::size_t>(16, 256 * KiB / GetParam());
    for (std::size_t i = 0; i < blocks.size(); i++)
        if (i % kept != 0)
            ebb_free(blocks[i]);
    before += all / kept + all / kept * page / std::min(GetParam(), page);
}

TEST_P(Alone, FreesBlocksOfAClosedRegion)
{
    ebb_region *region = ebb_region_open(nullptr);
    fill([region](std::size_t bytes) { return ebb_region_alloc(region, bytes); });
    ebb_region_close(region);
    free_all();
}

TEST_P(Alone, FreesBlocksOfManyClosedRegionsInAnyOrder)
{
    ebb_region *region = nullptr;
    std::size_t count = 0;
    fill([&](std::size_t bytes) {
        if (count++ % 1000 == 0) {
            ebb_region_close(region);
            region = ebb_region_open(nullptr);
        }
        return ebb_region_alloc(region, bytes);
    });
    ebb_region_close(region);
    shuffle();
    free_all();
}

TEST_P(Alone, RetiresADomainsBlocksInAnyOrder)
{
    fill_in_a_domain();
    shuffle();
    for (void *block : blocks)
        ebb_retire(block);
}

TEST_P(Alone, RetiresADomainsBlocksInPins)
{
    fill_in_a_domain();
    shuffle();
    for (std::size_t i = 0; i < blocks.size(); i++) {
        if (i % 100 == 0)
            ebb_pin();
        ebb_retire(blocks[i]);
        if (i % 100 == 99 || i + 1 == blocks.size())
            ebb_unpin();
    }
}

TEST_P(Alone, ReclaimsWhatAPinHeldBack)
{
    fill(ebb_malloc);
    ebb_pin();
    for (void *block : blocks)
        ebb_retire(block);
    ebb_unpin();
    ebb_reclaim();
}

TEST_P(Alone, ReleasesARegionWhereItHasPinned)
{
    ebb_pin();
    ebb_unpin();
    ebb_region *region = ebb_region_open(nullptr);
    fill([region](std::size_t bytes) { return ebb_region_alloc(region, bytes); });
    ebb_region_release(region);
}

INSTANTIATE_TEST_SUITE_P(Of, Alone, testing::Values(64U, 4 * KiB, 20 * KiB, 200 * KiB));

} // namespace
