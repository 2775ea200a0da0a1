// SPDX-License-Identifier: MIT OR Apache-2.0
// Ebbtide for C++17: read-copy update under the names of C++26 (<rcu>, [saferecl.rcu]), in namespace ebb. Over
// ebbtide/reclaim.h, whose default collector is the domain. Beyond the standard:
// - what hazard pointers point to is not deleted either. rcu_barrier does not wait for objects that are held back
//   so, if they retired themselves or came to rcu_retire with a deleter that has state. With a stateless one, it
//   waits for them, and for up to 39 that came beside: whoever calls rcu_barrier protects no such object itself.
//   Stateless is what is empty and trivial as std::default_delete is (a lambda without captures, from C++20 on);
// - rcu_synchronize and rcu_barrier inside a reader of their thread abort, and rcu_barrier inside a deleter;
// - deleters run in retire, in unlock, in the functions below or in the library's thread, never inside a reader;
// - an object that waits and retires itself again aborts. A deleter that throws ends the process.
// A reader copies members, not a whole object with its base: retire writes to that.
#ifndef EBBTIDE_RCU_HPP
#define EBBTIDE_RCU_HPP

#include <memory>

#include <ebbtide/detail/deleter_hook.hpp>

namespace ebb {

// Lockable, so std::scoped_lock(ebb::rcu_default_domain()) is a reader. Readers may nest.
class rcu_domain {
public:
    rcu_domain(const rcu_domain &) = delete;
    rcu_domain &operator=(const rcu_domain &) = delete;

    void lock() noexcept { ebb_pin(); }
    bool try_lock() noexcept
    {
        lock();
        return true;
    }
    void unlock() noexcept { ebb_unpin(); }

private:
    constexpr rcu_domain() noexcept = default;
    friend rcu_domain &rcu_default_domain() noexcept;
};

// Of the process, for good: also for destructors of static objects. (Hidden: else a library that uses it could
// not be unloaded.)
__attribute__((visibility("hidden"))) inline rcu_domain &rcu_default_domain() noexcept
{
    static rcu_domain domain;
    return domain;
}

// Waits until the readers that are there have ended.
inline void rcu_synchronize(rcu_domain & = rcu_default_domain()) noexcept { ebb_synchronize(); }
// Waits until the deleters of all that was retired before have run, but for some that hazard pointers hold back
// (above). A library calls it before it is unloaded.
inline void rcu_barrier(rcu_domain & = rcu_default_domain()) noexcept { ebb_barrier(); }

template <typename T, typename D = std::default_delete<T>> class rcu_obj_base;

namespace detail {

template <typename T, typename D> std::true_type is_rcu_base(const volatile rcu_obj_base<T, D> *);
std::false_type is_rcu_base(const volatile void *); // or ambiguous

template <typename D>
inline constexpr bool stateless = std::is_empty_v<D> &&std::is_trivially_default_constructible_v<D>
    &&std::is_trivially_move_constructible_v<D> &&std::is_trivially_destructible_v<D>;

template <typename T, typename D> void delete_by(void *p, void *) noexcept
{
    D()(static_cast<T *>(p));
}

template <typename D> struct deleter_block : ebb_hook {
    explicit deleter_block(D &&from) : ebb_hook{}, deleter(std::move(from)) {}
    D deleter;
};

template <typename T, typename D> void delete_from_block(void *p, ebb_hook *hook) noexcept
{
    deleter_block<D> *const block = static_cast<deleter_block<D> *>(hook);
    block->deleter(static_cast<T *>(p));
    ebb::destroy(block);
}

} // namespace detail

// Of T, once and publicly: gives it retire, which never throws and allocates nothing. 24 bytes, and the
// deleter.
template <typename T, typename D> class rcu_obj_base {
public:
    void retire(D d = D(), rcu_domain & = rcu_default_domain()) noexcept
    {
        static_assert(decltype(detail::is_rcu_base(static_cast<T *>(nullptr)))::value &&
                          std::is_convertible_v<T *, rcu_obj_base *>,
                      "rcu_obj_base<T, D> is a base of T: public, and the only one of its kind");
        detail::retire_hooked(static_cast<T *>(this), hook_, d);
    }

protected:
    rcu_obj_base() = default;
    rcu_obj_base(const rcu_obj_base &) = default;
    rcu_obj_base(rcu_obj_base &&) = default;
    rcu_obj_base &operator=(const rcu_obj_base &) = default;
    rcu_obj_base &operator=(rcu_obj_base &&) = default;
    ~rcu_obj_base() = default;

private:
    detail::deleter_hook<D> hook_;
};

// Of an object without that base. May allocate: throws std::bad_alloc, or what moving the deleter throws; p is
// the caller's then.
template <typename T, typename D = std::default_delete<T>>
void rcu_retire(T *p, D d = D(), rcu_domain & = rcu_default_domain())
{
    static_assert(std::is_move_constructible_v<D> && std::is_invocable_v<D &, T *>,
                  "a deleter is moved, and called with a T *");
    if constexpr (detail::stateless<D>)
        detail::need_zero(
            ::ebb_retire_with(detail::address_of(p), detail::delete_by<T, D>, nullptr));
    else
        ::ebb_retire_hooked(ebb::make<detail::deleter_block<D>>(std::move(d)),
                            detail::address_of(p), detail::delete_from_block<T, D>);
}

} // namespace ebb

#endif
