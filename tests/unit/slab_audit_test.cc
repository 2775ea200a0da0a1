// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer slab: the audit finds each property of slab/slab.h that is broken.
#include "support/slab_walk.h"

namespace {

using namespace unit;

struct SlabAudit : Fake, testing::WithParamInterface<unsigned> {
    void SetUp() override
    {
        Fake::SetUp();
        unsigned c = ebbi_class_for(GetParam());
        slab = ebbi_slab_create(c, ebbi_class_bin(c, 0), nullptr, EBBI_FILL_UNKNOWN);
        ASSERT_NE(nullptr, slab);
        blocks.resize(ebbi_slab_class(slab)->blocks * std::size_t{3} / 4);
        ASSERT_EQ(blocks.size(), ebbi_slab_take(slab, blocks.data(), blocks.size()));
        std::reverse(blocks.begin(), blocks.end()); // upward
        for (void *p : blocks)
            std::memset(p, 1, ebbi_slab_class(slab)->size);
        for (std::size_t i = 0; i < blocks.size() / 3; i++)
            give_block(slab, blocks[i]);
    }
    void audit(bool whole = true) const { ebbi_slab_audit(slab, whole); }
    unsigned used() const { return ebbi_slab_block(slab, blocks.back()); }
    void flip(std::uint64_t *map, unsigned block)
    {
        map[block / 64] ^= std::uint64_t{1} << block % 64;
    }

    ebbi_slab *slab = nullptr;
    std::vector<void *> blocks;
};

// One word, several in the header, several in the bitmap room, several granules.
INSTANTIATE_TEST_SUITE_P(, SlabAudit, testing::Values(2048U, 256U, 16U, 20480U));

TEST_P(SlabAudit, IsWhole)
{
    audit();
    EXPECT_TRUE(ebbi_slab_give_remote(slab, used() / 64, std::uint64_t{1} << used() % 64));
    audit();
    EXPECT_EQ(1U, ebbi_slab_collect(slab));
    audit();
    static struct ebbi_slab_plan plan;
    ebbi_slab_plan(slab, ebbi_os_page_size(), &plan);
    EXPECT_LT(0U, ebbi_slab_carry_out(&plan));
    ebbi_slab_carried_out(slab, &plan);
    audit();
}

TEST_P(SlabAudit, P1FreeOnce)
{
    flip(ebbi_slab_remote(slab), 0);
    EXPECT_DEATH(audit(), "ebbtide: .*: slab P1: a block is free twice");
}

TEST_P(SlabAudit, P1BlocksAlone)
{
    unsigned past = ebbi_slab_class(slab)->blocks;
    if (past % 64 == 0)
        GTEST_SKIP() << "every bit is a block's";
    flip(slab->local, past);
    slab->free_count++;
    EXPECT_DEATH(audit(), "ebbtide: .*: slab P1: what is no block is free");
}

TEST_P(SlabAudit, P2TheCount)
{
    flip(slab->local, used());
    EXPECT_DEATH(audit(), "ebbtide: .*: slab P2: free_count is wrong");
    slab->free_count++;
    audit(false);
    slab->free_count++;
    EXPECT_DEATH(audit(), "ebbtide: .*: slab P2: free_count is wrong");
}

TEST_P(SlabAudit, P3TheSummary)
{
    flip(ebbi_slab_remote(slab), used());
    EXPECT_DEATH(audit(), "ebbtide: .*: slab P3: the summary is wrong");
    fake_os_threaded(true);
    audit(false); // its giver may be about to set the bit
    fake_os_threaded(false);
    EXPECT_DEATH(audit(false), "ebbtide: .*: slab P3: the summary is wrong");
    flip(ebbi_slab_remote(slab), used());
    slab->summary = 1;
    EXPECT_DEATH(audit(), "ebbtide: .*: slab P3: the summary is wrong");
}

TEST_P(SlabAudit, P4CleanPages)
{
    std::uint64_t *dirty = ebbi_slab_dirty_pages(slab);
    std::size_t pages = ebbi_slab_class(slab)->granules * EBBI_GRANULE / ebbi_os_page_size();
    for (std::size_t w = 0; w < (pages + 63) / 64; w++)
        dirty[w] = 0;
    EXPECT_DEATH(audit(), "ebbtide: .*: slab P4: a clean page holds something");
    audit(false);
}

TEST_P(SlabAudit, P5FirstWord)
{
    slab->first_word = slab->words;
    EXPECT_DEATH(audit(), "ebbtide: .*: slab P5: a free block lies below first_word");
}

TEST_P(SlabAudit, P6IdleBlocks)
{
    slab->dirty_blocks = static_cast<std::uint16_t>(slab->free_count + 1);
    EXPECT_DEATH(audit(), "ebbtide: .*: slab P6: more dirty blocks");
}

TEST_P(SlabAudit, P6EarlyBlocks)
{
    slab->early_blocks = static_cast<std::uint16_t>(slab->free_count - slab->dirty_blocks + 1);
    EXPECT_DEATH(audit(), "ebbtide: .*: slab P6: more early blocks");
}

TEST_P(SlabAudit, P7Headers)
{
    if (ebbi_slab_class(slab)->granules == 1)
        GTEST_SKIP() << "there is one";
    slab[1].head.back = 0;
    EXPECT_DEATH(audit(), "ebbtide: .*: slab P7: a header does not lead to the slab");
}

TEST_P(SlabAudit, P7Tags)
{
    void *last = static_cast<char *>(ebbi_span_start(&slab->head)) +
                 (ebbi_slab_class(slab)->granules - 1) * EBBI_GRANULE;
    unsigned other = slab->class_number + 1U;
    ebbi_tag_at(last)->ahead++;
    EXPECT_DEATH(audit(), "ebbtide: .*: slab P7: a tag leads to another first block");
    ebbi_tag_at(last)->ahead--;
    ebbi_tags_set(last, 1, EBBI_TAG_NONE);
    EXPECT_DEATH(audit(), "ebbtide: .*: slab P7: a tag is not that of");
    ebbi_tags_set(last, 1, static_cast<std::uint16_t>(ebbi_class_bin(other, 0)));
    EXPECT_DEATH(audit(), "ebbtide: .*: slab P7: a tag is not that of");
}

} // namespace
