// SPDX-License-Identifier: MIT OR Apache-2.0
// Looks at all blocks with EBB_CHECK=1: at what nobody has, never handed out or freed and back in its slab, and at what is in use.
#include <sys/resource.h>

#include "support/engine.h"

#include "ebbtide/reclaim.h"

extern "C" {
#define _Static_assert static_assert
#include "debug/check.h"
#include "heap/slabs.h"
#include "process/process.h"
#undef _Static_assert
}

namespace {

using namespace unit;

// Before the library starts.
__attribute__((constructor(101))) void switch_on()
{
    setenv("EBB_CHECK", "1", 1);
    setenv("EBB_GUARD", "0", 1);
}

void dies_quietly()
{
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
}

struct Vacant : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_clock(100000);
    }

    static char *block(std::size_t bytes) { return static_cast<char *>(ebb_malloc(bytes)); }

    // Of the slab that p lies in, the block whose number is so far away, modulo their number.
    static char *other(char *p, unsigned away)
    {
        const ebbi_slab *slab = ebbi_slab_of(p);
        const ebbi_class *c = ebbi_slab_class(slab);
        std::uint64_t number = (ebbi_slab_block_around(slab, p) + away) % c->blocks;
        return reinterpret_cast<char *>(slab->first_block + number * c->size);
    }

    // Of that slab, one that is free in it.
    static char *vacant_beside(char *p)
    {
        const ebbi_slab *slab = ebbi_slab_of(p);
        for (unsigned away = 1; away < ebbi_slab_class(slab)->blocks; away++) {
            char *q = other(p, away);
            if (ebbi_slab_is_free(slab, static_cast<unsigned>(ebbi_slab_block_around(slab, q))))
                return q;
        }
        return nullptr;
    }

    // More than one byte: a single one may be the canary's.
    static void write_two(char *at) { std::memcpy(at, "AB", 2); }

    static void write_and_look(char *at)
    {
        dies_quietly();
        write_two(at);
        ebbi_look();
    }

    static void write_and_use_up(char *at, std::size_t bytes)
    {
        dies_quietly();
        write_two(at);
        for (int i = 0; i < 3000; i++)
            ebb_malloc(bytes);
    }

    // The first is in use; the others are freed, held no longer, and in their slabs.
    static std::vector<char *> freed(std::size_t bytes, std::size_t count)
    {
        std::vector<char *> blocks;
        for (std::size_t i = 0; i < count; i++)
            blocks.push_back(block(bytes));
        for (std::size_t i = 1; i < count; i++)
            ebb_free(blocks[i]);
        ebbi_held_rest();
        ebbi_flush_all(ebbi_heap_mine());
        return blocks;
    }
};

TEST_F(Vacant, WhatWasNeverHandedOut)
{
    for (std::size_t bytes : {24U, 1000U, 9000U}) {
        char *p = block(bytes), *q = vacant_beside(p);
        ASSERT_NE(nullptr, q);
        for (std::size_t at : {std::size_t{0}, std::size_t{39}, std::size_t{48}, bytes + 40}) {
            EXPECT_DEATH(write_and_look(q + at), "invalid write: .* was not handed out") << at;
            EXPECT_DEATH(write_and_use_up(q + at, bytes), "invalid write: .* was not handed out")
                << at;
        }
        ebb_free(p);
    }
    ebbi_look();
}

TEST_F(Vacant, WhatLiesBesideTheBlocks)
{
    for (std::size_t bytes : {24U, 1000U, 9000U}) {
        const ebbi_slab *slab = ebbi_slab_of(block(bytes));
        const ebbi_class *c = ebbi_slab_class(slab);
        char *start = static_cast<char *>(ebbi_span_start(&slab->head));
        char *first = reinterpret_cast<char *>(slab->first_block);
        char *behind = first + static_cast<std::size_t>(c->blocks) * c->size;
        if (first != start) {
            EXPECT_DEATH(write_and_look(start), "invalid write: .* beside the allocator's blocks");
            EXPECT_DEATH(write_and_look(first - 2), "beside the allocator's blocks");
        }
        if (behind != start + c->granules * EBBI_GRANULE) {
            EXPECT_DEATH(write_and_look(behind), "beside the allocator's blocks");
        }
    }
}

TEST_F(Vacant, WhatWasFreed)
{
    for (std::size_t bytes : {24U, 1000U, 9000U}) {
        std::vector<char *> blocks = freed(bytes, 100);
        char *p = nullptr; // of the slab of the one in use, one that was handed out before
        for (char *q : blocks)
            p = q != blocks[0] && ebbi_slab_of(q) == ebbi_slab_of(blocks[0]) ? q : p;
        ASSERT_NE(nullptr, p);
        EXPECT_DEATH(write_and_look(p + bytes / 2),
                     "use after free: written since it was freed: .* lies");
        EXPECT_DEATH(write_and_use_up(p - 48, bytes), "invalid write");
        EXPECT_DEATH(write_and_look(p - 8), "underflow|invalid write");
    }
    ebbi_look();
}

// Of a block that spans pages, which may have been returned: there are zeros, but what a free filled holds no canary.
TEST_F(Vacant, AByteOfItsCanaryInWhatWasFreed)
{
    const auto write_and_look_at = [](char *at, uint64_t canary) {
        dies_quietly();
        *at = static_cast<char>(ebbi_canary_at(canary, at));
        ebbi_look();
    };
    std::vector<char *> blocks = freed(9000, 100);
    char *p = blocks[0];
    for (char *q : blocks)
        p = q != blocks[0] && ebbi_slab_of(q) == ebbi_slab_of(blocks[0]) ? q : p;
    ASSERT_NE(blocks[0], p);
    const uint64_t canary = ebbi_checked_canary(reinterpret_cast<ebbi_checked *>(p - 48));
    for (std::size_t at : {8U, 4567U, 8999U}) {
        while (ebbi_canary_at(canary, p + at) == EBBI_FILL_BYTE) // that would change nothing
            at--;
        EXPECT_DEATH(write_and_look_at(p + at, canary), "use after free: written since") << at;
    }
    std::memset(p + 100, 0, 3000);
    ebbi_look();
    std::memset(p + 100, 0xDB, 3000);
}

TEST_F(Vacant, WhatWasFreedInASlabThatEnds)
{
    const auto write_and_free_the_last = [](char *at, char *last) {
        dies_quietly();
        write_two(at);
        ebb_free(last);
        ebbi_held_rest();
        ebbi_flush_all(ebbi_heap_mine());
        ebbi_look();
    };
    std::vector<char *> blocks = freed(1000, 100);
    for (char *p : blocks) {
        if (p != blocks[0] && ebbi_slab_of(p) == ebbi_slab_of(blocks[0])) {
            EXPECT_DEATH(write_and_free_the_last(p + 500, blocks[0]), "use after free: written");
            return;
        }
    }
    FAIL() << "there is no other in its slab";
}

TEST_F(Vacant, WhatWasFreedOnPagesThatAreReturned)
{
    const auto write_and_trim = [](char *at) {
        dies_quietly();
        fake_os_clock_step(10);
        (void)ebbi_look_again(); // so that the pass does not look
        fake_os_clock_step(0);
        write_two(at);
        ebb_trim();
        ebbi_look();
    };
    std::vector<char *> blocks = freed(1000, 100);
    for (char *p : blocks) {
        if (p != blocks[0] && ebbi_slab_of(p) == ebbi_slab_of(blocks[0])) {
            EXPECT_DEATH(write_and_trim(p + 500), "use after free: written");
        }
    }
}

// It is reported when nobody holds a lock, and nobody gets it until then.
TEST_F(Vacant, WhatWasWrittenToIsNobodys)
{
    const auto look_and_use_up = [](char *p) {
        dies_quietly();
        ebbi_slab *slab = ebbi_slab_of(p);
        unsigned free_before = slab->free_count;
        write_two(p + 500);
        ebbi_lock_take(&slab->owner->lock);
        ebbi_vacant_look_in(slab->owner, slab);
        ebbi_vacant_look_in(slab->owner, slab);
        ebbi_lock_drop(&slab->owner->lock);
        bool is_lost = slab->free_count == free_before - 1;
        for (int i = 0; i < 1000; i++)
            is_lost = is_lost && block(1000) != p;
        if (is_lost)
            ebbi_vacant_tell();
    };
    std::vector<char *> blocks = freed(1000, 100);
    char *p = nullptr; // of the slab of the one in use
    for (char *q : blocks)
        p = q != blocks[0] && ebbi_slab_of(q) == ebbi_slab_of(blocks[0]) ? q : p;
    ASSERT_NE(nullptr, p);
    EXPECT_DEATH(look_and_use_up(p), "use after free: written");
}

TEST_F(Vacant, WhosePagesWereReturned)
{
    for (std::size_t bytes : {24U, 700U, 1000U, 3000U, 9000U}) {
        std::vector<char *> kept;
        for (int i = 0; i < 3000; i++)
            kept.push_back(block(bytes));
        for (std::size_t i = 0; i < kept.size(); i++)
            if (i % 97 != 0)
                ebb_free(kept[i]);
        ebbi_held_rest();
        ebb_trim();
        ebbi_look();
        for (int i = 0; i < 4000; i++)
            kept[static_cast<std::size_t>(i) % 97 * 30 + 1] = block(bytes);
        ebbi_look();
    }
}

TEST_F(Vacant, PagesThatComeDirtyAreCleared)
{
    // Of a large object into a slab.
    char *large = static_cast<char *>(ebbi_span_start(ebbi_span_alloc(64, 1, EBBI_SPAN_LARGE)));
    std::memset(large, 'x', 64 * EBBI_GRANULE);
    ebbi_span_free(ebbi_span_of(large));
    for (int i = 0; i < 5000; i++)
        std::memset(block(500), 'y', 500);
    ebbi_look();
}

TEST_F(Vacant, OfTheLibraryItself)
{
    for (int i = 0; i < 20; i++) {
        ebb_collector *collector = ebb_collector_create(0);
        ASSERT_NE(nullptr, collector);
        ebb_collector_destroy(collector);
    }
    ebbi_flush_all(ebbi_heap_mine());
    ebbi_look();
    for (int i = 0; i < 5000; i++)
        block(static_cast<std::size_t>(i) % 900 + 1);
}

TEST_F(Vacant, WhatIsInUseWhereNobodyElseIsAtWork)
{
    const auto write_and_look_alone = [](char *at) {
        dies_quietly();
        *at = static_cast<char>(*at ^ 0x55);
        ebbi_look_alone();
    };
    for (std::size_t bytes : {1U, 24U, 1000U, 9000U}) {
        std::vector<char *> blocks;
        for (int i = 0; i < 200; i++)
            std::memset(blocks.emplace_back(block(bytes)), 'x', bytes);
        char *p = blocks[100];
        ebbi_look_alone();
        EXPECT_DEATH(write_and_look_alone(p + bytes), "overflow: .* lies 0 bytes behind");
        EXPECT_DEATH(write_and_look_alone(p - 1), "underflow: .* lies 1 bytes before");
        EXPECT_DEATH(write_and_look_alone(p - 48), "invalid write");
        for (char *q : blocks)
            ebb_retire(q);
        EXPECT_DEATH(write_and_look_alone(p + bytes), "overflow|use after free");
        ebbi_look_alone();
    }
}

TEST_F(Vacant, ALookIsPutOffForFiftyTimesWhatTheLastOneTook)
{
    freed(24, 100);
    fake_os_clock_step(10);
    EXPECT_TRUE(ebbi_look_again());
    for (int i = 0; i < 40; i++)
        EXPECT_FALSE(ebbi_look_again()) << i;
    fake_os_clock_advance(200);
    EXPECT_TRUE(ebbi_look_again());
}

TEST_F(Vacant, WhoeverPutItOffComesAgain)
{
    const auto waits = [] {
        struct ebbi_pass pass = {};
        ebbi_purge_pass(&pass);
        return pass.waiting;
    };
    freed(24, 100);
    fake_os_clock(200000);
    waits();
    EXPECT_FALSE(waits()) << "all have been looked at, and nothing else is to be done";
    fake_os_clock_step(10);
    EXPECT_TRUE(ebbi_look_again());
    fake_os_clock_step(0);
    EXPECT_TRUE(waits());
    fake_os_clock_advance(600);
    EXPECT_FALSE(waits());
}

} // namespace
