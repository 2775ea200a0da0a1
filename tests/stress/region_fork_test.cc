// SPDX-License-Identifier: MIT OR Apache-2.0
// fork with regions and domains in use: in the child they go on, this thread's and the other threads'.
// A child that hangs is ended by its alarm and so fails the test.
#include "../api/api_ebb.h"

#include <sys/wait.h>

#include "../api/region_support.h"

namespace {

using namespace regions;
using support::KiB;
using support::MiB;

constexpr std::size_t count = 300;

std::size_t bytes_of(std::size_t index) { return index % 60 == 59 ? 200 * KiB : index * 11 % 2000; }

struct Filled {
    explicit Filled(ebb_region *owner) : region(owner), blocks(count)
    {
        for (std::size_t i = 0; i < count; i++)
            blocks[i] = take_filled(region, bytes_of(i), i);
    }
    bool is_right() const
    {
        for (std::size_t i = 0; i < count; i++)
            if (!is_filled(blocks[i], bytes_of(i), i))
                return false;
        return true;
    }
    // Frees half of the blocks and refills their places.
    bool turn_over()
    {
        for (std::size_t i = 0; i < count; i += 2) {
            ebb_free(blocks[i]);
            blocks[i] = take_filled(region, bytes_of(i), i);
            if (blocks[i] == nullptr || ebb_region_of(blocks[i]) != region)
                return false;
        }
        return is_right();
    }
    ebb_region *region;
    support::MappedArray<void *> blocks;
};

bool serve(ebb_domain *domain)
{
    const InDomain scope(domain);
    void *block = ebb_malloc(500);
    const bool right = block != nullptr;
    ebb_free(block);
    return right;
}

template <typename Run> void expect_right_in_child(Run run)
{
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        alarm(30);
        _exit(run() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status)
                                   << (WTERMSIG(status) == SIGALRM ? ", it hung" : "");
    ASSERT_EQ(WEXITSTATUS(status), 0);
}

bool use_and_end(Filled &filled, bool by_release)
{
    const bool right = filled.is_right() && filled.turn_over();
    if (by_release) {
        ebb_region_reset(filled.region);
        const bool again = take(filled.region, 1000) != nullptr;
        ebb_region_release(filled.region);
        return right && again;
    }
    ebb_region_close(filled.region);
    for (void *block : filled.blocks)
        ebb_free(block);
    return right;
}

TEST(RegionFork, OwnRegionsGoOnInParentAndChild)
{
    ebb_domain *domain = ebb_domain_open("forked");
    for (bool by_release : {true, false}) {
        Filled filled(open("before the fork"));
        ASSERT_TRUE(serve(domain));
        ASSERT_NO_FATAL_FAILURE(expect_right_in_child(
            [&] { return use_and_end(filled, by_release) && serve(domain); }));
        EXPECT_TRUE(use_and_end(filled, by_release));
        EXPECT_TRUE(serve(domain));
    }
}

TEST(RegionFork, InsideScopes)
{
    ebb_domain *domain = ebb_domain_open("forked inside");
    ebb_region *region = open("current at the fork");
    const ebb_scope outer = ebb_domain_enter(domain);
    const ebb_scope inner = ebb_region_enter(region);
    expect_right_in_child([&] {
        void *in_region = ebb_malloc(100);
        const bool right = ebb_region_of(in_region) == region;
        ebb_leave(inner);
        void *in_domain = ebb_malloc(100);
        ebb_leave(outer);
        ebb_region_release(region);
        ebb_free(in_domain);
        return right && in_domain != nullptr && serve(domain);
    });
    ebb_leave(inner);
    ebb_leave(outer);
    ebb_region_release(region);
}

TEST(RegionFork, OtherThreadsRegionsGoOnInTheChild)
{
    if (support::under_tsan)
        GTEST_SKIP() << "TSan ends a child forked from several threads";
    ebb_domain *domain = ebb_domain_open("forked elsewhere");
    for (bool by_release : {true, false})
        for (bool current : {true, false}) {
            Worker owner;
            ebb_region *region = nullptr;
            ebb_scope before = {};
            void *survivor = nullptr;
            owner.run([&] {
                region = open("of another thread");
                serve(domain);
                const InDomain scope(domain);
                survivor = ebb_malloc(100);
            });
            Filled filled(region);
            if (current)
                owner.run([&] { before = ebb_region_enter(region); });
            ASSERT_NO_FATAL_FAILURE(expect_right_in_child([&] {
                ebb_free(survivor);
                return use_and_end(filled, by_release) && serve(domain);
            })) << by_release
                << current;
            if (current)
                owner.run([&] { ebb_leave(before); });
            EXPECT_TRUE(use_and_end(filled, by_release));
            ebb_free(survivor);
        }
}

// A thread of the child may be given the memory of one that the fork left behind inside a region; it
// has not entered that region, and its end must not leave it.
TEST(RegionFork, ThreadsOfTheChildHaveEnteredNothing)
{
    if (support::under_tsan)
        GTEST_SKIP() << "TSan ends a child forked from several threads";
    Worker other;
    ebb_region *region = open("entered elsewhere");
    ebb_scope before = {};
    other.run([&] { before = ebb_region_enter(region); });
    Filled filled(region);
    expect_right_in_child([&] {
        for (int i = 0; i < 4; i++)
            std::thread([] { ebb_free(ebb_malloc(100)); }).join();
        return use_and_end(filled, true);
    });
    other.run([&] { ebb_leave(before); });
    EXPECT_TRUE(use_and_end(filled, true));
}

// Threads allocate in regions and domains without a pause; the child may lose the blocks that they
// were just allocating, and nothing else.
class Crowd {
public:
    Crowd()
    {
        for (unsigned id = 0; id < 3; id++)
            threads_.emplace_back([this, id] { stay_busy(id); });
        while (running_ < 3)
            std::this_thread::yield();
    }
    ~Crowd()
    {
        stop_ = true;
        for (std::thread &thread : threads_)
            thread.join();
        ebb_region_release(shared_);
    }
    ebb_region *shared() { return shared_; }

private:
    void stay_busy(unsigned id)
    {
        support::Random random(id);
        ebb_domain *domain = ebb_domain_open("busy at the fork");
        for (std::size_t round = 0; !stop_; round++) {
            ebb_region *own = open("busy at the fork");
            void *blocks[50];
            for (void *&block : blocks) {
                block = take(random.below(2) == 0 ? own : shared_, random.below(1000));
                *static_cast<char *>(block) = 1;
                serve(domain);
            }
            for (void *block : blocks)
                ebb_free(block);
            ebb_region_release(own);
            running_ += round == 0 ? 1 : 0;
        }
    }
    ebb_region *shared_ = open("shared at the fork");
    std::atomic<bool> stop_{false};
    std::atomic<unsigned> running_{0};
    std::vector<std::thread> threads_;
};

TEST(RegionFork, WhileThreadsAllocate)
{
    if (support::under_tsan)
        GTEST_SKIP() << "TSan ends a child forked from several threads";
    if (support::under_sanitizer) // see fork_cases.h
        setenv("EBB_PURGE_THREAD", "0", 1);
    ebb_domain *domain = ebb_domain_open("of the forking thread");
    Filled kept(open("kept over forks"));
    Crowd crowd;
    for (std::size_t i = 0; i < support::scaled(60); i++)
        ASSERT_NO_FATAL_FAILURE(expect_right_in_child([&] {
            const bool shared_serves = take_filled(crowd.shared(), 100, 1) != nullptr;
            ebb_region *fresh = open("opened in the child");
            const bool fresh_serves = take_filled(fresh, 70 * KiB, 1) != nullptr;
            ebb_region_release(fresh);
            return shared_serves && fresh_serves && use_and_end(kept, i % 2 == 0) &&
                   serve(domain) && serve(ebb_domain_open("busy at the fork"));
        })) << "fork "
            << i;
    EXPECT_TRUE(use_and_end(kept, true));
}

// What a thread that the child has not was about to retire is the region's there, and goes with it.
TEST(RegionFork, WhileThreadsRetireLargeObjects)
{
    if (support::under_tsan)
        GTEST_SKIP() << "TSan ends a child forked from several threads";
    if (support::under_sanitizer) // see fork_cases.h
        setenv("EBB_PURGE_THREAD", "0", 1);
    ebb_region *shared = open("shared at the fork");
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++)
        threads.emplace_back([&] {
            while (!stop)
                ebb_retire(take(shared, 200 * KiB));
        });
    for (std::size_t i = 0; i < support::scaled(400) && !HasFatalFailure(); i++)
        expect_right_in_child([&] {
            ebb_region_release(shared);
            return true;
        });
    stop = true;
    for (std::thread &thread : threads)
        thread.join();
    ebb_region_release(shared);
}

} // namespace
