// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: large objects that realloc grows, see ebbi_large_grow_out in src/heap/blocks.h.
#include <sys/mman.h>
#include <unistd.h>

#include <ebbtide/reclaim.h>
#include <ebbtide/region.h>

#include "support/huge.h"

namespace {

using namespace unit;

constexpr std::size_t least = EBBI_MOVED_MIN;

struct Grow : Fake {
    std::vector<void *> behind;

    void SetUp() override
    {
        Fake::SetUp();
        fake_os_threaded(false);
    }

    void TearDown() override
    {
        for (void *p : behind)
            ebb_free(p);
        ebb_trim();
        EXPECT_EQ(0U, huge_count());
        Fake::TearDown();
    }

    // Of so many bytes, where it cannot grow.
    Block stuck(std::size_t bytes)
    {
        Block block{static_cast<unsigned char *>(ebb_malloc(bytes)), bytes, 0};
        fill(block);
        auto end = address(block.bytes) + ebbi_align_up(bytes, EBBI_GRANULE);
        while (ebbi_tag_of(reinterpret_cast<void *>(end)) == EBBI_TAG_NONE)
            behind.push_back(ebb_malloc(EBBI_GRANULE * 3));
        EXPECT_EQ(EBBI_TAG_LARGE, ebbi_tag_of(block.bytes));
        return block;
    }

    static unsigned char mark(std::size_t at) { return static_cast<unsigned char>(at / 509 + 7); }

    static void fill(const Block &block)
    {
        for (std::size_t at = 0; at < block.size; at += 509)
            block.bytes[at] = mark(at);
    }

    // What was there is there, and the rest can be written.
    static void grow(Block &block, std::size_t bytes)
    {
        block.bytes = static_cast<unsigned char *>(ebb_realloc(block.bytes, bytes));
        ASSERT_NE(nullptr, block.bytes);
        for (std::size_t at = 0; at < std::min(block.size, bytes); at += 509)
            ASSERT_EQ(mark(at), block.bytes[at]) << at;
        block.size = bytes;
        fill(block);
    }
};

TEST_F(Grow, WhatHasToMoveGetsAMapping)
{
    Block b = stuck(MiB);
    grow(b, least);
    EXPECT_TRUE(ebbi_huge_is(b.bytes));
    EXPECT_EQ(0U, address(b.bytes) % EBBI_GRANULE);
    ebb_free(b.bytes);
}

TEST_F(Grow, LessThanThatIsCopied)
{
    Block b = stuck(MiB);
    grow(b, least - EBBI_GRANULE);
    EXPECT_EQ(EBBI_TAG_LARGE, ebbi_tag_of(b.bytes));
    ebb_free(b.bytes);
}

TEST_F(Grow, FromThenOnItsPagesMove)
{
    Block b = stuck(MiB);
    grow(b, least);
    fake_os_refuse(FAKE_RESIZE, 1, true);
    for (std::size_t bytes = 2 * least; bytes <= 16 * least; bytes *= 2) {
        const std::size_t moves = fake_os_count(FAKE_MOVE);
        grow(b, bytes);
        EXPECT_EQ(moves + 1, fake_os_count(FAKE_MOVE));
    }
    EXPECT_TRUE(ebbi_huge_is(b.bytes));
    ebb_free(b.bytes);
}

// What a mapping has behind what was asked for: an eighth, which a smaller size keeps.
TEST_F(Grow, SmallStepsTakeNoCall)
{
    Block b = stuck(MiB);
    grow(b, least);
    EXPECT_EQ(least + least / 8, ebb_malloc_usable_size(b.bytes));
    const std::size_t before = fake_os_count(FAKE_MOVE) + fake_os_count(FAKE_RESIZE);
    for (std::size_t bytes = least; bytes <= least + least / 8; bytes += 4096) {
        void *p = b.bytes;
        grow(b, bytes);
        EXPECT_EQ(p, b.bytes);
    }
    grow(b, least);
    EXPECT_EQ(least + least / 8, ebb_malloc_usable_size(b.bytes));
    EXPECT_EQ(before, fake_os_count(FAKE_MOVE) + fake_os_count(FAKE_RESIZE));
    grow(b, least + least / 8 + 1);
    EXPECT_LT(before, fake_os_count(FAKE_MOVE) + fake_os_count(FAKE_RESIZE));
    ebb_free(b.bytes);
}

TEST_F(Grow, WhatIsCutByMoreIsItsNoMore)
{
    Block b = stuck(MiB);
    grow(b, 8 * least);
    grow(b, 2 * least);
    EXPECT_EQ(2 * least, ebb_malloc_usable_size(b.bytes));
    grow(b, EBBI_CLASS_MAX + 1);
    EXPECT_TRUE(ebbi_huge_is(b.bytes));
    EXPECT_EQ(EBBI_CLASS_MAX + EBBI_GRANULE, ebb_malloc_usable_size(b.bytes));
    grow(b, EBBI_CLASS_MAX);
    EXPECT_NE(0U, ebbi_tag_class(ebbi_tag_of(b.bytes))) << "it is no mapping any more";
    ebb_free(b.bytes);
}

TEST_F(Grow, FromThirtyTwoMebibytesOnAMappingIsAsLongAsItIs)
{
    Block b = stuck(MiB);
    grow(b, EBBI_HUGE_MIN);
    EXPECT_EQ(EBBI_HUGE_MIN, ebb_malloc_usable_size(b.bytes));
    grow(b, EBBI_HUGE_MIN + MiB);
    EXPECT_EQ(EBBI_HUGE_MIN + MiB, ebb_malloc_usable_size(b.bytes));
    grow(b, EBBI_HUGE_MIN);
    EXPECT_EQ(EBBI_HUGE_MIN, ebb_malloc_usable_size(b.bytes));
    ebb_free(b.bytes);
}

bool readable(const unsigned char *p)
{
    int end[2];
    EXPECT_EQ(0, pipe(end));
    const bool reads = write(end[1], p, 1) == 1;
    close(end[0]);
    close(end[1]);
    return reads;
}

// Nor does what is smaller have any: there may be too many.
TEST_F(Grow, FromThirtyTwoMebibytesOnAMappingHasGaps)
{
    Block b = stuck(MiB);
    const std::size_t held = fake_os_held_bytes();
    grow(b, least);
    EXPECT_EQ(held + least + least / 8, fake_os_held_bytes());
    grow(b, EBBI_HUGE_MIN - MiB);
    grow(b, EBBI_HUGE_MIN);
    EXPECT_EQ(held + EBBI_HUGE_MIN + huge_gaps, fake_os_held_bytes());
    EXPECT_FALSE(readable(b.bytes - 1));
    EXPECT_FALSE(readable(b.bytes + EBBI_HUGE_MIN));
    ebb_free(b.bytes);
}

TEST_F(Grow, ASmallBlockThatComesToAsMuchHasAMappingAtOnce)
{
    for (const std::size_t bytes : {1U, 1000U, 65536U, 131072U}) {
        Block b{static_cast<unsigned char *>(ebb_malloc(bytes)), bytes, 0};
        fill(b);
        grow(b, least);
        EXPECT_TRUE(ebbi_huge_is(b.bytes)) << bytes;
        ebb_free(b.bytes);
    }
}

TEST_F(Grow, WhereAMappingIsRefusedItIsCopied)
{
    Block b = stuck(MiB);
    fake_os_refuse(FAKE_RESERVE, 1, true);
    grow(b, least);
    EXPECT_EQ(EBBI_TAG_LARGE, ebbi_tag_of(b.bytes));
    ebb_free(b.bytes);
}

TEST_F(Grow, WhatIsKeptServesTheNext)
{
    for (int round = 0; round < 3; round++) {
        Block b = stuck(MiB);
        const std::size_t reserved = fake_os_count(FAKE_RESERVE);
        grow(b, least);
        EXPECT_EQ(round == 0, reserved < fake_os_count(FAKE_RESERVE)) << round;
        ebb_free(b.bytes);
    }
}

TEST_F(Grow, WhereARegionOrADomainIsCurrentItIsCopied)
{
    Block b = stuck(MiB), d = stuck(MiB);
    struct ebb_region *region = ebb_region_open(nullptr);
    ASSERT_NE(nullptr, region);
    struct ebb_scope before = ebb_region_enter(region);
    grow(b, least);
    EXPECT_EQ(region, ebb_region_of(b.bytes));
    ebb_leave(before);
    ebb_region_release(region);
    struct ebb_domain *domain = ebb_domain_open("grows");
    ASSERT_NE(nullptr, domain);
    before = ebb_domain_enter(domain);
    grow(d, least);
    EXPECT_FALSE(ebbi_huge_is(d.bytes));
    ebb_leave(before);
    ebb_free(d.bytes);
}

std::size_t resident_pages(void *p, std::size_t bytes)
{
    const std::size_t page = ebbi_os_page_size();
    std::vector<unsigned char> there(bytes / page);
    EXPECT_EQ(0, mincore(p, bytes, there.data()));
    return static_cast<std::size_t>(
        std::count_if(there.begin(), there.end(), [](unsigned char c) { return (c & 1) != 0; }));
}

// Of so many bytes, a few of which are written.
void touch_hardly(const Block &block)
{
    for (const std::size_t at : {std::size_t{0}, block.size / 2 + 100, block.size - 1})
        block.bytes[at] = 3;
}

void expect_hardly_touched(const Block &block)
{
    for (std::size_t at = 0; at < block.size; at++) {
        const bool written = at == 0 || at == block.size / 2 + 100 || at == block.size - 1;
        ASSERT_EQ(written ? 3 : 0, block.bytes[at]) << at;
    }
}

// Neither in a mapping nor in a span.
TEST_F(Grow, WhatIsZeroIsNotWrittenWhereAllIs)
{
    for (const std::size_t bytes : {3 * least / 4, 2 * least}) {
        Block b{static_cast<unsigned char *>(ebb_malloc(3 * MiB / 4)), 3 * MiB / 4, 0};
        behind.push_back(ebb_malloc(EBBI_GRANULE * 3));
        touch_hardly(b);
        b.bytes = static_cast<unsigned char *>(ebb_realloc(b.bytes, bytes));
        EXPECT_EQ(bytes > least, ebbi_huge_is(b.bytes));
        EXPECT_GE(3U, resident_pages(b.bytes, bytes));
        expect_hardly_touched(b);
        ebb_free(b.bytes);
        ebb_trim();
    }
}

TEST_F(Grow, WhatIsZeroIsWrittenWhereSomethingWas)
{
    for (const std::size_t bytes : {3 * least / 4, 2 * least}) {
        Block b{static_cast<unsigned char *>(ebb_calloc(1, MiB)), MiB, 0};
        behind.push_back(ebb_malloc(EBBI_GRANULE * 3));
        std::vector<void *> dirty; // spans of several lengths, and a mapping
        for (std::size_t other = bytes; other <= bytes + bytes / 4; other += bytes / 8) {
            dirty.push_back(memset(ebb_malloc(other), 0xEE, other));
            behind.push_back(ebb_malloc(EBBI_GRANULE * 3));
        }
        void *grown = ebb_realloc(ebb_malloc(1), bytes + bytes / 8);
        dirty.push_back(memset(grown, 0xEE, bytes + bytes / 8));
        for (void *p : dirty)
            ebb_free(p);
        touch_hardly(b);
        b.bytes = static_cast<unsigned char *>(ebb_realloc(b.bytes, bytes));
        expect_hardly_touched(b);
        EXPECT_EQ(0xEE, b.bytes[bytes - 1]) << "it was no fresh memory";
        ebb_free(b.bytes);
        ebb_trim();
    }
}

TEST_F(Grow, WhatHasBeenRetiredIsNot)
{
    Block b = stuck(MiB);
    EXPECT_DEATH(
        {
            ebb_pin();
            ebb_retire(b.bytes);
            (void)ebb_realloc(b.bytes, least);
        },
        "has been retired");
    ebb_free(b.bytes);
}

TEST_F(Grow, RandomSizesKeepTheirContents)
{
    Random random(9);
    std::vector<Block> live;
    for (int i = 0; i < 6; i++)
        live.push_back(stuck(MiB / 2));
    for (int i = 0; i < 400; i++) {
        Block &b = live[random.below(live.size())];
        const std::size_t bytes = 1 + random.below(random.chance(3) ? 40 * MiB : 5 * MiB);
        if (random.chance(5))
            fake_os_refuse(random.chance(2) ? FAKE_RESIZE : FAKE_MOVE, 1, true);
        grow(b, bytes);
        fake_os_allow();
    }
    for (const Block &b : live)
        ebb_free(b.bytes);
}

} // namespace
