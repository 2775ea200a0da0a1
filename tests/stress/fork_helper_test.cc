// SPDX-License-Identifier: MIT OR Apache-2.0
// fork of a process whose only other thread is the library's own: whatever that one is doing, the child has no
// lock that nobody in it holds. One that hangs is ended by its alarm and so fails the test.
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "../api/control.h"
#include "reclaim_fork_support.h"

namespace {

using support::KiB;
using support::MiB;

void use_memory()
{
    for (std::size_t bytes : {100 * KiB, 400 * KiB, 2 * MiB})
        ebb_free(ebb_malloc(bytes));
    ebb_trim();
}

void fork_one()
{
    const pid_t child = fork();
    if (child == 0) {
        alarm(10);
        use_memory();
        _exit(0);
    }
    reclaim::expect_ends_well(child);
}

std::atomic<bool> begun{false}, ends{false}, goes_on{true};

struct Ending {
    ~Ending()
    {
        for (ends = true; goes_on;)
            use_memory();
    }
};

bool eventually(const std::atomic<bool> &word)
{
    for (int i = 0; i < 1000 && !word; i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return word;
}

// Before a test that has the helper stay. A destructor that the helper runs leaves it a thread-local variable; it
// ends when the last thread has.
TEST(ForkHelper, WhileItsThreadLocalsAreDestroyed)
{
    std::thread([] {
        ASSERT_EQ(0, ebb_retire_with(
                         nullptr,
                         [](void *, void *) {
                             static thread_local Ending ending;
                             (void)&ending;
                             begun = true;
                         },
                         nullptr));
        EXPECT_TRUE(eventually(begun));
    }).join();
    EXPECT_TRUE(eventually(ends));
    for (std::size_t i = 0; i < support::scaled(300) && !testing::Test::HasFailure(); i++)
        fork_one();
    goes_on = false;
}

// What the helper's work takes long over: many threads' heaps, and memory to give back.
void leave_heaps(std::size_t count)
{
    std::atomic<std::size_t> there{0};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; i++)
        threads.emplace_back([&] {
            ebb_free(ebb_malloc(1000));
            for (there++; there < count;)
                std::this_thread::yield();
        });
    for (std::thread &thread : threads)
        thread.join();
}

TEST(ForkHelper, WhileItDoesWhatAnotherProcessAsks)
{
    leave_heaps(support::scaled(500));
    ASSERT_EQ(0, ebb_helper_start());
    std::size_t asked = 0;
    for (std::size_t i = 0; i < support::scaled(1500) && !testing::Test::HasFailure(); i++) {
        if (control::is_answered()) {
            control::ask(control::trim, 0);
            asked++;
        }
        ebb_free(ebb_malloc(300 * KiB));
        fork_one();
    }
    EXPECT_GT(asked, 1U);
}

} // namespace
