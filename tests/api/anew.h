// SPDX-License-Identifier: MIT OR Apache-2.0
// Tests of how a process ends that need it to begin anew, with an environment of its own.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "ebbtide/reclaim.h"

namespace anew {

struct DeathTest : testing::Test {
    void SetUp() override
    {
#if defined(EBBTEST_SANITIZED)
        GTEST_SKIP() << "the sanitizer's own handlers are in the way";
#elif defined(EBBTEST_EMULATED)
        GTEST_SKIP() << "no process can be started anew";
#endif
        testing::FLAGS_gtest_death_test_style = "threadsafe";
    }
};

// In the process that is to end: without a core, and not after long.
inline void prepare(unsigned seconds = 60)
{
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    alarm(seconds);
}

// A block that is retired, and then given away once more.
inline void retire_and(void (*second)(void *), void *p)
{
    ebb_pin();
    ebb_retire(p);
    second(p);
    _exit(0);
}

using Killed = testing::KilledBySignal;
using Exited = testing::ExitedWithCode;

} // namespace anew
