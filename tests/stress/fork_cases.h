// SPDX-License-Identifier: MIT OR Apache-2.0
// fork while threads allocate: the child allocates at once, frees its parent's blocks, starts a
// thread, and exits. A child that hangs is ended by its alarm and so fails the test.
// The file that includes this one has chosen the form of the API before.
#pragma once

#include <atomic>
#include <thread>

#include <sys/wait.h>

namespace {

using support::KiB;
using support::MiB;

constexpr unsigned busy_threads = 4;
constexpr std::size_t inherited_blocks = 400;

void stay_busy(const std::atomic<bool> &stop, unsigned seed)
{
    support::Random random(seed);
    void *blocks[64] = {};
    while (!stop.load(std::memory_order_relaxed)) {
        void *&block = blocks[random.below(64)];
        api::release(block);
        const std::size_t bytes =
            random.below(50) == 0 ? random.between(40 * KiB, MiB) : random.between(1, 3000);
        block = api::allocate(bytes);
        static_cast<char *>(block)[0] = 1;
    }
    for (void *block : blocks)
        api::release(block);
}

class BusyProcess {
public:
    BusyProcess()
    {
        for (unsigned id = 0; id < busy_threads; id++)
            threads_.emplace_back([this, id] {
                running_++;
                stay_busy(stop_, id + 1);
            });
        while (running_ < busy_threads) // a thread that is still starting is the runtime's affair
            std::this_thread::yield();
    }
    ~BusyProcess()
    {
        stop_ = true;
        for (std::thread &thread : threads_)
            thread.join();
    }

private:
    std::atomic<bool> stop_{false};
    std::atomic<unsigned> running_{0};
    std::vector<std::thread> threads_;
};

bool allocate_and_check(unsigned seed)
{
    support::Random random(seed);
    for (int i = 0; i < 300; i++) {
        const std::size_t bytes =
            random.below(20) == 0 ? random.between(40 * KiB, 2 * MiB) : random.between(1, 5000);
        void *block = api::allocate_zeroed(1, bytes);
        if (block == nullptr || !support::all_zero(block, bytes < 64 * KiB ? bytes : 64 * KiB))
            return false;
        std::memset(block, 1, bytes < 64 * KiB ? bytes : 64 * KiB);
        api::release(block);
    }
    return true;
}

[[noreturn]] void live_as_child(support::MappedArray<void *> &inherited, bool with_thread)
{
    alarm(30);
    bool right = allocate_and_check(1);
    for (std::size_t i = 0; i < inherited.size(); i++) {
        right = right && support::find_mismatch(inherited[i], i * 13 + 1,
                                                static_cast<unsigned>(i)) == i * 13 + 1;
        api::release(inherited[i]);
    }
    if (with_thread)
        std::thread([&right] { right = allocate_and_check(2) && right; }).join();
    _exit(right && allocate_and_check(3) ? 0 : 1);
}

void fill_inherited(support::MappedArray<void *> &inherited)
{
    for (std::size_t i = 0; i < inherited.size(); i++) {
        inherited[i] = api::allocate(i * 13 + 1);
        support::fill_pattern(inherited[i], 0, i * 13 + 1, static_cast<unsigned>(i));
    }
}

void fork_and_wait(support::MappedArray<void *> &inherited, bool with_thread)
{
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0)
        live_as_child(inherited, with_thread);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "the child was ended by signal " << WTERMSIG(status)
                                   << (WTERMSIG(status) == SIGALRM ? ", it hung" : "");
    ASSERT_EQ(WEXITSTATUS(status), 0);
}

void fork_many(std::size_t forks)
{
    support::MappedArray<void *> inherited(inherited_blocks);
    std::thread([&] { fill_inherited(inherited); }).join();
    for (std::size_t i = 0; i < forks; i++)
        ASSERT_NO_FATAL_FAILURE(fork_and_wait(inherited, i % 10 == 0)) << "fork " << i;
    for (void *block : inherited)
        api::release(block);
}

TEST(Fork, OfASingleThread) { fork_many(support::scaled(30)); }

TEST(Fork, OneHundredWhileThreadsAllocate)
{
    if (support::under_tsan)
        GTEST_SKIP() << "TSan ends a child forked from several threads";
    // ASan's allocator has no fork handlers: in the child of a fork that meets a thread's start its
    // lock stays taken for ever. So no thread may start meanwhile, the helper neither.
    if (support::under_sanitizer)
        setenv("EBB_PURGE_THREAD", "0", 1);
    const BusyProcess process;
    fork_many(support::scaled(100));
}

TEST(Fork, ParentGoesOnAfterwards)
{
    support::MappedArray<void *> inherited(inherited_blocks);
    fill_inherited(inherited);
    ASSERT_NO_FATAL_FAILURE(fork_and_wait(inherited, false));
    EXPECT_TRUE(allocate_and_check(4));
    for (std::size_t i = 0; i < inherited.size(); i++) {
        ASSERT_EQ(support::find_mismatch(inherited[i], i * 13 + 1, static_cast<unsigned>(i)),
                  i * 13 + 1);
        api::release(inherited[i]);
    }
}

TEST(Fork, GrandchildrenAllocate)
{
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);
        const bool right = allocate_and_check(5);
        const pid_t grandchild = fork();
        if (grandchild == 0)
            _exit(allocate_and_check(6) ? 0 : 1);
        int status = 0;
        waitpid(grandchild, &status, 0);
        _exit(right && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

} // namespace
