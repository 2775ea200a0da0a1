// SPDX-License-Identifier: MIT OR Apache-2.0
// A program that replaces operator new[] and delete[] alone: their other forms have to end in its own, those for objects
// in the library's.
#include "api_libc.h"

#include <cstddef>
#include <cstdlib>
#include <new>

#ifndef __clang__
#pragma GCC diagnostic ignored "-Wsized-deallocation" // not to define those is the test
#endif

namespace {

int news, deletes;

} // namespace

[[gnu::noinline]] void *operator new[](std::size_t bytes)
{
    news++;
    void *p = std::malloc(bytes + 16);
    if (p == nullptr)
        throw std::bad_alloc();
    return static_cast<char *>(p) + 16;
}
[[gnu::noinline]] void operator delete[](void *p) noexcept
{
    deletes++;
    if (p != nullptr)
        std::free(static_cast<char *>(p) - 16);
}

namespace {

TEST(ArrayOperatorsReplaced, EveryArrayFormEndsInTheProgramsOwn)
{
    news = deletes = 0;
    ::operator delete[](::operator new[](100));
    ::operator delete[](::operator new[](100, std::nothrow), std::nothrow);
    ::operator delete[](::operator new[](100), std::size_t{100});
    EXPECT_EQ(3, news);
    EXPECT_EQ(3, deletes);
}

TEST(ArrayOperatorsReplaced, FormsForObjectsAreTheLibrarys)
{
    news = deletes = 0;
    ::operator delete(::operator new(100));
    ::operator delete(::operator new(100, std::nothrow), std::nothrow);
    ::operator delete (::operator new(100), std::size_t{100});
    EXPECT_EQ(0, news);
    EXPECT_EQ(0, deletes);
}

} // namespace
