// SPDX-License-Identifier: MIT OR Apache-2.0
// The core family by its public names, linked without override: the form that sanitizers can build.
#pragma once

#include <cerrno>

#include "ebbtide.h"
#include "support.h"

namespace api {

inline void *allocate(std::size_t bytes)
{
    return support::opaque(ebb_malloc(support::opaque(bytes)));
}
inline void release(void *block) { ebb_free(support::opaque(block)); }
inline void trim() { ebb_trim(); }
inline void *allocate_zeroed(std::size_t count, std::size_t bytes)
{
    return support::opaque(ebb_calloc(support::opaque(count), support::opaque(bytes)));
}
inline void *resize(void *block, std::size_t bytes)
{
    return support::opaque(ebb_realloc(support::opaque(block), support::opaque(bytes)));
}
inline void *allocate_aligned(std::size_t alignment, std::size_t bytes)
{
    return support::opaque(ebb_aligned_alloc(support::opaque(alignment), support::opaque(bytes)));
}
inline int posix_aligned(void **out, std::size_t alignment, std::size_t bytes)
{
    return ebb_posix_memalign(out, support::opaque(alignment), support::opaque(bytes));
}
inline void release_sized(void *block, std::size_t bytes)
{
    ebb_free_sized(support::opaque(block), support::opaque(bytes));
}
inline void release_aligned_sized(void *block, std::size_t alignment, std::size_t bytes)
{
    ebb_free_aligned_sized(support::opaque(block), support::opaque(alignment),
                           support::opaque(bytes));
}
inline std::size_t usable_bytes(void *block)
{
    return ebb_malloc_usable_size(support::opaque(block));
}

} // namespace api
