// SPDX-License-Identifier: MIT OR Apache-2.0
// A program that replaces the basic forms of operator new and delete: all others have to end in its own.
#include "api_libc.h"

#include <cstddef>
#include <new>

#ifndef __clang__
#pragma GCC diagnostic ignored "-Wsized-deallocation" // not to define those is the test
#endif

namespace {

// noinline: what the compiler sees together it takes for an error.

// Lies in front of each block: one that goes to another delete is no block there.
struct alignas(16) Head {
    std::size_t magic;
};
constexpr std::size_t mine = 0x5ca1ab1e;
int news, deletes, aligned_news, aligned_deletes;

void *give(std::size_t bytes)
{
    auto *head = static_cast<Head *>(std::malloc(bytes + sizeof(Head)));
    if (head == nullptr)
        throw std::bad_alloc();
    head->magic = mine;
    return head + 1;
}

void take(void *p)
{
    Head *const head = static_cast<Head *>(p) - 1;
    EXPECT_EQ(head->magic, mine);
    std::free(head);
}

} // namespace

[[gnu::noinline]] void *operator new(std::size_t bytes)
{
    news++;
    return give(bytes);
}
[[gnu::noinline]] void operator delete(void *p) noexcept
{
    deletes++;
    if (p != nullptr)
        take(p);
}
[[gnu::noinline]] void *operator new(std::size_t bytes, std::align_val_t align)
{
    aligned_news++;
    const std::size_t step = static_cast<std::size_t>(align);
    char *const p = static_cast<char *>(std::aligned_alloc(step, bytes + step));
    reinterpret_cast<Head *>(p + step)[-1].magic = mine;
    return p + step;
}
[[gnu::noinline]] void operator delete(void *p, std::align_val_t align) noexcept
{
    aligned_deletes++;
    EXPECT_EQ((static_cast<Head *>(p) - 1)->magic, mine);
    std::free(static_cast<char *>(p) - static_cast<std::size_t>(align));
}

namespace {

using support::opaque;

constexpr std::align_val_t wide{64};
constexpr std::size_t bytes = 100;

struct Pair {
    const char *name;
    void (*run)();
};

const Pair plain[] = {
    {"delete", [] { ::operator delete(::operator new(opaque(bytes))); }},
    {"sized", [] { ::operator delete(::operator new(opaque(bytes)), bytes); }},
    {"nothrow",
     [] { ::operator delete(::operator new(opaque(bytes), std::nothrow), std::nothrow); }},
    {"array", [] { ::operator delete[](::operator new[](opaque(bytes))); }},
    {"array, sized", [] { ::operator delete[](::operator new[](opaque(bytes)), bytes); }},
    {"array, nothrow",
     [] { ::operator delete[](::operator new[](opaque(bytes), std::nothrow), std::nothrow); }},
};

const Pair aligned[] = {
    {"delete", [] { ::operator delete(::operator new(opaque(bytes), wide), wide); }},
    {"sized", [] { ::operator delete(::operator new(opaque(bytes), wide), bytes, wide); }},
    {"nothrow",
     [] {
         ::operator delete(::operator new(opaque(bytes), wide, std::nothrow), wide, std::nothrow);
     }},
    {"array", [] { ::operator delete[](::operator new[](opaque(bytes), wide), wide); }},
    {"array, sized",
     [] { ::operator delete[](::operator new[](opaque(bytes), wide), bytes, wide); }},
    {"array, nothrow",
     [] {
         ::operator delete[](::operator new[](opaque(bytes), wide, std::nothrow), wide,
                             std::nothrow);
     }},
};

TEST(OperatorsReplaced, PlainFormsEndInTheProgramsOwn)
{
    for (const Pair &pair : plain) {
        const int before = news, deletes_before = deletes;
        pair.run();
        const int now = news, deletes_now = deletes;
        EXPECT_EQ(now, before + 1) << pair.name;
        EXPECT_EQ(deletes_now, deletes_before + 1) << pair.name;
    }
}

TEST(OperatorsReplaced, AlignedFormsEndInTheProgramsOwn)
{
    for (const Pair &pair : aligned) {
        const int before = aligned_news, deletes_before = aligned_deletes;
        pair.run();
        EXPECT_EQ(aligned_news, before + 1) << pair.name;
        EXPECT_EQ(aligned_deletes, deletes_before + 1) << pair.name;
    }
}

TEST(OperatorsReplaced, NothrowGivesNullWhereTheProgramsOwnThrows)
{
    EXPECT_EQ(::operator new(opaque(static_cast<std::size_t>(PTRDIFF_MAX) - 100), std::nothrow),
              nullptr);
}

} // namespace
