// SPDX-License-Identifier: MIT OR Apache-2.0
// The life of a region: nesting, cleanups, reset, limits.
// The file that includes this one has chosen the form of the API before.
#pragma once

#include "region_support.h"

namespace {

using namespace regions;
using support::KiB;
using support::MiB;

// What cleanups saw, in their order.
struct Journal {
    explicit Journal(std::size_t capacity) : entries(capacity) {}
    void add(std::size_t entry) { entries[count++] = entry; }
    support::MappedArray<std::size_t> entries;
    std::size_t count = 0;
};

struct Note {
    Journal *journal;
    std::size_t entry;
};

void write_note(void *argument)
{
    const auto *note = static_cast<const Note *>(argument);
    note->journal->add(note->entry);
}

void expect_descending(const Journal &journal, std::size_t count)
{
    ASSERT_EQ(journal.count, count);
    for (std::size_t i = 0; i < count; i++)
        ASSERT_EQ(journal.entries[i], count - 1 - i) << "at " << i;
}

enum class Ending { release, reset, close };

void end(ebb_region *region, Ending ending)
{
    if (ending == Ending::release)
        ebb_region_release(region);
    else if (ending == Ending::reset)
        ebb_region_reset(region);
    else
        ebb_region_close(region);
}

const Ending endings[] = {Ending::release, Ending::reset, Ending::close};

TEST(RegionNesting, DepthOfAThousandEndsInnermostFirst)
{
    for (Ending ending : {Ending::release, Ending::close}) {
        Journal journal(1000);
        support::MappedArray<Note> notes(1000);
        support::MappedArray<void *> blocks(1000);
        ebb_region *outermost = nullptr;
        ebb_region *region = nullptr;
        for (std::size_t depth = 0; depth < 1000; depth++) {
            region = open("deep", region);
            ASSERT_NE(region, nullptr) << depth;
            outermost = depth == 0 ? region : outermost;
            blocks[depth] = take_filled(region, 100, depth);
            notes[depth] = {&journal, depth};
            ASSERT_EQ(ebb_region_cleanup(region, write_note, &notes[depth]), 0);
        }
        EXPECT_EQ(line("deep").open, 1000U);
        end(outermost, ending);
        ASSERT_NO_FATAL_FAILURE(expect_descending(journal, 1000));
        EXPECT_EQ(line("deep").open, 0U);
        for (std::size_t depth = 0; ending == Ending::close && depth < 1000; depth++) {
            ASSERT_TRUE(is_filled(blocks[depth], 100, depth)) << depth;
            api::release(blocks[depth]);
        }
        EXPECT_EQ(line("deep").live_blocks, 0U);
    }
}

// No stack is deep enough for a call a level.
TEST(RegionNesting, DepthOfAHundredThousandOnASmallStack)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 * KiB);
    pthread_t thread;
    const auto nest = [](void *) -> void * {
        ebb_region *outermost = open("deeper");
        ebb_region *region = outermost;
        for (int depth = 1; depth < 100000 && region != nullptr; depth++)
            region = open("deeper", region);
        const bool right = region != nullptr;
        ebb_region_release(outermost);
        return right ? outermost : nullptr;
    };
    ASSERT_EQ(pthread_create(&thread, &attributes, nest, nullptr), 0);
    void *outcome = nullptr;
    pthread_join(thread, &outcome);
    pthread_attr_destroy(&attributes);
    EXPECT_NE(outcome, nullptr);
    EXPECT_EQ(line("deeper").open, 0U);
    EXPECT_EQ(line("deeper").released, 100000U);
}

TEST(RegionNesting, SiblingsEndNewestFirstAndBeforeTheirParent)
{
    Journal journal(8);
    Note notes[7];
    ebb_region *parent = open();
    for (std::size_t i = 0; i < 7; i++) {
        notes[i] = {&journal, i};
        ebb_region *owner = i == 0 ? parent : open("sibling", parent);
        ASSERT_EQ(ebb_region_cleanup(owner, write_note, &notes[i]), 0);
    }
    ebb_region_release(parent);
    expect_descending(journal, 7);
}

TEST(RegionNesting, ChildThatEndsByItselfLeavesTheOthers)
{
    Journal journal(8);
    Note notes[] = {{&journal, 0}, {&journal, 1}, {&journal, 2}};
    ebb_region *parent = open();
    ebb_region *children[3];
    for (std::size_t i = 0; i < 3; i++) {
        children[i] = open("child", parent);
        ASSERT_EQ(ebb_region_cleanup(children[i], write_note, &notes[i]), 0);
    }
    ebb_region_release(children[1]);
    ASSERT_EQ(journal.count, 1U);
    EXPECT_EQ(journal.entries[0], 1U);
    void *kept = take_filled(children[0], 100, 1);
    EXPECT_TRUE(is_filled(kept, 100, 1));
    ebb_region_release(parent);
    ASSERT_EQ(journal.count, 3U);
    EXPECT_EQ(journal.entries[1], 2U);
    EXPECT_EQ(journal.entries[2], 0U);
}

TEST(RegionNesting, ResetOfAParentReleasesItsChildren)
{
    ebb_region *parent = open();
    ebb_region *child = open("reset child", parent);
    ASSERT_NE(take(child, 1000), nullptr);
    ebb_region_reset(parent);
    EXPECT_EQ(line("reset child").open, 0U);
    EXPECT_EQ(line("reset child").live_blocks, 0U);
    EXPECT_NE(take(parent, 100), nullptr);
    ebb_region_release(parent);
}

TEST(RegionCleanup, RunsInReverseOnceAtEachEnding)
{
    for (Ending ending : endings) {
        Journal journal(3000);
        support::MappedArray<Note> notes(1000);
        ebb_region *region = open();
        for (std::size_t i = 0; i < notes.size(); i++) {
            notes[i] = {&journal, i};
            ASSERT_EQ(ebb_region_cleanup(region, write_note, &notes[i]), 0);
        }
        end(region, ending);
        ASSERT_NO_FATAL_FAILURE(expect_descending(journal, 1000));
        if (ending == Ending::reset)
            ebb_region_release(region);
        EXPECT_EQ(journal.count, 1000U) << "a reset keeps cleanups";
    }
}

struct Witness {
    ebb_region *parent;
    void *block;
    bool right;
    pthread_t thread;
};

// The region's memory is still there, no lock is held, and the parent allocates.
void witness_the_end(void *argument)
{
    auto *witness = static_cast<Witness *>(argument);
    void *in_parent = take_filled(witness->parent, 5000, 6);
    ebb_region *another = open("opened in a cleanup");
    witness->right = is_filled(witness->block, 3000, 5) && in_parent != nullptr &&
                     ebb_region_of(in_parent) == witness->parent && take(another, 100) != nullptr;
    ebb_region_release(another);
    api::release(api::allocate(1000));
    witness->thread = pthread_self();
}

TEST(RegionCleanup, SeesItsMemoryAndAllocatesInTheParent)
{
    for (Ending ending : endings) {
        ebb_region *parent = open("parent of cleanups");
        ebb_region *region = open("with cleanups", parent);
        Witness witness = {parent, take_filled(region, 3000, 5), false, {}};
        ASSERT_EQ(ebb_region_cleanup(region, witness_the_end, &witness), 0);
        in_thread([&] {
            end(region, ending);
            EXPECT_EQ(witness.thread, pthread_self()) << "not in the thread that ends it";
        });
        EXPECT_TRUE(witness.right);
        EXPECT_EQ(stats(parent).live_blocks, 1U);
        ebb_region_release(parent);
    }
}

TEST(RegionReset, KeepsWorkingAHundredThousandTimes)
{
    ebb_region *region = open("reset often");
    const std::size_t rounds = 100000;
    const std::size_t sizes[] = {16, 300, 4000, 70 * KiB, 200 * KiB};
    for (std::size_t round = 0; round < rounds; round++) {
        const std::size_t bytes = round % 97 == 0 ? sizes[round % 5] : 300;
        auto *block = static_cast<unsigned char *>(take(region, bytes));
        ASSERT_NE(block, nullptr) << round;
        ASSERT_EQ(ebb_region_of(block), region);
        block[0] = block[bytes - 1] = 1;
        ebb_region_reset(region);
        ASSERT_EQ(ebb_region_of(block), nullptr);
    }
    const ebb_region_stats after = stats(region);
    EXPECT_EQ(after.live_blocks, 0U);
    EXPECT_EQ(after.large_blocks, 0U);
    EXPECT_LE(after.held_bytes, MiB) << "more than a warm reserve";
    EXPECT_LE(after.peak_bytes, 2 * MiB) << "held memory adds up over the resets";
    EXPECT_EQ(line("reset often").released, rounds);
    ebb_region_release(region);
}

TEST(RegionLimit, SmallerBlocksFitBehindARefusal)
{
    for (std::size_t limit : {64 * KiB, 128 * KiB}) {
        ebb_region *region = open("hard and part full", nullptr, 0, limit);
        auto *first = static_cast<char *>(take(region, 1000));
        ASSERT_NE(first, nullptr);
        memset(first, 7, 1000);
        for (unsigned i = 1; i <= 30; i++) {
            EXPECT_EQ(take(region, 100 * KiB), nullptr) << "the first block's slab is not empty";
            EXPECT_EQ(stats(region).refused, i);
            EXPECT_EQ(take(region, 1000), first + i * 1008U);
        }
        EXPECT_EQ(first[0] + first[999], 14);
        ebb_region_release(region);
    }
}

TEST(RegionLimit, HardLimitRefusesAndIsCounted)
{
    for (std::size_t limit : {64 * KiB, 256 * KiB, MiB, 5 * MiB}) {
        ebb_region *region = open("hard", nullptr, 0, limit);
        std::size_t taken = 0;
        errno = 0;
        for (void *block; (block = take(region, 1000)) != nullptr; taken += 1000)
            ASSERT_LE(taken, limit) << "no limit";
        EXPECT_EQ(errno, ENOMEM);
        const ebb_region_stats full = stats(region);
        EXPECT_LE(full.held_bytes, limit);
        EXPECT_LE(full.peak_bytes, limit);
        EXPECT_GE(taken, limit / 4 * 3) << "a step that did not fit was not made smaller";
        EXPECT_GE(full.refused, 1U);
        EXPECT_EQ(take(region, limit * 2), nullptr) << "a large block is held memory too";
        ebb_region_reset(region);
        EXPECT_NE(take(region, 1000), nullptr);
        ebb_region_release(region);
    }
}

// The sheet that a handle comes with, that a reset leaves, or whose blocks have gone.
TEST(RegionLimit, AnEmptySheetGivesWayBeforeARefusal)
{
    for (const std::size_t bytes : {200 * KiB, 120 * KiB}) { // of its own, or in a sheet of 128 KiB
        const std::size_t limit = bytes > 128 * KiB ? bytes + 32 * KiB : 160 * KiB;
        ebb_region *warm = open("warm");
        EXPECT_NE(take(warm, 16), nullptr);
        ebb_region_release(warm);
        ebb_region *region = open("fits", nullptr, 0, limit);
        EXPECT_NE(take(region, bytes), nullptr) << "what the handle came with";
        ebb_region_reset(region);
        void *small = take(region, 16);
        ASSERT_NE(small, nullptr);
        api::release(small);
        void *large = take(region, bytes);
        ASSERT_NE(large, nullptr) << "no block is there";
        EXPECT_LE(stats(region).held_bytes, limit);
        ebb_region_reset(region);
        ASSERT_NE(take(region, 16), nullptr);
        EXPECT_EQ(stats(region).refused, 0U);
        EXPECT_EQ(take(region, bytes), nullptr) << "a block is there";
        EXPECT_NE(take(region, 16), nullptr) << "beside it";
        EXPECT_EQ(stats(region).refused, 1U);
        ebb_region_release(region);
    }
}

TEST(RegionLimit, FreedMemoryCountsNoMore)
{
    ebb_region *region = open("hard and freed", nullptr, 0, MiB);
    for (std::size_t i = 0; i < support::scaled(100000); i++) {
        void *small = take(region, 1000);
        ASSERT_NE(small, nullptr) << "after " << i << " blocks that were freed";
        api::release(small);
        if (i % 100 == 0) {
            void *large = take(region, 500 * KiB);
            ASSERT_NE(large, nullptr) << i;
            api::release(large);
        }
    }
    EXPECT_EQ(stats(region).refused, 0U);
    ebb_region_release(region);
}

TEST(RegionLimit, SoftLimitCountsAndGoesOn)
{
    ebb_region *region = open("soft", nullptr, 256 * KiB);
    for (int i = 0; i < 200; i++)
        ASSERT_NE(take(region, 1000), nullptr);
    EXPECT_EQ(stats(region).pressed, 0U) << "below the limit";
    for (int i = 0; i < 4000; i++)
        ASSERT_NE(take(region, 1000), nullptr);
    EXPECT_GE(stats(region).pressed, 1U);
    EXPECT_EQ(stats(region).refused, 0U);
    ebb_region_release(region);
}

TEST(RegionLimit, ZeroIsNone)
{
    ebb_region *region = open("unlimited", nullptr, 0, 0);
    for (int i = 0; i < 20; i++)
        ASSERT_NE(take(region, MiB), nullptr);
    EXPECT_EQ(stats(region).refused + stats(region).pressed, 0U);
    ebb_region_release(region);
}

TEST(RegionLimit, IsForTheRegionAloneWithoutItsChildren)
{
    ebb_region *parent = open("limited parent", nullptr, 0, 256 * KiB);
    ebb_region *child = open("free child", parent);
    for (int i = 0; i < 20; i++)
        ASSERT_NE(take(child, 200 * KiB), nullptr);
    EXPECT_NE(take(parent, 1000), nullptr);
    EXPECT_EQ(stats(parent).refused, 0U);
    ebb_region_release(parent);
}

} // namespace
