// SPDX-License-Identifier: MIT OR Apache-2.0
// A program that replaces operator new alone, asks for more than it was asked for, and leaves all else: what a sized delete
// of the library's then says is less than the block has, and right.
#include "api_libc.h"

#include <cstddef>
#include <memory>
#include <new>

#ifdef __clang__
#pragma clang diagnostic ignored "-Wmismatched-new-delete"
#else
#pragma GCC diagnostic ignored "-Wmismatched-new-delete" // that is the test
#endif

[[gnu::noinline]] void *operator new(std::size_t bytes)
{
    void *p = std::malloc(bytes + 4000);
    return p != nullptr ? p : throw std::bad_alloc();
}
[[gnu::noinline]] void *operator new(std::size_t bytes, const std::nothrow_t & /* none */) noexcept
{
    return std::malloc(bytes + 9000);
}

namespace {

struct Counted {
    static inline int alive = 0;
    char content[13];
    Counted() : content{} { alive++; }
    ~Counted() { alive--; }
};

TEST(OperatorsNewReplaced, SizedDeletesTakeWhatItGives)
{
    for (int i = 0; i < 100; i++) {
        delete support::opaque(new Counted);
        delete[] support::opaque(new Counted[5]);
        delete support::opaque(new (std::nothrow) Counted);
        delete[] support::opaque(new (std::nothrow) Counted[7]);
        ::operator delete (support::opaque(::operator new(0)), std::size_t{0});
        ::operator delete[](support::opaque(::operator new[](0)), std::size_t{0});
        ::operator delete (support::opaque(::operator new(100000)), std::size_t{100000});
    }
    EXPECT_EQ(0, Counted::alive);
}

} // namespace
