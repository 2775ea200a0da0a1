// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer region: labels by number, also beyond the first ones, and the line of each in ebb_lifetimes_get.
#include "ebbtide/region.h"
#include "support/engine.h"

#include <map>

namespace {

using namespace unit;

constexpr std::size_t many = EBBI_BOARD_LABELS + 2 * EBBI_LABELS_A_PART + 3; // in three places

std::string name(std::size_t n) { return "label " + std::to_string(n); }

struct Label : Fake {
    static void add_many()
    {
        while (ebbi_label_count() < many)
            ASSERT_NE(nullptr, ebbi_label_find(name(ebbi_label_count()).c_str(), false));
    }
    static std::map<std::string, ebb_lifetime_stats> lines()
    {
        std::vector<ebb_lifetime_stats> all(ebb_lifetimes_get(nullptr, 0));
        EXPECT_EQ(all.size(), ebb_lifetimes_get(all.data(), all.size()));
        std::map<std::string, ebb_lifetime_stats> found;
        for (const ebb_lifetime_stats &line : all)
            EXPECT_TRUE(found.emplace(line.label, line).second) << line.label << " twice";
        return found;
    }
};

TEST_F(Label, NumbersAreInTheirOrder)
{
    add_many();
    std::size_t number = 0;
    for (const ebbi_label *l = ebbi_label_next(nullptr); l != nullptr; l = ebbi_label_next(l))
        ASSERT_EQ(number++, ebbi_label_number(l));
    EXPECT_EQ(ebbi_label_count(), number);
}

TEST_F(Label, WhatIsNoneHasNoNumber)
{
    add_many();
    static ebbi_label elsewhere;
    void *granule = ebbi_own_take();
    for (void *p : {static_cast<void *>(&elsewhere), granule, reinterpret_cast<void *>(64)})
        EXPECT_EQ(SIZE_MAX, ebbi_label_number(static_cast<ebbi_label *>(p)));
    ebbi_own_give(granule);
}

TEST_F(Label, EachLineIsOfItsLabel)
{
    add_many();
    std::map<std::size_t, ebb_region *> open;
    for (std::size_t n : {0, 1, 63, 64, 65, 300, 500, 600}) {
        ebb_region_options options = {};
        const std::string label = name(n);
        options.label = label.c_str();
        ebb_region *region = open[n] = ebb_region_open(&options);
        ASSERT_NE(nullptr, region);
        for (std::size_t i = 0; i <= n; i++)
            ASSERT_NE(nullptr, ebb_region_alloc(region, 24));
        ASSERT_NE(nullptr, ebb_region_alloc(region, 1 << 20));
        ASSERT_NE(nullptr, ebb_region_alloc(region, std::size_t{40} << 20)); // a mapping of its own
    }
    const auto all = lines();
    for (const auto &[n, region] : open) {
        const ebb_lifetime_stats &line = all.at(name(n));
        EXPECT_EQ(n + 3, line.live_blocks) << n;
        EXPECT_LE((n + 1) * 24 + (std::size_t{41} << 20), line.live_bytes) << n;
        EXPECT_LE(line.live_bytes, line.held_bytes) << n;
        EXPECT_EQ(1U, line.open) << n;
    }
    std::size_t blocks = 0;
    for (const auto &[label, line] : all)
        blocks += line.live_blocks;
    std::size_t expected = 0;
    for (const auto &[n, region] : open) {
        expected += n + 3;
        ebb_region_release(region);
    }
    EXPECT_EQ(expected, blocks);
}

// As many lines as there is room for, and what lies behind them stays as it is.
TEST_F(Label, LinesAreCut)
{
    add_many();
    std::vector<ebb_lifetime_stats> few(66);
    std::memset(few.data(), 0x5a, few.size() * sizeof few[0]);
    EXPECT_EQ(ebbi_label_count(), ebb_lifetimes_get(few.data(), 65));
    EXPECT_STREQ(ebbi_label_next(nullptr)->name, few[0].label);
    EXPECT_EQ(0x5a, few[65].label[0]);
    EXPECT_NE(0x5a, few[64].label[0]);
}

// Its span was something else, whose record had whatever there, and its thread has not said anything of it yet.
TEST_F(Label, WhatIsOnlyBeingMadeHasNone)
{
    ebbi_label *label = ebbi_label_find("before", false);
    ebbi_span *span = ebbi_span_alloc(100, 1, EBBI_SPAN_LARGE);
    ASSERT_NE(nullptr, span);
    ebbi_large_in(span)->note.label = label;
    ASSERT_EQ(1U, lines().at("before").live_blocks);
    ebbi_large_in(span)->bytes = 1 << 30;
    ebbi_span_free(span);
    ASSERT_EQ(span, ebbi_span_alloc(100, 1, EBBI_SPAN_LARGE));
    EXPECT_EQ(0U, lines().at("before").live_blocks);
    struct ebb_stats stats;
    ebb_stats_get(&stats);
    EXPECT_GT(std::size_t{1} << 30, stats.live_bytes);
    ebbi_span_free(span);
}

} // namespace
