// SPDX-License-Identifier: MIT OR Apache-2.0
// fork() and hazard pointers: those that the forking thread has set protect in the child, and no others.
#include "reclaim_fork_support.h"

namespace {

using namespace reclaim;

// The thread that set it will never clear it in the child.
TEST(ReclaimForkHazard, OthersHazardPointersAreGoneToo)
{
    if (support::under_tsan)
        GTEST_SKIP() << "TSan ends a child forked from several threads";
    std::atomic<int> calls{0};
    std::atomic<bool> set{false}, leave{false};
    void *block = ebb_malloc(64);
    std::thread other([&] {
        ebb_hazard *hazard = ebb_hazard_open();
        ebb_hazard_set(hazard, block);
        set.store(true);
        set.notify_all();
        leave.wait(false);
        ebb_hazard_close(hazard);
    });
    set.wait(false);
    ASSERT_EQ(0, ebb_retire_with(block, count_and_free, &calls));
    const pid_t child = fork_child(false);
    leave.store(true);
    leave.notify_all();
    other.join();
    ASSERT_NO_FATAL_FAILURE(expect_ends_well(child));
    ebb_barrier();
    EXPECT_EQ(1, calls.load());
}

// It was opened elsewhere, and handed to the thread that forks.
TEST(ReclaimForkHazard, AHazardPointerGoesOnWithWhoHasSetItLast)
{
    if (support::under_tsan)
        GTEST_SKIP() << "TSan ends a child forked from several threads";
    std::atomic<int> calls{0};
    std::atomic<ebb_hazard *> handed[2] = {};
    std::atomic<bool> leave{false};
    std::thread other([&] {
        handed[0] = ebb_hazard_open();
        handed[1] = ebb_hazard_open();
        handed[1].notify_all();
        leave.wait(false);
    });
    handed[1].wait(nullptr);
    void *blocks[] = {ebb_malloc(64), ebb_malloc(64)};
    ebb_hazard_set(handed[0], blocks[0]);
    ASSERT_EQ(0, ebb_retire_with(blocks[0], count_and_free, &calls));
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);
        push_on();
        if (calls.load() != 0)
            _exit(1);
        ebb_hazard_set(handed[1], blocks[1]); // the other one serves as well
        if (ebb_retire_with(blocks[1], count_and_free, &calls) != 0)
            _exit(2);
        ebb_hazard_close(handed[0]);
        push_on();
        if (calls.load() != 1)
            _exit(3);
        ebb_hazard_close(handed[1]);
        ebb_barrier();
        _exit(calls.load() == 2 && stats().hazards == 0 ? 0 : 4);
    }
    leave = true;
    leave.notify_all();
    other.join();
    ASSERT_NO_FATAL_FAILURE(expect_ends_well(child));
    ebb_hazard_close(handed[0]);
    ebb_hazard_close(handed[1]);
    ebb_free(blocks[1]);
    ebb_barrier();
}

// The child of this thread retires the block, and ends well if that runs so many destructors.
pid_t fork_and_retire(void *block, int expected)
{
    const pid_t child = fork();
    if (child == 0) {
        std::atomic<int> calls{0};
        alarm(30);
        if (ebb_retire_with(block, count_and_free, &calls) != 0)
            _exit(1);
        push_on();
        _exit(calls.load() == expected ? 0 : 2);
    }
    return child;
}

// Set before the library's first work in that thread, which comes before the fork, in it, or never.
TEST(ReclaimForkHazard, AHazardPointerSetByANewThreadIsItsOwn)
{
    if (support::under_tsan)
        GTEST_SKIP() << "TSan ends a child forked from several threads";
    for (const bool works : {false, true}) {
        void *block = ebb_malloc(64);
        ebb_hazard *hazard = ebb_hazard_open();
        pid_t child = -1;
        std::thread([&] {
            ebb_hazard_set(hazard, block);
            if (works)
                ebb_free(ebb_malloc(1));
            child = fork_and_retire(block, 0);
        }).join();
        expect_ends_well(child);
        ebb_hazard_close(hazard);
        ebb_free(block);
    }
}

// Neither of the two has worked with the library otherwise.
TEST(ReclaimForkHazard, AHazardPointerSetByAnotherNewThreadIsNot)
{
    if (support::under_tsan)
        GTEST_SKIP() << "TSan ends a child forked from several threads";
    std::atomic<bool> set{false}, leave{false};
    void *block = ebb_malloc(64);
    ebb_hazard *hazard = ebb_hazard_open();
    pid_t child = -1;
    std::thread other([&] {
        ebb_hazard_set(hazard, block);
        set = true;
        set.notify_all();
        leave.wait(false);
    });
    set.wait(false);
    std::thread([&] { child = fork_and_retire(block, 1); }).join();
    leave = true;
    leave.notify_all();
    other.join();
    expect_ends_well(child);
    ebb_hazard_close(hazard);
    ebb_free(block);
}

TEST(ReclaimForkHazard, ItsOwnHazardPointersGoOn)
{
    std::atomic<int> calls{0};
    void *block = ebb_malloc(64);
    ebb_hazard *hazard = ebb_hazard_open();
    ebb_hazard_set(hazard, block);
    ASSERT_EQ(0, ebb_retire_with(block, count_and_free, &calls));
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);
        push_on();
        if (calls.load() != 0)
            _exit(1);
        ebb_hazard_close(hazard);
        ebb_barrier();
        if (calls.load() != 1)
            _exit(2);
        live_as_child(false);
    }
    ASSERT_NO_FATAL_FAILURE(expect_ends_well(child));
    ebb_hazard_close(hazard);
    ebb_barrier();
    EXPECT_EQ(1, calls.load());
}

} // namespace
