// SPDX-License-Identifier: MIT OR Apache-2.0
// The core family by libc's names, for programs that run with the library preloaded.
#pragma once

#include <cerrno>
#include <cstdlib>

#include <dlfcn.h>
#include <malloc.h>

#include "support.h"

namespace api {

// For names that this libc does not declare: looked up, so that a missing one is a failed test.
template <typename Function> inline Function find_symbol(const char *name)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    EXPECT_NE(symbol, nullptr) << name << " is not exported";
    Function function = nullptr;
    static_assert(sizeof function == sizeof symbol, "a function pointer fits a data pointer");
    std::memcpy(&function, &symbol, sizeof function);
    return function;
}

inline void *allocate(std::size_t bytes)
{
    return support::opaque(std::malloc(support::opaque(bytes)));
}
inline void release(void *block) { std::free(support::opaque(block)); }
inline void trim() { malloc_trim(0); }
inline void *allocate_zeroed(std::size_t count, std::size_t bytes)
{
    return support::opaque(std::calloc(support::opaque(count), support::opaque(bytes)));
}
inline void *resize(void *block, std::size_t bytes)
{
    return support::opaque(std::realloc(support::opaque(block), support::opaque(bytes)));
}
inline void *allocate_aligned(std::size_t alignment, std::size_t bytes)
{
    return support::opaque(std::aligned_alloc(support::opaque(alignment), support::opaque(bytes)));
}
inline int posix_aligned(void **out, std::size_t alignment, std::size_t bytes)
{
    return posix_memalign(out, support::opaque(alignment), support::opaque(bytes));
}
inline void release_sized(void *block, std::size_t bytes)
{
    static const auto free_sized = find_symbol<void (*)(void *, std::size_t)>("free_sized");
    if (free_sized != nullptr)
        free_sized(support::opaque(block), support::opaque(bytes));
}
inline void release_aligned_sized(void *block, std::size_t alignment, std::size_t bytes)
{
    static const auto free_aligned_sized =
        find_symbol<void (*)(void *, std::size_t, std::size_t)>("free_aligned_sized");
    if (free_aligned_sized != nullptr)
        free_aligned_sized(support::opaque(block), support::opaque(alignment),
                           support::opaque(bytes));
}
inline std::size_t usable_bytes(void *block) { return malloc_usable_size(support::opaque(block)); }

} // namespace api
