// SPDX-License-Identifier: MIT OR Apache-2.0
// What the tests of reclamation share: snapshots, a thread that stays pinned, a wait with an end,
// and destructors that count.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "ebbtide/reclaim.h"
#include "support.h"

namespace reclaim {

inline ebb_reclaim_stats stats(ebb_collector *collector = nullptr)
{
    ebb_reclaim_stats now;
    ebb_reclaim_stats_get(collector, &now);
    return now;
}

inline ebb_stats heap_stats()
{
    ebb_stats now;
    ebb_stats_get(&now);
    return now;
}

// False when it has not come about for so long that it never will.
template <typename Condition> bool eventually(Condition condition)
{
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end)
            return false;
        std::this_thread::yield();
    }
    return true;
}

inline std::size_t waiting(ebb_collector *collector = nullptr)
{
    const ebb_reclaim_stats now = stats(collector);
    return now.retired_blocks + now.destructors;
}

// Until nothing waits any more. Not in a pin.
inline bool drain(ebb_collector *collector = nullptr)
{
    return eventually([collector] {
        ebb_collector_reclaim(collector);
        return waiting(collector) == 0 && stats(collector).retired_bytes == 0;
    });
}

// More than enough for the clock to move on twice if it may.
inline void push_on(ebb_collector *collector = nullptr)
{
    for (int i = 0; i < 20; i++)
        ebb_collector_reclaim(collector);
}

class Pin {
public:
    Pin() { ebb_pin(); }
    ~Pin() { ebb_unpin(); }
    Pin(const Pin &) = delete;
    Pin &operator=(const Pin &) = delete;
};

// A thread that is pinned from now on, until let_go().
class Staller {
public:
    explicit Staller(ebb_collector *collector = nullptr)
        : thread_([this, collector] { stay(ebb_collector_attach(collector)); })
    {
        number_.wait(0);
    }
    ~Staller() { let_go(); }
    void let_go()
    {
        leave_.store(true);
        leave_.notify_all();
        if (thread_.joinable())
            thread_.join();
    }
    std::uint32_t number() const { return number_.load(); }

private:
    void stay(ebb_participant *me)
    {
        ebb_participant_pin(me);
        number_.store(static_cast<std::uint32_t>(gettid()));
        number_.notify_all();
        leave_.wait(false);
        ebb_participant_unpin(me);
    }
    std::atomic<std::uint32_t> number_{0};
    std::atomic<bool> leave_{false};
    std::thread thread_; // last: it uses the others
};

template <typename Run> void in_thread(Run run) { std::thread(run).join(); }

// Counts its calls through the context.
inline void count_call(void *, void *counter)
{
    static_cast<std::atomic<int> *>(counter)->fetch_add(1);
}

inline void count_and_free(void *p, void *counter)
{
    ebb_free(p);
    count_call(p, counter);
}

} // namespace reclaim
