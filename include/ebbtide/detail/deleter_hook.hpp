// SPDX-License-Identifier: MIT OR Apache-2.0
// What objects that retire themselves carry: a hook and their deleter. Not by itself: include
// <ebbtide/rcu.hpp> or <ebbtide/hazard_pointer.hpp>.
#ifndef EBB_DETAIL_DELETER_HOOK_HPP
#define EBB_DETAIL_DELETER_HOOK_HPP

#include <memory>

#include <ebbtide/object.hpp>

namespace ebb::detail {

template <typename D, bool = std::is_empty_v<D> && !std::is_final_v<D>>
struct deleter_hook : ebb_hook {
    D own{};
    constexpr deleter_hook() noexcept(noexcept(D())) : ebb_hook{} {}
    D &deleter() noexcept { return own; }
};

// An empty deleter has no place of its own.
template <typename D> struct deleter_hook<D, true> : ebb_hook, D {
    constexpr deleter_hook() noexcept(noexcept(D())) : ebb_hook{}, D() {}
    D &deleter() noexcept { return *this; }
};

// The deleter may use what it holds after the object has gone, and that is a part of the object. It must
// not throw.
template <typename T, typename D> void delete_hooked(void *p, ebb_hook *hook) noexcept
{
    D deleter{};
    deleter = std::move(static_cast<deleter_hook<D> *>(hook)->deleter());
    deleter(static_cast<T *>(p));
}

template <typename T, typename D>
void retire_hooked(T *p, deleter_hook<D> &hook, D &deleter) noexcept
{
    static_assert(std::is_invocable_v<D &, T *>, "a deleter is called with a T *");
    hook.deleter() = std::move(deleter);
    ::ebb_retire_hooked(std::addressof(hook), p, delete_hooked<T, D>);
}

} // namespace ebb::detail

#endif
