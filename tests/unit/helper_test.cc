// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer process: when the helper ends, and who rings for it.
#include <unistd.h>

#include "support/engine.h"

namespace {

using namespace unit;
using Helper = Fake;

// It waits a little for the next thread.
void expect_end()
{
    for (int i = 0; i < 1000 && ebbi_helper_is_there(); i++)
        usleep(10000);
    EXPECT_FALSE(ebbi_helper_is_there());
}

TEST_F(Helper, EndsWithTheThreads)
{
    ebbi_threads_more();
    ebbi_helper_start();
    ASSERT_TRUE(ebbi_helper_is_there());
    ebbi_threads_less();
    expect_end();
    ebbi_threads_more();
    ebbi_helper_start();
    EXPECT_TRUE(ebbi_helper_is_there());
    ebbi_helper_stop();
    EXPECT_FALSE(ebbi_helper_is_there());
}

TEST_F(Helper, EndsUntoldHoweverLongItsNaps)
{
    ASSERT_EQ(0, ebbi_option_change(EBBI_OPTION_PURGE_DELAY, 3600000));
    ebbi_threads_more();
    ebbi_helper_start();
    for (int i = 0; i < 51; i++) {
        ebbi_threads_less();
        ebbi_threads_more();
    }
    ebbi_threads_less();
    expect_end();
    EXPECT_EQ(0, ebbi_option_change(EBBI_OPTION_PURGE_DELAY, 500));
}

// A program that begins one thread after another does not wake it thousands of times.
TEST_F(Helper, IsRungForSeldom)
{
    fake_os_clock(100000);
    fake_os_pretend_threads();
    ebbi_threads_more();
    ebbi_helper_start();
    ebbi_threads_less();
    const uint32_t before = ebbi_bell_listen();
    for (int i = 0; i < 101; i++) {
        ebbi_threads_more();
        ebbi_threads_less();
    }
    EXPECT_EQ(before, ebbi_bell_listen());
    fake_os_clock_advance(60);
    ebbi_threads_more();
    ebbi_threads_less();
    EXPECT_EQ(before + 1, ebbi_bell_listen());
}

} // namespace
