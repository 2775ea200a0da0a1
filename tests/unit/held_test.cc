// SPDX-License-Identifier: MIT OR Apache-2.0
// Freed blocks that are held with EBB_CHECK=1.
#include <sys/resource.h>

#include "support/engine.h"

namespace {

using namespace unit;

// Before the library starts.
__attribute__((constructor(101))) void switch_on()
{
    setenv("EBB_CHECK", "1", 1);
    setenv("EBB_GUARD", "0", 1);
}

struct Held : Fake {
    std::vector<char *> freed;

    void hold(std::size_t count)
    {
        for (std::size_t i = 0; i < count; i++)
            freed.push_back(static_cast<char *>(ebb_malloc(24)));
        for (char *p : freed)
            ebb_free(p);
    }

    static void write_and_look(char *at)
    {
        const rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        *at = 1;
        ebbi_check_look();
    }
};

TEST_F(Held, AllAreLookedAtSomeAtATime)
{
    hold(5000);
    for (std::size_t i : {0U, 1023U, 1024U, 3000U, 4999U})
        EXPECT_DEATH(write_and_look(freed[i] + 3),
                     "use after free: .* lies 3 bytes into a block of 24 bytes")
            << i;
    ebbi_check_look();
}

std::size_t live_bytes()
{
    ebb_stats stats;
    ebb_stats_get(&stats);
    return stats.live_bytes;
}

// A quarter of what is in use, as one block in 16 tells.
TEST_F(Held, TheMoreIsInUseTheMoreIsHeld)
{
    constexpr std::size_t bytes = 100, count = 200000;
    std::vector<void *> used;
    for (std::size_t i = 0; i < count; i++)
        used.push_back(ebb_malloc(bytes));
    for (std::size_t i = 0; i < count / 4; i++)
        freed.push_back(static_cast<char *>(ebb_malloc(bytes)));
    for (char *p : freed)
        ebb_free(p);
    const std::size_t with = live_bytes();
    ebb_trim();
    const std::size_t held = with - live_bytes();
    EXPECT_LE(count * bytes / 5, held);
    EXPECT_GE(count * bytes / 3, held);
    for (void *p : used)
        ebb_free(p);
}

} // namespace
