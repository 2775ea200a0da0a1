// SPDX-License-Identifier: MIT OR Apache-2.0
// Ebbtide for C++17: a pointer with a tag in its low bits, which the alignment of its type leaves free: the
// mark of a node that leaves a lock-free list, for one.
#ifndef EBBTIDE_TAGGED_PTR_HPP
#define EBBTIDE_TAGGED_PTR_HPP

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ebb {

// A value of one word. Its T has an alignment of 2^Bits at least, or it does not compile where one is made.
template <typename T, unsigned Bits> class tagged_ptr {
    static_assert(Bits > 0 && Bits < 12, "as many bits as an alignment leaves free");

public:
    static constexpr std::uintptr_t mask = (std::uintptr_t{1} << Bits) - 1;

    constexpr tagged_ptr(std::nullptr_t = nullptr) noexcept { leaves_room(); }
    // Of the tag the low bits count.
    tagged_ptr(T *p, std::uintptr_t tag = 0) noexcept
        : word_(reinterpret_cast<std::uintptr_t>(p) | (tag & mask))
    {
        leaves_room();
    }

    T *get() const noexcept { return reinterpret_cast<T *>(word_ & ~mask); }
    constexpr std::uintptr_t tag() const noexcept { return word_ & mask; }
    tagged_ptr with_tag(std::uintptr_t tag) const noexcept { return tagged_ptr(get(), tag); }

    T &operator*() const noexcept { return *get(); }
    T *operator->() const noexcept { return get(); }
    // Whether the pointer is not NULL, whatever the tag.
    explicit operator bool() const noexcept { return (word_ & ~mask) != 0; }

    // Pointer and tag.
    friend constexpr bool operator==(tagged_ptr a, tagged_ptr b) noexcept
    {
        return a.word_ == b.word_;
    }
    friend constexpr bool operator!=(tagged_ptr a, tagged_ptr b) noexcept
    {
        return a.word_ != b.word_;
    }

private:
    // Not of the class: T may be the node that this is a member of.
    static constexpr void leaves_room() noexcept
    {
        static_assert(alignof(T) >= mask + 1, "T's alignment leaves no room for so many bits");
    }

    std::uintptr_t word_ = 0;
};

namespace detail {

template <typename T> T *plain(T *p) noexcept { return p; }
template <typename T, unsigned Bits> T *plain(tagged_ptr<T, Bits> p) noexcept { return p.get(); }

} // namespace detail

} // namespace ebb

#endif
