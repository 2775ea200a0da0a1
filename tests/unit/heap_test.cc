// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap, one thread: magazines, refills, flushes, law L1, budget, sweep.
#include <algorithm>
#include <bit>
#include <set>

#include "support/arena_walk.h"
#include "support/magazines.h"
#include "support/slab_walk.h"

namespace {

using namespace unit;

TEST_F(Heap, TheFirstBlockOfAClassFillsHalfAMagazine)
{
    ASSERT_NE(nullptr, ebb_malloc(100));
    EXPECT_EQ(16U, magazine(100).slots);
    EXPECT_EQ(7U, in_magazine(100));
}

TEST_F(Heap, AFreedBlockIsTheNextOneHandedOut)
{
    void *p = ebb_malloc(100);
    ebb_free(p);
    EXPECT_EQ(p, ebb_malloc(100));
}

// L1: fill blocks, free them, let them pass magazines and bitmaps: what the program left in them
// stays, as long as the kernel keeps the pages.
TEST_F(Heap, FreedBlocksKeepTheirContents)
{
    fake_os_refuse(FAKE_PURGE, 1, true);
    for (std::size_t bytes : {16, 48, 500, 3000, 20000, 131072}) {
        std::vector<unsigned char *> blocks;
        for (int i = 0; i < 500; i++) {
            auto *p = static_cast<unsigned char *>(ebb_malloc(bytes));
            std::memset(p, 0xD7, bytes);
            blocks.push_back(p);
        }
        for (std::size_t i = 0; i < blocks.size(); i++)
            if (i % 8 != 0) // every slab keeps a live block
                ebb_free(blocks[i]);
        for (auto *p : blocks)
            for (std::size_t i = 0; i < bytes; i++)
                ASSERT_EQ(0xD7, p[i]) << "a store into a freed block of " << bytes;
        for (std::size_t i = 0; i < blocks.size(); i += 8)
            ebb_free(blocks[i]);
    }
}

TEST_F(Heap, AMagazineGrowsWhenItTurnsAndShrinksWhenItOnlyFills)
{
    fill_and_empty(64, 300);
    EXPECT_EQ(256U, magazine(64).slots);
    std::vector<void *> many;
    for (int i = 0; i < 20000; i++)
        many.push_back(ebb_malloc(64));
    for (void *p : many)
        ebb_free(p);
    EXPECT_EQ(128U, magazine(64).slots) << "nobody asks for what comes in: 8 KiB are enough";
}

TEST_F(Heap, EveryClassIsServedWithoutRoomForArrays)
{
    std::memset(heap->slot_free, 0, sizeof heap->slot_free);
    heap->slot_next = heap->slot_end;
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        void *p = ebb_malloc(ebbi_class_bytes(c));
        EXPECT_NE(nullptr, p) << ebbi_class_bytes(c);
        EXPECT_EQ(0U, heap->magazines[c].slots);
        ebb_free(p);
    }
}

TEST_F(Heap, AnArrayThatStandsStillMakesRoomForTheOthers)
{
    fill_and_empty(64, 90);
    ASSERT_GE(magazine(64).slots, 128U);
    std::memset(heap->slot_free, 0, sizeof heap->slot_free);
    heap->slot_next = heap->slot_end;
    for (int round = 0; round < 16; round++) {
        for (std::size_t bytes : {100, 1000, 3000}) {
            void *p = ebb_malloc(bytes);
            EXPECT_NE(nullptr, p);
            ebb_free(p);
        }
    }
    EXPECT_EQ(0U, magazine(64).slots);
    EXPECT_EQ(16U, magazine(100).slots);
    EXPECT_EQ(8U, magazine(1000).slots);
    EXPECT_EQ(2U, magazine(3000).slots);
}

// It takes turns with each of the others, of which all are used, and has its blocks all the time.
TEST_F(Heap, AClassWithoutAnArrayIsServedWithWhatIsThere)
{
    set_cache("256k");
    std::vector<std::size_t> sizes;
    for (unsigned c = ebbi_class_for(16384); c < EBBI_CLASS_EMPTY; c++)
        sizes.push_back(ebbi_classes[c].size);
    std::set<std::size_t> had_none, had_some;
    std::vector<unsigned char *> live;
    for (int round = 0; round < 400; round++) {
        for (const std::size_t bytes : sizes) {
            auto *p = static_cast<unsigned char *>(ebb_malloc(bytes));
            ASSERT_NE(nullptr, p);
            p[0] = p[bytes - 1] = static_cast<unsigned char>(round);
            live.push_back(p);
            (magazine(bytes).slots == 0 ? had_none : had_some).insert(bytes);
        }
        for (std::size_t i = 0; i < live.size(); i++) {
            ASSERT_EQ(static_cast<unsigned char>(round), live[i][0]);
            ASSERT_EQ(static_cast<unsigned char>(round), live[i][sizes[i] - 1]);
            ebb_free(live[i]);
        }
        live.clear();
        EXPECT_GE(256 * KiB, heap->charged_bytes);
        EXPECT_EQ(ebbi_magazines_charge(heap), heap->charged_bytes);
    }
    EXPECT_FALSE(had_none.empty());
    EXPECT_LT(sizes.size() / 2, had_some.size()) << "the hand comes by everywhere";
}

// Instead of those that nobody has touched.
TEST_F(Heap, AClassWithoutAnArrayUsesItsBlocksAgain)
{
    set_cache("0");
    for (const std::size_t bytes : {1000U, 5000U, 40000U}) {
        void *first = ebb_malloc(bytes);
        const auto *slab = ebbi_slab_of(first);
        EXPECT_EQ(0U, magazine(bytes).slots);
        const std::size_t freed = slab->owner->freed_bytes;
        for (int i = 0; i < 40; i++) {
            ebb_free(first);
            EXPECT_EQ(0U, ebbi_slab_remote(slab)[0]) << "it is for its owner alone";
            EXPECT_TRUE(i > 0 || freed < slab->owner->freed_bytes || bytes > 1000);
            ASSERT_EQ(first, ebb_malloc(bytes)) << bytes;
        }
    }
}

TEST_F(Heap, AReallocOfAFreedBlockIsReportedWithoutAnArrayToo)
{
    set_cache("0");
    for (const std::size_t bytes : {1000U, 5000U, 40000U, 100000U}) {
        void *p = ebb_malloc(bytes);
        ebb_free(p);
        ASSERT_EQ(0U, magazine(bytes).slots);
        EXPECT_DEATH(ebb_realloc(p, bytes), "double free|is free already") << bytes;
        EXPECT_DEATH(ebb_realloc(p, bytes - 8), "double free|is free already") << bytes;
        EXPECT_DEATH(ebb_free(p), "double free") << bytes;
    }
}

// As when the heap was parked meanwhile, see src/heap/park.c.
TEST_F(Heap, APopIsTakenBackWhateverItsSize)
{
    for (const std::size_t bytes : {1U, 100U, 32768U, 32769U, 40000U, 131072U}) {
        for (int i = 0; i < 40; i++) // its magazine holds a few
            ebb_free(ebb_malloc(bytes));
        void **&top = heap->fast.top[ebbi_class_bin(ebbi_class_for(bytes), heap->lane)];
        void **const before = top;
        ASSERT_LT(0U, in_magazine(bytes));
        top--;
        ebbi_unpop(bytes);
        EXPECT_EQ(before, top) << bytes;
    }
}

TEST_F(Heap, MagazinesStayWithinTheBudget)
{
    set_cache("64k");
    std::size_t least = 0;
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++)
        least += first_slots(ebbi_classes[c]) * ebbi_classes[c].size;
    Random random(3);
    std::vector<void *> live;
    for (int i = 0; i < 60000; i++) {
        if (random.chance(2) || live.empty()) {
            live.push_back(ebb_malloc(1 + random.below(8000)));
        } else {
            std::size_t k = random.below(live.size());
            ebb_free(live[k]);
            live[k] = live.back();
            live.pop_back();
        }
    }
    std::size_t cached = 0;
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++)
        cached += std::size_t{heap->magazines[c].slots} * ebbi_classes[c].size;
    EXPECT_LE(cached, least + 64 * KiB);
    for (void *p : live)
        ebb_free(p);
}

TEST_F(Heap, TheBudgetIsWholeAgainAfterAFlush)
{
    std::vector<void *> blocks;
    for (int round = 0; round < 30; round++) {
        for (int i = 0; i < 100; i++)
            blocks.push_back(ebb_malloc(1024));
        for (void *p : blocks)
            ebb_free(p);
        blocks.clear();
    }
    EXPECT_LT(0U, heap->charged_bytes);
    EXPECT_EQ(ebbi_magazines_charge(heap), heap->charged_bytes);
    ebb_trim();
    EXPECT_EQ(0U, heap->charged_bytes);
    EXPECT_EQ(0U, magazine(1024).slots);
}

// A class's first array would else be charged for ever, whatever is in it.
TEST_F(Heap, WhatClassesTakeThatAreUsedOnceIsGivenBack)
{
    for (unsigned c = ebbi_class_for(30000); c < EBBI_CLASS_COUNT; c++)
        ebb_free(ebb_malloc(ebbi_classes[c].size));
    EXPECT_LT(MiB, heap->charged_bytes);
    while (heap->events < 4096) // two sweeps
        fill_and_empty(64, 300);
    EXPECT_EQ(256U, magazine(64).slots);
    EXPECT_EQ((256U - 16U) * 64U, heap->charged_bytes);
}

TEST_F(Heap, WithoutABudgetSmallMagazinesKeepTheirFirst)
{
    set_cache("0");
    for (unsigned c = 1; c < EBBI_CLASS_EMPTY; c++) {
        fill_and_empty(ebbi_classes[c].size, 40);
        EXPECT_EQ(ebbi_classes[c].size <= 512 ? first_slots(ebbi_classes[c]) : 0,
                  heap->magazines[c].slots)
            << c;
    }
    EXPECT_EQ(0U, heap->charged_bytes);
}

// As a consumer's: its blocks come from elsewhere. Once it has its size, more events change nothing.
TEST_F(Heap, AMagazineThatOnlyFillsGrowsToItsSteadySize)
{
    for (std::size_t bytes : {48, 64, 192, 1024}) {
        std::vector<void *> blocks(20001);
        for (void *&p : blocks)
            p = ebb_malloc(bytes);
        ebbi_flush_all(heap); // to the least
        std::set<unsigned> seen;
        for (std::size_t i = 0; i < blocks.size(); i++) {
            ebb_free(blocks[i]);
            if (i > 10000)
                seen.insert(magazine(bytes).slots);
        }
        ASSERT_EQ(1U, seen.size()) << "it swings, " << bytes;
        EXPECT_LE(*seen.begin() * bytes, std::max<std::size_t>(8 * KiB, 16 * bytes)) << bytes;
        EXPECT_GT(*seen.begin() * bytes * 2, 8 * KiB) << bytes;
    }
}

TEST_F(Heap, ASweepEmptiesWhatNobodyUses)
{
    std::vector<void *> blocks;
    for (int i = 0; i < 7; i++)
        blocks.push_back(ebb_malloc(777));
    for (void *p : blocks)
        ebb_free(p);
    EXPECT_GT(in_magazine(777), 0U);
    for (int i = 0; i < 600000; i++)
        blocks.push_back(ebb_malloc(16));
    for (std::size_t i = 7; i < blocks.size(); i++)
        ebb_free(blocks[i]);
    EXPECT_GE(heap->events, 2048U) << "two sweeps";
    EXPECT_EQ(0U, magazine(777).slots);
}

TEST_F(Heap, EverySlabIsWholeAfterRandomUse)
{
    Random random(11);
    std::vector<Block> live;
    for (int i = 0; i < 40000; i++) {
        if (random.chance(2) || live.empty()) {
            std::size_t bytes = random.chance(50) ? random.below(600000) : random.below(2000);
            Block b{static_cast<unsigned char *>(ebb_malloc(bytes)), bytes,
                    static_cast<unsigned char>(i)};
            ASSERT_NE(nullptr, b.bytes);
            b.fill();
            live.push_back(b);
        } else {
            std::size_t k = random.below(live.size());
            ASSERT_TRUE(live[k].intact());
            ebb_free(live[k].bytes);
            live[k] = live.back();
            live.pop_back();
        }
        if (i % 8000 == 0) {
            for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
                ebbi_shelf &shelf = owner_of(heap, c)->shelves[c];
                ASSERT_EQ("", shelf.current != nullptr ? walk_slab(shelf.current) : "");
                for (ebbi_slab *first : shelf.bucket)
                    for (ebbi_slab *s = first; s != nullptr; s = s->next)
                        ASSERT_EQ("", walk_slab(s));
            }
        }
    }
    for (const Block &b : live)
        ebb_free(b.bytes);
    ebb_trim();
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++)
        EXPECT_EQ(0U, owner_of(heap, c)->dirty_bytes) << "all that came back was purged";
}

TEST_F(Heap, ADoubleFreeDiesAtTheLatestInAFlush)
{
    void *p = ebb_malloc(64), *q = ebb_malloc(64);
    ASSERT_NE(nullptr, q);
    EXPECT_DEATH(
        {
            ebb_free(p);
            ebb_free(p);
            ebb_trim();
        },
        "ebbtide: .*: double free");
    EXPECT_DEATH(ebb_free(static_cast<char *>(ebb_malloc(500000)) + 16),
                 "ebbtide: .*: invalid free");
    EXPECT_DEATH(ebb_free(&p), "does not come from this allocator");
}

TEST_F(Heap, NoBytesAreABlockOfTheirOwnAtAnyAlignment)
{
    for (std::size_t align = 16; align <= 64 * MiB; align *= 2) {
        void *p = ebb_aligned_alloc(align, 0), *q = ebb_aligned_alloc(align, 0);
        ASSERT_TRUE(p != nullptr && q != nullptr && p != q) << align;
        EXPECT_EQ(0U, address(p) % align);
        EXPECT_EQ(align <= 64, ebb_malloc_usable_size(p) == 0) << align;
        ebb_free(p);
        ebb_free(q);
    }
    ASSERT_EQ("", walk_arena().broken.find("P1") == std::string::npos ? "" : "P1");
}

// Another thread's second free of a block has three steps: its bit, the summary, the list. The slab may
// end between any two of them, and begin again.
TEST_F(Heap, AnnouncedAfterItsSlabEnded)
{
    std::vector<void *> blocks(20000);
    for (void *&block : blocks)
        block = ebb_malloc(48);
    void *victim = blocks[blocks.size() / 2];
    ebbi_slab *slab = ebbi_slab_of(victim);
    auto collect = [&] {
        slab->pending_next = nullptr;
        heap->own.pending = slab;
        ebbi_lock_take(&heap->own.lock);
        ebbi_owner_collect(&heap->own);
    };
    ASSERT_EQ(&heap->own, slab->owner);
    EXPECT_DEATH(collect(), "ebbtide: .*double free: of a block in") << "it names no block";
    for (void *block : blocks)
        ebb_free(block);
    ebbi_flush_all(heap);
    ASSERT_FALSE(ebbi_slab_lives(slab));
    EXPECT_DEATH(collect(), "ebbtide: .*double free: of a block in");
    EXPECT_DEATH(ebbi_give_one(victim), "ebbtide: .*double free: 0x[0-9a-f]*, and all blocks");
}

// But before the process grows.
TEST_F(Heap, WhatOthersFreedWaitsForAsLongAsThereIsSomethingElse)
{
    const unsigned c = ebbi_class_for(48);
    ebbi_owner *owner = &heap->own;
    const std::size_t blocks = ebbi_classes[c].blocks;
    std::vector<void *> taken(3 * blocks);
    auto take = [&](void **slots, std::size_t wanted) {
        ebbi_lock_take(&owner->lock);
        const std::size_t got = ebbi_owner_take(owner, c, slots, wanted, true);
        ebbi_lock_drop(&owner->lock);
        return got;
    };
    for (std::size_t i = 0; i < taken.size();)
        i += take(&taken[i], std::min(taken.size() - i, blocks));
    ebbi_slab *ours = ebbi_slab_of(taken[0]), *theirs = ebbi_slab_of(taken[2 * blocks - 1]);
    ASSERT_NE(ours, theirs);
    const std::size_t slabs = owner->slab_count;
    ebbi_lock_take(&owner->lock);
    ebbi_give_blocks(owner, &taken[0], 2);
    ebbi_lock_drop(&owner->lock);
    ebbi_give_one(taken[2 * blocks - 1]);
    void *block = nullptr;
    for (int i = 0; i < 2; i++) {
        ASSERT_EQ(1U, take(&block, 1));
        EXPECT_EQ(ours, ebbi_slab_of(block));
        EXPECT_EQ(0U, theirs->free_count);
    }
    ASSERT_EQ(1U, take(&block, 1));
    EXPECT_EQ(theirs, ebbi_slab_of(block));
    EXPECT_EQ(slabs, owner->slab_count);
}

} // namespace
