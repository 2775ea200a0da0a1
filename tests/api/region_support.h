// SPDX-License-Identifier: MIT OR Apache-2.0
// What the tests of regions and domains share: opening, snapshots, scopes that end by themselves, and
// threads that hold something current. Works with either form of the API.
#pragma once

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "ebbtide/region.h"
#include "reclaim_support.h"

namespace regions {

using reclaim::eventually;
using reclaim::in_thread;

inline ebb_region *open(const char *label = nullptr, ebb_region *parent = nullptr,
                        std::size_t soft_limit = 0, std::size_t hard_limit = 0)
{
    const ebb_region_options options = {label, parent, soft_limit, hard_limit, 0};
    return ebb_region_open(&options);
}

inline void *take(ebb_region *region, std::size_t bytes)
{
    return support::opaque(ebb_region_alloc(region, support::opaque(bytes)));
}

inline ebb_region_stats stats(ebb_region *region)
{
    ebb_region_stats now;
    ebb_region_stats_get(region, &now);
    return now;
}

inline ebb_lifetime_stats stats(ebb_domain *domain)
{
    ebb_lifetime_stats now;
    ebb_domain_stats_get(domain, &now);
    return now;
}

// The line of a label; all zero when there is none.
inline ebb_lifetime_stats line(const char *label)
{
    support::MappedArray<ebb_lifetime_stats> lines(ebb_lifetimes_get(nullptr, 0) + 8);
    const std::size_t count =
        std::min(ebb_lifetimes_get(lines.begin(), lines.size()), lines.size());
    for (std::size_t i = 0; i < count; i++)
        if (std::strncmp(lines[i].label, label, EBB_LABEL_BYTES) == 0)
            return lines[i];
    return {};
}

// Without the warm reserve that a release may leave to the next region.
inline ebb_lifetime_stats trimmed_line(const char *label)
{
    ebb_trim();
    return line(label);
}

class InRegion {
public:
    explicit InRegion(ebb_region *region) : before_(ebb_region_enter(region)) {}
    ~InRegion() { ebb_leave(before_); }
    InRegion(const InRegion &) = delete;
    InRegion &operator=(const InRegion &) = delete;

private:
    ebb_scope before_;
};

class InDomain {
public:
    explicit InDomain(ebb_domain *domain) : before_(ebb_domain_enter(domain)) {}
    ~InDomain() { ebb_leave(before_); }
    InDomain(const InDomain &) = delete;
    InDomain &operator=(const InDomain &) = delete;

private:
    ebb_scope before_;
};

class InHeap {
public:
    InHeap() : before_(ebb_heap_enter()) {}
    ~InHeap() { ebb_leave(before_); }
    InHeap(const InHeap &) = delete;
    InHeap &operator=(const InHeap &) = delete;

private:
    ebb_scope before_;
};

// A thread that does as it is told, one call after the other, so that the order is the test's.
class Worker {
public:
    Worker() : thread_([this] { work(); }) {}
    ~Worker()
    {
        hand(nullptr);
        thread_.join();
    }
    Worker(const Worker &) = delete;
    Worker &operator=(const Worker &) = delete;
    template <typename Run> void run(Run call)
    {
        const auto invoke = [](void *argument) { (*static_cast<Run *>(argument))(); };
        argument_ = &call;
        hand(invoke);
        turn_.wait(workers_turn);
    }

private:
    static constexpr int callers_turn = 0, workers_turn = 1;
    void hand(void (*call)(void *))
    {
        call_ = call;
        turn_.store(workers_turn);
        turn_.notify_all();
    }
    void work()
    {
        for (;;) {
            turn_.wait(callers_turn);
            if (call_ == nullptr)
                return;
            call_(argument_);
            turn_.store(callers_turn);
            turn_.notify_all();
        }
    }
    std::atomic<int> turn_{callers_turn};
    void (*call_)(void *) = nullptr;
    void *argument_ = nullptr;
    std::thread thread_; // last: it uses the others
};

inline unsigned seed_of(std::size_t index) { return static_cast<unsigned>(index * 7 + 3); }

inline void *take_filled(ebb_region *region, std::size_t bytes, std::size_t index)
{
    void *block = take(region, bytes);
    if (block != nullptr)
        support::fill_pattern(block, 0, bytes, seed_of(index));
    return block;
}

inline bool is_filled(const void *block, std::size_t bytes, std::size_t index)
{
    return support::find_mismatch(block, bytes, seed_of(index)) == bytes;
}

// Sizes around every border that the interface names: 16 bytes, 64 KiB, 128 KiB.
inline const std::size_t border_sizes[] = {
    0,          1,          15,         16,          17,          100,        1000,
    4096,       65536 - 16, 65536 - 1,  65536,       65536 + 1,   65536 + 16, 131072 - 16,
    131072 - 1, 131072,     131072 + 1, 131072 + 16, 1000 * 1000, 1024 * 1024};

} // namespace regions
