// SPDX-License-Identifier: MIT OR Apache-2.0
// EBB_CHECK=1: what calls that free say of a block that nothing else is known of, as it is above 32 MiB.
#include <cstdlib>
#include <new>

#include "anew.h"
#include "api_libc.h"

namespace {

using CheckSizedDeathTest = anew::DeathTest;
using support::MiB;
using support::opaque;

constexpr std::align_val_t line{64}, far{std::size_t{1} << 40};

void make_and_free_all()
{
    anew::prepare();
    for (const std::size_t bytes : {32 * MiB, 32 * MiB + 1, 40 * MiB + 5}) {
        ::operator delete(opaque(::operator new(bytes)), bytes);
        ::operator delete[](opaque(::operator new[](bytes)), bytes);
        ::operator delete(opaque(::operator new(bytes, line)), bytes, line);
        api::release_sized(opaque(std::malloc(bytes)), bytes);
        api::release_sized(opaque(std::realloc(std::malloc(bytes), 20 * MiB)), 20 * MiB);
        api::release_aligned_sized(opaque(std::aligned_alloc(64, bytes)), 64, bytes);
    }
    std::exit(0);
}

template <typename Call> void begin(Call call)
{
    anew::prepare();
    call();
}

TEST_F(CheckSizedDeathTest, OfAHugeObjectASizeAndAnAlignmentAreComparedAsByDefault)
{
    void (*const calls[])() = {
        [] { ::operator delete(opaque(::operator new(40 * MiB)), 80 * MiB); },
        [] { ::operator delete (opaque(::operator new(40 * MiB)), std::size_t{100}); },
        [] { ::operator delete[](opaque(::operator new[](40 * MiB)), 39 * MiB); },
        [] { ::operator delete(opaque(::operator new(40 * MiB, line)), 80 * MiB, line); },
        [] { ::operator delete(opaque(::operator new(40 * MiB, line)), far); },
        [] { api::release_sized(opaque(std::malloc(40 * MiB)), 80 * MiB); },
        [] { api::release_aligned_sized(opaque(std::aligned_alloc(64, 40 * MiB)), 64, 80 * MiB); },
    };
    void (*const cut[])() = {
        [] {
            api::release_sized(opaque(std::realloc(std::malloc(100 * MiB), 20 * MiB)), 19 * MiB);
        },
        [] { // a byte behind it
            auto *p =
                static_cast<char *>(opaque(std::realloc(std::malloc(40 * MiB), 31 * MiB + 5)));
            p[31 * MiB + 5] = 1;
            std::free(p);
        },
    };
    setenv("EBB_CHECK", "1", 1);
    EXPECT_EXIT(begin(cut[0]), anew::Killed(SIGABRT), "mismatched free");
    EXPECT_EXIT(begin(cut[1]), anew::Killed(SIGABRT), "overflow");
    for (const char *check : {"0", "1", "log", "sample"}) {
        SCOPED_TRACE(check);
        setenv("EBB_CHECK", check, 1);
        EXPECT_EXIT(make_and_free_all(), anew::Exited(0), "^$");
        for (auto *call : calls)
            EXPECT_EXIT(begin(call), anew::Killed(SIGABRT), "mismatched free: (of|aligned to)");
    }
}

} // namespace
