// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: what a thread without a helper learns to keep free, and forgets. A fake clock.
#include "support/slab_walk.h"

namespace {

using namespace unit;

struct PurgeRoom : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_clock(100000);
        fake_os_threaded(false);
    }
};

// Blocks of which one in thirty stays, so that no slab is empty.
struct Swing {
    static constexpr std::size_t bytes = 1000;
    std::vector<void *> blocks;

    explicit Swing(std::size_t mib) : blocks(mib * MiB / bytes) { up(); }
    void up()
    {
        for (void *&p : blocks)
            if (p == nullptr)
                p = ebb_malloc(bytes);
    }
    void down()
    {
        for (std::size_t i = 0; i < blocks.size(); i++)
            if (i % 30 != 0) {
                ebb_free(blocks[i]);
                blocks[i] = nullptr;
            }
    }
    [[nodiscard]] const ebbi_owner *owner() const { return ebbi_slab_of(blocks[0])->owner; }
};

TEST_F(PurgeRoom, WhatSwingsLearnsToKeepIt)
{
    for (const int swings : {60, 61}) {
        Swing swing(14);
        for (int i = 0; i < 6; i++, swing.up())
            swing.down();
        const std::size_t before = ebbi_arena_purged_bytes();
        EXPECT_GT(before, MiB) << "nothing was to be learned";
        for (int i = 6; i < swings; i++, swing.up()) {
            swing.down();
            fake_os_clock_advance(3);
        }
        EXPECT_EQ(before, ebbi_arena_purged_bytes());
        swing.down();
        for (std::size_t i = 0; i < swing.blocks.size(); i += 30)
            ebb_free(swing.blocks[i]);
        ebb_trim();
    }
}

TEST_F(PurgeRoom, WhatIsLearnedIsBoundedAndForgotten)
{
    Swing large(80);
    for (int i = 0; i < 9; i++, large.up()) {
        large.down();
        ASSERT_LE(large.owner()->dirty_bytes, (8 + 8 + 1) * MiB);
    }
    for (int i = 0; i < 40; i++, large.up()) {
        fake_os_clock_advance(700);
        large.down();
        fake_os_clock_advance(700);
    }
    large.down();
    EXPECT_LE(large.owner()->dirty_bytes, (8 + 1) * MiB) << "it comes again, but not soon";
}

// Else it would keep a third of the peak in use, and with that all spans.
TEST_F(PurgeRoom, IsNotInUse)
{
    Swing swing(14);
    for (int i = 0; i < 6; i++, swing.up())
        swing.down();
    std::vector<void *> objects;
    for (int i = 0; i < 80; i++)
        objects.push_back(ebb_malloc(MiB));
    swing.down();
    for (std::size_t i = 17; i < objects.size(); i++)
        ebb_free(objects[i]);
    EXPECT_GT(ebbi_arena_used_bytes(), ebbi_arena_peak_bytes() / 3) << "with the room";
    EXPECT_LE(ebbi_arena_dirty_bytes(), 49 * MiB)
        << ebbi_arena_used_bytes() << " of " << ebbi_arena_peak_bytes() << ", room "
        << swing.owner()->room_bytes;
}

} // namespace
