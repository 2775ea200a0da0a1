// SPDX-License-Identifier: MIT OR Apache-2.0
// Coroutines in regions, C++20. Not by itself: include <ebbtide/region.hpp>. A region is current in a
// thread, a coroutine moves between threads: so the region has to be left at every suspension and
// entered again, perhaps elsewhere, when the coroutine goes on. Two ways:
//
//   resume_in        for an executor that knows which region a task belongs to: brackets one resume.
//                    What the task resumes in its turn, by symmetric transfer too, runs inside as well.
//   scoped_promise   for a coroutine type: brackets each run of its coroutines, whoever resumes them.
//
// The region must outlive the coroutine's frame. No ebb::scope may be alive across a suspension.
#ifndef EBB_DETAIL_REGION_COROUTINE_HPP
#define EBB_DETAIL_REGION_COROUTINE_HPP

#include <coroutine>

#include <ebbtide/region.hpp>

namespace ebb {

// Resumes a suspended coroutine with a region, a domain or ebb::heap() current, until it suspends or
// ends. It must not end the region. Throws what the coroutine lets through.
template <typename Place> void resume_in(const Place &place, std::coroutine_handle<> task)
{
    const scope inside(place);
    task.resume();
}

namespace detail {

void takes_region(const region_ref *); // declared alone

// Asked by pointers, as a closure is not complete where its own coroutine is made; and by a call, as gcc 12
// finds no inherited constructor by a trait.
template <typename T>
concept no_region = !requires
{
    detail::takes_region(std::declval<std::remove_cvref_t<T> *>());
};

// The awaiter of an awaitable, as co_await finds it.
template <typename A> decltype(auto) awaiter_of(A &&awaitable)
{
    if constexpr (requires { std::forward<A>(awaitable).operator co_await(); })
        return std::forward<A>(awaitable).operator co_await();
    else if constexpr (requires { operator co_await(std::forward<A>(awaitable)); })
        return operator co_await(std::forward<A>(awaitable));
    else
        return std::forward<A>(awaitable);
}

} // namespace detail

// Base of a promise_type: the coroutine's frame lies in the region that is its first parameter (or the
// second, after an object or a context), by reference; else in plain malloc's. (Or in the caller's, where
// the compiler finds that it need not be allocated.) A region that is passed by value would end inside
// the frame, before the frame is freed.
//
// Inlined always: gcc pairs operators by name, and would warn at each coroutine that what a template
// has allocated is freed by a plain operator.
class region_promise {
public:
    template <typename... Rest>
    [[gnu::always_inline]] static void *operator new(std::size_t bytes, const region_ref &region,
                                                     Rest &&...)
    {
        return detail::allocate_in(region.get(), bytes, 16);
    }
    template <detail::no_region First, typename... Rest>
    [[gnu::always_inline]] static void *operator new(std::size_t bytes, First &&,
                                                     const region_ref &region, Rest &&...)
    {
        return detail::allocate_in(region.get(), bytes, 16);
    }
    static void *operator new(std::size_t bytes) { return detail::need(ebb_malloc(bytes)); }
    static void operator delete(void *frame) noexcept { ebb_free(frame); }
};

// As region_promise, which it is; and the region is current while the coroutine's body runs, never
// while it is suspended. The promise_type says `using scoped_promise::scoped_promise`. Where it has an
// initial_suspend, final_suspend, await_transform or yield_value of its own, these return what starting
// and away make of an awaitable, and final_suspend begins with leave(). unhandled_exception must not
// throw.
class scoped_promise : public region_promise {
    // Enters again when an await_suspend throws: then the coroutine goes on at once.
    struct reentry {
        scoped_promise *promise;
        ~reentry()
        {
            if (promise != nullptr)
                promise->enter();
        }
    };

    template <typename A> struct away_awaiter {
        scoped_promise &promise;
        A awaiter;
        bool has_left;

        bool await_ready() { return awaiter.await_ready(); }

        // Once the inner call has begun, the coroutine may already be running in another thread, or be
        // gone: nothing of it is touched after. Out of line, so that no local moves into its frame.
        template <typename Promise>
        [[gnu::noinline]] auto await_suspend(std::coroutine_handle<Promise> self)
        {
            has_left = true;
            promise.leave();
            reentry on_throw{&promise};
            if constexpr (std::is_void_v<decltype(awaiter.await_suspend(self))>) {
                awaiter.await_suspend(self);
                on_throw.promise = nullptr;
            } else {
                auto next = awaiter.await_suspend(self);
                on_throw.promise = nullptr;
                return next;
            }
        }

        decltype(auto) await_resume()
        {
            if (has_left)
                promise.enter();
            return awaiter.await_resume();
        }
    };

    template <typename A> struct starting_awaiter {
        scoped_promise &promise;
        A awaiter;

        bool await_ready() { return awaiter.await_ready(); }
        auto await_suspend(std::coroutine_handle<> self) { return awaiter.await_suspend(self); }
        void await_resume()
        {
            awaiter.await_resume();
            promise.enter();
        }
    };

public:
    template <typename... Rest>
    explicit scoped_promise(const region_ref &region, Rest &&...) noexcept : region_(region.get())
    {
    }
    template <detail::no_region First, typename... Rest>
    scoped_promise(First &&, const region_ref &region, Rest &&...) noexcept : region_(region.get())
    {
    }
    scoped_promise(const scoped_promise &) = delete;
    scoped_promise &operator=(const scoped_promise &) = delete;

    auto initial_suspend() noexcept
    {
        return starting_awaiter<std::suspend_always>{*this, std::suspend_always{}};
    }
    std::suspend_always final_suspend() noexcept
    {
        leave();
        return {};
    }
    template <typename A> auto await_transform(A &&awaitable)
    {
        return away(std::forward<A>(awaitable));
    }

protected:
    void enter() noexcept { before_ = detail::enter(region_); }
    void leave() noexcept { ebb_leave(before_); }

    // Awaits outside of the region; inside again when it is done. The operand lives as long as the
    // co_await, so a reference to it is enough.
    template <typename A> auto away(A &&awaitable)
    {
        using awaiter = decltype(detail::awaiter_of(std::forward<A>(awaitable)));
        return away_awaiter<awaiter>{*this, detail::awaiter_of(std::forward<A>(awaitable)), false};
    }
    // For initial_suspend: the body begins inside.
    template <typename A> auto starting(A awaiter) noexcept
    {
        return starting_awaiter<A>{*this, std::move(awaiter)};
    }

private:
    ebb_region *region_;
    ebb_scope before_{};
};

} // namespace ebb

#endif
