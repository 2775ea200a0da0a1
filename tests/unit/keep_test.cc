// SPDX-License-Identifier: MIT OR Apache-2.0
// What is kept of large objects: spans that a thread will ask for again, and mappings.
#include <sys/wait.h>
#include <unistd.h>

#include "support/arena_walk.h"

namespace {

using namespace unit;

struct Keep : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_clock(100000);
        fake_os_threaded(true);
        fake_os_pretend_threads();
        ebb_free(ebb_malloc(16));
        ebbi_threads_more();
        ebbi_helper_start();
        ebb_trim();
    }

    static std::size_t spares() { return ebbi_spares_granules(&ebbi_heap_get()->spares); }
};

struct KeepAlone : Keep {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_clock(100000);
        fake_os_threaded(false);
        ebb_free(ebb_malloc(16));
        ebb_trim();
    }
};

unsigned char *take(std::size_t bytes)
{
    Block block{static_cast<unsigned char *>(ebb_malloc(bytes)), bytes, 0x3B};
    EXPECT_NE(nullptr, block.bytes);
    block.fill();
    block.bytes[bytes / 2] = 0x3B;
    return block.bytes;
}

bool is_zero(const unsigned char *p, std::size_t bytes)
{
    return std::all_of(p, p + bytes, [](unsigned char c) { return c == 0; });
}

// Calls of the kernel for memory, and bytes that the arena counts as used, in a steady state.
std::size_t kernel_calls()
{
    return fake_os_count(FAKE_MAP) + fake_os_count(FAKE_RESERVE) + fake_os_count(FAKE_COMMIT) +
           fake_os_count(FAKE_PURGE) + fake_os_count(FAKE_RELEASE);
}

// ---- spans ---------------------------------------------------------------------------------------

TEST_F(Keep, AThreadGetsTheSpanThatItFreed)
{
    ebb_free(take(8 * MiB)); // so that what finds no spare one raises no peak
    unsigned char *p = take(300 * KiB);
    ebb_free(p);
    EXPECT_EQ(5U, spares());
    EXPECT_EQ(p, take(300 * KiB));
    EXPECT_EQ(0U, spares());
    ebb_free(p);
    EXPECT_NE(p, take(350 * KiB)) << "6 granules";
    EXPECT_NE(p, take(200 * KiB)) << "4 granules; 5 are more than an eighth longer";
    EXPECT_EQ(p, take(300 * KiB));
}

TEST_F(Keep, ASpanServesWhatIsALittleShorter)
{
    unsigned char *p = take(MiB);
    ebb_free(p);
    EXPECT_EQ(p, take(15 * 64 * KiB));
    EXPECT_EQ(15 * 64 * KiB, ebb_malloc_usable_size(p));
    EXPECT_EQ(p, ebb_realloc(p, 15 * 64 * KiB));
    ebb_free(p);
}

TEST_F(Keep, CallocOfASpareSpanIsClear)
{
    unsigned char *p = take(500 * KiB);
    ebb_free(p);
    auto *q = static_cast<unsigned char *>(ebb_calloc(500, KiB));
    EXPECT_EQ(p, q);
    EXPECT_TRUE(is_zero(q, 500 * KiB));
}

TEST_F(Keep, MisuseOfASpareSpanIsTold)
{
    for (std::size_t bytes : {300 * KiB, 4 * MiB, 40 * MiB}) {
        unsigned char *p = take(bytes);
        ebb_free(p);
        EXPECT_DEATH(ebb_free(p), bytes < EBBI_HUGE_MIN ? "invalid free" : "double free");
        EXPECT_DEATH(ebb_free(p + 64 * KiB), "invalid free");
        EXPECT_DEATH((void)ebb_malloc_usable_size(p), "invalid pointer");
        EXPECT_DEATH((void)ebb_realloc(p, bytes + MiB), "invalid pointer");
    }
}

// Whatever the number of blocks that come and go at a time, the kernel is not asked in a steady state.
TEST_F(Keep, ASteadyStateAsksForNothing)
{
    for (std::size_t bytes : {300 * KiB, 3 * MiB, 9 * MiB, 40 * MiB})
        for (std::size_t count : {1U, 2U, 3U, 4U, 7U, 8U}) {
            std::vector<unsigned char *> blocks(count);
            std::size_t before = 0;
            for (int round = 0; round < 6; round++) {
                for (unsigned char *&p : blocks)
                    p = take(bytes);
                for (unsigned char *p : blocks)
                    ebb_free(p);
                before = round == 1 ? kernel_calls() : before;
            }
            EXPECT_EQ(before, kernel_calls()) << count << " of " << bytes;
            EXPECT_LE(spares(), EBBI_SPARES + 0U);
        }
}

// With one thread: what replaces as much as is in use, and bursts of less than the constant.
TEST_F(KeepAlone, ASteadyStateAsksForNothing)
{
    std::vector<unsigned char *> live(8);
    for (unsigned char *&p : live)
        p = take(9 * MiB);
    for (std::size_t count : {1U, 2U, 3U, 4U, 5U}) {
        std::vector<unsigned char *> blocks(count);
        std::size_t before = 0;
        for (int round = 0; round < 6; round++) {
            for (unsigned char *&p : blocks)
                p = take(9 * MiB);
            for (unsigned char *p : blocks)
                ebb_free(p);
            before = round == 1 ? kernel_calls() : before;
        }
        EXPECT_EQ(before, kernel_calls()) << count;
    }
    for (unsigned char *p : live)
        ebb_free(p);
    EXPECT_LE(ebbi_arena_dirty_bytes(), 48 * MiB) << "the frees that end it";
}

// One block is replaced at a time, as long as the clock does not move.
TEST_F(Keep, ReplacedBlocksAskForLittle)
{
    for (std::size_t live : {7U, 20U}) {
        Random random(live);
        std::vector<void *> blocks(live);
        std::size_t warm = 0;
        for (int i = 0; i < 1200; i++) {
            void *&p = blocks[random.below(live)];
            ebb_free(p);
            p = ebb_malloc(5 * MiB + random.below(20 * MiB));
            warm = i == 200 ? fake_os_count(FAKE_PURGE) : warm;
        }
        EXPECT_LE(fake_os_count(FAKE_PURGE) - warm, 500U) << live; // of 1,000 replacements
        for (void *p : blocks)
            ebb_free(p);
        ebb_trim();
    }
}

TEST_F(Keep, TheArenaIsAskedOnceForMany)
{
    std::vector<unsigned char *> blocks;
    for (int i = 0; i < 100; i++)
        blocks.push_back(take(256 * KiB));
    std::size_t given = 0;
    for (unsigned char *p : blocks) {
        std::size_t before = ebbi_arena_used_bytes();
        ebb_free(p);
        given += ebbi_arena_used_bytes() != before;
    }
    EXPECT_LE(given, 9U) << "a quarter of what is in use at a time";
    EXPECT_GT(spares(), 0U);
    EXPECT_LE(spares(), EBBI_SPARES + 0U);
}

// Four at a time that come and go: the arena is asked for none of them again.
TEST_F(Keep, SeveralGoRound)
{
    std::vector<unsigned char *> blocks(4);
    for (int round = 0; round < 3; round++) {
        for (unsigned char *&p : blocks)
            p = take(300 * KiB);
        EXPECT_EQ(0U, spares());
        for (unsigned char *p : blocks)
            ebb_free(p);
        EXPECT_EQ(20U, spares());
    }
}

// One block of any size at a time: no more is in use for what was freed.
TEST_F(Keep, SpareSpansRaiseNoPeak)
{
    unsigned char *p = take(4 * MiB);
    std::size_t most = ebbi_arena_used_bytes();
    Random random(3);
    for (int i = 0; i < 500; i++) {
        ebb_free(p);
        p = take(130 * KiB + random.below(4 * MiB - 130 * KiB));
        ASSERT_LE(ebbi_arena_used_bytes(), most) << i;
    }
    ebb_free(p);
}

TEST_F(KeepAlone, APassGivesSpansToTheArena)
{
    ebb_free(take(8 * MiB)); // as above
    ebb_free(take(MiB));
    EXPECT_EQ(16U, spares());
    fake_os_clock_advance(1000);
    ebb_free(take(5 * MiB)); // asks for a pass, and makes it
    EXPECT_EQ(0U, spares());
    EXPECT_GE(ebbi_arena_dirty_bytes(), 8 * MiB);
    fake_os_clock_advance(1000);
    struct ebbi_pass pass = {};
    pass.delay_ms = 500;
    ebbi_purge_pass(&pass);
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes());
}

TEST_F(Keep, TrimAndTheEndOfAThreadTakeAll)
{
    ebb_free(take(2 * MiB));
    ebb_free(take(40 * MiB));
    EXPECT_GE(ebb_trim(), 42 * MiB);
    EXPECT_EQ(0U, spares());
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes());
    std::size_t used = ebbi_arena_used_bytes();
    fake_os_threaded(true);
    std::thread([] { ebb_free(take(2 * MiB)); }).join();
    EXPECT_GE(ebbi_arena_dirty_bytes(), 2 * MiB);
    EXPECT_LE(ebbi_arena_used_bytes(), used + MiB) << "its heap";
}

TEST_F(Keep, RefusedMemoryIsTakenFromTheSpareSpans)
{
    constexpr std::size_t each = 250 * KiB;
    for (std::size_t bytes : {std::size_t{700} * KiB, std::size_t{100} * KiB}) {
        std::vector<void *> blocks;
        for (int i = 0; i < 40; i++)
            blocks.push_back(ebb_malloc(each));
        fake_os_refuse(FAKE_COMMIT, 1, true);
        fake_os_refuse(FAKE_RESERVE, 1, true);
        fake_os_refuse(FAKE_MAP, 1, true);
        while (void *p = ebb_malloc(each))
            blocks.push_back(p);
        for (int i = 0; i < 12; i++) { // side by side, most likely
            ebb_free(blocks.back());
            blocks.pop_back();
        }
        EXPECT_GT(spares(), 0U);
        void *p = ebb_malloc(bytes);
        EXPECT_NE(nullptr, p) << bytes;
        fake_os_allow();
        ebb_free(p);
        for (void *q : blocks)
            ebb_free(q);
        ebb_trim();
    }
}

TEST_F(Keep, TheChildOfAForkHasThemToo)
{
    fake_os_threaded(true);
    fake_os_pretend_threads();
    ebbi_threads_more();
    unsigned char *p = take(300 * KiB);
    ebb_free(p);
    pid_t child = fork();
    if (child == 0) {
        bool same = ebb_malloc(300 * KiB) == p;
        ebb_free(p);
        ebb_trim();
        _exit(same && spares() == 0 ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
}

// What was freed last is taken by its thread or by a pass, never by both: each writes its own number into what it has.
TEST_F(Keep, WhatWasFreedLastGoesToOne)
{
    fake_os_reset();
    fake_os_threaded(true);
    std::atomic<int> working{2};
    std::atomic<int> taken_twice{0};
    auto work = [&](unsigned char number) {
        for (int i = 0; i < 40000; i++) {
            auto *p = static_cast<unsigned char volatile *>(ebb_malloc(300 * KiB));
            p[64] = number;
            for (int look = 0; look < 50; look++)
                taken_twice += p[64] != number;
            ebb_free(const_cast<unsigned char *>(p));
        }
        working--;
    };
    std::thread one(work, 1), other(work, 2);
    ebbi_heap *mine = ebbi_heap_get();
    while (working > 0)
        ebbi_heaps_each(
            [](ebbi_heap *heap, void *but) {
                if (heap != but)
                    ebbi_spares_give(heap);
            },
            mine);
    one.join();
    other.join();
    EXPECT_EQ(0, taken_twice);
    ebb_trim();
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes());
}

// Threads that pass blocks to each other, while another one trims.
TEST_F(Keep, ManyThreads)
{
    fake_os_reset();
    fake_os_threaded(true);
    std::vector<std::atomic<void *>> places(16);
    std::atomic<bool> stop{false};
    auto work = [&places](std::uint64_t seed) {
        Random random(seed);
        for (int i = 0; i < 4000; i++) {
            std::size_t bytes = random.chance(100) ? 33 * MiB : 130 * KiB + random.below(4 * MiB);
            auto *p = static_cast<unsigned char *>(ebb_malloc(bytes));
            p[0] = p[bytes - 1] = 7;
            p = static_cast<unsigned char *>(places[random.below(16)].exchange(p));
            EXPECT_TRUE(p == nullptr || p[0] == 7);
            ebb_free(p);
        }
    };
    std::thread trimmer([&stop] {
        while (!stop)
            ebb_trim();
    });
    std::thread other(work, 1);
    work(2);
    other.join();
    stop = true;
    trimmer.join();
    for (auto &place : places)
        ebb_free(place);
    ebb_trim();
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes());
}

// ---- mappings ------------------------------------------------------------------------------------

TEST_F(Keep, AMappingServesTheNextObject)
{
    auto *p = take(40 * MiB);
    p[MiB] = 0x3B;
    ebb_free(p);
    EXPECT_GE(ebbi_arena_dirty_bytes(), 40 * MiB);
    std::size_t held = fake_os_held_bytes();
    auto *q = static_cast<unsigned char *>(ebb_malloc(40 * MiB));
    EXPECT_EQ(p, q);
    EXPECT_EQ(0x3B, q[MiB]) << "its pages are there";
    EXPECT_EQ(held, fake_os_held_bytes());
    ebb_free(q);
    q = static_cast<unsigned char *>(ebb_malloc(60 * MiB));
    EXPECT_EQ(60 * MiB, ebb_malloc_usable_size(q));
    EXPECT_EQ(0x3B, q[MiB]);
    q[60 * MiB - 1] = 1;
    ebb_free(q);
    q = static_cast<unsigned char *>(ebb_malloc(35 * MiB));
    EXPECT_EQ(0x3B, q[MiB]);
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes()) << "the rest of it has gone";
    ebb_free(q);
}

TEST_F(Keep, CallocOfAMappingTouchesNothing)
{
    ebb_free(take(40 * MiB));
    std::size_t purges = fake_os_count(FAKE_PURGE);
    auto *p = static_cast<unsigned char *>(ebb_calloc(50, MiB));
    EXPECT_EQ(purges + 1, fake_os_count(FAKE_PURGE));
    EXPECT_TRUE(is_zero(p, 50 * MiB));
    ebb_free(p);
    fake_os_refuse(FAKE_PURGE, 1, false); // locked memory
    std::memset(p = static_cast<unsigned char *>(ebb_malloc(50 * MiB)), 1, 50 * MiB);
    ebb_free(p);
    p = static_cast<unsigned char *>(ebb_calloc(50, MiB));
    EXPECT_TRUE(is_zero(p, 50 * MiB));
    ebb_free(p);
}

TEST_F(Keep, AMuchLongerOneIsLeftForAnother)
{
    auto *p = take(200 * MiB);
    ebb_free(p);
    auto *q = take(40 * MiB);
    EXPECT_NE(p, q);
    EXPECT_EQ(p, ebb_malloc(200 * MiB));
    ebb_free(p);
    ebb_free(q);
    EXPECT_EQ(q, ebb_malloc(40 * MiB)) << "the smallest that is large enough";
    EXPECT_EQ(p, ebb_malloc(110 * MiB));
}

TEST_F(Keep, MappingsGoHomeByAge)
{
    std::size_t held = fake_os_held_bytes();
    auto *p = take(40 * MiB), *q = take(200 * MiB);
    ebb_free(p);
    fake_os_clock_advance(300);
    ebb_free(q);
    EXPECT_TRUE(ebbi_arena_purge(100550, 500, SIZE_MAX));
    EXPECT_EQ(200 * MiB, ebbi_arena_dirty_bytes());
    EXPECT_FALSE(ebbi_arena_purge(100800, 500, SIZE_MAX));
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes());
    EXPECT_LE(fake_os_held_bytes(), held);
}

TEST_F(Keep, ARefusedResizeEndsTheMapping)
{
    std::size_t held = fake_os_held_bytes();
    ebb_free(take(40 * MiB));
    fake_os_refuse(FAKE_RESIZE, 1, true);
    fake_os_refuse(FAKE_MOVE, 1, true);
    auto *p = static_cast<unsigned char *>(ebb_malloc(60 * MiB));
    ASSERT_NE(nullptr, p);
    EXPECT_EQ(0, p[MiB]);
    fake_os_allow();
    ebb_free(p);
    ebb_trim();
    EXPECT_EQ(held, fake_os_held_bytes());
}

TEST_F(Keep, AddressSpaceIsGivenToWhoNeedsIt)
{
    ebb_free(take(400 * MiB));
    fake_os_limit(fake_os_held_bytes() + 10 * MiB);
    void *p = ebb_aligned_alloc(MiB, 300 * MiB); // not from it: it is aligned
    EXPECT_NE(nullptr, p);
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes());
    ebb_free(p);
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes()) << "under a limit nothing is kept";
}

TEST_F(Keep, StatisticsCountThemAsFree)
{
    struct ebb_stats before, after;
    ebb_stats_get(&before);
    for (std::size_t bytes : {2 * MiB, 40 * MiB}) {
        unsigned char *p = take(bytes);
        std::memset(p, 1, bytes);
        ebb_free(p);
    }
    ebb_stats_get(&after);
    EXPECT_EQ(before.live_blocks, after.live_blocks);
    EXPECT_EQ(before.huge_bytes, after.huge_bytes);
    EXPECT_GE(after.resident_free, before.resident_free + 40 * MiB);
}

// ---- the most lately -----------------------------------------------------------------------------

TEST(Peak, IsTheMostOfTwoWindows)
{
    ebbi_peak peak = {0, 0};
    ebbi_peak_see(&peak, 10);
    ebbi_peak_see(&peak, 5);
    EXPECT_EQ(10U, ebbi_peak_bytes(&peak));
    ebbi_peak_turn(&peak, 3);
    EXPECT_EQ(10U, ebbi_peak_bytes(&peak));
    ebbi_peak_see(&peak, 4);
    ebbi_peak_turn(&peak, 2);
    EXPECT_EQ(4U, ebbi_peak_bytes(&peak));
    ebbi_peak_turn(&peak, 2);
    EXPECT_EQ(2U, ebbi_peak_bytes(&peak));
}

} // namespace
