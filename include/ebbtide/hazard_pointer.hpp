// SPDX-License-Identifier: MIT OR Apache-2.0
// Ebbtide for C++17: hazard pointers under the names of C++26 (<hazard_pointer>, [saferecl.hp]), in namespace
// ebb. Over ebbtide/reclaim.h. Beyond the standard:
// - objects without hazard_pointer_obj_base may be protected, too: they are safe from ebb::retire and
//   ebb::rcu_retire, if the pointer that is protected is the one that is retired;
// - pins, so ebb::guard and readers of ebb::rcu_domain, hold back what is retired here as well;
// - deleters run in retire, when the thread's pin ends, in the functions of ebbtide/reclaim.h that run destructors or in
//   the library's thread, never inside a pin;
// - an object that waits and retires itself again aborts. A deleter that throws ends the process.
// In the child of a fork, those that another living thread has made, or protected something by last, protect nothing
// until they are used again (of a thread that had ended: perhaps).
// A reader copies members, not a whole object with its base: retire writes to that.
#ifndef EBBTIDE_HAZARD_POINTER_HPP
#define EBBTIDE_HAZARD_POINTER_HPP

#include <atomic>
#include <memory>

#include <ebbtide/detail/deleter_hook.hpp>

namespace ebb {

template <typename T, typename D = std::default_delete<T>> class hazard_pointer_obj_base;

namespace detail {

struct hazard_base_mark {}; // whoever has it has such a base, if only an ambiguous one

template <typename T, typename D,
          typename = decltype(static_cast<const volatile T *>(
              std::declval<const volatile hazard_pointer_obj_base<T, D> *>()))>
T *hazard_base(const volatile hazard_pointer_obj_base<T, D> *);
void hazard_base(const volatile void *); // there is none, or more than one, or it is virtual

// A T * of the hazard_pointer_obj_base<T, D>; void.
template <typename T>
using hazard_base_t = decltype(detail::hazard_base(static_cast<T *>(nullptr)));

} // namespace detail

// Of T, once and publicly: gives it retire, which never throws and allocates nothing. 24 bytes, and the
// deleter.
template <typename T, typename D> class hazard_pointer_obj_base : detail::hazard_base_mark {
public:
    void retire(D d = D()) noexcept
    {
        static_assert(
            std::is_same_v<detail::hazard_base_t<T>, T *> &&
                std::is_convertible_v<T *, hazard_pointer_obj_base *>,
            "hazard_pointer_obj_base<T, D> is a base of T: public, and the only one of its kind");
        detail::retire_hooked(static_cast<T *>(this), hook_, d);
    }

protected:
    hazard_pointer_obj_base() = default;
    hazard_pointer_obj_base(const hazard_pointer_obj_base &) = default;
    hazard_pointer_obj_base(hazard_pointer_obj_base &&) = default;
    hazard_pointer_obj_base &operator=(const hazard_pointer_obj_base &) = default;
    hazard_pointer_obj_base &operator=(hazard_pointer_obj_base &&) = default;
    ~hazard_pointer_obj_base() = default;

private:
    detail::deleter_hook<D> hook_;
};

// Protects one object at a time. Movable; an empty one protects nothing. For one thread at a time; it may
// outlive the thread that made it.
class hazard_pointer {
public:
    hazard_pointer() noexcept = default;
    hazard_pointer(hazard_pointer &&other) noexcept : hazard_(std::exchange(other.hazard_, nullptr))
    {
    }
    hazard_pointer &operator=(hazard_pointer &&other) noexcept
    {
        hazard_pointer(std::move(other)).swap(*this);
        return *this;
    }
    ~hazard_pointer() { ebb_hazard_close(hazard_); }

    [[nodiscard]] bool empty() const noexcept { return hazard_ == nullptr; }

    // The next four: not for an empty one. The object is safe until the next of these calls.
    template <typename T> T *protect(const std::atomic<T *> &source) noexcept
    {
        T *p = source.load(std::memory_order_relaxed);
        while (!try_protect(p, source)) {
        }
        return p;
    }
    // True: source still was p, which is protected. False: p is what source is now, and nothing is protected.
    template <typename T> bool try_protect(T *&p, const std::atomic<T *> &source) noexcept
    {
        T *const wanted = p;
        reset_protection(wanted);
        p = source.load(std::memory_order_acquire);
        if (p == wanted)
            return true;
        reset_protection();
        return false;
    }
    // From now on *p, if it can still be reached after this call.
    template <typename T> void reset_protection(const T *p) noexcept
    {
        using base = detail::hazard_base_t<const T>;
        static_assert(std::is_same_v<base, std::remove_cv_t<T> *> ||
                          !std::is_base_of_v<detail::hazard_base_mark, T>, // nor is T incomplete
                      "what is protected is the T of its hazard_pointer_obj_base<T, D>");
        ebb_hazard_set(hazard_, detail::address_of(p));
    }
    void reset_protection(std::nullptr_t = nullptr) noexcept { ebb_hazard_clear(hazard_); }

    void swap(hazard_pointer &other) noexcept { std::swap(hazard_, other.hazard_); }

private:
    explicit hazard_pointer(ebb_hazard *opened) noexcept : hazard_(opened) {}
    friend hazard_pointer make_hazard_pointer();

    ebb_hazard *hazard_ = nullptr;
};

// Throws std::bad_alloc where memory is refused. Takes a lock: keep what it returns.
inline hazard_pointer make_hazard_pointer()
{
    return hazard_pointer(detail::need(ebb_hazard_open()));
}

inline void swap(hazard_pointer &a, hazard_pointer &b) noexcept { a.swap(b); }

} // namespace ebb

#endif
