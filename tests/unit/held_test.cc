// SPDX-License-Identifier: MIT OR Apache-2.0
// Freed blocks that are held with EBB_CHECK=1, and when all of them are looked at.
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

    // Each look at the clock takes so long: a look at all twice as long.
    static void take_time(std::uint64_t ms)
    {
        fake_os_clock(100000);
        fake_os_clock_step(ms);
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

TEST_F(Held, ALookIsPutOffForFiftyTimesWhatTheLastOneTook)
{
    hold(100);
    take_time(10);
    EXPECT_TRUE(ebbi_check_look_again());
    for (int i = 0; i < 40; i++)
        EXPECT_FALSE(ebbi_check_look_again()) << i;
    fake_os_clock_advance(200);
    EXPECT_TRUE(ebbi_check_look_again());
}

TEST_F(Held, WhoeverPutItOffComesAgain)
{
    const auto waits = [] {
        struct ebbi_pass pass = {};
        ebbi_purge_pass(&pass);
        return pass.waiting;
    };
    hold(100);
    fake_os_clock(200000);
    waits();
    EXPECT_FALSE(waits()) << "all have been looked at, and nothing else is to be done";
    fake_os_clock_step(10);
    EXPECT_TRUE(ebbi_check_look_again());
    fake_os_clock_step(0);
    EXPECT_TRUE(waits());
    fake_os_clock_advance(600);
    EXPECT_FALSE(waits());
}

} // namespace
