// SPDX-License-Identifier: MIT OR Apache-2.0
// Ebbtide for C++17: pins as guards, atomic pointers that are read under one, retiring of objects with
// their destructors, collectors; and ebbtide/object.hpp, rcu.hpp and hazard_pointer.hpp. A thin
// cover of ebbtide/reclaim.h, which says what the operations mean and cost. Where C says ENOMEM, these
// throw std::bad_alloc (or abort where exceptions are off) and nothing has changed. Destructors of
// retired objects must not throw. Every function may be called by any thread.
#ifndef EBBTIDE_HPP
#define EBBTIDE_HPP

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>

#include <ebbtide/hazard_pointer.hpp>
#include <ebbtide/object.hpp>
#include <ebbtide/rcu.hpp>
#include <ebbtide/tagged_ptr.hpp>

namespace ebb {

// ---- retiring -----------------------------------------------------------------------------------

namespace detail {

template <typename T> void destroy_later(void *p, void *) { ebb::destroy(static_cast<T *>(p)); }

template <typename T>
inline constexpr bool plain_block =
    std::is_trivially_destructible_v<T> && !std::is_polymorphic_v<T>;

} // namespace detail

// After the grace period: destroys the object and frees its block, which is one of make (or, where
// ~T does nothing and T has no virtual functions, any block of Ebbtide; then it never throws). NULL is
// allowed.
template <typename T> void retire(T *p) noexcept(detail::plain_block<T>)
{
    if constexpr (detail::plain_block<T>)
        ebb_retire(detail::address_of(p));
    else if (p != nullptr)
        detail::need_zero(
            ::ebb_retire_with(detail::address_of(p), detail::destroy_later<T>, nullptr));
}

// ---- collectors ----------------------------------------------------------------------------------

class guard;

// A clock of its own. It is BasicLockable: lock pins the calling thread in it, unlock unpins.
class collector {
public:
    // std::invalid_argument for unknown flags.
    explicit collector(unsigned flags = 0) : collector_(ebb_collector_create(flags))
    {
        if (collector_ == nullptr && errno == EINVAL)
            detail::throw_invalid("ebb::collector: unknown flags");
        detail::need(collector_);
    }
    // Reclaims all. Nobody may be pinned in it, nor this thread in the default one.
    ~collector() { ebb_collector_destroy(collector_); }
    collector(const collector &) = delete;
    collector &operator=(const collector &) = delete;

    // The calling thread's record: keep it for guards in a hot path.
    ebb_participant *attach() { return detail::need(ebb_collector_attach(collector_)); }
    ebb_collector *get() const noexcept { return collector_; }
    bool is_fenced() const noexcept { return ebb_collector_is_fenced(collector_) != 0; }

    void lock() { ebb_participant_pin(attach()); }
    void unlock() { ebb_participant_unpin(attach()); }

    template <typename T> void retire(T *p)
    {
        if constexpr (detail::plain_block<T>)
            detail::need_zero(ebb_participant_retire(attach(), detail::address_of(p)));
        else if (p != nullptr)
            detail::need_zero(::ebb_participant_retire_with(attach(), detail::address_of(p),
                                                            detail::destroy_later<T>, nullptr));
    }
    void synchronize() noexcept { ebb_collector_synchronize(collector_); }
    void barrier() noexcept { ebb_collector_barrier(collector_); }
    std::size_t reclaim() noexcept { return ebb_collector_reclaim(collector_); }

private:
    ebb_collector *collector_;
};

// ---- guards and atomic pointers ------------------------------------------------------------------

// A pin for as long as the guard lives: of the default collector, or of another. For one thread.
class guard {
public:
    guard() noexcept { ebb_pin(); }
    explicit guard(collector &of) : guard(of.attach()) {}
    explicit guard(ebb_participant *me) noexcept : participant_(me) { ebb_participant_pin(me); }
    ~guard()
    {
        if (participant_ == nullptr)
            ebb_unpin();
        else
            ebb_participant_unpin(participant_);
    }
    guard(const guard &) = delete;
    guard &operator=(const guard &) = delete;

    // Lets go of everything that was loaded under the guard, and goes on.
    void repin() noexcept
    {
        if (participant_ == nullptr)
            ebb_repin();
        else
            ebb_participant_repin(participant_);
    }

private:
    ebb_participant *participant_ = nullptr;
};

// A pointer that threads load under a guard; who unlinks what it pointed to retires that. Lock-free. With
// Bits > 0 its value is a tagged_ptr: the pointer and a tag of so many bits change in one step.
template <typename T, unsigned Bits = 0> class atomic_ptr {
public:
    using value_type = std::conditional_t<Bits == 0, T *, tagged_ptr<T, Bits>>;

    constexpr atomic_ptr(value_type p = nullptr) noexcept : pointer_(p) {}
    atomic_ptr(const atomic_ptr &) = delete;
    atomic_ptr &operator=(const atomic_ptr &) = delete;

    // Valid as long as the guard lives and is not repinned.
    value_type load(const guard &,
                    std::memory_order order = std::memory_order_acquire) const noexcept
    {
        return pointer_.load(order);
    }
    // The address alone: to compare, or where nothing can be retired.
    value_type load_unprotected(std::memory_order order = std::memory_order_acquire) const noexcept
    {
        return pointer_.load(order);
    }
    // Valid until the next call for this hazard pointer, which is not empty. *this must be a link of something that
    // cannot be retired meanwhile, or is checked to be still linked afterwards.
    value_type protect(hazard_pointer &hazard) const noexcept
    {
        value_type p = pointer_.load(std::memory_order_relaxed);
        for (;;) {
            hazard.reset_protection(detail::plain(p));
            const value_type again = pointer_.load(std::memory_order_acquire);
            if (again == p)
                return p;
            p = again;
        }
    }
    void store(value_type p, std::memory_order order = std::memory_order_release) noexcept
    {
        pointer_.store(p, order);
    }
    value_type exchange(value_type p, std::memory_order order = std::memory_order_acq_rel) noexcept
    {
        return pointer_.exchange(p, order);
    }
    // Pointer and tag are compared, and replaced, together.
    bool compare_exchange_strong(value_type &expected, value_type p,
                                 std::memory_order success = std::memory_order_acq_rel,
                                 std::memory_order failure = std::memory_order_acquire) noexcept
    {
        return pointer_.compare_exchange_strong(expected, p, success, failure);
    }
    bool compare_exchange_weak(value_type &expected, value_type p,
                               std::memory_order success = std::memory_order_acq_rel,
                               std::memory_order failure = std::memory_order_acquire) noexcept
    {
        return pointer_.compare_exchange_weak(expected, p, success, failure);
    }
    // Links p and retires what was there. If that throws, p is linked and what was there is not retired: with
    // exchange and retire the caller keeps it.
    void replace(value_type p) noexcept(detail::plain_block<T>)
    {
        ebb::retire(detail::plain(exchange(p)));
    }
    // For hazard_pointer::protect, without tags.
    const std::atomic<value_type> &source() const noexcept { return pointer_; }

private:
    std::atomic<value_type> pointer_;
    static_assert(std::atomic<value_type>::is_always_lock_free, "a word");
};

} // namespace ebb

#endif
