// SPDX-License-Identifier: MIT OR Apache-2.0
// The laws of lifetimes R1 to R6, each with controls: designs that break the law must be found out by
// the same measurement.
#include "api_ebb.h"

#include "region_laws_support.h"

namespace {

using namespace laws;
using namespace regions;

class Resident : public testing::Test {
protected:
    void SetUp() override
    {
        if (support::under_sanitizer)
            GTEST_SKIP() << "resident memory is the sanitizer's here";
    }
};

using LawR2Resident = Resident;
using LawR2Control = Resident;
using LawR4Resident = Resident;
using LawR4Control = Resident;

// ---- R1: lifecycle never makes an allocation fail -------------------------------------------------

void expect_late_goes_to(ebb_region *owner, ebb_region *closed, std::size_t count)
{
    for (std::size_t i = 0; i < count; i++) {
        for (std::size_t bytes : {std::size_t{100}, 200 * KiB}) {
            void *plain = ebb_malloc(bytes);
            void *named = ebb_region_alloc(closed, bytes);
            ASSERT_NE(plain, nullptr);
            ASSERT_NE(named, nullptr);
            std::memset(plain, 1, bytes);
            std::memset(named, 2, bytes);
            ASSERT_EQ(ebb_region_of(plain), owner);
            ASSERT_EQ(ebb_region_of(named), owner);
            ebb_free(plain);
            ebb_free(named);
        }
    }
}

TEST(LawR1, ClosedWhileCurrentHereGoesToTheHeap)
{
    ebb_region *region = open("R1 here");
    {
        const InRegion scope(region);
        void *before = ebb_malloc(100);
        EXPECT_EQ(ebb_region_of(before), region);
        ebb_region_close(region);
        ASSERT_NO_FATAL_FAILURE(expect_late_goes_to(nullptr, region, 100));
        EXPECT_EQ(stats(region).late, 400U);
        ebb_free(before);
    }
    EXPECT_EQ(line("R1 here").late, 400U);
    EXPECT_EQ(line("R1 here").open, 0U);
    EXPECT_EQ(ebb_region_of(ebb_malloc(10)), nullptr);
}

TEST(LawR1, ClosedWhileCurrentGoesToTheParent)
{
    ebb_region *parent = open("R1 parent");
    ebb_region *region = open("R1 child", parent);
    {
        const InRegion scope(region);
        ebb_region_close(region);
        ASSERT_NO_FATAL_FAILURE(expect_late_goes_to(parent, region, 10));
    }
    EXPECT_EQ(line("R1 child").late, 40U);
    EXPECT_EQ(stats(parent).late, 0U);
    EXPECT_EQ(stats(parent).live_blocks, 0U);
    ebb_region_release(parent);
}

// The whole line is closed by its oldest: then only the heap is left.
TEST(LawR1, ClosedWithItsParentGoesToTheHeap)
{
    ebb_region *oldest = open("R1 oldest");
    ebb_region *parent = open("R1 middle", oldest);
    ebb_region *region = open("R1 youngest", parent);
    {
        const InRegion scope(region);
        ebb_region_close(oldest);
        ASSERT_NO_FATAL_FAILURE(expect_late_goes_to(nullptr, region, 10));
    }
    EXPECT_EQ(line("R1 youngest").open + line("R1 middle").open + line("R1 oldest").open, 0U);
}

TEST(LawR1, ParentThatClosesLaterPassesItOn)
{
    ebb_region *parent = open();
    ebb_region *region = open("R1 child first", parent);
    {
        const InRegion scope(region);
        ebb_region_close(region);
        ASSERT_NO_FATAL_FAILURE(expect_late_goes_to(parent, region, 10));
        ebb_region_close(parent);
        ASSERT_NO_FATAL_FAILURE(expect_late_goes_to(nullptr, region, 10));
    }
}

TEST(LawR1, ClosedByAnotherThreadWhileCurrentHere)
{
    for (int round = 0; round < 200; round++) {
        ebb_region *region = open("R1 elsewhere");
        std::atomic<int> inside{0};
        std::atomic<bool> closed{false};
        std::atomic<int> failed{0};
        const auto allocate = [&] {
            const InRegion scope(region);
            inside++;
            for (int late = 0; late < 20; late += closed.load() ? 1 : 0) {
                void *block = ebb_malloc(200);
                failed += block == nullptr;
                ebb_free(block);
            }
        };
        std::thread first(allocate);
        std::thread second(allocate);
        EXPECT_TRUE(eventually([&] { return inside.load() == 2; }));
        ebb_region_close(region);
        closed = true;
        first.join();
        second.join();
        ASSERT_EQ(failed.load(), 0);
    }
    const ebb_lifetime_stats after = line("R1 elsewhere");
    EXPECT_EQ(after.closed, 200U);
    EXPECT_GE(after.late, 200U * 2 * 19);
    EXPECT_EQ(after.open + after.live_blocks, 0U);
}

// ---- R2: never more than plain malloc, plus one working set ---------------------------------------

const Traffic wrong_routing = {9000, 2, 3000};
const Traffic no_survivors = {2000, 0, 0};

std::size_t working_set()
{
    return retained_by(no_survivors,
                       [] { return DomainSource("R2 working set", EBB_DOMAIN_SCOPES, 1); });
}

// What the same traffic retains in a plain heap, and one working set.
std::size_t law_limit(const Traffic &traffic)
{
    const std::size_t plain = retained_by(traffic, [] { return HeapSource(); });
    const std::size_t one_set = working_set();
    EXPECT_NE(plain, SIZE_MAX);
    EXPECT_LE(one_set, 4 * MiB) << "one request is 48 KB";
    return plain + one_set;
}

TEST_F(LawR2Resident, SurvivorsOfEpochsRetainNoMoreThanPlainMalloc)
{
    const std::size_t limit = law_limit(wrong_routing);
    for (std::size_t scopes : {1U, 100U, 1000000U}) {
        const std::size_t retained = retained_by(wrong_routing, [scopes] {
            return DomainSource("R2 wrong routing", EBB_DOMAIN_SCOPES, scopes);
        });
        EXPECT_LE(retained, limit) << "epochs of " << scopes << " scopes";
    }
}

TEST_F(LawR2Control, ChunksOfTheirOwnBreakTheLaw)
{
    const std::size_t retained = retained_by(wrong_routing, [] { return ChunkSource(); });
    EXPECT_GT(retained, 4 * law_limit(wrong_routing)) << "the measurement sees nothing";
}

// Bump memory that survivors pin keeps their pages, and nothing else.
TEST_F(LawR2Resident, ClosedRegionsKeepThePagesOfTheirSurvivors)
{
    const std::size_t retained = retained_by(wrong_routing, [] { return RegionSource(); });
    const std::size_t survivors = wrong_routing.survive * wrong_routing.survivors_each;
    EXPECT_LE(retained, (2 * survivors + wrong_routing.survive) * support::page_bytes() + 2 * MiB);
}

// One scope for ever; waves of which one block in a hundred stays, each of other sizes.
std::size_t live_low(ebb_domain *domain)
{
    return ask_child([domain] {
        support::MappedArray<void *> kept(20000);
        support::MappedArray<void *> wave(50000);
        const std::size_t before = support::resident_bytes();
        const ebb_scope scope = domain != nullptr ? ebb_domain_enter(domain) : ebb_heap_enter();
        std::size_t stays = 0;
        for (std::size_t round = 0; round < 30; round++) {
            for (std::size_t i = 0; i < wave.size(); i++) {
                const std::size_t bytes = 16 + (i * 13 + round * 37) % 700;
                wave[i] = std::memset(ebb_malloc(bytes), 1, bytes);
            }
            for (std::size_t i = 0; i < wave.size(); i++)
                if ((i * 7 + round) % 100 == 0)
                    kept[stays++] = wave[i];
                else
                    ebb_free(wave[i]);
        }
        ebb_trim();
        const std::size_t after = support::resident_bytes();
        ebb_leave(scope);
        return after - before;
    });
}

TEST_F(LawR2Resident, LongOpenDomainWithFewLiveBlocksReusesItsHoles)
{
    ebb_domain *domain = ebb_domain_open("R2 long open");
    ASSERT_EQ(ebb_domain_set_policy(domain, EBB_DOMAIN_NEVER, 0), 0);
    const std::size_t plain = live_low(nullptr);
    ASSERT_NE(plain, SIZE_MAX);
    EXPECT_LE(live_low(domain), plain + working_set());
}

// A region that stays open gives drained memory to its next blocks.
TEST(LawR2, OpenRegionRecyclesWhatHasDrained)
{
    ebb_region *region = open("R2 recycling");
    support::MappedArray<void *> window(1000);
    for (std::size_t i = 0; i < support::scaled(1000000); i++) {
        void *&oldest = window[i % window.size()];
        ebb_free(oldest);
        oldest = take(region, 300);
        ASSERT_NE(oldest, nullptr);
    }
    EXPECT_EQ(stats(region).live_blocks, window.size());
    EXPECT_LE(stats(region).peak_bytes, 4 * MiB) << "a window of 300 KB passes through";
    ebb_region_release(region);
}

// Small blocks and large ones, given back without a trim once the purge delay has passed.
TEST_F(LawR2Resident, ReleaseGivesItsMemoryBack)
{
    if (support::emulated)
        GTEST_SKIP() << "the emulator's own memory grows meanwhile";
    const std::size_t before = support::resident_bytes();
    ebb_region *region = open("R2 released");
    for (std::size_t i = 0; i < 100 * KiB; i++)
        std::memset(take(region, 1000), 1, 1000);
    for (std::size_t i = 0; i < 100; i++)
        std::memset(take(region, MiB), 1, MiB);
    EXPECT_GE(support::resident_bytes(), before + 190 * MiB);
    ebb_region_release(region);
    EXPECT_TRUE(eventually([before] {
        usleep(10 * 1000);
        ebb_free(ebb_malloc(MiB)); // a process with one thread purges on its way
        return support::resident_bytes() < before + 4 * MiB;
    }));
}

// ---- R3: no policy value is pathological ----------------------------------------------------------

struct Peak {
    std::size_t slabs, held;
};

Peak peak_with(std::size_t scopes, std::size_t requests)
{
    const std::string label = "R3 every " + std::to_string(scopes);
    DomainSource source(label.c_str(), EBB_DOMAIN_SCOPES, scopes);
    const Traffic traffic = {requests, 1, 20};
    support::MappedArray<void *> ring(ring_slots(traffic));
    std::size_t slabs = 0;
    EXPECT_TRUE(serve(source, traffic, ring, [&](std::size_t request) {
        if (request % 8 == 0)
            slabs = std::max(slabs, stats(source.domain).slabs);
    })) << "an allocation failed";
    for (void *block : ring)
        ebb_free(block);
    const ebb_lifetime_stats now = stats(source.domain);
    EXPECT_EQ(now.opened, requests);
    EXPECT_EQ(now.closed, requests / scopes) << "every " << scopes;
    EXPECT_EQ(now.refused + now.late, 0U);
    return {slabs, now.peak_bytes};
}

TEST(LawR3, EveryBatchNeedsTheSameSlabs)
{
    const std::size_t requests = support::scaled(3000);
    const Peak never = peak_with(1000000, requests);
    ASSERT_GT(never.slabs, 0U);
    for (std::size_t scopes : {1U, 2U, 3U, 10U, 30U, 100U, 300U, 1000U, 10000U, 100000U}) {
        const Peak peak = peak_with(scopes, requests);
        EXPECT_LE(peak.slabs, 2 * never.slabs) << "every " << scopes;
        EXPECT_GE(2 * peak.slabs, never.slabs) << "every " << scopes;
        EXPECT_LE(peak.held, 2 * never.held) << "every " << scopes;
    }
}

// An epoch that keeps its slabs until its last block is free, as one domain for each of them does.
TEST(LawR3Control, EpochsWithSlabsOfTheirOwnBreakTheLaw)
{
    const std::size_t never = peak_with(1000001, 100).slabs;
    void *survivors[20];
    std::size_t slabs = 0;
    for (int epoch = 0; epoch < 20; epoch++) {
        ebb_domain *domain = ebb_domain_open(("R3 own " + std::to_string(epoch)).c_str());
        const InDomain scope(domain);
        survivors[epoch] = ebb_malloc(200);
        slabs += stats(domain).slabs;
    }
    EXPECT_GT(slabs, 2 * never) << "the count sees nothing";
    for (void *survivor : survivors)
        ebb_free(survivor);
}

// ---- R4: slack of an open region ------------------------------------------------------------------

TEST(LawR4, OneSmallBlockTakesOneGranuleAtMost)
{
    for (std::size_t bytes : {1U, 100U, 1024U, 4000U}) {
        ebb_region *region = open("R4 one");
        std::memset(take(region, bytes), 1, bytes);
        EXPECT_LE(stats(region).resident_bytes, 64 * KiB) << bytes;
        EXPECT_LE(stats(region).held_bytes, 64 * KiB) << bytes;
        EXPECT_GE(stats(region).resident_bytes, bytes);
        ebb_region_release(region);
    }
}

std::size_t resident_each(std::size_t count, std::size_t bytes)
{
    return ask_child([=] {
        constexpr std::size_t first = 16; // what is run for the first time makes code resident too
        std::size_t before = 0;
        for (std::size_t i = 0; i < first + count; i++) {
            if (i == first)
                before = support::resident_bytes();
            void *block = ebb_region_alloc(ebb_region_open(nullptr), bytes);
            if (block == nullptr)
                return SIZE_MAX;
            std::memset(block, 1, bytes);
        }
        return (support::resident_bytes() - before) / count;
    });
}

TEST_F(LawR4Resident, RegionsWithAKilobyteEach)
{
    EXPECT_LE(resident_each(1000, 1024), 8 * KiB);
    EXPECT_LE(resident_each(10000, 1024), 8 * KiB);
}

TEST_F(LawR4Control, MoreThanTwoPagesEachAreSeen)
{
    EXPECT_GT(resident_each(1000, 9 * KiB), 8 * KiB);
}

// ---- R5: free, realloc and usable_size from any thread, in every state ----------------------------

enum class State { open, current, closed };

void prepare(ebb_region *region, State state, support::MappedArray<void *> &blocks)
{
    for (std::size_t i = 0; i < blocks.size(); i++)
        blocks[i] = take_filled(region, border_sizes[i % std::size(border_sizes)] % (300 * KiB), i);
    if (state == State::closed)
        ebb_region_close(region);
}

std::size_t wrong_blocks(support::MappedArray<void *> &blocks)
{
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < blocks.size(); i++) {
        const std::size_t bytes = border_sizes[i % std::size(border_sizes)] % (300 * KiB);
        wrong += ebb_malloc_usable_size(blocks[i]) < bytes || !is_filled(blocks[i], bytes, i);
        if (i % 2 == 0) {
            blocks[i] = ebb_realloc(blocks[i], bytes * 2 + 1);
            wrong += blocks[i] == nullptr || !is_filled(blocks[i], bytes, i);
        }
        ebb_free(blocks[i]);
    }
    return wrong;
}

TEST(LawR5, BlocksServeInEveryThreadAndState)
{
    for (State state : {State::open, State::current, State::closed})
        for (bool elsewhere : {false, true}) {
            ebb_region *region = open("R5");
            support::MappedArray<void *> blocks(100);
            ebb_scope before = {};
            if (state == State::current)
                before = ebb_region_enter(region);
            prepare(region, state, blocks);
            std::size_t wrong = 0;
            if (elsewhere)
                in_thread([&] { wrong = wrong_blocks(blocks); });
            else
                wrong = wrong_blocks(blocks);
            EXPECT_EQ(wrong, 0U) << static_cast<int>(state) << elsewhere;
            if (state == State::current)
                ebb_leave(before);
            if (state != State::closed) {
                EXPECT_EQ(stats(region).live_blocks, 0U) << static_cast<int>(state) << elsewhere;
                ebb_region_release(region);
            }
            const ebb_lifetime_stats after = trimmed_line("R5");
            EXPECT_EQ(after.live_blocks + after.held_bytes + after.demoted, 0U)
                << static_cast<int>(state) << elsewhere;
        }
}

// Four threads free and resize each other's blocks while the owner allocates, and then closes.
TEST(LawR5, BlocksAreFreedElsewhereWhileTheirRegionGrows)
{
    constexpr std::size_t count = 40000;
    support::MappedArray<std::atomic<void *>> handed(count);
    ebb_region *region = open("R5 handed");
    std::atomic<std::size_t> wrong{0};
    std::vector<std::thread> threads;
    for (std::size_t id = 0; id < 4; id++)
        threads.emplace_back([&, id] {
            for (std::size_t i = id; i < count; i += 4) {
                void *block = nullptr;
                while ((block = handed[i].load()) == nullptr)
                    std::this_thread::yield();
                wrong += !is_filled(block, i % 400, i);
                if (i % 16 == id) {
                    block = ebb_realloc(block, 500);
                    wrong += !is_filled(block, i % 400, i);
                }
                ebb_free(block);
            }
        });
    for (std::size_t i = 0; i < count; i++) {
        const ebb_scope before = i % 8 == 0 ? ebb_region_enter(region) : ebb_heap_enter();
        handed[i] = take_filled(region, i % 400, i);
        ebb_leave(before);
    }
    ebb_region_close(region);
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(wrong.load(), 0U);
    EXPECT_EQ(line("R5 handed").live_blocks, 0U);
}

// ---- R6: without allocation a region is its handle ------------------------------------------------

TEST(LawR6, EmptyRegionsCostTheirHandles)
{
    const std::size_t count = support::scaled(100000);
    support::MappedArray<ebb_region *> all(count);
    const std::size_t before = support::resident_bytes();
    for (ebb_region *&region : all) {
        region = open("R6");
        ASSERT_NE(region, nullptr);
    }
    if (!support::emulated)
        support::expect_at_most((support::resident_bytes() - before) / count, 512,
                                "bytes a handle");
    const ebb_lifetime_stats now = line("R6");
    EXPECT_EQ(now.open, count);
    EXPECT_EQ(now.held_bytes + now.slabs + now.resident_bytes, 0U);
    for (ebb_region *region : all)
        ebb_region_release(region);
    EXPECT_EQ(line("R6").open, 0U);
}

TEST(LawR6, SwitchingAllocatesNothing)
{
    ebb_region *regions[100];
    for (ebb_region *&region : regions)
        region = open("R6 switched");
    for (std::size_t i = 0; i < support::scaled(1000000); i++) {
        const InRegion scope(regions[i % 100]);
        ASSERT_EQ(ebb_region_of(&regions), nullptr);
    }
    EXPECT_EQ(line("R6 switched").held_bytes, 0U);
    ASSERT_NE(take(regions[3], 1), nullptr);
    EXPECT_GT(line("R6 switched").held_bytes, 0U) << "the count sees nothing";
    for (ebb_region *region : regions)
        ebb_region_release(region);
}

} // namespace
