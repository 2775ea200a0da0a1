// SPDX-License-Identifier: MIT OR Apache-2.0
// Ebbtide for C++17: objects in Ebbtide's memory. Where C says ENOMEM, the C++ headers throw std::bad_alloc (or
// abort where exceptions are off) and nothing has changed.
#ifndef EBBTIDE_OBJECT_HPP
#define EBBTIDE_OBJECT_HPP

#include <cstddef>
#include <type_traits>
#include <utility>

#include <ebbtide/detail/errors.hpp>
#include <ebbtide/reclaim.h>

namespace ebb {

namespace detail {

template <typename T> void *allocate()
{
    if constexpr (alignof(T) <= 16)
        return need(ebb_malloc(sizeof(T)));
    else
        return need(ebb_aligned_alloc(alignof(T), sizeof(T)));
}

// Where the block begins that holds *p: base classes may lie inside.
template <typename T> void *block_of(T *p) noexcept
{
    if constexpr (std::is_polymorphic_v<T>)
        return const_cast<void *>(dynamic_cast<const volatile void *>(p));
    else
        return const_cast<std::remove_cv_t<T> *>(p);
}

template <typename T> void *address_of(T *p) noexcept
{
    return const_cast<std::remove_cv_t<T> *>(p);
}

} // namespace detail

// As new, from ebb_malloc; for destroy or retire, not for delete.
template <typename T, typename... Args> T *make(Args &&...args)
{
    struct block {
        void *memory;
        ~block() { ebb_free(memory); }
    } owned{detail::allocate<T>()};
    T *made = ::new (owned.memory) T(std::forward<Args>(args)...);
    owned.memory = nullptr;
    return made;
}

// At once: for an object that no other thread can hold. NULL is allowed.
template <typename T> void destroy(T *p) noexcept
{
    if (p == nullptr)
        return;
    void *block = detail::block_of(p);
    p->~T();
    ebb_free(block);
}

} // namespace ebb

#endif
