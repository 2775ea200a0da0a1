// SPDX-License-Identifier: MIT OR Apache-2.0
// Memory that the system refuses: before NULL is the program's, all that is free comes together.
#include "support.h"

#include <cstring>

#include <ebbtide.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using support::MiB, support::limit_address_space;

// Bytes that were had; all of it is free then.
std::size_t fill_and_free(std::size_t bytes)
{
    static void *blocks[100000];
    std::size_t count = 0;
    while (count < std::size(blocks) && (blocks[count] = ebb_malloc(bytes)) != nullptr)
        std::memset(blocks[count++], 1, 64);
    for (std::size_t i = count; i-- > 0;)
        ebb_free(blocks[i]);
    return count * bytes;
}

bool in_a_child(bool (*works)())
{
    const pid_t child = fork();
    if (child == 0)
        _exit(works() ? 0 : 1);
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

struct Refused : testing::Test {
    void SetUp() override
    {
        if (support::under_sanitizer)
            GTEST_SKIP() << "the sanitizer has taken all of it";
        if (support::emulated)
            GTEST_SKIP() << "an emulator ignores the limit";
    }
};

TEST_F(Refused, WhatWasFilledTwiceIsOneObjectAgain)
{
    EXPECT_TRUE(in_a_child([] {
        if (!limit_address_space(300 * MiB))
            return false;
        for (int round = 0; round < 3; round++)
            if (fill_and_free(12000) < 150 * MiB)
                return false;
        void *p = ebb_malloc(180 * MiB);
        ebb_free(p);
        return p != nullptr;
    }));
}

TEST_F(Refused, ANullIsFollowedByAllThatOthersNeed)
{
    EXPECT_TRUE(in_a_child([] {
        if (!limit_address_space(100 * MiB))
            return false;
        for (const std::size_t bytes : {50U, 700U, 9000U, 50000U, 1000000U, 40000000U})
            for (int round = 0; round < 2; round++)
                if (fill_and_free(bytes) < (bytes < 100 ? 4 : 38) * MiB) // one of the largest
                    return false;
        return true;
    }));
}

} // namespace
