// SPDX-License-Identifier: MIT OR Apache-2.0
// Runs one scenario under Relacy, as it is or as a mutant.
//
//     <program> <scenario> <schedules>|bound<switches> [<mutant>]
//
// Exit 0: no schedule fails and blocks were reclaimed in some of them; or, for a mutant, a schedule
// was found in which somebody meets memory that is not what it should be (a data race, a wrong value,
// freed memory, memory that nobody has written), or, in the scenarios of locks, waits for ever.
// Everything else, a mutant that lives included, is exit 1, but for a mutant that nothing in the scenario
// knows, which is exit 2. Schedules are numbered and repeatable.
#ifndef EBB_MODEL_MODEL_H
#define EBB_MODEL_MODEL_H

#include "ebbtide/detail/atomic.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

namespace model {

inline uint64_t &reclaimed() // blocks reused, over all schedules
{
    static uint64_t count = 0;
    return count;
}

// A block that is linked, then retired and reused. Its contents are plain memory.
struct Block {
    enum { LIVE = 1, REUSED = 2 };
    rl::var<int> contents;

    Block() { contents($) = REUSED; }
    void fill() { contents($) = LIVE; } // by who links it
    void read() const { RL_ASSERT(contents($) == LIVE); }
    void reuse()
    {
        contents($) = REUSED;
        reclaimed()++;
    }
};

// Puts a full fence between two operations of another thread, wherever that one happens to be.
inline void (*&fence_in())(unsigned thread)
{
    static void (*fence)(unsigned) = nullptr;
    return fence;
}

template <rl::thread_id_t threads> void fence_in_one_of(unsigned thread)
{
    using Thread = rl::thread_info<threads>;
    rl::context &context = rl::ctx();
    auto *self = static_cast<rl::aligned<Thread> *>(static_cast<Thread *>(context.threadx_));
    rl::aligned<Thread> *first = self - self->index_; // Relacy keeps them in an array
    first[thread].atomic_thread_fence_seq_cst(context.seq_cst_fence_order_);
    if (context.collecting_history()) {
        context.exec_log_msg($, ("full fence in thread " + std::to_string(thread)).c_str());
    }
}

// What the system does in the present schedule.
struct System {
    bool refuses = false; // membarriers
    uint64_t now_ms = 1;
};

inline System &the_system()
{
    static System system;
    return system;
}

// World: its constructor sets the stage, thread(i) is played by each thread, then it is destroyed.
template <typename World> struct Suite : rl::test_suite<Suite<World>, World::threads> {
    World *world = nullptr;

    void before()
    {
        alignas(64) static unsigned char place[sizeof(World)];
        interrupt() = Interrupt();
        the_system() = System();
        fence_in() = fence_in_one_of<World::threads>;
        Global::make_all();
        world = new (place) World;
    }
    void thread(unsigned index) { world->thread(index); }
    void after()
    {
        world->~World();
        Global::end_all();
    }
};

struct Scenario {
    const char *name;
    bool (*run)(rl::test_params &params);
    bool may_hang = false; // what a mutant of it does
};

inline bool is_failure(rl::test_result_e result, bool may_hang)
{
    if (result == rl::test_result_deadlock || result == rl::test_result_livelock) {
        return may_hang;
    }
    return result == rl::test_result_data_race || result == rl::test_result_user_assert_failed ||
           result == rl::test_result_access_to_freed_memory ||
           result == rl::test_result_unitialized_access;
}

// How to choose schedules: a number of random ones, or all that stop a running thread at most so
// many times ("bound2": twice). "bound99" is all that there are.
struct Search {
    bool is_bound;
    uint64_t number;

    explicit Search(const char *text)
        : is_bound(std::strncmp(text, "bound", 5) == 0),
          number(std::strtoull(text + (is_bound ? 5 : 0), nullptr, 10))
    {
    }
};

// show: prints the history of the failure, which Relacy repeats for that.
inline rl::test_params simulate(const Scenario &scenario, const Search &search, bool show)
{
    static std::ostream nowhere(nullptr);
    rl::test_params params;
    params.progress_stream = &nowhere;
    params.output_stream = show ? &std::cout : &nowhere;
    params.output_history = !show; // "already shown"
    if (search.is_bound) {
        params.search_type = rl::sched_bound;
        params.context_bound = static_cast<unsigned>(search.number);
    } else {
        params.iteration_count = search.number;
    }
    (void)scenario.run(params);
    return params;
}

// Says no where nothing that ran has asked for the mutant, and what was asked for.
inline bool is_known_mutant()
{
    const AskedNames &all = asked();
    for (size_t i = 0; i < all.count; i++) {
        if (is_named(all.names[i])) {
            return true;
        }
    }
    std::fprintf(stderr, "no mutant %s here; there are:", mutant_name());
    for (size_t i = 0; i < all.count; i++) {
        const Asked &each = all.names[i];
        std::fprintf(stderr, " %s%s%s", each.function != nullptr ? each.function : "",
                     each.function != nullptr ? ":" : "", each.operation);
    }
    std::fprintf(stderr, "\n");
    return false;
}

inline int judge(const Scenario &scenario, const Search &search)
{
    bool mutant = *mutant_name() != '\0';
    rl::test_params found = simulate(scenario, search, false);
    unsigned long long at = found.stop_iteration;
    bool success = found.test_result == rl::test_result_success;
    const char *result = rl::test_result_str(found.test_result);
    if (mutant) {
        if (!is_known_mutant()) {
            return 2;
        }
        std::printf("%s, mutant %s: %s after %llu schedules\n", scenario.name, mutant_name(),
                    success ? "ALIVE" : result, at);
        if (!success && std::getenv("EBBTEST_SHOW") != nullptr) {
            (void)simulate(scenario, search, true);
        }
        return is_failure(found.test_result, scenario.may_hang) ? 0 : 1;
    }
    std::printf("%s: %s in %llu schedules, %llu blocks reclaimed\n", scenario.name, result, at,
                static_cast<unsigned long long>(reclaimed()));
    if (!success) {
        (void)simulate(scenario, search, true);
    }
    return success && reclaimed() > 0 ? 0 : 1;
}

template <size_t count> int main(const Scenario (&scenarios)[count], int argc, char **argv)
{
    if (argc == 3 || argc == 4) {
        mutant_name() = argc == 4 ? argv[3] : "";
        for (const Scenario &scenario : scenarios) {
            if (std::strcmp(scenario.name, argv[1]) == 0) {
                return judge(scenario, Search(argv[2]));
            }
        }
    }
    std::fprintf(
        stderr, "usage: %s <scenario> <schedules>|bound<switches> [<mutant>]\nscenarios:", argv[0]);
    for (const Scenario &scenario : scenarios) {
        std::fprintf(stderr, " %s", scenario.name);
    }
    std::fprintf(stderr, "\n");
    return 2;
}

} // namespace model

#endif
