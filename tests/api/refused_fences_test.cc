// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernel sometimes refuses to close pages, and to open them again: what stays closed is nobody's block.
#include "support.h"

#include <cerrno>
#include <cstring>
#include <random>
#include <vector>

#include <ebbtide.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

unsigned one_of; // such calls is refused; 0: none is
unsigned refused;

bool refuses()
{
    static std::minstd_rand random(7);
    if (one_of == 0 || random() % one_of != 0)
        return false;
    refused++;
    errno = ENOMEM;
    return true;
}

// Before the library starts. Blocks above 16 KiB, and the first of all, have guards.
__attribute__((constructor(101))) void switch_on() { setenv("EBB_CHECK", "1", 1); }

} // namespace

extern "C" int madvise(void *start, std::size_t bytes, int advice) noexcept
{
    return refuses() ? -1 : static_cast<int>(syscall(SYS_madvise, start, bytes, advice));
}

extern "C" int mprotect(void *start, std::size_t bytes, int access) noexcept
{
    return refuses() ? -1 : static_cast<int>(syscall(SYS_mprotect, start, bytes, access));
}

namespace {

class Fences : public testing::TestWithParam<unsigned> {};

TEST_P(Fences, WhatIsHandedOutCanBeWritten)
{
    if (support::under_sanitizer)
        GTEST_SKIP() << "the sanitizer calls these, too";
    std::minstd_rand random(GetParam());
    std::vector<void *> blocks(3000);
    one_of = GetParam();
    for (int round = 0; round < 30000; round++) {
        void *&block = blocks[random() % blocks.size()];
        ebb_free(block);
        const std::size_t bytes = random() % 10 == 0 ? random() % 60000 : random() % 2000;
        block = random() % 2 == 0 ? ebb_malloc(bytes) : nullptr;
        if (block != nullptr)
            std::memset(block, 1, bytes);
    }
    one_of = 0;
    EXPECT_GT(refused, 0U);
    for (void *block : blocks)
        ebb_free(block);
}

INSTANTIATE_TEST_SUITE_P(OneOf, Fences, testing::Values(1U, 2U, 3U, 10U));

} // namespace
