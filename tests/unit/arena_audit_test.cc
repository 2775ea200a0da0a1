// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: the audit finds each property of arena/arena.h that is broken, and none broken after what
// the layers above may do.
#include "support/engine.h"

namespace {

using namespace unit;

struct ArenaAudit : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_clock(1000);
        for (ebbi_span *&span : spans)
            span = ebbi_span_alloc(3, 1, EBBI_SPAN_LARGE);
        free_one(1);
        fake_os_clock(2000);
        free_one(3);
        chunk = ebbi_span_chunk(spans[1]);
        dirty = ebbi_free_span_at(chunk, index(spans[1]));
        later = ebbi_free_span_at(chunk, index(spans[3]));
    }
    void free_one(std::size_t i)
    {
        std::memset(ebbi_span_start(spans[i]), 1, 3 * EBBI_GRANULE);
        ebbi_span_free(spans[i]);
    }
    static void audit(bool contents = true)
    {
        ebbi_arena_lock();
        ebbi_arena_audit(contents);
        ebbi_arena_unlock();
    }
    std::size_t index(const ebbi_span *span) const { return ebbi_span_index(span); }
    std::size_t index(const ebbi_free_span *span) const { return index(&span->head); }
    void flip(std::uint64_t *map, std::size_t bit)
    {
        map[bit / 64] ^= std::uint64_t{1} << bit % 64;
    }

    ebbi_span *spans[6] = {};
    ebbi_free_span *dirty = nullptr, *later = nullptr; // free, dirty, with spans in use around them
    ebbi_chunk *chunk = nullptr;
};

TEST_F(ArenaAudit, IsWhole)
{
    audit();
    ebbi_span_free(spans[2]); // the three are one
    audit();
    (void)ebbi_arena_purge(9000, 0, SIZE_MAX);
    audit();
    ebbi_span *all = ebbi_span_alloc(9, 1, EBBI_SPAN_LARGE);
    EXPECT_TRUE(ebbi_span_resize(all, 5));
    audit();
}

TEST_F(ArenaAudit, P1ASpanEndsInItsChunk)
{
    spans[2]->granules = 0;
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P1: a span does not end");
    spans[2]->granules = EBBI_CHUNK_GRANULES;
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P1: a span does not end");
}

TEST_F(ArenaAudit, P1FreeSpansDoNotTouch)
{
    dirty->head.granules = 2; // the third is one more, free
    flip(chunk->free_map, index(dirty) + 2);
    flip(chunk->free_map, index(dirty) + 1);
    flip(chunk->free_map, index(dirty) + 2);
    ebbi_free_span *rest = ebbi_free_span_at(chunk, index(dirty) + 2);
    *rest = *dirty;
    rest->head.granules = 1;
    ebbi_chunk_header(chunk, index(dirty) + 1)->granules = 2;
    dirty->dirty = 2;
    ebbi_bins[ebbi_bin_of(3)] = later;
    later->previous = nullptr;
    later->next = nullptr;
    dirty->previous = nullptr;
    ebbi_bins[ebbi_bin_of(2)] = dirty;
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P1: two free spans touch");
}

TEST_F(ArenaAudit, P2TheBitsOfFreeSpans)
{
    flip(chunk->free_map, index(dirty));
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P2: free_map lacks the bit of a free span");
    flip(chunk->free_map, index(dirty));
    flip(chunk->free_map, index(dirty) + 2);
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P2: free_map is wrong about the ends");
    flip(chunk->free_map, index(dirty) + 2);
    flip(chunk->free_map, index(dirty) + 1);
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P2: free_map is wrong about the ends");
}

TEST_F(ArenaAudit, P2TheBitsOfSpansInUse)
{
    flip(chunk->free_map, index(spans[2]));
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P[12]: ");
    flip(chunk->free_map, index(spans[2]));
    flip(chunk->free_map, index(spans[2]) + 1);
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P2: free_map has a bit of a span in use");
    flip(chunk->free_map, index(spans[2]) + 1);
    dirty->head.state = EBBI_SPAN_LARGE;
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P2: free_map has the bit of a span that is not");
}

TEST_F(ArenaAudit, P3CleanGranulesReadAsZero)
{
    flip(chunk->dirty_map, index(dirty) + 1);
    dirty->dirty--;
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P3: a clean granule does not read as zero");
    ebbi_dirty_granules--;
    audit(false);
}

TEST_F(ArenaAudit, P8FreshGranulesAreDirtyAndReadAsZero)
{
    flip(chunk->fresh_map, index(dirty) + 1);
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P8: a clean granule does not read as zero");
    flip(chunk->fresh_map, index(dirty) + 1);
    flip(chunk->fresh_map, index(spans[5]) + 3);
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P8: a fresh granule is not dirty");
    flip(chunk->fresh_map, index(spans[5]) + 3);
    audit(false);
}

TEST_F(ArenaAudit, P9WhatGrowsIsCounted)
{
    spans[1] = ebbi_span_alloc_dense(2, EBBI_SPAN_SHEET, EBBI_FILL_GROWS);
    audit();
    spans[1]->grown = false;
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P9: the count of granules of what grows");
}

TEST_F(ArenaAudit, P3NothingIsDirtyThatCannotBeWrittenTo)
{
    ASSERT_LT(chunk->committed, chunk->granules);
    ebbi_free_span *rest = ebbi_free_span_at(chunk, index(spans[5]) + 3);
    rest->dirty++;
    flip(chunk->dirty_map, chunk->granules - 1U);
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P[34]: ");
}

TEST_F(ArenaAudit, P4DirtyGranulesAreCounted)
{
    dirty->dirty--;
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P4: a free span counts");
}

TEST_F(ArenaAudit, P4TheDirtyListHoldsTheDirty)
{
    ASSERT_EQ(dirty, ebbi_dirty_first);
    ASSERT_EQ(later, ebbi_dirty_last);
    later->dirty_previous = nullptr;
    ebbi_dirty_first = later;
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P4: a free span with dirty granules is not on");
}

TEST_F(ArenaAudit, P4TheDirtyListIsInOrderAndEnds)
{
    dirty->freed_ms = 2001;
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P4: the dirty list is not in order");
    dirty->freed_ms = 1000;
    ebbi_dirty_last = dirty;
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P4: the dirty list does not end");
    ebbi_dirty_last = later;
    later->dirty_next = dirty;
    dirty->freed_ms = later->freed_ms;
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P4: the dirty list");
}

TEST_F(ArenaAudit, P5TheBinOfItsLength)
{
    unsigned b = ebbi_bin_of(3);
    ebbi_free_span *first = ebbi_bins[b];
    ebbi_bins[b] = first->next;
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P5: a free span is not in the bin");
    ebbi_bins[b] = first;
    ebbi_bins_used[b / 64] ^= std::uint64_t{1} << b % 64;
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P5: ebbi_bins_used is wrong");
    ebbi_bins_used[b / 64] ^= std::uint64_t{1} << b % 64;
    first->next->next = first;
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P5: the bins hold more");
}

TEST_F(ArenaAudit, P5TheLastHeader)
{
    ebbi_chunk_header(chunk, index(dirty) + 2)->granules = 2;
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P5: the last header of a free span");
}

TEST_F(ArenaAudit, P6TheCounts)
{
    for (std::size_t *count :
         {&ebbi_used_granules, &ebbi_dirty_granules, &ebbi_committed_granules}) {
        *count += 1;
        EXPECT_DEATH(audit(), "ebbtide: .*: arena P6: the count of");
        *count -= 1;
    }
    ebbi_arena_peak = {ebbi_arena_used_bytes() - 1, 0};
    EXPECT_DEATH(audit(), "ebbtide: .*: arena P6: the peak");
}

// While a span is being purged it is in use by nobody and in no list.
TEST_F(ArenaAudit, HoldsWhileTheLockIsDropped)
{
    static std::size_t watched;
    watched = 0;
    fake_os_watch_purge([](std::uintptr_t, std::size_t) {
        audit();
        watched++;
    });
    (void)ebbi_arena_purge(9000, 0, SIZE_MAX);
    EXPECT_GE(watched, 2U); // and perhaps once more, for bitmap rooms
    audit();
}

TEST_F(ArenaAudit, HoldsOverRandomOperations)
{
    Random random(7);
    std::vector<ebbi_span *> live(40);
    for (int step = 0; step < 3000; step++) {
        fake_os_clock_advance(random.below(3));
        ebbi_span *&span = live[random.below(live.size())];
        if (span == nullptr) {
            span = ebbi_span_alloc(1 + random.below(90), std::size_t{1} << random.below(5),
                                   EBBI_SPAN_LARGE);
        } else if (random.chance(3)) {
            (void)ebbi_span_resize(span, 1 + random.below(90));
        } else {
            ebbi_span_free(span);
            span = nullptr;
        }
        if (random.chance(20))
            (void)ebbi_arena_purge(ebbi_os_now_ms(), 20, random.below(200) * EBBI_GRANULE);
        audit(false);
    }
    audit();
}

} // namespace
