// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: what is cut off from a mapping is kept for the delay, as what is freed, and joined by who grows again.
#include <deque>

#include "support/huge.h"

namespace {

using namespace unit;

constexpr std::size_t unit_bytes = 2 * MiB;

struct Rest : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_threaded(false);
        fake_os_clock(5000);
    }

    void TearDown() override
    {
        for (const Block &each : live)
            ebb_free(each.bytes);
        ebb_trim();
        EXPECT_EQ(0U, huge_count());
        EXPECT_EQ(0U, ebbi_kept_bytes);
        Fake::TearDown();
    }

    // Of so many units.
    Block &object(std::size_t units)
    {
        live.push_back(huge(units * unit_bytes));
        return live.back();
    }

    static bool resize(Block &block, std::size_t bytes, bool keeps_rest = true)
    {
        void *to = ebbi_huge_resize(block.bytes, bytes, keeps_rest);
        if (to == nullptr)
            return false;
        block.bytes = static_cast<unsigned char *>(to);
        EXPECT_TRUE(block.intact(bytes)) << bytes;
        block.size = bytes;
        block.fill();
        return true;
    }

    // Of what moves, comes and goes for the kernel.
    static std::size_t calls()
    {
        return fake_os_count(FAKE_RESIZE) + fake_os_count(FAKE_MOVE) + fake_os_count(FAKE_RELEASE) +
               fake_os_count(FAKE_RESERVE);
    }

    std::deque<Block> live;
};

TEST_F(Rest, WhatIsCutAndGrownAgainTakesNoCall)
{
    Block &b = object(4);
    const void *place = b.bytes;
    const std::size_t before = calls();
    for (int i = 0; i < 5; i++) {
        EXPECT_TRUE(resize(b, unit_bytes));
        EXPECT_EQ(unit_bytes, ebbi_huge_bytes(b.bytes));
        EXPECT_EQ(3 * unit_bytes, ebbi_kept_bytes);
        EXPECT_TRUE(resize(b, 4 * unit_bytes));
        EXPECT_EQ(0U, ebbi_kept_bytes);
    }
    EXPECT_EQ(place, b.bytes);
    EXPECT_EQ(before, calls());
}

// By granules, and of what is less than one nothing.
TEST_F(Rest, InStepsItIsCutAndJoinedInParts)
{
    Block &b = object(8);
    const std::size_t before = calls();
    for (std::size_t units : {6U, 5U, 1U, 2U, 4U, 3U, 7U, 1U, 8U}) {
        EXPECT_TRUE(resize(b, units * unit_bytes));
        EXPECT_EQ((8 - units) * unit_bytes, ebbi_kept_bytes) << units;
    }
    EXPECT_TRUE(resize(b, unit_bytes + 1));
    EXPECT_EQ(unit_bytes + EBBI_GRANULE, ebbi_huge_bytes(b.bytes));
    EXPECT_TRUE(resize(b, unit_bytes + EBBI_GRANULE + 1));
    EXPECT_EQ(unit_bytes + 2 * EBBI_GRANULE, ebbi_huge_bytes(b.bytes));
    EXPECT_TRUE(resize(b, 8 * unit_bytes));
    EXPECT_EQ(before, calls());
}

// An idle object as well: nobody has to resize it again.
TEST_F(Rest, GoesHomeAfterTheDelay)
{
    Block &b = object(4);
    EXPECT_TRUE(resize(b, unit_bytes));
    const std::size_t held = fake_os_held_bytes();
    (void)ebbi_arena_purge(5499, 500, SIZE_MAX);
    EXPECT_EQ(held, fake_os_held_bytes());
    (void)ebbi_arena_purge(5500, 500, SIZE_MAX);
    EXPECT_EQ(held - 3 * unit_bytes, fake_os_held_bytes());
    EXPECT_TRUE(b.intact());
    EXPECT_TRUE(resize(b, 2 * unit_bytes)) << "from elsewhere, or where it was";
}

TEST_F(Rest, GoesHomeWithATrim)
{
    Block &b = object(4);
    EXPECT_TRUE(resize(b, unit_bytes));
    const std::size_t held = fake_os_held_bytes();
    EXPECT_LE(3 * unit_bytes, ebb_trim());
    EXPECT_GE(held - 3 * unit_bytes, fake_os_held_bytes());
    EXPECT_TRUE(b.intact());
}

// What swings in front of it does not keep it: each part is as old as its own cut.
TEST_F(Rest, WhatSwingsKeepsNoMoreThanItUses)
{
    Block &b = object(8);
    EXPECT_TRUE(resize(b, 2 * unit_bytes)); // six units since 5000
    for (std::uint64_t now = 5100; now <= 5400; now += 100) {
        fake_os_clock(now);
        EXPECT_TRUE(resize(b, 3 * unit_bytes));
        EXPECT_TRUE(resize(b, 2 * unit_bytes));
    }
    EXPECT_EQ(6 * unit_bytes, ebbi_kept_bytes);
    fake_os_clock(5500);
    (void)ebbi_arena_purge(5500, 500, SIZE_MAX);
    EXPECT_EQ(unit_bytes, ebbi_kept_bytes) << "since 5400";
    (void)ebbi_arena_purge(5900, 500, SIZE_MAX);
    EXPECT_EQ(0U, ebbi_kept_bytes);
}

// In a process of one thread as well, whose calls are resizes alone.
TEST_F(Rest, ASwingLooksForWhatIsOld)
{
    void *p = ebb_realloc(ebb_malloc(1), 12 * unit_bytes);
    p = ebb_realloc(p, 2 * unit_bytes);
    const std::size_t old = ebbi_kept_bytes;
    EXPECT_LE(9 * unit_bytes, old);
    for (std::uint64_t now = 5010; now < 6500; now += 10) {
        fake_os_clock(now);
        p = ebb_realloc(p, 3 * unit_bytes);
        p = ebb_realloc(p, 2 * unit_bytes);
    }
    EXPECT_GE(2 * unit_bytes, ebbi_kept_bytes) << "of " << old;
    ebb_free(p);
}

// An object in a span too, whatever it was that was freed.
TEST_F(Rest, ASwingInASpanLooksForWhatIsOld)
{
    std::vector<void *> freed;
    for (int i = 0; i < 36; i++)
        freed.push_back(ebb_malloc(MiB));
    void *p = ebb_malloc(12 * MiB); // with room behind it from then on
    for (void *each : freed)
        ebb_free(each);
    p = ebb_realloc(p, 2 * MiB);
    EXPECT_FALSE(ebbi_huge_is(p));
    const std::size_t dirty = ebbi_arena_dirty_bytes();
    EXPECT_LE(30 * MiB, dirty);
    for (std::uint64_t now = 5010; now < 6500; now += 10) {
        fake_os_clock(now);
        p = ebb_realloc(p, 12 * MiB);
        p = ebb_realloc(p, 2 * MiB);
    }
    EXPECT_GE(12 * MiB, ebbi_arena_dirty_bytes()) << "of " << dirty;
    ebb_free(p);
}

TEST_F(Rest, AGrowthThatIsRefusedChangesNothing)
{
    Block &b = object(4);
    ASSERT_TRUE(resize(b, 2 * unit_bytes));
    const std::size_t kept = ebbi_kept_bytes, bytes = ebbi_huge_bytes(b.bytes);
    ASSERT_LT(0U, kept);
    for (fake_call call : {FAKE_RESIZE, FAKE_MOVE, FAKE_RESERVE, FAKE_MAP})
        fake_os_refuse(call, 1, true);
    EXPECT_EQ(nullptr, ebbi_huge_resize(b.bytes, 40 * unit_bytes, true));
    EXPECT_EQ(bytes, ebbi_huge_bytes(b.bytes));
    EXPECT_EQ(kept, ebbi_kept_bytes);
    fake_os_allow();
    EXPECT_TRUE(b.intact(b.size));
    EXPECT_TRUE(resize(b, 4 * unit_bytes)) << "it joins what is kept, as before";
    EXPECT_EQ(0U, ebbi_kept_bytes);
}

TEST_F(Rest, ServesOthersAndIsThenTheirs)
{
    Block &b = object(4);
    EXPECT_TRUE(resize(b, unit_bytes));
    Block other{static_cast<unsigned char *>(ebbi_huge_take(3 * unit_bytes, 1, false)),
                3 * unit_bytes, 0x36};
    ASSERT_EQ(b.bytes + unit_bytes, other.bytes);
    other.fill();
    EXPECT_TRUE(resize(b, 3 * unit_bytes));
    EXPECT_TRUE(other.intact()) << "it has moved, or another part";
    ebb_free(other.bytes);
}

// The one that takes a mapping has no more of it than it wants.
TEST_F(Rest, OfAKeptMappingTooIsKept)
{
    ebb_free(huge(4 * unit_bytes).bytes);
    live.push_back(Block{static_cast<unsigned char *>(ebbi_huge_take(3 * unit_bytes, 1, false)),
                         3 * unit_bytes, 0x36});
    Block &b = live.back();
    ASSERT_NE(nullptr, b.bytes);
    b.fill();
    EXPECT_EQ(3 * unit_bytes, ebbi_huge_bytes(b.bytes));
    EXPECT_EQ(unit_bytes, ebbi_kept_bytes);
    const std::size_t before = calls();
    EXPECT_TRUE(resize(b, 4 * unit_bytes));
    EXPECT_EQ(before, calls());
}

// A calloc that takes it reads zero, whatever it has been.
TEST_F(Rest, ReadsAsZeroWhereThatIsAskedFor)
{
    Block &b = object(4);
    EXPECT_TRUE(resize(b, unit_bytes));
    auto *zero = static_cast<unsigned char *>(ebbi_huge_take(2 * unit_bytes, 1, true));
    ASSERT_EQ(b.bytes + unit_bytes, zero);
    EXPECT_EQ(static_cast<std::ptrdiff_t>(2 * unit_bytes),
              std::count(zero, zero + 2 * unit_bytes, 0));
    ebb_free(zero);
    EXPECT_TRUE(b.intact());
}

TEST_F(Rest, IsNotKeptWhereNothingMayLieBehind)
{
    Block &b = object(4);
    const std::size_t held = fake_os_held_bytes();
    EXPECT_TRUE(resize(b, unit_bytes, false));
    EXPECT_EQ(held - 3 * unit_bytes, fake_os_held_bytes());
    EXPECT_EQ(0U, ebbi_kept_bytes);
}

TEST_F(Rest, IsNotKeptOfWhatHasGaps)
{
    ebb_free(object(24).bytes); // there are records
    live.clear();
    ebb_trim();
    const std::size_t held = fake_os_held_bytes();
    Block &b = object(24);
    EXPECT_TRUE(resize(b, 17 * unit_bytes));
    EXPECT_EQ(17 * unit_bytes, ebbi_huge_bytes(b.bytes));
    EXPECT_EQ(0U, ebbi_kept_bytes);
    EXPECT_TRUE(resize(b, 8 * unit_bytes)); // below that it has none
    EXPECT_EQ(9 * unit_bytes, ebbi_kept_bytes);
    EXPECT_TRUE(resize(b, 17 * unit_bytes)) << "with the gap behind it";
    EXPECT_TRUE(resize(b, 8 * unit_bytes));
    ebb_free(b.bytes);
    live.clear();
    ebb_trim();
    EXPECT_EQ(held, fake_os_held_bytes());
}

// A cut is as a free: of much memory that is free beside little in use some goes home at once.
TEST_F(Rest, IsBoundedAsWhatIsFreedIs)
{
    constexpr std::size_t count = 10, most = 12 * unit_bytes;
    std::vector<void *> grown;
    for (std::size_t i = 0; i < count; i++) {
        grown.push_back(ebb_realloc(ebb_malloc(1), most));
        ASSERT_TRUE(ebbi_huge_is(grown.back()));
    }
    for (void *&p : grown)
        p = ebb_realloc(p, unit_bytes);
    EXPECT_GE(3 * most, ebbi_kept_bytes);
    for (void *p : grown)
        ebb_free(p);
}

// Each takes a record more; where there is none, it goes home at once.
TEST_F(Rest, IsNotKeptWhereMemoryForItsRecordIsRefused)
{
    for (int i = 0; i < 20000; i++)
        live.push_back(huge(2 * EBBI_GRANULE));
    fake_os_refuse(FAKE_COMMIT, 1, true);
    fake_os_refuse(FAKE_RESERVE, 1, true);
    std::size_t cut = 0;
    for (Block &each : live) {
        EXPECT_TRUE(resize(each, EBBI_GRANULE));
        cut += EBBI_GRANULE;
    }
    fake_os_allow();
    EXPECT_GT(cut, ebbi_kept_bytes) << "records were at hand for all";
    for (const Block &each : live)
        ASSERT_TRUE(each.intact());
}

TEST_F(Rest, InAnyOrder)
{
    Random random(11);
    for (int i = 0; i < 5; i++)
        (void)object(2);
    for (int i = 0; i < 1500; i++) {
        Block &b = live[random.below(live.size())];
        const int what = static_cast<int>(random.below(12));
        if (what == 0) {
            fake_os_clock_advance(random.below(400));
            (void)ebbi_arena_purge(ebbi_os_now_ms(), 500, SIZE_MAX);
        } else if (what == 1) {
            ebb_free(b.bytes);
            const bool zero = random.chance(2);
            const std::size_t bytes = unit_bytes + random.below(3 * unit_bytes);
            void *p = ebbi_huge_take(bytes, 1, zero);
            p = p != nullptr ? p : ebbi_huge_alloc(bytes, 1, zero);
            b = Block{static_cast<unsigned char *>(p), bytes, static_cast<unsigned char>(i)};
            ASSERT_TRUE(!zero || std::count(b.bytes, b.bytes + bytes, 0) ==
                                     static_cast<std::ptrdiff_t>(bytes));
            b.fill();
        } else {
            if (random.chance(6))
                fake_os_refuse(random.chance(2) ? FAKE_RESIZE : FAKE_MOVE, 1, true);
            (void)resize(b, 1 + random.below(random.chance(8) ? 20 * unit_bytes : 5 * unit_bytes));
            fake_os_allow();
        }
        for (const Block &each : live)
            ASSERT_TRUE(each.intact()) << i;
    }
}

} // namespace
