// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer slab: taking, giving, double frees, interior pointers, and the pages of free blocks.
#include "support/arena_walk.h"
#include "support/slab_walk.h"

namespace {

using namespace unit;

std::size_t purge(ebbi_slab *slab, std::size_t stride)
{
    struct ebbi_slab_plan plan;
    ebbi_slab_plan(slab, stride, &plan);
    std::size_t bytes = ebbi_slab_carry_out(&plan);
    ebbi_slab_carried_out(slab, &plan);
    return bytes;
}

struct Slab : Fake {
    ebbi_slab *make(unsigned class_number)
    {
        ebbi_slab *slab = ebbi_slab_create(class_number, ebbi_class_bin(class_number, 0), nullptr,
                                           EBBI_FILL_UNKNOWN);
        EXPECT_NE(nullptr, slab);
        return slab;
    }
};

std::vector<void *> take(ebbi_slab *slab, std::size_t wanted)
{
    std::vector<void *> slots(wanted);
    std::size_t free_before = slab->free_count;
    std::size_t got = ebbi_slab_take(slab, slots.data(), wanted);
    EXPECT_EQ(std::min(wanted, free_before), got);
    // A short take leaves the low end of the array alone.
    return {slots.begin() + static_cast<std::ptrdiff_t>(wanted - got), slots.end()};
}

TEST_F(Slab, EveryClassHoldsItsBlocksInside)
{
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        for (int round = 0; round < 3; round++) { // other places, other colours
            ASSERT_NE(nullptr, ebbi_span_alloc(1, 1, EBBI_SPAN_LARGE));
            ebbi_slab *slab = make(c);
            const ebbi_class *k = ebbi_slab_class(slab);
            std::size_t align = std::min<std::size_t>(k->align, EBBI_SLAB_ALIGN);
            auto start = address(ebbi_span_start(&slab->head));
            auto blocks = take(slab, k->blocks);
            ASSERT_EQ(k->blocks, blocks.size());
            EXPECT_GE(address(blocks.back()), start) << c;
            EXPECT_LE(address(blocks.front()) + k->size, start + k->granules * EBBI_GRANULE) << c;
            for (void *p : blocks) {
                ASSERT_EQ(0U, address(p) % align) << "class " << c << ", " << k->size;
                ASSERT_EQ(slab, ebbi_slab_of(p));
                ASSERT_EQ(ebbi_class_bin(c, 0), ebbi_tag_of(p));
            }
            for (void *p : blocks)
                give_block(slab, p);
            ASSERT_EQ("", walk_slab(slab));
            if (round == 2)
                ebbi_slab_destroy(slab);
        }
    }
}

TEST_F(Slab, TakesTheLowestAddressesAndPopsThemLowestFirst)
{
    ebbi_slab *slab = make(ebbi_class_for(48));
    auto first = take(slab, 100);
    for (std::size_t i = 0; i < first.size(); i++)
        EXPECT_EQ(slab->first_block + (99 - i) * 48, address(first[i]));
    give_block(slab, first[99]);
    give_block(slab, first[3]);
    auto again = take(slab, 3);
    EXPECT_EQ(first[99], again[2]);
    EXPECT_EQ(first[3], again[1]);
    EXPECT_EQ(slab->first_block + 100 * 48, address(again[0]));
    ASSERT_EQ("", walk_slab(slab));
}

TEST_F(Slab, GivesWhatIsThereWhenAskedForMore)
{
    ebbi_slab *slab = make(ebbi_class_for(EBBI_CLASS_MAX));
    EXPECT_EQ(8U, take(slab, 8).size());
    EXPECT_EQ(0U, take(slab, 8).size());
    EXPECT_EQ(0U, slab->free_count);
}

TEST_F(Slab, DestroyLeavesNoTag)
{
    unsigned c = ebbi_class_for(10000);
    ebbi_slab *slab = make(c);
    auto *start = static_cast<char *>(ebbi_span_start(&slab->head));
    ebbi_slab_destroy(slab);
    for (std::size_t g = 0; g < ebbi_classes[c].granules; g++)
        EXPECT_EQ(EBBI_TAG_NONE, ebbi_tag_of(start + g * EBBI_GRANULE));
}

// Of so many granules as the class has, of which some were written to before.
TEST_F(Slab, PagesThatWereThereBeforeItAreReturned)
{
    fake_os_clock(1000);
    const unsigned c = ebbi_class_for(60000);
    ebbi_span *whole = ebbi_span_alloc(ebbi_classes[c].granules, 1, EBBI_SPAN_SHEET);
    ASSERT_NE(nullptr, ebbi_span_alloc(1, 1, EBBI_SPAN_SHEET)); // they stay apart
    EXPECT_FALSE(ebbi_arena_purge(9000, 0, SIZE_MAX));
    ebbi_span_free_part(whole, 6);
    ASSERT_EQ(2 * EBBI_GRANULE, ebbi_arena_dirty_bytes());
    ASSERT_ARENA_WHOLE();
    ebbi_slab *slab = make(c);
    ASSERT_EQ(whole, &slab->head) << "it fits exactly";
    EXPECT_EQ(3U, slab->dirty_blocks) << "that lie there, or partly";
    ASSERT_EQ("", walk_slab(slab));
    auto blocks = take(slab, 1);
    EXPECT_EQ(2 * EBBI_GRANULE, purge(slab, ebbi_os_page_size()));
    give_block(slab, blocks[0]);
    ASSERT_EQ("", walk_slab(slab));
    ebbi_slab_destroy(slab);
    EXPECT_EQ(EBBI_GRANULE, ebbi_arena_dirty_bytes()) << "what the block lay on";
    ASSERT_ARENA_WHOLE();
}

TEST_F(Slab, WhatNobodyTookIsCleanAgain)
{
    fake_os_clock(1000);
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        EXPECT_FALSE(ebbi_arena_purge(9000, 0, SIZE_MAX));
        ebbi_slab *slab = make(c);
        void *p = take(slab, 1)[0];
        if (c != EBBI_CLASS_EMPTY)
            std::memset(p, 1, ebbi_classes[c].size);
        give_block(slab, p);
        ebbi_slab_destroy(slab);
        EXPECT_LE(ebbi_arena_dirty_bytes(), ebbi_classes[c].size + 2 * EBBI_GRANULE) << c;
        ASSERT_ARENA_WHOLE();
    }
}

// Its bitmaps may lie in a room that is returned with its granule.
TEST_F(Slab, WithItsPagesItsRoomGoes)
{
    fake_os_clock(1000);
    const unsigned c = ebbi_class_for(112);
    ebbi_slab *slab = make(c);
    ASSERT_GT(slab->words, EBBI_INLINE_WORDS);
    give_block(slab, take(slab, 1)[0]);
    EXPECT_LT(0U, purge(slab, ebbi_os_page_size()));
    ebbi_slab_destroy(slab);
    EXPECT_EQ(EBBI_GRANULE, ebbi_arena_dirty_bytes());
    EXPECT_FALSE(ebbi_arena_purge(9000, 0, SIZE_MAX));
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes());
    ASSERT_ARENA_WHOLE();
}

TEST_F(Slab, RefusedMemoryGivesNoSlab)
{
    fake_os_refuse(FAKE_COMMIT, 1, true);
    EXPECT_EQ(nullptr, ebbi_slab_create(1, ebbi_class_bin(1, 0), nullptr, EBBI_FILL_UNKNOWN));
    fake_os_allow();
    EXPECT_NE(nullptr, make(1));
}

TEST_F(Slab, DoubleFreeDies)
{
    ebbi_slab *slab = make(ebbi_class_for(100));
    void *p = take(slab, 1)[0];
    give_block(slab, p);
    EXPECT_DEATH(give_block(slab, p), "ebbtide: .*: double free: 0x[0-9a-f]+");
}

// In order, backward and mixed, at every size: each block is in one run, which is of one word.
TEST_F(Slab, RunsOfAWordCoverEveryBlockOnce)
{
    Random random(5);
    for (std::size_t bytes : {16, 48, 64, 1152, 4672, 131072}) {
        ebbi_slab *slab = make(ebbi_class_for(bytes));
        auto blocks = take(slab, ebbi_slab_class(slab)->blocks);
        for (int order = 0; order < 3; order++) {
            if (order == 1)
                std::reverse(blocks.begin(), blocks.end());
            for (std::size_t i = blocks.size(); order == 2 && i > 1; i--)
                std::swap(blocks[i - 1], blocks[random.below(i)]);
            std::vector<std::uint64_t> bits(slab->words);
            std::size_t runs = 0;
            for (std::size_t i = 0; i < blocks.size(); runs++) {
                auto run = run_at(slab, &blocks[i], blocks.size() - i);
                ASSERT_EQ(run.count, ebbi_count_bits(run.mask));
                ASSERT_EQ(0U, bits[run.word] & run.mask);
                bits[run.word] |= run.mask;
                i += run.count;
            }
            for (std::size_t b = 0; b < blocks.size(); b++)
                ASSERT_TRUE(ebbi_bits_test(bits.data(), b)) << bytes;
            bool in_order = order < 2 && ebbi_slab_class(slab)->granules == 1;
            EXPECT_TRUE(!in_order || runs == slab->words) << bytes;
        }
    }
}

// What lies in a batch twice, or is no block, is found wherever it stands in a run.
TEST_F(Slab, ARunEndsAtWhatCannotBe)
{
    ebbi_slab *slab = make(ebbi_class_for(48));
    auto blocks = take(slab, ebbi_slab_class(slab)->blocks);
    auto give = [&](std::vector<void *> all) {
        for (std::size_t i = 0; i < all.size();) {
            auto run = run_at(slab, &all[i], all.size() - i);
            give_run(slab, run);
            i += run.count;
        }
    };
    EXPECT_DEATH(give({blocks[0], blocks[1], blocks[2], blocks[1]}), "ebbtide: .*: double free");
    EXPECT_DEATH(give({blocks[0], static_cast<char *>(blocks[1]) + 16}), "invalid free");
    void *last = blocks[0];
    EXPECT_DEATH(give({last, static_cast<char *>(last) + 48}), "between");
    give({blocks[0], blocks[5], blocks[1]});
    ASSERT_EQ("", walk_slab(slab));
}

TEST_F(Slab, InteriorPointersDie)
{
    for (std::size_t bytes : {16, 48, 100, 4672, 131072}) {
        unsigned c = ebbi_class_for(bytes);
        ebbi_slab *slab = make(c);
        char *p = static_cast<char *>(take(slab, 2)[0]);
        EXPECT_DEATH((void)ebbi_slab_block(slab, p + 1), "ebbtide: .*: invalid free") << bytes;
        EXPECT_DEATH((void)ebbi_slab_block(slab, p + ebbi_classes[c].size - 1), "invalid free");
        auto past = slab->first_block + ebbi_classes[c].blocks * std::size_t{ebbi_classes[c].size};
        EXPECT_DEATH((void)ebbi_slab_block(slab, reinterpret_cast<void *>(past)), "between");
        EXPECT_DEATH((void)ebbi_slab_block(slab, reinterpret_cast<void *>(slab->first_block - 16)),
                     "between");
    }
}

TEST_F(Slab, EveryOffsetOfASlabIsJudgedRight)
{
    for (unsigned c : {1U, 3U, 9U, 20U, 41U, 60U, 88U}) {
        const ebbi_class &k = ebbi_classes[c];
        for (std::uint64_t offset = 0; offset < k.granules * EBBI_GRANULE; offset += 16)
            ASSERT_EQ(offset / k.size, offset * k.magic >> 40) << k.size << " at " << offset;
    }
}

TEST_F(Slab, WhatAnotherThreadEndsMeanwhileHasNoBlock)
{
    ebbi_slab *slab = make(3);
    unsigned whole = slab->class_number;
    slab->class_number = 0;
    void *blocks[] = {reinterpret_cast<void *>(slab->first_block),
                      reinterpret_cast<void *>(slab->first_block + 48)};
    EXPECT_DEATH((void)ebbi_slab_block(slab, blocks[0]), "double free");
    EXPECT_DEATH((void)ebbi_slab_word_run(slab, blocks, 2), "double free");
    ebbi_division none = ebbi_division_of(0);
    EXPECT_DEATH((void)ebbi_slab_single_run(slab, &none, blocks[0]), "double free");
    slab->class_number = static_cast<std::uint16_t>(whole);
}

TEST_F(Slab, AFreeSeesOfEachByteWhetherABlockBeginsThere)
{
    ebbi_places_prepare(0);
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        for (int colour = 0; colour < 2; colour++) {
            const ebbi_slab *slab = make(c);
            const ebbi_class *k = ebbi_slab_class(slab);
            auto *start = static_cast<char *>(ebbi_span_start(&slab->head));
            std::size_t first = slab->first_block - address(start), places = 0;
            for (std::size_t i = 0; i < k->granules * EBBI_GRANULE; i++) {
                bool is_place =
                    ebbi_slab_has_place(start + i, ebbi_tag_load(ebbi_tag_at(start + i)));
                bool is_first = i >= first && (i - first) % k->size == 0;
                places += is_place;
                ASSERT_EQ(is_first && (i - first) / k->size < k->blocks, is_place)
                    << k->size << " at " << i << " from " << first;
            }
            ASSERT_EQ(k->blocks, places);
        }
    }
}

TEST_F(Slab, InvariantsHoldOverRandomOperations)
{
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c += 5) {
        Random random(c);
        ebbi_slab *slab = make(c);
        std::vector<void *> live;
        for (int step = 0; step < 300; step++) {
            if (random.chance(2)) {
                for (void *p : take(slab, 1 + random.below(40))) {
                    std::memset(p, 0xA5, ebbi_classes[c].size);
                    live.push_back(p);
                }
            }
            for (std::size_t n = random.below(40); n > 0 && !live.empty(); n--) {
                std::size_t i = random.below(live.size());
                give_block(slab, live[i]);
                live[i] = live.back();
                live.pop_back();
            }
            if (random.chance(10))
                (void)purge(slab, ebbi_os_page_size());
            ASSERT_EQ("", walk_slab(slab)) << "class " << c << ", step " << step;
            for (void *p : live) {
                auto *bytes = static_cast<unsigned char *>(p);
                ASSERT_EQ(0xA5, bytes[0]);
                ASSERT_EQ(0xA5, bytes[ebbi_classes[c].size - 1]);
            }
        }
    }
}

// Of each size the blocks in use keep what is free on their pages, together, wherever they lie.
TEST_F(Slab, BlocksInUseKeepWhatIsFreeOnTheirPages)
{
    for (std::size_t bytes : {16U, 48U, 512U, 1000U, 3000U, 5000U, 20000U})
        for (std::size_t every : {1U, 2U, 7U, 100U}) {
            ebbi_slab *slab = make(ebbi_class_for(bytes));
            const ebbi_class *k = ebbi_slab_class(slab);
            std::vector<void *> blocks = take(slab, k->blocks), left;
            std::sort(blocks.begin(), blocks.end());
            for (std::size_t i = 0; i < blocks.size(); i++)
                if (i % every == 0)
                    left.push_back(blocks[i]);
                else
                    give_block(slab, blocks[i]);
            const std::size_t page = ebbi_os_page_size();
            std::set<std::uintptr_t> pages;
            std::size_t keeps = 0;
            for (void *p : left) {
                keeps += ebbi_slab_kept_by(slab, p);
                for (std::uintptr_t at = address(p) / page; at <= (address(p) + k->size - 1) / page;
                     at++)
                    pages.insert(at);
            }
            const std::size_t whole = pages.size() * page - left.size() * k->size;
            EXPECT_LE(keeps, whole) << bytes << ", " << every;
            EXPECT_GE(keeps + 2 * left.size(), whole) << bytes << ", " << every;
            for (void *p : left)
                give_block(slab, p);
            ebbi_slab_destroy(slab);
        }
}

TEST_F(Slab, PurgeReturnsWhollyFreePagesOnce)
{
    ebbi_slab *slab = make(ebbi_class_for(64)); // 64 blocks to a page
    auto blocks = take(slab, 1024);
    for (void *p : blocks)
        std::memset(p, 1, 64);
    void *survivor = blocks[1023 - 64 * 5]; // in page 5
    for (void *p : blocks)
        if (p != survivor)
            give_block(slab, p);
    EXPECT_EQ(15 * 4 * KiB, purge(slab, 4 * KiB));
    EXPECT_EQ(0U, purge(slab, 4 * KiB)) << "they hold nothing any more";
    EXPECT_EQ(1, *static_cast<char *>(survivor));
    ASSERT_EQ("", walk_slab(slab));
    give_block(slab, take(slab, 1)[0]);
    EXPECT_EQ(4 * KiB, purge(slab, 4 * KiB)) << "one page was used again";
}

TEST_F(Slab, PurgeWithAWideStrideNeverSplitsIt)
{
    ebbi_slab *slab = make(ebbi_class_for(64));
    auto blocks = take(slab, 1024);
    for (std::size_t i = 0; i < 1024; i++)
        if (i != 1023 - 64 * 5)
            give_block(slab, blocks[i]);
    EXPECT_EQ(48 * KiB, purge(slab, 16 * KiB));
    EXPECT_EQ(0U, purge(slab, 2 * MiB));
}

TEST_F(Slab, PagesThatTheKernelKeepsAreTriedAgain)
{
    ebbi_slab *slab = make(ebbi_class_for(64));
    auto blocks = take(slab, 1024);
    for (std::size_t i = 0; i < 1023; i++)
        give_block(slab, blocks[i]);
    fake_os_refuse(FAKE_PURGE, 1, true);
    EXPECT_EQ(0U, purge(slab, 4 * KiB));
    fake_os_allow();
    EXPECT_EQ(60 * KiB, purge(slab, 4 * KiB));
}

TEST_F(Slab, TheWalkerFindsPlantedFaults)
{
    ebbi_slab *slab = make(ebbi_class_for(64));
    take(slab, 100);
    ASSERT_EQ("", walk_slab(slab));
    slab->local[0] |= 1; // a block in use with a free bit
    EXPECT_NE("", walk_slab(slab));
    slab->free_count++;
    slab->first_word = 0;
    EXPECT_EQ("", walk_slab(slab));
    ebbi_slab_remote(slab)[0] |= 1; // free twice
    EXPECT_NE("", walk_slab(slab));
    ebbi_slab_remote(slab)[0] = 2; // nobody will ever come for it
    EXPECT_NE("", walk_slab(slab));
    ebbi_slab_remote(slab)[0] = 0;
    slab->first_word = 3;
    EXPECT_NE("", walk_slab(slab));
}

} // namespace
