// SPDX-License-Identifier: MIT OR Apache-2.0
// EBB_CHECK=1: what is wrong with a block ends the process with a report; what is right works as it does without.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "anew.h"
#include "support.h"

#include "ebbtide.h"
#include "ebbtide/reclaim.h"
#include "ebbtide/region.h"

namespace {

using anew::Exited;
using anew::Killed;
using support::KiB;
using support::MiB;

// Before the library starts. Small ones that are guarded have other reports (guard_test.cc).
__attribute__((constructor(101))) void switch_on()
{
    setenv("EBB_CHECK", "1", 1);
    setenv("EBB_GUARD", "0", 1);
}

using CheckDeathTest = anew::DeathTest;

char *block(std::size_t bytes, std::size_t align = 16)
{
    anew::prepare();
    return static_cast<char *>(ebb_aligned_alloc(align, bytes));
}

char *freed(std::size_t bytes)
{
    char *p = block(bytes);
    ebb_free(p);
    return p;
}

const std::string by = " by thread [1-9][0-9]* at:\n(    [^\n]+\n)+";

std::string report(const std::string &what, std::size_t distance, const char *where,
                   std::size_t bytes, bool was_freed)
{
    const std::string block = " a block of " + std::to_string(bytes) + " bytes at 0x[0-9a-f]+\n";
    return "^ebbtide: [^ ]+: " + what + ": 0x[0-9a-f]+ lies " + std::to_string(distance) +
           " bytes " + where + block + "found" + by + "allocated" + by +
           (was_freed ? "freed" + by : "") + "$";
}

const std::size_t sizes[] = {1, 24, 100, 1000, 16 * KiB};

TEST_F(CheckDeathTest, AFreeOfWhatIsFree)
{
    for (std::size_t bytes : sizes) {
        const auto after = [bytes](std::size_t others) {
            char *p = freed(bytes);
            for (std::size_t i = 0; i < others; i++)
                ebb_free(ebb_malloc(bytes));
            ebb_free(p);
            _exit(0);
        };
        for (std::size_t others : {0, 1, 50})
            EXPECT_EXIT(after(others), Killed(SIGABRT),
                        report("double free", 0, "into", bytes, true));
        EXPECT_EXIT((support::opaque(ebb_realloc(freed(bytes), 10)), _exit(0)), Killed(SIGABRT),
                    report("use after free", 0, "into", bytes, true));
        EXPECT_EXIT((ebb_retire(freed(bytes)), _exit(0)), Killed(SIGABRT),
                    report("use after free", 0, "into", bytes, true));
    }
}

TEST_F(CheckDeathTest, AFreeOfAnotherPlace)
{
    const auto free_at = [](std::ptrdiff_t at) { ebb_free(block(1000) + at), _exit(0); };
    for (std::ptrdiff_t at : {1, 8, 16, 999})
        EXPECT_EXIT(free_at(at), Killed(SIGABRT),
                    report("invalid free", static_cast<std::size_t>(at), "into", 1000, false));
    for (std::ptrdiff_t at : {1, 16, 48}) // up to where the heap's own block starts
        EXPECT_EXIT(free_at(-at), Killed(SIGABRT),
                    report("invalid free", static_cast<std::size_t>(at), "before", 1000, false));
}

TEST_F(CheckDeathTest, WhatWasWrittenBeside)
{
    for (std::size_t bytes : sizes)
        for (std::size_t align : {16, 64, 4096}) {
            const auto write_at = [=](std::ptrdiff_t at) {
                char *p = block(bytes, align);
                p[at] ^= 1;
                ebb_free(p);
                _exit(0);
            };
            for (std::size_t at : {0, 1, 15})
                EXPECT_EXIT(
                    write_at(static_cast<std::ptrdiff_t>(bytes + at)), Killed(SIGABRT),
                    report("overflow: written behind the block", at, "behind", bytes, false));
            for (std::size_t at : {1, 8})
                EXPECT_EXIT(
                    write_at(-static_cast<std::ptrdiff_t>(at)), Killed(SIGABRT),
                    report("underflow: written before the block", at, "before", bytes, false));
        }
}

// What Ebbtide notes of a block lies before its canary.
TEST_F(CheckDeathTest, WhatWasWrittenFartherBefore)
{
    const auto write_at = [](std::size_t distance) {
        char *p = block(100);
        p[-static_cast<std::ptrdiff_t>(distance)] ^= 1;
        ebb_free(p);
        _exit(0);
    };
    for (std::size_t distance = 9; distance <= 48; distance++)
        EXPECT_EXIT(write_at(distance), Killed(SIGABRT), "^ebbtide: [^ ]+: invalid free: 0x")
            << distance;
}

// At the latest when as many have been freed as are held, or at the exit.
TEST_F(CheckDeathTest, WhatWasWrittenSinceItsFree)
{
    for (std::size_t bytes : sizes) {
        const auto write = [bytes](bool more) {
            char *p = freed(bytes);
            p[bytes - 1] ^= 1;
            for (int i = 0; more && i < 10000; i++)
                ebb_free(ebb_malloc(bytes));
            more ? _exit(0) : exit(0);
        };
        const std::string what =
            report("use after free: written since it was freed", bytes - 1, "into", bytes, true);
        EXPECT_EXIT(write(true), Killed(SIGABRT), what);
        EXPECT_EXIT(write(false), Killed(SIGABRT), what);
    }
}

TEST_F(CheckDeathTest, LargeAndEmptyOnesLieBetweenPagesWithoutAccess)
{
    const auto read = [](char *p) {
        support::opaque(*static_cast<const volatile char *>(p));
        _exit(0);
    };
    for (std::size_t bytes : {0UL, 20 * KiB, 300 * KiB, 5 * MiB}) {
        const std::size_t gap = (bytes + 15) / 16 * 16 - bytes;
        EXPECT_EXIT(read(block(bytes) + bytes + gap), Killed(SIGSEGV), "overflow: ");
        EXPECT_EXIT(read(freed(bytes) + bytes / 2), Killed(SIGSEGV), "(use after free|overflow): ");
        EXPECT_EXIT((ebb_free(freed(bytes)), _exit(0)), Killed(SIGABRT), "double free: ");
    }
}

// Of those that a class could hold some 2,000 a second lie so. All others have canaries, and are held as small ones are.
TEST_F(CheckDeathTest, OfManyOfSomePagesTheRestHasCanaries)
{
    constexpr std::size_t bytes = 20 * KiB;
    const auto misuse = [](int byte, bool twice) {
        for (int i = 0; i < 2000; i++)
            ebb_free(ebb_malloc(bytes));
        char *p = block(bytes);
        while (support::address(p) % KiB == 0) // its turn to be guarded has come, which is by time
            p = block(bytes);
        p[byte] ^= 1;
        ebb_free(p);
        if (twice)
            ebb_free(p);
        _exit(0);
    };
    EXPECT_EXIT(misuse(bytes, false), Killed(SIGABRT),
                report("overflow: written behind the block", 0, "behind", bytes, false));
    EXPECT_EXIT(misuse(-1, false), Killed(SIGABRT),
                report("underflow: written before the block", 1, "before", bytes, false));
    EXPECT_EXIT(misuse(0, true), Killed(SIGABRT), report("double free", 0, "into", bytes, true));
}

TEST_F(CheckDeathTest, OfAnotherThread)
{
    const auto misuse = [] {
        char *p = nullptr;
        std::thread([&p] { p = block(101); }).join();
        std::thread([p] { ebb_free(p); }).join();
        std::thread([p] { ebb_free(p); }).join();
        _exit(0);
    };
    EXPECT_EXIT(misuse(), Killed(SIGABRT), report("double free", 0, "into", 101, true));
}

TEST_F(CheckDeathTest, WhatIsRetired)
{
    EXPECT_EXIT(anew::retire_and(ebb_retire, block(101)), Killed(SIGABRT),
                report("double retire", 0, "into", 101, false));
    EXPECT_EXIT(anew::retire_and(ebb_free, block(101)), Killed(SIGABRT),
                report("free of what was retired", 0, "into", 101, false));
}

// However long it is, and however little is in use.
TEST(Check, WhatHasJustBeenFreedIsHeld)
{
    for (std::size_t bytes : {100 * 1UL, 5 * KiB, 20 * KiB, 120 * KiB}) {
        std::array<void *, 24> lately{};
        for (std::size_t i = 0; i < 5000; i++) {
            void *p = ebb_malloc(bytes);
            ASSERT_EQ(0, std::count(lately.begin(), lately.end(), p)) << bytes << ", " << i;
            ebb_free(p);
            lately[i % lately.size()] = p;
        }
    }
}

TEST(Check, ABlockIsAsGoodAsAnyOther)
{
    for (std::size_t bytes : {0UL, 1UL, 16UL, 101UL, 4096UL, 16 * KiB, 16 * KiB + 1, 100 * KiB,
                              127 * KiB, 128 * KiB, 130 * KiB, 2 * MiB, 40 * MiB})
        for (std::size_t align = 16; align <= 4 * MiB; align *= 4) {
            auto *p = static_cast<char *>(ebb_aligned_alloc(align, bytes));
            ASSERT_NE(nullptr, p);
            EXPECT_EQ(0U, support::address(p) % align);
            EXPECT_LE(bytes, ebb_malloc_usable_size(p));
            std::memset(p, 0x5a, bytes);
            p = static_cast<char *>(ebb_realloc(p, 3 * bytes + 1));
            ASSERT_NE(nullptr, p);
            EXPECT_EQ(static_cast<std::ptrdiff_t>(bytes), std::count(p, p + bytes, 0x5a));
            p = static_cast<char *>(ebb_realloc(p, bytes / 2 + 1));
            EXPECT_EQ(static_cast<std::ptrdiff_t>(bytes / 2), std::count(p, p + bytes / 2, 0x5a));
            ebb_free(p);
            auto *zero = static_cast<char *>(ebb_calloc(bytes, 1));
            EXPECT_EQ(static_cast<std::ptrdiff_t>(bytes), std::count(zero, zero + bytes, 0));
            ebb_free(zero);
        }
}

TEST(Check, RetiredOnesAreFreedBehindTheirGracePeriod)
{
    ebb_pin();
    auto *p = static_cast<char *>(ebb_malloc(100));
    std::memset(p, 0x5a, 100);
    ebb_retire(p);
    EXPECT_EQ(100, std::count(p, p + 100, 0x5a));
    ebb_unpin();
    ebb_synchronize();
    ebb_barrier();
    ebb_reclaim_stats stats;
    ebb_reclaim_stats_get(nullptr, &stats);
    EXPECT_EQ(0U, stats.retired_blocks);
}

// What gives way to the heap may be freed as a block, and the other way round.
TEST(Check, RegionsAndDomainsThatGiveWay)
{
    ebb_region *region = ebb_region_open(nullptr);
    void *in_region = ebb_region_alloc(region, 100);
    void *promoted = ebb_region_promote(in_region, nullptr);
    ebb_free(in_region);
    ebb_region_release(region);
    ebb_free(promoted);
    struct ebb_domain *domain = ebb_domain_open("check");
    const ebb_scope scope = ebb_domain_enter(domain);
    void *p = ebb_malloc(100);
    ebb_leave(scope);
    p = ebb_realloc(p, 1000);
    ebb_free(p);
}

std::size_t live_bytes()
{
    ebb_stats stats;
    ebb_stats_get(&stats);
    return stats.live_bytes;
}

TEST(Check, AResizedBlockIsOfItsNewSize)
{
    for (const std::size_t from : {100U, 5000U, 40000U, 65530U, 300000U})
        for (std::size_t to = from - 1; to > 0; to = to * 7 / 10) {
            void *p = ebb_realloc(ebb_malloc(from), to);
            ASSERT_NE(nullptr, p);
            EXPECT_EQ(to, ebb_malloc_usable_size(p)) << from;
            ebb_free(p);
        }
}

std::size_t purged_bytes()
{
    ebb_stats stats;
    ebb_stats_get(&stats);
    return stats.purged_bytes;
}

// What is held is at most a quarter of what is in use, or 1 MiB, however long it goes on; a trim gives it back.
TEST(Check, WhatIsHeldIsBounded)
{
    const std::size_t before = live_bytes();
    std::mt19937 random(1);
    for (int round = 0; round < 21; round++) {
        std::vector<void *> burst;
        for (int i = 0; i < 5000 * (round % 2 + 1); i++)
            burst.push_back(ebb_malloc(random() % 3000));
        std::shuffle(burst.begin(), burst.end(), random);
        for (void *p : burst)
            ebb_free(p);
        EXPECT_GE(before + 3 * MiB, live_bytes()) << round;
    }
    const std::size_t purged = purged_bytes();
    const std::size_t returned = ebb_trim();
    EXPECT_GE(before + 256 * KiB, live_bytes());
    EXPECT_EQ(purged + returned, purged_bytes());
}

// Never more than 2 MiB in use, of all sizes: a refusal ends all holding before it is the program's.
bool works_within(std::size_t more_bytes, unsigned seed)
{
    if (!support::limit_address_space(more_bytes))
        return false;
    support::Random random(seed);
    std::array<void *, 100> blocks = {};
    for (int i = 0; i < 60000; i++) {
        void *&one = blocks[random.below(blocks.size())];
        ebb_free(one);
        one = nullptr;
        const std::size_t bytes = random.between(1, random.below(20) != 0 ? 3000 : 150000);
        if (random.below(2) == 0)
            continue;
        one = ebb_malloc(bytes);
        if (one == nullptr)
            return false;
        std::memset(one, 1, bytes);
    }
    return true;
}

TEST(Check, UnderALimitOfAddressSpace)
{
    if (support::under_sanitizer)
        GTEST_SKIP() << "the sanitizer has taken all of it";
    ebb_free(ebb_malloc(1));
    for (unsigned seed = 0; seed < support::scaled(20); seed++) {
        const pid_t child = fork();
        if (child == 0)
            _exit(works_within(24 * MiB, seed) ? 0 : 1);
        int status = 0;
        ASSERT_EQ(child, waitpid(child, &status, 0));
        EXPECT_EQ(0, status) << seed;
    }
}

// Nothing is left for another place.
void exhaust()
{
    support::limit_address_space(16 * MiB);
    for (std::size_t bytes = 8 * MiB; bytes > 0; bytes /= 2)
        while (ebb_malloc(support::opaque(bytes)) != nullptr) {
        }
}

// It gets smaller where it is.
void shrink_in_place(char *p, std::size_t to)
{
    char *same = static_cast<char *>(ebb_realloc(p, to));
    if (same != p || ebb_malloc_usable_size(p) != to)
        _exit(2);
}

char *shrunk_in_place(std::size_t from, std::size_t to, std::size_t align)
{
    char *p = block(from, align);
    exhaust();
    std::memset(p, 1, from);
    shrink_in_place(p, to);
    return p;
}

// A trim returns the page of its header, on which another free block lies, and not its last, on which one in use does:
// what the program had there is still there.
void shrink_between()
{
    std::array<char *, 192> all;
    for (char *&p : all)
        std::memset(p = block(20000), 1, 20000);
    std::sort(all.begin(), all.end());
    exhaust();
    for (std::size_t i = 1; i < all.size(); i += 3)
        shrink_in_place(all[i], 12000);
    for (std::size_t i = 0; i < all.size(); i++)
        if (i % 3 != 2)
            ebb_free(all[i]);
    ebb_trim();
    while (ebb_malloc(support::opaque<std::size_t>(20000)) != nullptr) {
    }
    std::exit(0);
}

TEST_F(CheckDeathTest, WhatGotSmallerLeavesNothingOfItsOldSize)
{
    EXPECT_EXIT(shrink_between(), Exited(0), "^$");
}

void free_behind(char *p, std::size_t bytes)
{
    p[bytes] = 2;
    ebb_free(p);
}

TEST_F(CheckDeathTest, UpTo32MiBLiesBetweenPagesWithoutAccess)
{
    for (const std::size_t bytes : {32 * MiB - 8192, 32 * MiB - 8191, 32 * MiB - 1, 32 * MiB}) {
        EXPECT_DEATH((free_behind(block(bytes), bytes), _exit(0)), "overflow") << bytes;
        EXPECT_EXIT((ebb_free(ebb_realloc(block(bytes), bytes - 5000)), _exit(0)), Exited(0), "^$")
            << bytes;
    }
}

TEST_F(CheckDeathTest, WhatCannotMoveGetsSmallerWhereItIs)
{
    const std::size_t shapes[][3] = {{1000, 400, 16},         {3000, 1, 512},
                                     {120000, 119999, 16},    {20000, 10000, 4096},
                                     {3000000, 2900000, 16},  {3000000, 2999999, 64},
                                     {3000000, 1000000, 4096}};
    for (const auto &[from, to, align] : shapes) {
        SCOPED_TRACE(std::to_string(from) + " " + std::to_string(to));
        EXPECT_EXIT((ebb_free(shrunk_in_place(from, to, align)), _exit(0)), Exited(0), "^$");
        EXPECT_EXIT((free_behind(shrunk_in_place(from, to, align), to), _exit(0)), Killed(SIGABRT),
                    "overflow");
    }
}

TEST(Check, AnImpossibleSizeEndsNoHolding)
{
    for (int i = 0; i < 50; i++)
        ebb_free(ebb_malloc(1000));
    const std::size_t before = live_bytes();
    for (std::size_t bytes : {SIZE_MAX / 2, SIZE_MAX / 4, SIZE_MAX / 1000})
        EXPECT_EQ(nullptr, ebb_malloc(support::opaque(bytes)));
    EXPECT_EQ(before, live_bytes());
}

TEST(Check, AHazardPointerToABlockHoldsBackNoBarrier)
{
    ebb_hazard *hazard = ebb_hazard_open();
    std::atomic<int> calls{0};
    const auto count = [](void *p, void *context) {
        ++*static_cast<std::atomic<int> *>(context);
        ebb_free(p);
    };
    for (int i = 0; i < 10; i++) {
        void *held = ebb_malloc(100);
        ASSERT_EQ(0, ebb_retire_with(ebb_malloc(100), count, &calls));
        ebb_hazard_set(hazard, held);
        ebb_retire(held);
        ASSERT_EQ(0, ebb_retire_with(ebb_malloc(100), count, &calls));
        ebb_barrier();
        EXPECT_EQ(2 * (i + 1), calls.load());
        std::memset(held, 1, 100);
    }
    ebb_hazard_close(hazard);
}

TEST(Check, ManyThreadsFreeWhatOthersAllocated)
{
    std::vector<std::thread> threads;
    std::vector<std::vector<void *>> blocks(4);
    for (auto &mine : blocks)
        threads.emplace_back([&mine] {
            for (int i = 0; i < 20000; i++)
                mine.push_back(ebb_malloc(static_cast<std::size_t>(i % 500)));
        });
    for (auto &thread : threads)
        thread.join();
    threads.clear();
    for (std::size_t i = 0; i < blocks.size(); i++)
        threads.emplace_back([&blocks, i] {
            for (void *p : blocks[(i + 1) % blocks.size()])
                ebb_free(p);
        });
    for (auto &thread : threads)
        thread.join();
}

} // namespace
