// SPDX-License-Identifier: MIT OR Apache-2.0
// ebb::region_allocator<T>, for containers whose region may be known by its handle alone, and promote,
// which copies blocks, objects and containers out of a region. Not by itself: include
// <ebbtide/region.hpp>, which says who may call and what is thrown. O(bytes copied).
#ifndef EBB_DETAIL_REGION_ALLOCATOR_HPP
#define EBB_DETAIL_REGION_ALLOCATOR_HPP

#include <ebbtide/region.hpp>

namespace ebb {

// ---- allocators ----------------------------------------------------------------------------------

// Keeps the region's handle, so the region object may move; by default, and once made from an ended
// region, it is the heap's. What containers do with it when they are
//   copied       the copy is in the heap (select_on_container_copy_construction): nobody knows how long
//                it will live, and a leak is found sooner than a dangling pointer; to copy into a region,
//                name its allocator, or promote
//   assigned     each stays where it is (POCCA, POCMA false): a container does not enter a shorter life
//                because its contents did; a move between regions moves the elements one by one
//   swapped      the blocks change places together with their allocators (POCS true), as a swap of
//                unequal allocators would be undefined otherwise; so swap only what lives equally long
// Elements do not inherit it: std::scoped_allocator_adaptor<region_allocator<T>> does that.
template <typename T> class region_allocator {
public:
    using value_type = T;
    using propagate_on_container_copy_assignment = std::false_type;
    using propagate_on_container_move_assignment = std::false_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::false_type;

    region_allocator() noexcept = default;
    region_allocator(const region_ref &of) noexcept : region_(of.get()) {}
    explicit region_allocator(ebb_region *of) noexcept : region_(of) {}
    template <typename U>
    region_allocator(const region_allocator<U> &other) noexcept : region_(other.region())
    {
    }

    [[nodiscard]] T *allocate(std::size_t count)
    {
        if (count > static_cast<std::size_t>(PTRDIFF_MAX) / sizeof(T))
            detail::throw_bad_length();
        return static_cast<T *>(detail::allocate_in(region_, count * sizeof(T), alignof(T)));
    }
    void deallocate(T *p, std::size_t) noexcept { ::ebb_free(p); }
    region_allocator select_on_container_copy_construction() const noexcept
    {
        return region_allocator();
    }
    ebb_region *region() const noexcept { return region_; }

private:
    ebb_region *region_ = nullptr;
};

template <typename T, typename U>
bool operator==(const region_allocator<T> &a, const region_allocator<U> &b) noexcept
{
    return a.region() == b.region();
}
template <typename T, typename U>
bool operator!=(const region_allocator<T> &a, const region_allocator<U> &b) noexcept
{
    return !(a == b);
}

namespace detail {

// What an object is made with: a region allocator, and wherever one of pmr is wanted that of the region.
template <typename T> class either_allocator : public region_allocator<T> {
public:
    explicit either_allocator(region_ref &of) noexcept : region_allocator<T>(of), resource_(&of) {}
    template <typename U>
    either_allocator(const either_allocator<U> &other) noexcept
        : region_allocator<T>(other), resource_(other.resource())
    {
    }
    template <typename U> operator std::pmr::polymorphic_allocator<U>() const noexcept
    {
        return resource_;
    }
    std::pmr::memory_resource *resource() const noexcept { return resource_; }

private:
    std::pmr::memory_resource *resource_;
};

template <typename T, typename = void> inline constexpr bool names_allocator = false;
template <typename T>
inline constexpr bool names_allocator<T, std::void_t<typename T::allocator_type>> = true;

} // namespace detail

// ---- promote -------------------------------------------------------------------------------------

namespace detail {

template <typename T>
inline constexpr bool is_region_aware = std::uses_allocator_v<T, region_allocator<std::byte>>;
template <typename T>
inline constexpr bool is_pmr = std::uses_allocator_v<T, std::pmr::polymorphic_allocator<std::byte>>;
template <typename T>
inline constexpr bool is_container = names_allocator<T> && (is_region_aware<T> || is_pmr<T>);
template <typename T>
inline constexpr bool is_plain =
    std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !std::is_array_v<T>;

} // namespace detail

// The whole block that p is, copied into another region or ebb::heap().
template <typename T> T *promote(const T *p, const region_ref &to)
{
    static_assert(std::is_void_v<T> || std::is_trivially_copyable_v<T>,
                  "a block is copied byte by byte");
    return static_cast<T *>(detail::need(::ebb_region_promote(p, to.get())));
}

// One object, wherever it lies. What it points to stays where it is.
template <typename T>
auto promote(const T &object, region_ref &to)
    -> std::enable_if_t<detail::is_plain<T> && !detail::is_container<T>, T *>
{
    return to.make<T>(object);
}

// A container of std::pmr, or of region_allocator: the copy's blocks are in `to`, and so are those of
// its elements if they are pmr containers or its allocator is scoped.
template <typename T>
auto promote(const T &container, region_ref &to) -> std::enable_if_t<detail::is_container<T>, T>
{
    if constexpr (detail::is_region_aware<T>)
        return T(container, typename T::allocator_type(to.allocator()));
    else
        return T(container, typename T::allocator_type(&to));
}

} // namespace ebb

#endif
