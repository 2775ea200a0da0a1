// SPDX-License-Identifier: MIT OR Apache-2.0
// Is a short history of concurrent operations linearizable? J. M. Wing, C. Gong, "Testing and verifying
// concurrent objects", JPDC 17 (1993): search for an order that respects time and the object's
// sequential behaviour; after G. Lowe ("Testing for linearizability", CCPE 29 (2017)) no pair of
// {operations done, state} is tried twice. And the recorder of such histories.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "api/support.h"

namespace linear {

struct Operation {
    int kind;
    std::uintptr_t argument;
    std::uintptr_t key;
    std::intptr_t result;
    std::uint64_t called, returned; // by one counter
};

using History = std::vector<Operation>; // at most 32

// Spec: a State that can be ordered, and bool apply(State &, const Operation &): whether the object in
// this state could have given this result; then the state is the one after it.
template <typename Spec> class Search {
public:
    explicit Search(const History &history) : history_(history) {}
    bool run() { return from(0, typename Spec::State{}); }

private:
    using State = typename Spec::State;

    bool from(std::uint32_t done, const State &state)
    {
        if (done == (std::uint64_t{1} << history_.size()) - 1)
            return true;
        if (!tried_.emplace(done, state).second)
            return false;
        for (std::size_t i = 0; i < history_.size(); i++) {
            State next = state;
            if (may_be_next(done, i) && Spec::apply(next, history_[i]) &&
                from(done | std::uint32_t{1} << i, next))
                return true;
        }
        return false;
    }

    // No other operation that is left had returned before this one was called.
    bool may_be_next(std::uint32_t done, std::size_t candidate) const
    {
        if ((done >> candidate & 1) != 0)
            return false;
        for (std::size_t i = 0; i < history_.size(); i++)
            if ((done >> i & 1) == 0 && history_[i].returned < history_[candidate].called)
                return false;
        return true;
    }

    const History &history_;
    std::set<std::pair<std::uint32_t, State>> tried_;
};

template <typename Spec> bool is_linearizable(const History &history)
{
    return Search<Spec>(history).run();
}

inline std::string text(const History &history)
{
    std::ostringstream out;
    for (const Operation &o : history)
        out << "[" << o.called << "," << o.returned << "] kind " << o.kind << " key " << o.key
            << " argument " << o.argument << " -> " << o.result << "\n";
    return out.str();
}

// Waits for a moment by itself, so that threads on several processors go on together, then for others.
template <typename Condition> void wait_until(Condition condition)
{
    for (int spins = 0; !condition(); spins++)
        if (spins > 1000)
            std::this_thread::yield();
}

// One thread's part of a history. It gives way now and then between noting a call and making it, so
// that calls overlap on one processor too.
class Recorder {
public:
    Recorder(std::atomic<std::uint64_t> &clock, std::uint64_t seed) : clock_(clock), random_(seed)
    {
    }

    template <typename Call>
    void record(int kind, std::uintptr_t key, std::uintptr_t argument, Call call)
    {
        const std::uint64_t called = clock_.fetch_add(1);
        give_way();
        const std::intptr_t result = call();
        give_way();
        history_.push_back({kind, argument, key, result, called, clock_.fetch_add(1)});
    }
    const History &history() const { return history_; }

private:
    void give_way()
    {
        if (random_.below(16) == 0)
            std::this_thread::yield();
    }

    std::atomic<std::uint64_t> &clock_;
    support::Random random_;
    History history_;
};

// Plays rounds of Object: `threads` threads that each make a few calls on a fresh object, recorded.
// step(object, thread, index, recorder) makes one. Returns the number of rounds whose calls overlapped.
template <typename Spec, typename Object, typename Step>
std::size_t play(std::size_t rounds, unsigned threads, unsigned steps, Step step)
{
    std::atomic<Object *> object{nullptr};
    std::atomic<std::uint64_t> clock{0};
    std::atomic<std::size_t> started{0}, finished{0};
    std::vector<History> parts(threads);
    auto work = [&](unsigned id) {
        for (std::size_t round = 0; round < rounds; round++) {
            started.fetch_add(1);
            wait_until([&] { return started.load() >= (round + 1) * (threads + 1); });
            Recorder recorder(clock, round * threads + id);
            for (unsigned i = 0; i < steps; i++)
                step(*object.load(), id, i, recorder);
            parts[id] = recorder.history();
            finished.fetch_add(1);
        }
    };
    std::vector<std::thread> workers;
    for (unsigned id = 0; id < threads; id++)
        workers.emplace_back(work, id);
    std::size_t overlapped = 0;
    bool sound = true;
    for (std::size_t round = 0; round < rounds; round++) {
        Object fresh;
        object.store(&fresh);
        started.fetch_add(1);
        wait_until([&] { return finished.load() >= (round + 1) * threads; });
        History history;
        for (const History &part : parts)
            history.insert(history.end(), part.begin(), part.end());
        std::uint64_t alone = 0;
        for (const Operation &operation : history)
            alone += operation.returned == operation.called + 1;
        overlapped += alone < history.size();
        if (sound && !is_linearizable<Spec>(history)) {
            sound = false;
            ADD_FAILURE() << "round " << round << " is not linearizable:\n" << text(history);
        }
    }
    for (std::thread &worker : workers)
        worker.join();
    return overlapped;
}

} // namespace linear
