// SPDX-License-Identifier: MIT OR Apache-2.0
// The lock-free blocks for C++17: ebb::deque<T>, ebb::queue<T>, ebb::stack<T>, ebb::map<K, V>. Covers
// of ebbtide/deque.h, queue.h, stack.h and map.h, which say who may call what and what it costs. A
// trivially copyable T no larger than a pointer is kept in place; any other in a block of its own.
// Where memory is refused they throw std::bad_alloc and nothing has changed: a T that was moved in is moved back if its move
// assignment cannot throw, else it is gone. What T's own copies and moves throw passes through: of a push nothing has changed,
// of a pop or a steal the item is lost. Link ebbtide_lockfree.
#ifndef EBBTIDE_LOCKFREE_HPP
#define EBBTIDE_LOCKFREE_HPP

#include <cstring>
#include <functional>
#include <memory>
#include <optional>

#include <ebbtide.hpp>
#include <ebbtide/deque.h>
#include <ebbtide/map.h>
#include <ebbtide/queue.h>
#include <ebbtide/stack.h>

namespace ebb {

namespace detail {

// Into what a T was moved from, as a U.
template <typename U, typename T>
void give_back([[maybe_unused]] T &from, [[maybe_unused]] std::remove_reference_t<U> &to)
{
    if constexpr (std::is_same_v<U, T> && std::is_nothrow_move_assignable_v<T>)
        to = std::move(from);
}

// How a T travels as a pointer. Who takes the pointer out owns the object alone.
template <typename T> struct carrier {
    static constexpr bool in_place = std::is_trivially_copyable_v<T> &&
                                     std::is_default_constructible_v<T> &&
                                     sizeof(T) <= sizeof(void *);

    template <typename U> static void *pack(U &&value)
    {
        if constexpr (in_place) {
            const T copy(std::forward<U>(value));
            void *item = nullptr;
            std::memcpy(&item, std::addressof(copy), sizeof copy);
            return item;
        } else {
            return ebb::make<T>(std::forward<U>(value));
        }
    }
    static T read(void *item)
    {
        T value;
        std::memcpy(static_cast<void *>(std::addressof(value)), &item, sizeof value);
        return value;
    }
    static std::optional<T> unpack(void *item)
    {
        if constexpr (in_place) {
            return read(item);
        } else {
            T *boxed = static_cast<T *>(item);
            const std::unique_ptr<T, void (*)(T *) noexcept> owned(boxed, ebb::destroy<T>);
            return std::optional<T>(std::move(*boxed));
        }
    }
    static void drop(void *item) noexcept
    {
        if constexpr (!in_place)
            ebb::destroy(static_cast<T *>(item));
    }
    // Throws if the push was refused. U: as what the value was packed.
    template <typename U>
    static void check(int result, void *item, std::remove_reference_t<U> &value)
    {
        if (result != 0) {
            if constexpr (!in_place)
                detail::give_back<U>(*static_cast<T *>(item), value);
            drop(item);
            throw_bad_alloc();
        }
    }
};

} // namespace detail

// One thread owns it: push and pop. Any thread steals.
template <typename T> class deque {
public:
    explicit deque(std::size_t capacity = 0) : deque_(detail::need(ebb_deque_create(capacity))) {}
    ~deque()
    {
        void *item;
        while (ebb_deque_pop(deque_, &item))
            carrier::drop(item);
        ebb_deque_destroy(deque_);
    }
    deque(const deque &) = delete;
    deque &operator=(const deque &) = delete;

    template <typename U> void push(U &&value)
    {
        void *item = carrier::pack(std::forward<U>(value));
        carrier::template check<U>(ebb_deque_push(deque_, item), item, value);
    }
    std::optional<T> pop()
    {
        void *item;
        return ebb_deque_pop(deque_, &item) ? carrier::unpack(item) : std::nullopt;
    }
    // One attempt. Empty-handed, *result says whether another may succeed.
    std::optional<T> try_steal(ebb_steal *result = nullptr)
    {
        void *item;
        const ebb_steal got = ebb_deque_steal(deque_, &item);
        if (result != nullptr)
            *result = got;
        return got == EBB_STEAL_SUCCESS ? carrier::unpack(item) : std::nullopt;
    }
    // Until it has one or the deque is empty.
    std::optional<T> steal()
    {
        for (;;) {
            ebb_steal result;
            std::optional<T> value = try_steal(&result);
            if (result != EBB_STEAL_RETRY)
                return value;
        }
    }
    void shrink() { detail::need_zero(ebb_deque_shrink(deque_)); }
    std::size_t size() const noexcept { return ebb_deque_size(deque_); }

private:
    using carrier = detail::carrier<T>;
    ebb_deque *deque_;
};

template <typename T> class queue {
public:
    queue() : queue_(detail::need(ebb_queue_create())) {}
    ~queue()
    {
        void *item;
        while (ebb_queue_pop(queue_, &item))
            carrier::drop(item);
        ebb_queue_destroy(queue_);
    }
    queue(const queue &) = delete;
    queue &operator=(const queue &) = delete;

    template <typename U> void push(U &&value)
    {
        void *item = carrier::pack(std::forward<U>(value));
        carrier::template check<U>(ebb_queue_push(queue_, item), item, value);
    }
    std::optional<T> pop()
    {
        void *item;
        return ebb_queue_pop(queue_, &item) ? carrier::unpack(item) : std::nullopt;
    }
    std::size_t size() const noexcept { return ebb_queue_size(queue_); }

private:
    using carrier = detail::carrier<T>;
    ebb_queue *queue_;
};

template <typename T> class stack {
public:
    stack() : stack_(detail::need(ebb_stack_create())) {}
    ~stack()
    {
        void *item;
        while (ebb_stack_pop(stack_, &item))
            carrier::drop(item);
        ebb_stack_destroy(stack_);
    }
    stack(const stack &) = delete;
    stack &operator=(const stack &) = delete;

    template <typename U> void push(U &&value)
    {
        void *item = carrier::pack(std::forward<U>(value));
        carrier::template check<U>(ebb_stack_push(stack_, item), item, value);
    }
    std::optional<T> pop()
    {
        void *item;
        return ebb_stack_pop(stack_, &item) ? carrier::unpack(item) : std::nullopt;
    }
    bool empty() const noexcept { return ebb_stack_is_empty(stack_); }

private:
    using carrier = detail::carrier<T>;
    ebb_stack *stack_;
};

} // namespace ebb

#include <ebbtide/detail/map.hpp>

#endif
