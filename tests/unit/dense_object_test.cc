// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: large objects and huge pages: where they lie, and what is asked for.
#include "support/dense.h"

namespace {

using namespace unit;

struct DenseObject : Dense {
    static constexpr std::size_t longer = EBBI_UNIT_GRANULES * 3 / 2; // than a unit, and not two

    void SetUp() override
    {
        Dense::SetUp();
        fake_os_filtered(true); // nobody looks at what is filled, and a walk reads all that is free
        ASSERT_NE(nullptr, object((least_units + 1) * EBBI_UNIT_GRANULES));
    }
    static ebbi_span *object(std::size_t granules)
    {
        return ebbi_span_alloc_dense(granules, EBBI_SPAN_LARGE, EBBI_FILL_OBJECT);
    }
    static bool rest_is_there()
    {
        ebbi_arena_lock();
        const bool is_there = ebbi_rest_is_there();
        ebbi_arena_unlock();
        return is_there;
    }
    static std::uintptr_t end(ebbi_span *span)
    {
        return address(ebbi_span_start(span)) + span->granules * EBBI_GRANULE;
    }
};

TEST_F(Dense, ALargeObjectAsksByItsSizeAndWhatIsInUse)
{
    std::size_t big = (least_units + 1) * EBBI_UNIT_GRANULES;
    ASSERT_NE(nullptr,
              ebbi_span_alloc_dense(EBBI_UNIT_GRANULES, EBBI_SPAN_LARGE, EBBI_FILL_OBJECT));
    EXPECT_EQ(0U, fake_os_count(FAKE_ADVISE_HUGE));
    ASSERT_NE(nullptr, ebbi_span_alloc_dense(big, EBBI_SPAN_LARGE, EBBI_FILL_OBJECT));
    EXPECT_GE(asked_bytes(), (least_units - 1) * unit_bytes);
}

// Where an object has grown into what was left of a unit, and was freed, no free span begins there.
TEST_F(Dense, AnObjectMayGrowIntoWhatIsLeftOfAUnit)
{
    std::size_t big = (least_units + 1) * EBBI_UNIT_GRANULES + 1;
    ebbi_span *object = ebbi_span_alloc_dense(big, EBBI_SPAN_LARGE, EBBI_FILL_OBJECT);
    ASSERT_NE(nullptr, object);
    ASSERT_TRUE(ebbi_span_resize(object, big + 1));
    audit();
    ASSERT_NE(nullptr, ebbi_span_alloc(1, 1, EBBI_SPAN_SHEET)); // behind it
    ebbi_span_free(object);
    audit();
    grow(1);
    audit();
}

// It is one fault of a few milliseconds, and not one for each unit.
TEST_F(DenseObject, AnObjectWhoseFirstUnitComesSlowlyHasNoOther)
{
    for (const bool slow : {false, true}) {
        SCOPED_TRACE(slow);
        fake_os_clock_step(slow ? 3 : 0);
        const std::size_t before = asked_bytes(), count = advices().size();
        ebbi_span *big = object((least_units + 4) * EBBI_UNIT_GRANULES);
        ASSERT_NE(nullptr, big);
        if (slow) {
            ASSERT_EQ(count + 2, advices().size());
            const fake_advice asked = advices()[count], left = advices()[count + 1];
            EXPECT_TRUE(asked.always);
            EXPECT_FALSE(left.always);
            EXPECT_EQ(asked.start + unit_bytes, left.start);
            EXPECT_EQ(asked.start + asked.bytes, left.start + left.bytes);
            EXPECT_EQ(before + unit_bytes, asked_bytes());
        } else {
            EXPECT_LE(before + (least_units + 3) * unit_bytes, asked_bytes());
        }
        audit();
        ebbi_span_free(big);
        purge();
        audit();
    }
}

// What came with the last unit of one is the first part of the next: it would be nobody's, as long as that is.
TEST_F(DenseObject, WhatCameWithTheLastUnitOfOneIsTheNext)
{
    const std::size_t before = ebbi_arena_dirty_bytes();
    std::set<std::uintptr_t> chunks;
    std::vector<ebbi_span *> all;
    for (int i = 0; i < 41; i++) {
        all.push_back(object(longer));
        ASSERT_NE(nullptr, all.back());
        chunks.insert(address(ebbi_span_start(all.back())) / EBBI_CHUNK);
        audit();
    }
    std::size_t apart = 0;
    for (std::size_t i = 1; i < all.size(); i++)
        apart += end(all[i - 1]) != address(ebbi_span_start(all[i]));
    EXPECT_LE(apart, chunks.size()); // a chunk begins with its header
    EXPECT_LE(ebbi_arena_dirty_bytes(), before + chunks.size() * unit_bytes);
    EXPECT_GE(asked_bytes(), all.size() * longer * EBBI_GRANULE * 9 / 10);
}

// As where what grows finds its place behind all, up to the chunk's end, and then takes what is left of a unit instead.
TEST_F(Dense, TheWildernessKnowsItsLengthWhereItWasCommittedAndNotTaken)
{
    ebbi_span *last = ebbi_span_alloc(1, 1, EBBI_SPAN_SHEET);
    ASSERT_NE(nullptr, last);
    ebbi_chunk *chunk = ebbi_span_chunk(last);
    ebbi_arena_lock();
    const ebbi_spot behind{ebbi_free_span_at(chunk, ebbi_span_index(last) + 1),
                           ebbi_span_index(last) + 1};
    const std::size_t all = behind.span->head.granules;
    EXPECT_EQ(chunk->granules, behind.index + all);
    EXPECT_LT(chunk->committed, chunk->granules);
    EXPECT_TRUE(ebbi_spot_commit(&behind, all));
    EXPECT_EQ(chunk->committed, chunk->granules);
    ebbi_arena_unlock();
    audit();
}

// The first byte of such an object is on pages that are there: it is the first of its own units that is timed.
TEST_F(DenseObject, UnitsThatComeSlowlyAreLeftOut)
{
    ASSERT_NE(nullptr, object(longer));
    const auto asked = [] {
        const std::vector<fake_advice> all = advices();
        return std::count_if(all.begin(), all.end(), [](fake_advice a) { return a.always; });
    };
    const auto before = asked();
    fake_os_clock_step(3);
    for (int i = 0; i < 60; i++)
        ASSERT_NE(nullptr, object(longer));
    EXPECT_GE(asked() - before, 2);
    EXPECT_LE(asked() - before, 10);
}

// An object fills what it takes, as what grows does: both have what came with a unit.
TEST_F(DenseObject, AShorterOneTakesPartInAUnitThatIsOpen)
{
    grow_to_the_least();
    const std::size_t asked = fake_os_count(FAKE_ADVISE_HUGE);
    while (fake_os_count(FAKE_ADVISE_HUGE) == asked)
        grow(1);
    std::uintptr_t next = end(spans.back());
    for (int i = 0; i < 3; i++) {
        ebbi_span *shorter = object(EBBI_UNIT_GRANULES / 4);
        ASSERT_NE(nullptr, shorter);
        EXPECT_EQ(next, address(ebbi_span_start(shorter)));
        next = end(shorter);
        audit();
    }
    grow(1);
    EXPECT_EQ(next, address(ebbi_span_start(spans.back())));
    EXPECT_EQ(asked + 1, fake_os_count(FAKE_ADVISE_HUGE));
}

// The rest at the end of a chunk, and a hole that has room.
TEST_F(DenseObject, OneThatIsLongerThanWhatIsFreeThereIsPutElsewhere)
{
    ebbi_span *hole = object(longer);
    ebbi_span *last = object(longer);
    const auto left = [](const ebbi_span *span) {
        return ebbi_chunk_of(span)->granules - (ebbi_span_index(span) + span->granules);
    };
    while (left(last) % EBBI_UNIT_GRANULES == 0 || left(last) >= longer)
        last = object(longer);
    ASSERT_TRUE(rest_is_there());
    ebbi_span_free(hole);
    purge();
    EXPECT_EQ(hole, object(longer));
    audit();
}

// Where the rest is, no more is committed: the hole does, and then all that there is.
TEST_F(DenseObject, RefusedMemoryIsNotUsed)
{
    const auto needs_a_commit = [](const ebbi_span *last) {
        const struct ebbi_chunk *chunk = ebbi_chunk_of(last);
        const std::size_t end = ebbi_span_index(last) + last->granules + longer;
        return end > chunk->committed && end < chunk->granules;
    };
    ebbi_span *hole = object(longer);
    ebbi_span *last = object(longer);
    while (!rest_is_there() || !needs_a_commit(last))
        last = object(longer);
    ebbi_span_free(hole);
    purge();
    fake_os_refuse(FAKE_COMMIT, 1, true);
    EXPECT_EQ(hole, object(longer));
    audit();
    while (ebbi_span_alloc(1, 1, EBBI_SPAN_SHEET) != nullptr)
        continue;
    EXPECT_GE(used() + 2, ebbi_committed_granules);
}

} // namespace
