// SPDX-License-Identifier: MIT OR Apache-2.0
// ebb_region_alloc as the header has it inline, and as the library has it.
#include <ebbtide/region.h>

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace {

using Alloc = void *(*)(ebb_region *, std::size_t);

void *inlined(ebb_region *region, std::size_t bytes) { return ebb_region_alloc(region, bytes); }

class RegionInline : public testing::TestWithParam<Alloc> {
protected:
    static void *alloc(ebb_region *region, std::size_t bytes) { return GetParam()(region, bytes); }
    ebb_region *region = ebb_region_open(nullptr);
};

INSTANTIATE_TEST_SUITE_P(Both, RegionInline,
                         testing::Values(&inlined, static_cast<Alloc>(&ebb_region_alloc)),
                         [](const testing::TestParamInfo<Alloc> &of) {
                             return of.param == &inlined ? "Inline" : "Library";
                         });

TEST(RegionInlineAddress, IsTheLibrarys)
{
    EXPECT_NE(static_cast<Alloc>(&ebb_region_alloc), &inlined);
}

TEST_P(RegionInline, BlocksFollowEachOtherWhoeverMadeThem)
{
    auto *before = static_cast<char *>(ebb_region_alloc(region, 16));
    int side_by_side = 0;
    for (std::size_t bytes = 1; bytes < 3000; bytes += 7) {
        auto *p = static_cast<char *>(alloc(region, bytes));
        auto *q = static_cast<char *>(inlined(region, bytes));
        ASSERT_EQ(0U, reinterpret_cast<std::uintptr_t>(p) % 16);
        ASSERT_LE(bytes, ebb_malloc_usable_size(p));
        side_by_side += q == p + (bytes + 15) / 16 * 16;
        ASSERT_NE(before, p);
        std::memset(p, 1, bytes);
        std::memset(q, 2, bytes);
        before = q;
    }
    EXPECT_LE(400, side_by_side) << "of 429; the others are where a granule ends";
    ebb_region_release(region);
}

TEST_P(RegionInline, EachBlockCanBeFreedAndIsFound)
{
    std::vector<void *> blocks;
    for (std::size_t i = 0; i < 5000; i++)
        blocks.push_back(alloc(region, 16 + i % 300));
    for (void *p : blocks) {
        ASSERT_EQ(region, ebb_region_of(p));
        ebb_free(p);
    }
    ebb_region_close(region);
}

TEST_P(RegionInline, SizesAtTheEnds)
{
    EXPECT_NE(alloc(region, 0), alloc(region, 0));
    errno = 0;
    EXPECT_EQ(nullptr, alloc(region, static_cast<std::size_t>(PTRDIFF_MAX) + 1));
    EXPECT_EQ(ENOMEM, errno);
    errno = 0;
    EXPECT_EQ(nullptr, alloc(region, SIZE_MAX));
    EXPECT_EQ(ENOMEM, errno);
    for (const std::size_t bytes :
         {std::size_t{65536 - 16}, std::size_t{65536}, std::size_t{128 << 10},
          std::size_t{(128 << 10) + 1}, std::size_t{9} << 20}) {
        void *p = alloc(region, bytes);
        ASSERT_NE(nullptr, p);
        std::memset(p, 3, bytes);
        EXPECT_LE(bytes, ebb_malloc_usable_size(p));
    }
    ebb_region_release(region);
}

TEST_P(RegionInline, AHardLimitHolds)
{
    ebb_region_options options = {};
    options.hard_limit = 1 << 20;
    ebb_region *bounded = ebb_region_open(&options);
    std::size_t bytes = 0;
    while (alloc(bounded, 1000) != nullptr)
        bytes += 1000;
    EXPECT_EQ(ENOMEM, errno);
    EXPECT_LE(bytes, std::size_t{1} << 20);
    EXPECT_GE(bytes, std::size_t{1} << 19);
    ebb_region_release(bounded);
    ebb_region_release(region);
}

TEST_P(RegionInline, ThreadsThatDoNotOwnIt)
{
    constexpr int threads = 4, count = 3000;
    std::vector<std::vector<std::uint32_t *>> made(threads);
    const auto work = [&](int t) {
        for (int i = 0; i < count; i++) {
            auto *p = static_cast<std::uint32_t *>(
                GetParam()(region, 16 + static_cast<std::size_t>(i) % 64));
            p[0] = p[3] = static_cast<std::uint32_t>(t * count + i);
            made[t].push_back(p);
        }
    };
    std::vector<std::thread> others;
    for (int t = 1; t < threads; t++)
        others.emplace_back(work, t);
    work(0); // the owner, without a lock beside them
    for (std::thread &other : others)
        other.join();
    for (int t = 0; t < threads; t++)
        for (int i = 0; i < count; i++) {
            ASSERT_EQ(static_cast<std::uint32_t>(t * count + i), made[t][i][0]);
            ASSERT_EQ(made[t][i][0], made[t][i][3]);
        }
    ebb_region_release(region);
}

TEST_P(RegionInline, AThreadsFirstCallAndDetach)
{
    std::thread([&] { // has no heap yet, and owns nothing
        void *p = GetParam()(region, 100);
        std::memset(p, 1, 100);
        EXPECT_EQ(region, ebb_region_of(p));
    })
        .join();
    ebb_region_detach(region);
    void *p = alloc(region, 100);
    EXPECT_EQ(region, ebb_region_of(p));
    ebb_region_release(region);
}

} // namespace
