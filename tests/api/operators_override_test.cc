// SPDX-License-Identifier: MIT OR Apache-2.0
// The eight operator new and twelve operator delete forms, new_handler loops and bad_alloc.
#include "api_libc.h"

#include <new>

namespace {

using support::KiB;
using support::MiB;
using support::opaque;

constexpr std::align_val_t wide{256};
const std::size_t impossible = static_cast<std::size_t>(PTRDIFF_MAX) - 64;

struct Form {
    const char *name;
    std::size_t alignment;
    bool throws;
    void *(*create)(std::size_t);
};

const Form new_forms[] = {
    {"new", 16, true, [](std::size_t n) { return ::operator new(opaque(n)); }},
    {"new[]", 16, true, [](std::size_t n) { return ::operator new[](opaque(n)); }},
    {"new nothrow", 16, false,
     [](std::size_t n) { return ::operator new(opaque(n), std::nothrow); }},
    {"new[] nothrow", 16, false,
     [](std::size_t n) { return ::operator new[](opaque(n), std::nothrow); }},
    {"new aligned", 256, true, [](std::size_t n) { return ::operator new(opaque(n), wide); }},
    {"new[] aligned", 256, true, [](std::size_t n) { return ::operator new[](opaque(n), wide); }},
    {"new aligned nothrow", 256, false,
     [](std::size_t n) { return ::operator new(opaque(n), wide, std::nothrow); }},
    {"new[] aligned nothrow", 256, false,
     [](std::size_t n) { return ::operator new[](opaque(n), wide, std::nothrow); }},
};

struct Pair {
    const char *name;
    void *(*create)(std::size_t);
    void (*destroy)(void *, std::size_t);
};

void *plain(std::size_t n) { return ::operator new(opaque(n)); }
void *array(std::size_t n) { return ::operator new[](opaque(n)); }
void *aligned(std::size_t n) { return ::operator new(opaque(n), wide); }
void *aligned_array(std::size_t n) { return ::operator new[](opaque(n), wide); }

const Pair delete_forms[] = {
    {"delete", plain, [](void *p, std::size_t) { ::operator delete(opaque(p)); }},
    {"delete[]", array, [](void *p, std::size_t) { ::operator delete[](opaque(p)); }},
    {"delete sized", plain, [](void *p, std::size_t n) { ::operator delete(opaque(p), n); }},
    {"delete[] sized", array, [](void *p, std::size_t n) { ::operator delete[](opaque(p), n); }},
    {"delete nothrow", plain,
     [](void *p, std::size_t) { ::operator delete(opaque(p), std::nothrow); }},
    {"delete[] nothrow", array,
     [](void *p, std::size_t) { ::operator delete[](opaque(p), std::nothrow); }},
    {"delete aligned", aligned, [](void *p, std::size_t) { ::operator delete(opaque(p), wide); }},
    {"delete[] aligned", aligned_array,
     [](void *p, std::size_t) { ::operator delete[](opaque(p), wide); }},
    {"delete sized aligned", aligned,
     [](void *p, std::size_t n) { ::operator delete(opaque(p), n, wide); }},
    {"delete[] sized aligned", aligned_array,
     [](void *p, std::size_t n) { ::operator delete[](opaque(p), n, wide); }},
    {"delete aligned nothrow", aligned,
     [](void *p, std::size_t) { ::operator delete(opaque(p), wide, std::nothrow); }},
    {"delete[] aligned nothrow", aligned_array,
     [](void *p, std::size_t) { ::operator delete[](opaque(p), wide, std::nothrow); }},
};

const std::size_t object_sizes[] = {0, 1, 24, 100, 4000, 40 * KiB, 2 * MiB};

TEST(OperatorNew, EachFormIsAlignedAndWritable)
{
    for (const Form &form : new_forms)
        for (std::size_t bytes : object_sizes) {
            void *block = form.create(bytes);
            ASSERT_NE(block, nullptr) << form.name;
            ASSERT_EQ(support::address(block) % form.alignment, 0U) << form.name;
            ASSERT_GE(api::usable_bytes(block), bytes) << form.name;
            std::memset(block, 1, bytes);
            api::release(block);
        }
}

TEST(OperatorDelete, EachFormReleases)
{
    for (const Pair &pair : delete_forms) {
        pair.destroy(nullptr, 8);
        const std::size_t before = support::resident_bytes();
        for (std::size_t i = 0; i < 300; i++)
            for (std::size_t bytes : object_sizes) {
                void *block = pair.create(bytes);
                std::memset(block, 1, bytes < 100 * KiB ? bytes : 100 * KiB);
                pair.destroy(block, bytes);
            }
        EXPECT_LT(support::resident_bytes(), before + 24 * MiB) << pair.name << " leaks";
    }
}

TEST(OperatorNew, NoHandlerMeansBadAllocOrNull)
{
    std::set_new_handler(nullptr);
    for (const Form &form : new_forms)
        if (form.throws)
            EXPECT_THROW(form.create(impossible), std::bad_alloc) << form.name;
        else
            EXPECT_EQ(form.create(impossible), nullptr) << form.name;
}

TEST(OperatorNew, SizesAbovePtrdiffMaxAreRefused)
{
    for (std::size_t bytes : {support::too_large, SIZE_MAX - 4096, SIZE_MAX})
        for (const Form &form : new_forms)
            if (form.throws)
                EXPECT_THROW(form.create(bytes), std::bad_alloc) << form.name;
            else
                EXPECT_EQ(form.create(bytes), nullptr) << form.name;
}

int handler_calls = 0;

void give_up_at_the_third_call()
{
    if (++handler_calls == 3)
        std::set_new_handler(nullptr);
}

TEST(NewHandler, CannotHelpAnAlignmentThatIsNone)
{
    handler_calls = 0;
    std::set_new_handler(give_up_at_the_third_call);
    volatile std::size_t odd = 24;
    EXPECT_THROW((void)::operator new(16, std::align_val_t(odd)), std::bad_alloc);
    EXPECT_EQ(handler_calls, 0);
    std::set_new_handler(nullptr);
}

TEST(NewHandler, IsCalledUntilItIsTakenAway)
{
    for (const Form &form : new_forms) {
        handler_calls = 0;
        std::set_new_handler(give_up_at_the_third_call);
        if (form.throws)
            EXPECT_THROW(form.create(impossible), std::bad_alloc) << form.name;
        else
            EXPECT_EQ(form.create(impossible), nullptr) << form.name;
        EXPECT_EQ(handler_calls, 3) << form.name;
        std::set_new_handler(nullptr);
    }
}

struct OutOfMemory : std::bad_alloc {};

void throw_own_error()
{
    handler_calls++;
    throw OutOfMemory();
}

TEST(NewHandler, MayThrowItsOwnError)
{
    std::set_new_handler(throw_own_error);
    for (const Form &form : new_forms) {
        handler_calls = 0;
        if (form.throws)
            EXPECT_THROW(form.create(impossible), OutOfMemory) << form.name;
        else
            EXPECT_EQ(form.create(impossible), nullptr) << form.name;
        EXPECT_EQ(handler_calls, 1) << form.name;
    }
    std::set_new_handler(nullptr);
}

TEST(NewHandler, IsNotCalledWhenMemoryIsThere)
{
    handler_calls = 0;
    std::set_new_handler(give_up_at_the_third_call);
    for (const Form &form : new_forms)
        api::release(form.create(1000));
    std::set_new_handler(nullptr);
    EXPECT_EQ(handler_calls, 0);
}

TEST(OperatorNew, WorksAfterAThousandRefusals)
{
    for (int i = 0; i < 1000; i++)
        EXPECT_THROW(plain(impossible), std::bad_alloc);
    void *block = plain(100);
    EXPECT_NE(block, nullptr);
    ::operator delete(opaque(block));
}

TEST(OperatorNew, WideAlignments)
{
    for (std::size_t alignment = 1; alignment <= MiB; alignment *= 2) {
        const std::align_val_t wanted{alignment};
        void *block = ::operator new(opaque(std::size_t{100}), wanted);
        EXPECT_EQ(support::address(block) % alignment, 0U);
        ::operator delete(opaque(block), wanted);
    }
}

} // namespace
