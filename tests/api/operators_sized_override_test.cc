// SPDX-License-Identifier: MIT OR Apache-2.0
// What calls that free say of a block, and blocks of 0 bytes, by default: no EBB_CHECK.
#include "api_libc.h"

#include <malloc.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

namespace {

using support::KiB;
using support::MiB;
using support::opaque;

constexpr std::align_val_t wide{64};
const std::size_t sizes[] = {1,     16,    17,     24,     480,    481,    1000,    5000,
                             32768, 32769, 100000, 131072, 131073, 200000, 1 * MiB, 33 * MiB};

TEST(Sized, WhatIsRightIsFreed)
{
    for (const std::size_t bytes : sizes) {
        ::operator delete(opaque(::operator new(bytes)), bytes);
        ::operator delete[](opaque(::operator new[](bytes)), bytes);
        ::operator delete(opaque(::operator new(bytes, wide)), bytes, wide);
        api::release_sized(opaque(std::malloc(bytes)), bytes);
        api::release_aligned_sized(opaque(std::aligned_alloc(64, bytes)), 64, bytes);
    }
    ::operator delete (opaque(::operator new(0)), std::size_t{0});
    ::operator delete (opaque(std::malloc(1)), std::size_t{0}); // as another C++ runtime does
    api::release_sized(nullptr, 77);
    api::release_aligned_sized(nullptr, 64, 77);
    ::operator delete (static_cast<void *>(nullptr), std::size_t{77});
}

TEST(Sized, AReallocMayHaveLeftMoreThanIsSaid)
{
    for (std::size_t from : sizes)
        for (std::size_t to : sizes) {
            void *p = std::realloc(std::malloc(from), to);
            ASSERT_NE(nullptr, p);
            api::release_sized(opaque(p), to);
        }
}

TEST(Sized, AnotherThreadFreesWithItsSize)
{
    std::vector<std::vector<void *>> blocks(8);
    for (int i = 0; i < 8; i++)
        for (const std::size_t bytes : sizes)
            blocks[static_cast<std::size_t>(i)].push_back(::operator new(bytes));
    std::vector<std::thread> threads;
    for (const auto &mine : blocks)
        threads.emplace_back([&mine] {
            for (std::size_t i = 0; i < mine.size(); i++)
                ::operator delete(mine[i], sizes[i]);
        });
    for (std::thread &each : threads)
        each.join();
}

TEST(SizedDeathTest, WhatIsWrongEndsTheProcess)
{
    for (const std::size_t bytes : sizes) {
        const std::size_t half = bytes / 2 - bytes / 8;
        EXPECT_DEATH(::operator delete(opaque(::operator new(bytes)), bytes * 2 + 16),
                     "mismatched free")
            << bytes;
        EXPECT_DEATH(::operator delete[](opaque(::operator new[](bytes)), bytes * 2 + 16),
                     "mismatched free")
            << bytes;
        EXPECT_DEATH(api::release_sized(opaque(std::malloc(bytes)), bytes * 2 + 16),
                     "mismatched free")
            << bytes;
        EXPECT_DEATH(
            api::release_aligned_sized(opaque(std::aligned_alloc(64, bytes)), 64, bytes * 2 + 128),
            "mismatched free")
            << bytes;
        if (bytes > 64) {
            EXPECT_DEATH(::operator delete(opaque(::operator new(bytes)), half), "mismatched free")
                << bytes;
        }
    }
}

TEST(SizedDeathTest, AnAlignmentThatTheAddressHasNot)
{
    auto *p = static_cast<char *>(std::aligned_alloc(256, 4096 - 256));
    EXPECT_DEATH(api::release_aligned_sized(opaque(p), std::size_t{1} << 40, 100),
                 "mismatched free: aligned to 1099511627776");
    std::free(p);
}

TEST(SizedDeathTest, ImpossibleSizesAndAlignmentsFitNothing)
{
    for (const std::size_t bytes :
         {SIZE_MAX, SIZE_MAX - 1, static_cast<std::size_t>(PTRDIFF_MAX)}) {
        EXPECT_DEATH(::operator delete(opaque(::operator new(100)), bytes), "mismatched free");
        EXPECT_DEATH(api::release_sized(opaque(std::malloc(200000)), bytes), "mismatched free");
        EXPECT_DEATH(api::release_aligned_sized(opaque(std::aligned_alloc(64, 100)), 64, bytes),
                     "mismatched free");
    }
    EXPECT_DEATH(api::release_aligned_sized(opaque(std::aligned_alloc(64, 100)), 48, 100),
                 "mismatched free");
}

TEST(SizedDeathTest, ABlockThatIsNoneIsStillNamed)
{
    char *p = static_cast<char *>(std::malloc(100));
    int local = 0;
    EXPECT_DEATH(api::release_sized(opaque(p + 16), 100), "invalid free");
    EXPECT_DEATH(::operator delete(opaque(static_cast<void *>(&local)), sizeof local), "invalid");
    EXPECT_DEATH(
        {
            std::free(opaque(p));
            api::release_sized(opaque(p), 100);
        },
        "double free");
    std::free(p);
}

TEST(EmptyDeathTest, NobodyTouchesIt)
{
    auto *p = static_cast<volatile char *>(std::malloc(0));
    auto *q = static_cast<volatile char *>(std::aligned_alloc(64, 0));
    auto *r = static_cast<volatile char *>(std::calloc(0, 8));
    auto *s = new char[0];
    for (volatile char *each : {p, q, r, static_cast<volatile char *>(s)}) {
        EXPECT_EXIT(each[0] = 1, testing::KilledBySignal(SIGSEGV), "");
        EXPECT_EXIT(each[63] = 1, testing::KilledBySignal(SIGSEGV), "");
        EXPECT_EXIT((void)each[0], testing::KilledBySignal(SIGSEGV), "");
        EXPECT_EQ(0U, malloc_usable_size(const_cast<char *>(each)));
    }
    std::free(const_cast<char *>(p));
    std::free(const_cast<char *>(q));
    std::free(const_cast<char *>(r));
    delete[] s;
}

TEST(Empty, GrowsAndIsFreedByOthers)
{
    std::vector<void *> blocks;
    for (int i = 0; i < 300000; i++)
        blocks.push_back(std::malloc(0));
    std::thread([&blocks] {
        for (std::size_t i = 0; i < blocks.size(); i += 2)
            std::free(blocks[i]);
    }).join();
    for (std::size_t i = 1; i < blocks.size(); i += 2) {
        char *grown = static_cast<char *>(std::realloc(blocks[i], 40));
        ASSERT_NE(nullptr, grown);
        grown[39] = 1;
        std::free(grown);
    }
    EXPECT_EQ(nullptr, std::realloc(std::malloc(0), 0));
}

} // namespace
