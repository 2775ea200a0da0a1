// SPDX-License-Identifier: MIT OR Apache-2.0
// EBB_CHECK=sample: a hundred allocations a second are guarded, and no other block is looked at.
#include <cstring>
#include <vector>

#include <time.h>

#include "anew.h"
#include "guarded.h"

namespace {

using anew::Killed;

// Before the library starts, and behind what guarded.h asks for.
__attribute__((constructor(102))) void switch_on()
{
    setenv("EBB_CHECK", "sample", 1);
    unsetenv("EBB_GUARD");
}

double now_s()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// From one to the next 10 ms, on the average; with EBB_CHECK=1 and EBB_GUARD=1000 it is 1 ms.
TEST(CheckSample, AHundredASecondAreGuarded)
{
    std::vector<char *> blocks;
    const double start = now_s();
    for (int i = 0; i < 50; i++) {
        blocks.push_back(guarded::make(101));
        ASSERT_NE(nullptr, blocks.back());
        EXPECT_TRUE(guarded::is(blocks.back(), 101));
    }
    EXPECT_GT(now_s() - start, 0.25);
    for (char *p : blocks)
        ebb_free(p);
}

// The checks would find each of these; EBB_GUARD is not set here, but of so many few are guarded.
TEST(CheckSample, OtherBlocksAreNotLookedAt)
{
    int plain = 0;
    for (int i = 0; i < 1000; i++) {
        auto *p = static_cast<char *>(ebb_malloc(100));
        const std::size_t usable = ebb_malloc_usable_size(p);
        if (usable > 100) {
            std::memset(p, 1, usable); // up to the next block
            plain++;
        }
        ebb_free(p);
    }
    EXPECT_GT(plain, 500);
    void *const large = ebb_malloc(200000); // the checks guard each of these
    EXPECT_GT(ebb_malloc_usable_size(large), 200000U);
    ebb_free(large);
}

using CheckSampleDeathTest = anew::DeathTest;

TEST_F(CheckSampleDeathTest, AUseAfterTheFreeIsReported)
{
    const auto misuse = [] {
        anew::prepare();
        char *p = guarded::make(101);
        ebb_free(p);
        *static_cast<volatile char *>(p + 5) = 1;
        _exit(0);
    };
    const std::string calls = " by thread [1-9][0-9]* at:\n(    [^\n]+[+]0x[0-9a-f]+\n)+";
    EXPECT_EXIT(misuse(), Killed(SIGSEGV),
                "use after free: 0x[0-9a-f]+ lies 5 bytes into a block of 101 bytes at "
                "0x[0-9a-f]+\nused" +
                    calls + "allocated" + calls + "freed" + calls);
}

// There is no going on: what was written beside a guarded block ends the process.
TEST_F(CheckSampleDeathTest, AWriteBesideTheBlockEndsTheProcess)
{
    const auto misuse = [] {
        anew::prepare();
        char *p = guarded::make(101);
        p[101]++;
        ebb_free(p);
        _exit(0);
    };
    EXPECT_EXIT(misuse(), Killed(SIGABRT),
                "overflow: 1 bytes were written behind a block of 101 bytes");
}

} // namespace
