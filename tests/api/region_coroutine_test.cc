// SPDX-License-Identifier: MIT OR Apache-2.0
// Coroutines in regions: where their frames lie, and that the region is current while they run and
// never while they wait, whichever thread resumes them.
#include "ebbtide/region.hpp"
#include "support.h"

#if defined(__cpp_impl_coroutine)

#include <coroutine>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace {

// Where plain malloc of this library would come from.
ebb_region *where_malloc_goes()
{
    void *p = ebb_malloc(40);
    ebb_region *region = ebb_region_of(p);
    ebb_free(p);
    return region;
}

// Owns a coroutine that is resumed by hand.
template <typename Promise> struct Handle {
    explicit Handle(std::coroutine_handle<Promise> of) : handle(of) {}
    Handle(Handle &&other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
    ~Handle()
    {
        if (handle)
            handle.destroy();
    }
    std::coroutine_handle<Promise> handle;
};

// Its frame lies in a region; what is current is none of its business.
struct Plain {
    struct promise_type : ebb::region_promise {
        Plain get_return_object()
        {
            return {Handle(std::coroutine_handle<promise_type>::from_promise(*this))};
        }
        std::suspend_always initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
    Handle<promise_type> owned;
    void resume() { owned.handle.resume(); }
    bool done() const { return owned.handle.done(); }
};

// Runs with its region current; notes the exception that ended it.
struct Task {
    struct promise_type : ebb::scoped_promise {
        using scoped_promise::scoped_promise;
        Task get_return_object()
        {
            return {Handle(std::coroutine_handle<promise_type>::from_promise(*this))};
        }
        auto yield_value(int value)
        {
            yielded = value;
            return away(std::suspend_always{});
        }
        void return_void() {}
        void unhandled_exception() { failure = std::current_exception(); }
        int yielded = 0;
        std::exception_ptr failure;
    };
    Handle<promise_type> owned;
    void resume() { owned.handle.resume(); }
    bool done() const { return owned.handle.done(); }
    promise_type &promise() { return owned.handle.promise(); }
};

using Places = std::vector<ebb_region *>;

// Out of line, as are the others: else clang puts the frame on the caller's stack.
[[gnu::noinline]] Plain note_places(ebb::region &, Places &places)
{
    places.push_back(where_malloc_goes());
    co_await std::suspend_always{};
    places.push_back(where_malloc_goes());
}

[[gnu::noinline]] Plain note_places_after_context(int, ebb::region &, Places &places)
{
    places.push_back(where_malloc_goes());
    co_return;
}

[[gnu::noinline]] Plain without_region(Places &places)
{
    places.push_back(where_malloc_goes());
    co_return;
}

struct Server {
    [[gnu::noinline]] Task serve(const ebb::region_ref &, Places &places)
    {
        places.push_back(where_malloc_goes());
        co_return;
    }
};

// Waits in every way that there is.
struct Ready : std::suspend_never {};
struct Refuses {
    bool await_ready() { return false; }
    bool await_suspend(std::coroutine_handle<>)
    {
        outside = where_malloc_goes();
        return false;
    }
    ebb_region *await_resume() { return outside; }
    ebb_region *outside = nullptr;
};
struct Throws {
    bool await_ready() { return false; }
    void await_suspend(std::coroutine_handle<>) { throw std::runtime_error("cannot wait"); }
    void await_resume() {}
};
struct ByOperator {
    std::suspend_always operator co_await() const { return {}; }
};
// Goes on in a thread of its own, perhaps before await_suspend has returned.
struct InAnotherThread {
    std::thread &thread;
    bool await_ready() { return false; }
    void await_suspend(std::coroutine_handle<> self)
    {
        std::thread &target = thread; // this object may be gone before the thread is assigned
        target = std::thread([self] {
            self.resume();
            EXPECT_EQ(nullptr, where_malloc_goes());
        });
    }
    void await_resume() {}
};

[[gnu::noinline]] Task wait_in_every_way(ebb::region &, Places &places)
{
    places.push_back(where_malloc_goes());
    co_await std::suspend_always{};
    places.push_back(where_malloc_goes());
    co_await Ready{};
    places.push_back(where_malloc_goes());
    Refuses refuses;
    EXPECT_EQ(nullptr, co_await refuses);
    places.push_back(where_malloc_goes());
    co_await ByOperator{};
    places.push_back(where_malloc_goes());
    co_yield 17;
    places.push_back(where_malloc_goes());
    try {
        co_await Throws{};
    } catch (const std::runtime_error &) {
        places.push_back(where_malloc_goes());
    }
    throw std::logic_error("the end");
}

[[gnu::noinline]] Task hop(ebb::region &, std::vector<std::thread> &threads, Places &places)
{
    for (std::thread &thread : threads) {
        co_await InAnotherThread{thread};
        places.push_back(where_malloc_goes());
    }
}

// ---- frames --------------------------------------------------------------------------------------

TEST(RegionCoroutine, TheFrameLiesInTheRegion)
{
    ebb::region region("frames");
    Places places;
    {
        Plain first = note_places(region, places);
        EXPECT_EQ(region.get(), ebb_region_of(first.owned.handle.address()));
        Plain second = note_places_after_context(1, region, places);
        EXPECT_EQ(region.get(), ebb_region_of(second.owned.handle.address()));
        EXPECT_EQ(2U, region.stats().live_blocks);
    }
    EXPECT_EQ(0U, region.stats().live_blocks);
    EXPECT_EQ(nullptr, ebb_region_of(without_region(places).owned.handle.address()));
    EXPECT_TRUE(places.empty());
}

TEST(RegionCoroutine, AFrameWithoutMemoryThrows)
{
    ebb::region_options options;
    options.hard_limit = 1;
    ebb::region full(options);
    Places places;
    EXPECT_THROW(note_places(full, places), std::bad_alloc);
    EXPECT_TRUE(places.empty());
}

// ---- resume_in -----------------------------------------------------------------------------------

TEST(RegionCoroutine, ResumeInBracketsOneRun)
{
    ebb::region frame, work("work");
    Places places;
    Plain task = note_places(frame, places);
    ebb::resume_in(work, task.owned.handle);
    EXPECT_EQ(nullptr, where_malloc_goes());
    std::thread([&] { ebb::resume_in(work, task.owned.handle); }).join();
    EXPECT_TRUE(task.done());
    EXPECT_EQ((Places{work.get(), work.get()}), places);
}

// The control: without the bracket the same task allocates in the heap.
TEST(RegionCoroutine, AFrameInARegionMakesNothingCurrent)
{
    ebb::region frame;
    Places places;
    Plain task = note_places(frame, places);
    task.resume();
    task.resume();
    EXPECT_EQ((Places{nullptr, nullptr}), places);
}

TEST(RegionCoroutine, ResumeInTakesDomains)
{
    ebb::region frame;
    const ebb::domain domain("cxx-coroutines");
    const auto before = domain.stats().opened;
    Places places;
    Plain task = note_places(frame, places);
    ebb::resume_in(domain, task.owned.handle);
    EXPECT_EQ(before + 1, domain.stats().opened);
    EXPECT_EQ(Places{nullptr}, places);
}

// ---- scoped_promise ------------------------------------------------------------------------------

TEST(RegionCoroutine, TheRegionIsCurrentInTheBodyAlone)
{
    ebb::region region("body");
    Places places;
    {
        Task task = wait_in_every_way(region, places);
        EXPECT_TRUE(places.empty());
        while (!task.done()) {
            task.resume();
            EXPECT_EQ(nullptr, where_malloc_goes());
        }
        EXPECT_EQ(17, task.promise().yielded);
        EXPECT_THROW(std::rethrow_exception(task.promise().failure), std::logic_error);
    }
    EXPECT_EQ(Places(7, region.get()), places);
    EXPECT_EQ(0U, region.stats().live_blocks);
}

TEST(RegionCoroutine, MemberCoroutinesToo)
{
    ebb::region region;
    Server server;
    Places places;
    Task task = server.serve(region, places);
    EXPECT_EQ(region.get(), ebb_region_of(task.owned.handle.address()));
    task.resume();
    EXPECT_EQ(Places{region.get()}, places);
}

// The object that comes first is the closure, which is not complete yet.
TEST(RegionCoroutine, LambdasToo)
{
    ebb::region region;
    Places places;
    const auto plain = [](ebb::region &, Places &noted) -> Plain {
        noted.push_back(where_malloc_goes());
        co_return;
    };
    const auto scoped = [&places](ebb::region &) -> Task {
        places.push_back(where_malloc_goes());
        co_return;
    };
    Plain first = plain(region, places);
    Task second = scoped(region);
    EXPECT_EQ(region.get(), ebb_region_of(first.owned.handle.address()));
    EXPECT_EQ(region.get(), ebb_region_of(second.owned.handle.address()));
    first.resume();
    second.resume();
    EXPECT_EQ((Places{nullptr, region.get()}), places);
}

TEST(RegionCoroutine, TasksOfTwoRegionsInterleave)
{
    ebb::region one("one"), two("two");
    Places in_one, in_two;
    Task first = wait_in_every_way(one, in_one), second = wait_in_every_way(two, in_two);
    while (!first.done() || !second.done()) {
        for (Task *task : {&first, &second})
            if (!task->done())
                task->resume();
    }
    EXPECT_EQ(Places(7, one.get()), in_one);
    EXPECT_EQ(Places(7, two.get()), in_two);
}

TEST(RegionCoroutine, ATaskThatIsDestroyedWhileItWaitsLeavesNothingCurrent)
{
    ebb::region region;
    Places places;
    {
        Task task = wait_in_every_way(region, places);
        task.resume();
    }
    EXPECT_EQ(nullptr, where_malloc_goes());
    EXPECT_EQ(0U, region.stats().live_blocks);
    region.release();
}

TEST(RegionCoroutine, GoesFromThreadToThread)
{
    for (int round = 0; round < 100; round++) {
        ebb::region region("hops");
        std::vector<std::thread> threads(8);
        Places places;
        {
            Task task = hop(region, threads, places);
            task.resume();
            EXPECT_EQ(nullptr, where_malloc_goes());
            for (std::thread &thread : threads)
                thread.join();
            EXPECT_TRUE(task.done());
        }
        EXPECT_EQ(Places(8, region.get()), places);
    }
}

} // namespace

#endif
