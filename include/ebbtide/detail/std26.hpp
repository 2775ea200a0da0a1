// SPDX-License-Identifier: MIT OR Apache-2.0
// Hazard pointers and RCU under the names of C++26 (P2530, P2545), in namespace ebb. Not by itself:
// include <ebbtide.hpp>. Three things differ from the standard: to make a hazard pointer and to retire
// may throw std::bad_alloc; both kinds of reader guard against both kinds of retire; and a retired
// object's address must be the one that readers protect.
#ifndef EBB_DETAIL_STD26_HPP
#define EBB_DETAIL_STD26_HPP

#include <ebbtide.hpp>

namespace ebb {

// ---- retiring with a deleter ---------------------------------------------------------------------

namespace detail {

template <typename T, typename D> void delete_plain(void *p, void *) { D()(static_cast<T *>(p)); }

template <typename T, typename D> void delete_with(void *p, void *context)
{
    D *deleter = static_cast<D *>(context);
    (*deleter)(static_cast<T *>(p));
    destroy(deleter);
}

template <typename T, typename D> void retire_by(T *p, D deleter)
{
    if constexpr (std::is_empty_v<D> && std::is_default_constructible_v<D>) {
        need_zero(ebb_retire_with(address_of(p), delete_plain<T, D>, nullptr));
    } else {
        D *kept = make<D>(std::move(deleter));
        if (ebb_retire_with(address_of(p), delete_with<T, D>, kept) != 0) {
            destroy(kept);
            throw_bad_alloc();
        }
    }
}

} // namespace detail

// ---- hazard pointers -----------------------------------------------------------------------------

// Protects one object at a time. Movable; an empty one protects nothing. For one thread at a time.
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
    // True: *source still was p, which is protected. False: p is what *source is now.
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
    template <typename T> void reset_protection(const T *p) noexcept
    {
        ebb_hazard_set(hazard_, const_cast<T *>(p));
    }
    void reset_protection(std::nullptr_t = nullptr) noexcept { ebb_hazard_clear(hazard_); }

    void swap(hazard_pointer &other) noexcept { std::swap(hazard_, other.hazard_); }

private:
    explicit hazard_pointer(ebb_hazard *opened) noexcept : hazard_(opened) {}
    friend hazard_pointer make_hazard_pointer();

    ebb_hazard *hazard_ = nullptr;
};

inline hazard_pointer make_hazard_pointer()
{
    return hazard_pointer(detail::need(ebb_hazard_open()));
}

inline void swap(hazard_pointer &a, hazard_pointer &b) noexcept { a.swap(b); }

template <typename T, typename D = std::default_delete<T>> class hazard_pointer_obj_base {
public:
    void retire(D deleter = D()) { detail::retire_by(static_cast<T *>(this), std::move(deleter)); }

protected:
    hazard_pointer_obj_base() = default;
    hazard_pointer_obj_base(const hazard_pointer_obj_base &) = default;
    hazard_pointer_obj_base &operator=(const hazard_pointer_obj_base &) = default;
    ~hazard_pointer_obj_base() = default;
};

// ---- RCU -----------------------------------------------------------------------------------------

// The default collector as a BasicLockable: std::scoped_lock(ebb::rcu_default_domain()) is a reader.
class rcu_domain {
public:
    rcu_domain(const rcu_domain &) = delete;
    rcu_domain &operator=(const rcu_domain &) = delete;
    void lock() noexcept { ebb_pin(); }
    void unlock() noexcept { ebb_unpin(); }

private:
    constexpr rcu_domain() noexcept = default;
    friend rcu_domain &rcu_default_domain() noexcept;
};

inline rcu_domain &rcu_default_domain() noexcept
{
    static rcu_domain domain;
    return domain;
}

// Waits until the readers that are there have ended. Not inside one.
inline void rcu_synchronize(rcu_domain & = rcu_default_domain()) noexcept { ebb_synchronize(); }
// Waits until the deleters of all that was retired before have run. Not inside a reader or deleter.
inline void rcu_barrier(rcu_domain & = rcu_default_domain()) noexcept { ebb_barrier(); }

template <typename T, typename D = std::default_delete<T>>
void rcu_retire(T *p, D deleter = D(), rcu_domain & = rcu_default_domain())
{
    detail::retire_by(p, std::move(deleter));
}

template <typename T, typename D = std::default_delete<T>> class rcu_obj_base {
public:
    void retire(D deleter = D(), rcu_domain & = rcu_default_domain())
    {
        detail::retire_by(static_cast<T *>(this), std::move(deleter));
    }

protected:
    rcu_obj_base() = default;
    rcu_obj_base(const rcu_obj_base &) = default;
    rcu_obj_base &operator=(const rcu_obj_base &) = default;
    ~rcu_obj_base() = default;
};

} // namespace ebb

#endif
