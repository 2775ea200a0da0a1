// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: hazard pointers hold back the bag of the block that they point into, and no other.
#include <random>

#include "support/engine.h"

#include "ebbtide/reclaim.h"

namespace {

using namespace unit;

struct Hazard : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_pretend_threads(); // the helper would free what the tests count
    }
};

std::size_t waiting()
{
    ebb_reclaim_stats now;
    ebb_reclaim_stats_get(nullptr, &now);
    return now.retired_blocks;
}

TEST_F(Hazard, HoldsBackTheBagOfItsBlockAlone)
{
    for (std::size_t bytes : {48, 64, 5000}) {
        ebb_hazard *hazard = ebb_hazard_open();
        ebb_reclaim();
        void *held = ebb_malloc(bytes);
        ebb_hazard_set(hazard, held);
        ebb_retire(held);
        ebb_pin();
        for (int i = 0; i < 2000; i++)
            ebb_retire(ebb_malloc(bytes));
        ebb_unpin();
        EXPECT_GT(waiting(), 1500U) << "sealed, and held back by the pin";
        ebb_reclaim();
        EXPECT_GE(waiting(), 1U);
        EXPECT_LE(waiting(), std::size_t{EBBI_BAG_BLOCKS});
        std::size_t kept = waiting();
        for (int i = 0; i < 5; i++)
            ebb_reclaim();
        EXPECT_EQ(kept, waiting()) << "as long as it lasts";
        ebb_hazard_clear(hazard);
        ebb_reclaim();
        EXPECT_EQ(0U, waiting());
        ebb_hazard_close(hazard);
    }
}

TEST_F(Hazard, NeitherMallocNorReclaimHandsTheBlockOut)
{
    ebb_hazard *hazard = ebb_hazard_open();
    void *held = ebb_malloc(64);
    std::memset(held, 0x5A, 64);
    ebb_hazard_set(hazard, static_cast<char *>(held) + 63);
    ebb_retire(held);
    for (int i = 0; i < 20000; i++) {
        void *p = ebb_malloc(64);
        ASSERT_NE(held, p);
        std::memset(p, 0xEE, 64);
        ebb_retire(p);
        if (i % 3000 == 0)
            ebb_reclaim();
    }
    for (int i = 0; i < 64; i++)
        ASSERT_EQ(0x5A, static_cast<unsigned char *>(held)[i]);
    ebb_hazard_close(hazard);
    ebb_reclaim();
    EXPECT_EQ(0U, waiting());
}

TEST_F(Hazard, ProtectsFromTheFirstByteToTheLastAndNoFurther)
{
    auto *block = static_cast<char *>(ebb_malloc(64));
    ebb_hazard *hazard = ebb_hazard_open();
    EXPECT_FALSE(ebbi_hazard_protects(block, 64));
    for (int offset : {0, 1, 63}) {
        ebb_hazard_set(hazard, block + offset);
        EXPECT_TRUE(ebbi_hazard_protects(block, 64)) << offset;
    }
    for (int offset : {-1, 64}) {
        ebb_hazard_set(hazard, block + offset);
        EXPECT_FALSE(ebbi_hazard_protects(block, 64)) << offset;
    }
    ebb_hazard_set(hazard, nullptr);
    EXPECT_FALSE(ebbi_hazard_protects(block, 64));
    ebb_hazard_close(hazard);
    ebb_free(block);
}

// Blocks of all kinds, hazard pointers to their starts, insides, neighbours and nowhere: asked for at
// once, the answer is that of one by one.
TEST_F(Hazard, AskedForManyAtOnceSaysTheSame)
{
    constexpr std::size_t sizes[] = {16, 48, 64, 1000, 5000, 32768, 120 * KiB, MiB};
    std::mt19937 random(7);
    std::vector<ebb_hazard *> hazards(100);
    for (ebb_hazard *&hazard : hazards)
        hazard = ebb_hazard_open();
    for (int round = 0; round < 300; round++) {
        std::vector<std::pair<char *, std::size_t>> blocks;
        for (int i = 0; i < EBBI_SUSPECTS; i++) {
            std::size_t bytes = sizes[round % 9 < 8 ? round % 9 : random() % 8];
            blocks.emplace_back(static_cast<char *>(ebb_malloc(bytes)), bytes);
        }
        for (ebb_hazard *hazard : hazards) {
            auto [start, bytes] = blocks[random() % blocks.size()];
            const std::size_t at[] = {0, bytes - 1, bytes, random() % bytes,
                                      random() % (9 * bytes)};
            ebb_hazard_set(hazard, random() % 3 == 0 ? nullptr : start + at[random() % 5]);
        }
        static ebbi_suspects suspects;
        ebbi_suspects_start(&suspects);
        for (std::size_t i = 0; i < blocks.size(); i += 2) // the others are neighbours
            ebbi_suspects_add(&suspects, blocks[i].first, ebb_malloc_usable_size(blocks[i].first));
        ebbi_suspects_mark(&suspects);
        bool any = false;
        for (std::size_t i = 0; i < suspects.count; i++) {
            bool held = ebbi_hazard_protects(reinterpret_cast<void *>(suspects.list[i].start),
                                             suspects.list[i].bytes);
            any |= held;
            ASSERT_EQ(held, suspects.marks[i]) << "round " << round << ", block " << i;
        }
        ASSERT_EQ(any, ebbi_suspects_any(&suspects));
        for (auto [start, bytes] : blocks)
            ebb_free(start);
    }
    for (ebb_hazard *hazard : hazards)
        ebb_hazard_close(hazard);
}

TEST_F(Hazard, HoldsBackTheLargeObjectsThatAreHeldAlone)
{
    fake_os_threaded(true);
    constexpr std::size_t count = 500;
    std::vector<char *> blocks(count);
    std::vector<ebb_hazard *> hazards;
    ebb_pin();
    for (std::size_t i = 0; i < count; i++) {
        blocks[i] = static_cast<char *>(ebb_malloc(200 * KiB));
        if (i % 7 == 3) {
            hazards.push_back(ebb_hazard_open());
            ebb_hazard_set(hazards.back(), blocks[i] + i * 100);
            blocks[i][i * 100] = 77;
        }
        ebb_retire(blocks[i]);
    }
    ebb_unpin();
    for (int i = 0; i < 5; i++)
        ebb_reclaim();
    EXPECT_EQ(hazards.size(), waiting());
    for (std::size_t i = 3; i < count; i += 7)
        ASSERT_EQ(77, blocks[i][i * 100]);
    for (ebb_hazard *hazard : hazards)
        ebb_hazard_close(hazard);
    ebb_reclaim();
    EXPECT_EQ(0U, waiting());
}

std::size_t looked_at()
{
    std::size_t seen = 0;
    const auto count = [](const void *, void *context) {
        ++*static_cast<std::size_t *>(context);
        return false;
    };
    (void)ebbi_hazards_find(0, SIZE_MAX, count, &seen);
    return seen;
}

TEST_F(Hazard, ThoseThatAreClosedAreNotLookedAt)
{
    std::vector<ebb_hazard *> hazards(1000);
    for (ebb_hazard *&hazard : hazards)
        ebb_hazard_set(hazard = ebb_hazard_open(), &hazards);
    EXPECT_EQ(hazards.size(), looked_at());
    for (std::size_t i = 1; i < hazards.size(); i++)
        ebb_hazard_close(hazards[i]);
    EXPECT_EQ(1U, looked_at());
    ebb_hazard_close(hazards[0]);
    EXPECT_EQ(0U, looked_at());
}

TEST_F(Hazard, ClosedTwiceIsFound)
{
    ebb_hazard *hazard = ebb_hazard_open();
    ebb_hazard_close(hazard);
    EXPECT_DEATH(ebb_hazard_close(hazard), "^ebbtide: .*: hazard pointer 0x[0-9a-f]+ closed twice");
}

TEST_F(Hazard, ProtectFollowsALinkThatChanges)
{
    void *link = ebb_malloc(64);
    void *const *source = &link;
    std::atomic<bool> stop{false};
    std::vector<void *> made = {link};
    std::thread writer([&] {
        for (int i = 0; i < 20000; i++) {
            void *fresh = ebb_malloc(64);
            std::memset(fresh, 0x11, 64);
            ebb_retire(__atomic_exchange_n(&link, fresh, __ATOMIC_ACQ_REL));
        }
        stop.store(true);
    });
    ebb_hazard *hazard = ebb_hazard_open();
    while (!stop.load()) {
        void *held = ebb_hazard_protect(hazard, source);
        ASSERT_EQ(held, ebbi_load_relaxed(&hazard->held));
    }
    writer.join();
    ebb_hazard_close(hazard);
    ebb_free(link);
}

TEST_F(Hazard, RefusedMemoryIsSaid)
{
    std::vector<ebb_hazard *> open;
    for (fake_call call : {FAKE_COMMIT, FAKE_RESERVE, FAKE_MAP})
        fake_os_refuse(call, 1, true);
    errno = 0;
    for (ebb_hazard *h = ebb_hazard_open(); h != nullptr; h = ebb_hazard_open()) {
        open.push_back(h);
        ASSERT_LT(open.size(), 100U * MiB / 64);
    }
    EXPECT_EQ(ENOMEM, errno);
    for (ebb_hazard *h : open)
        ebb_hazard_close(h);
    for (std::size_t i = 0; i < open.size(); i++)
        EXPECT_NE(nullptr, ebb_hazard_open()) << "the closed ones serve again";
}

// Memory is refused to the bags: what waits as bits of slabs honours hazards as well.
TEST_F(Hazard, IsHonouredByWhatIsStranded)
{
    ebb_hazard *hazard = ebb_hazard_open();
    void *held = ebb_malloc(64);
    std::memset(held, 0x5A, 64);
    ebb_hazard_set(hazard, held);
    ebbi_strand(held);
    for (int i = 0; i < 5; i++)
        ebb_reclaim();
    EXPECT_EQ(1U, waiting());
    for (int i = 0; i < 64; i++)
        ASSERT_EQ(0x5A, static_cast<unsigned char *>(held)[i]);
    ebb_hazard_close(hazard);
    ebb_reclaim();
    EXPECT_EQ(0U, waiting());
}

} // namespace
