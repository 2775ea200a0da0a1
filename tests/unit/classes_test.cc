// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer slab: the class table. That it is what tools/gen_classes makes, tools/check sees.
#include "support/engine.h"

namespace {

using namespace unit;

unsigned smallest_fitting(std::size_t bytes)
{
    unsigned c = 1;
    while (ebbi_classes[c].size < bytes)
        c++;
    return c;
}

TEST(Classes, EverySizeGetsTheSmallestClassThatHoldsIt)
{
    EXPECT_EQ(static_cast<unsigned>(EBBI_CLASS_EMPTY), ebbi_class_for(0));
    for (std::size_t bytes = 1; bytes <= EBBI_CLASS_MAX; bytes++)
        ASSERT_EQ(smallest_fitting(bytes), ebbi_class_for(bytes)) << bytes;
}

TEST(Classes, WasteIsAtMostAnEighthAbove128)
{
    for (std::size_t bytes = 129; bytes <= EBBI_CLASS_MAX; bytes++) {
        std::size_t size = ebbi_classes[ebbi_class_for(bytes)].size;
        ASSERT_LE((size - bytes) * 8, size) << bytes;
    }
    for (std::size_t bytes = 1; bytes <= 128; bytes++)
        ASSERT_LT(ebbi_classes[ebbi_class_for(bytes)].size - bytes, EBBI_QUANTUM) << bytes;
}

TEST(Classes, EachIsWellFormed)
{
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        const ebbi_class &k = ebbi_classes[c];
        EXPECT_TRUE(c == 1 || c == EBBI_CLASS_EMPTY || k.size > ebbi_classes[c - 1].size);
        EXPECT_EQ(0U, k.size % EBBI_QUANTUM);
        EXPECT_EQ(k.size & -k.size, k.align);
        EXPECT_EQ(k.size % EBBI_CACHE_LINE != 0, k.shares_lines);
        EXPECT_TRUE(ebbi_is_power_of_two(k.slots));
        EXPECT_GE(k.slots, 2U);
        EXPECT_GE(k.blocks, 8U);
        EXPECT_LE(k.blocks, EBBI_ROOM_WORDS * 64) << "a third of a bitmap room a map";
        std::size_t used = std::size_t{k.blocks} * k.size;
        std::size_t colours_end = used + (std::size_t{k.colours} - 1) * ebbi_class_colour(&k);
        EXPECT_GE(k.colours, 1U);
        EXPECT_LE(colours_end, k.granules * EBBI_GRANULE)
            << "the last colour still fits, class " << c;
        EXPECT_LE(k.granules, 16U) << "a bit for each 4 KiB page";
    }
    EXPECT_EQ(EBBI_CLASS_COUNT - 1, EBBI_CLASS_EMPTY) << "behind the others";
    EXPECT_EQ(0U, ebbi_class_bytes(EBBI_CLASS_EMPTY));
    EXPECT_EQ(static_cast<std::size_t>(EBBI_CLASS_MAX), ebbi_class_bytes(EBBI_CLASS_EMPTY - 1));
}

TEST(Classes, BinsAndClassesAreEachOthersInverse)
{
    std::vector<int> seen(EBBI_BIN_COUNT);
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        for (unsigned lane = 0; lane < EBBI_LANES; lane++) {
            unsigned bin = ebbi_class_bin(c, lane);
            ASSERT_GT(bin, 0U);
            ASSERT_LT(bin, static_cast<unsigned>(EBBI_TAG_REGION)) << "tags above are taken";
            ASSERT_EQ(c, ebbi_bin_class[bin]);
            seen[bin] += lane == 0 || ebbi_classes[c].shares_lines;
        }
    }
    for (unsigned bin = 0; bin < EBBI_BIN_COUNT; bin++)
        EXPECT_EQ(ebbi_bin_class[bin] != 0, seen[bin] == 1) << bin;
}

TEST(Classes, AlignedRequestsGetTheSmallestAlignedClass)
{
    EXPECT_EQ(0U, ebbi_class_for_aligned(1, 2 * std::size_t{EBBI_SLAB_ALIGN}));
    for (std::size_t align = 1; align <= EBBI_SLAB_ALIGN; align *= 2) {
        EXPECT_EQ(align <= EBBI_CACHE_LINE,
                  ebbi_class_for_aligned(0, align) == static_cast<unsigned>(EBBI_CLASS_EMPTY));
        for (std::size_t bytes = 1; bytes <= EBBI_CLASS_MAX; bytes += bytes < 2048 ? 1 : 61) {
            unsigned c = ebbi_class_for_aligned(bytes, align);
            ASSERT_NE(0U, c) << bytes << " aligned to " << align;
            ASSERT_GE(ebbi_classes[c].size, bytes);
            ASSERT_EQ(0U, ebbi_classes[c].size % align);
            for (unsigned less = c - 1; less > 0 && ebbi_classes[less].size >= bytes; less--)
                ASSERT_NE(0U, ebbi_classes[less].size % align) << bytes << ", " << align;
        }
    }
}

} // namespace
