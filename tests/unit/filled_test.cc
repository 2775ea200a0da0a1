// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: large and huge objects are asked for in huge pages while those before them are filled.
#include <sys/prctl.h>

#include "support/dense.h"
#include "support/huge.h"

namespace {

using namespace unit;

struct Filled : Dense {
    static constexpr std::size_t granules = 5, enough = 8, probe_part = 64;

    void SetUp() override
    {
        Dense::SetUp();
        // What is touched is there, and no more, on any machine: what is asked for is the figure.
        if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0 && emulated)
            GTEST_SKIP() << "the emulator does not know the call";
    }
    static char *object(double part, std::size_t length = granules)
    {
        ebbi_span *span = ebbi_span_alloc_dense(length, EBBI_SPAN_LARGE, EBBI_FILL_OBJECT);
        EXPECT_NE(nullptr, span);
        char *start = static_cast<char *>(ebbi_span_start(span));
        touch(start, length * EBBI_GRANULE, part);
        return start;
    }
    // A page at least, unless it is none.
    static void touch(char *start, std::size_t bytes, double part)
    {
        const double end = part * static_cast<double>(bytes);
        for (std::size_t at = 0; static_cast<double>(at) < end; at += 4 * KiB)
            start[at] = 1;
    }
    static std::size_t asked() { return fake_os_count(FAKE_ADVISE_HUGE); }
    // Of so many bytes of such objects, the bytes that are asked for.
    static std::size_t asked_of(std::size_t bytes, double part, std::size_t length = granules)
    {
        const std::size_t before = asked_bytes();
        for (std::size_t done = 0; done < bytes; done += length * EBBI_GRANULE)
            object(part, length);
        return asked_bytes() - before;
    }
    // More are in use than it takes.
    static void begin(double part) { asked_of((least_units + 2) * unit_bytes, part); }
};

TEST_F(Filled, OneTouchedPageEachIsAReasonForSmallOnes)
{
    EXPECT_EQ(0U, asked_of(200 * MiB, 1e-9));
    EXPECT_EQ(0U, asked());
}

TEST_F(Filled, AnObjectTouchedInPartIsNotFilled)
{
    EXPECT_LE(asked_of(200 * MiB, 0.5), 100 * MiB) << "until it is for sure";
    EXPECT_EQ(0U, asked_of(50 * MiB, 0.5));
    EXPECT_EQ(0U, asked_of(50 * MiB, 0.6));
}

TEST_F(Filled, FilledObjectsAreAskedForButAFew)
{
    begin(1);
    EXPECT_GE(asked_of(200 * MiB, 1), 180 * MiB);
    EXPECT_GE(asked_of(200 * MiB, 0.8), 180 * MiB);
}

TEST_F(Filled, LongOnesToo)
{
    begin(1);
    constexpr std::size_t length = 3 * EBBI_UNIT_GRANULES;
    EXPECT_GE(asked_of(200 * MiB, 1, length), 180 * MiB);
    EXPECT_LE(asked_of(900 * MiB, 1e-9, length), (probe_part + 6) * length * EBBI_GRANULE);
    EXPECT_EQ(0U, asked_of(200 * MiB, 1e-9, length));
}

// Those before there is a reason to ask tell.
TEST_F(Filled, ShortOnesAreSeenAtOnce)
{
    EXPECT_LE(asked_of(400 * MiB, 1e-9, EBBI_UNIT_GRANULES * 3 / 4), 12 * MiB);
}

// The first is a reason, and too short to be seen unit by unit: the second is a probe.
TEST_F(Filled, LongerOnesAreSeenByTheSecond)
{
    EXPECT_LE(asked_of(400 * MiB, 1e-9, 2 * EBBI_UNIT_GRANULES), 12 * MiB);
}

// So late that many others have come meanwhile.
TEST_F(Filled, WhatIsTouchedLateIsSeenThen)
{
    std::vector<char *> waiting;
    const std::size_t before = asked_bytes();
    for (int i = 0; i < 600; i++) {
        waiting.push_back(object(0));
        if (i >= 100)
            *waiting[i - 100] = 1;
    }
    EXPECT_LE(asked_bytes() - before, 160 * granules * EBBI_GRANULE);
}

// What came after the probe has huge pages, and says nothing.
TEST_F(Filled, AProbeThatIsTouchedLateIsWaitedFor)
{
    std::vector<char *> waiting;
    for (std::size_t i = 0; i < 200; i++) {
        waiting.push_back(object(0, 4 * EBBI_UNIT_GRANULES));
        if (i >= 20)
            *waiting[i - 20] = 1;
    }
    EXPECT_LE(asked(), 40U);
}

// With huge pages they show it unit by unit: nobody waits for one that has none.
TEST_F(Filled, SoDoLongOnesInHugePages)
{
    constexpr std::size_t length = 8 * EBBI_UNIT_GRANULES;
    for (double part : {1e-9, 0.2, 0.5}) {
        const std::size_t before = fake_os_count(FAKE_ADVISE_HUGE);
        asked_of(2000 * MiB, part, length);
        EXPECT_LE(fake_os_count(FAKE_ADVISE_HUGE) - before, 5U) << part;
    }
}

TEST_F(Filled, LongOnesAreSeenWhenTheyAreFreed)
{
    constexpr std::size_t length = 8 * EBBI_UNIT_GRANULES;
    const auto asks = [](double part) {
        const std::size_t before = fake_os_count(FAKE_ADVISE_HUGE);
        ebbi_span_free(ebbi_span_of(object(part, length)));
        purge();
        return fake_os_count(FAKE_ADVISE_HUGE) - before;
    };
    for (int i = 0; i < 20; i++)
        EXPECT_EQ(2U, asks(1)) << "and one that it is no more";
    for (int i = 0; i < 6; i++)
        asks(0.3);
    for (int i = 0; i < 10; i++)
        EXPECT_EQ(0U, asks(0.3));
}

// They may be filled when all are there.
TEST_F(Filled, WhatIsUntouchedSaysNothing)
{
    begin(0);
    EXPECT_GE(asked_of(200 * MiB, 0), 180 * MiB);
}

TEST_F(Filled, WhatIsFilledAfterItsSuccessorWasTakenCounts)
{
    begin(1);
    const std::size_t before = asked_bytes();
    char *last = object(0.1);
    for (std::size_t done = 0; done < 200 * MiB; done += granules * EBBI_GRANULE) {
        char *next = object(0.1);
        touch(last, granules * EBBI_GRANULE, 1);
        last = next;
    }
    EXPECT_GE(asked_bytes() - before, 180 * MiB);
}

TEST_F(Filled, AProgramThatChangesIsFollowed)
{
    begin(1);
    for (int round = 0; round < 3; round++) {
        EXPECT_GE(asked_of(100 * MiB, 1), 80 * MiB);
        EXPECT_LE(asked_of(200 * MiB, 1e-9), (probe_part + 8) * unit_bytes)
            << "until one has shown it";
        EXPECT_EQ(0U, asked_of(200 * MiB, 1e-9));
    }
}

// One in two or three is no crowd of filled ones.
TEST_F(Filled, AMixtureIsNotFilled)
{
    begin(1e-9);
    for (int period : {2, 3}) {
        const std::size_t before = asked_bytes();
        for (int i = 0; i < 600; i++)
            object(i % period == 0 ? 1e-9 : 1);
        EXPECT_LE(asked_bytes() - before, 100 * granules * EBBI_GRANULE) << period;
    }
}

TEST_F(Filled, LooksAreAFewForAUnit)
{
    begin(1e-9);
    const std::size_t before = fake_os_count(FAKE_RESIDENT);
    asked_of(200 * MiB, 1e-9);
    const std::size_t looks = fake_os_count(FAKE_RESIDENT) - before;
    EXPECT_GE(looks, 100U);
    EXPECT_LE(looks, (200 * MiB / unit_bytes + 1) * 3 * 16);
}

TEST_F(Filled, WhereTheKernelDoesNotTellNothingIsKnown)
{
    fake_os_refuse(FAKE_RESIDENT, 1, true);
    begin(1e-9);
    EXPECT_GE(asked_of(100 * MiB, 1e-9), 90 * MiB);
}

// As in a container: nobody knows whether the call ends the process.
TEST_F(Filled, BelowAFilterFromBeforeTheStartNobodyLooks)
{
    fake_os_filtered(true);
    begin(1e-9);
    EXPECT_GE(asked_of(100 * MiB, 1e-9), 90 * MiB);
    EXPECT_EQ(0U, fake_os_count(FAKE_RESIDENT));
}

TEST_F(Filled, BelowAFilterAllStaysAsItIs)
{
    begin(1e-9);
    ASSERT_EQ(0, ebbi_os_prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    EXPECT_EQ(0U, asked_of(100 * MiB, 1));
}

// ---- objects with a mapping of their own

struct FilledHuge : Filled {
    static char *object(double part, std::size_t bytes = 32 * MiB)
    {
        auto *start = static_cast<char *>(ebbi_huge_alloc(bytes, 1, false));
        EXPECT_NE(nullptr, start);
        touch(start, bytes, part);
        return start;
    }
};

TEST_F(FilledHuge, AreAskedForWhileTheyAreFilled)
{
    for (int i = 0; i < 6; i++)
        object(1);
    EXPECT_EQ(6U, asked());
}

TEST_F(FilledHuge, WithABitOfEachTouchedAFewAreAskedFor)
{
    for (double part : {1e-9, 0.15, 0.5}) {
        const std::size_t before = asked();
        for (int i = 0; i < 40; i++)
            object(part);
        EXPECT_LE(asked() - before, 5U) << part;
    }
}

// One in five shows what the others do not.
TEST_F(FilledHuge, ThatAreFilledLaterAreMostlyAskedFor)
{
    std::vector<char *> all;
    for (int i = 0; i < 40; i++)
        all.push_back(object(0));
    EXPECT_GE(asked(), 30U);
    EXPECT_LT(asked(), 40U);
}

TEST_F(FilledHuge, AreAskedForAgainOnceSomeAreFilled)
{
    for (int i = 0; i < 10; i++)
        object(1e-9);
    for (std::size_t i = 0; i < enough; i++)
        object(1);
    const std::size_t before = asked();
    object(1);
    EXPECT_EQ(before + 1, asked());
}

// As a table of which the program uses the beginning of each second unit.
TEST_F(FilledHuge, WhatIsTouchedInARhythmIsNotFilled)
{
    for (int i = 0; i < 10; i++) {
        auto *start = object(0, 68 * MiB);
        for (std::size_t at = 0; at < 68 * MiB; at += 2 * unit_bytes)
            touch(start + at, 128 * KiB, 1);
    }
    EXPECT_LE(asked(), 4U);
}

// However short it lives.
TEST_F(FilledHuge, ThatAreFreedHaveShownItByThen)
{
    for (int i = 0; i < 20; i++)
        EXPECT_TRUE(ebbi_huge_free(object(1)));
    EXPECT_EQ(20U, asked());
    for (int i = 0; i < 20; i++)
        EXPECT_TRUE(ebbi_huge_free(object(0.3)));
    EXPECT_LE(asked(), 24U);
}

// ---- slabs of long blocks

struct FilledSlabs : Filled {
    // Of so many bytes of blocks of one size, the bytes that are asked for.
    static std::size_t asked_of_blocks(std::size_t bytes, std::size_t size, double part)
    {
        const std::size_t before = asked_bytes();
        for (std::size_t done = 0; done < bytes; done += size) {
            auto *block = static_cast<char *>(ebb_malloc(size));
            EXPECT_NE(nullptr, block);
            touch(block, size, part);
        }
        return asked_bytes() - before;
    }
    static constexpr std::size_t sizes[] = {8 * KiB, 20 * KiB, 64 * KiB, 100 * KiB};
};

TEST_F(FilledSlabs, OfBlocksTouchedInPartAreNotAskedFor)
{
    for (std::size_t size : sizes)
        for (double part : {1e-9, 0.5})
            EXPECT_EQ(0U, asked_of_blocks(50 * MiB, size, part)) << size << " " << part;
}

TEST_F(FilledSlabs, AreAskedForButAFew)
{
    for (std::size_t size : sizes)
        EXPECT_GE(asked_of_blocks(100 * MiB, size, 1), 88 * MiB) << size;
}

// Whatever a page of theirs is touched, it is the whole block.
TEST_F(FilledSlabs, OfShorterBlocksAreFilledByAnyUse)
{
    for (std::size_t size : {std::size_t{1024}, 4 * KiB}) {
        asked_of_blocks(10 * MiB, size, 1e-9);
        EXPECT_GE(asked_of_blocks(300 * MiB, size, 1e-9), 296 * MiB) << size;
    }
}

// A streak of slabs is longer than the number of it: 300 of them.
TEST_F(FilledSlabs, AProgramThatChangesIsFollowed)
{
    for (int round = 0; round < 3; round++) {
        EXPECT_GE(asked_of_blocks(150 * MiB, 64 * KiB, 1), 120 * MiB);
        EXPECT_LE(asked_of_blocks(50 * MiB, 64 * KiB, 1e-9), 20 * MiB);
        EXPECT_EQ(0U, asked_of_blocks(50 * MiB, 64 * KiB, 1e-9));
    }
}

TEST_F(FilledSlabs, OnPagesOfOthersSayNothing)
{
    EXPECT_EQ(0U, asked_of_blocks(20 * MiB, 64 * KiB, 1e-9));
    char *other = object(1, 20 * EBBI_UNIT_GRANULES);
    ebbi_span_free(ebbi_span_of(other));
    const std::size_t dirty = ebbi_arena_dirty_bytes();
    const std::size_t asked = asked_bytes();
    asked_of_blocks(100 * MiB, 64 * KiB, 1e-9);
    EXPECT_LE(ebbi_arena_dirty_bytes() + 20 * MiB, dirty) << "that is where they lie";
    EXPECT_LE(asked_bytes(), asked);
}

TEST_F(FilledSlabs, EachClassHasItsOwnHabit)
{
    for (int i = 0; i < 10; i++) {
        EXPECT_EQ(0U, asked_of_blocks(20 * MiB, 64 * KiB, 1e-9));
        asked_of_blocks(20 * MiB, 16 * KiB, 1);
    }
    EXPECT_GE(asked_bytes(), 150 * MiB);
}

} // namespace
