// SPDX-License-Identifier: MIT OR Apache-2.0
// Ebbtide for C++17: pins as guards, atomic pointers that are read under one, retiring of objects with
// their destructors, hazard pointers and RCU under the names of C++26 (P2530, P2545), collectors. A thin
// cover of ebbtide/reclaim.h, which says what the operations mean and cost. Where C says ENOMEM, these
// throw std::bad_alloc (or abort where exceptions are off) and nothing has changed. Destructors of
// retired objects must not throw. Every function may be called by any thread.
#ifndef EBBTIDE_HPP
#define EBBTIDE_HPP

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include <ebbtide/reclaim.h>

namespace ebb {

namespace detail {

[[noreturn]] inline void throw_bad_alloc()
{
#if defined(__cpp_exceptions)
    throw std::bad_alloc();
#else
    std::abort();
#endif
}

template <typename P> P need(P p)
{
    if (p == nullptr)
        throw_bad_alloc();
    return p;
}

inline void need_zero(int result)
{
    if (result != 0)
        throw_bad_alloc();
}

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

// ---- objects in Ebbtide's memory -----------------------------------------------------------------

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

namespace detail {

template <typename T> void destroy_later(void *p, void *) { destroy(static_cast<T *>(p)); }

template <typename T>
inline constexpr bool plain_block =
    std::is_trivially_destructible_v<T> && !std::is_polymorphic_v<T>;

} // namespace detail

// After the grace period: destroys the object and frees its block, which is one of make (or, where
// ~T does nothing, any block of Ebbtide). Never throws where ~T does nothing. NULL is allowed.
template <typename T> void retire(T *p) noexcept(detail::plain_block<T>)
{
    if constexpr (detail::plain_block<T>)
        ebb_retire(detail::address_of(p));
    else if (p != nullptr)
        detail::need_zero(
            ebb_retire_with(detail::address_of(p), detail::destroy_later<T>, nullptr));
}

// ---- collectors ----------------------------------------------------------------------------------

class guard;

// A clock of its own. It is BasicLockable: lock pins the calling thread in it, unlock unpins.
class collector {
public:
    explicit collector(unsigned flags = 0) : collector_(detail::need(ebb_collector_create(flags)))
    {
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
            detail::need_zero(ebb_participant_retire_with(attach(), detail::address_of(p),
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

// A pointer that threads load under a guard; who unlinks what it pointed to retires that. Lock-free.
template <typename T> class atomic_ptr {
public:
    constexpr atomic_ptr(T *p = nullptr) noexcept : pointer_(p) {}
    atomic_ptr(const atomic_ptr &) = delete;
    atomic_ptr &operator=(const atomic_ptr &) = delete;

    // Valid as long as the guard lives and is not repinned.
    T *load(const guard &, std::memory_order order = std::memory_order_acquire) const noexcept
    {
        return pointer_.load(order);
    }
    // The address alone: to compare, or where nothing can be retired.
    T *load_unprotected(std::memory_order order = std::memory_order_acquire) const noexcept
    {
        return pointer_.load(order);
    }
    void store(T *p, std::memory_order order = std::memory_order_release) noexcept
    {
        pointer_.store(p, order);
    }
    T *exchange(T *p, std::memory_order order = std::memory_order_acq_rel) noexcept
    {
        return pointer_.exchange(p, order);
    }
    bool compare_exchange_strong(T *&expected, T *p,
                                 std::memory_order success = std::memory_order_acq_rel,
                                 std::memory_order failure = std::memory_order_acquire) noexcept
    {
        return pointer_.compare_exchange_strong(expected, p, success, failure);
    }
    bool compare_exchange_weak(T *&expected, T *p,
                               std::memory_order success = std::memory_order_acq_rel,
                               std::memory_order failure = std::memory_order_acquire) noexcept
    {
        return pointer_.compare_exchange_weak(expected, p, success, failure);
    }
    // Links p and retires what was there.
    void replace(T *p) noexcept(detail::plain_block<T>) { retire(exchange(p)); }
    // For hazard_pointer::protect.
    const std::atomic<T *> &source() const noexcept { return pointer_; }

private:
    std::atomic<T *> pointer_;
};

} // namespace ebb

#include <ebbtide/detail/std26.hpp>

#endif
