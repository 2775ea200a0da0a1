// SPDX-License-Identifier: MIT OR Apache-2.0
// Regions where the kernel refuses membarrier, as a seccomp filter of a container may: who closes a region
// that another thread owns cannot make sure at once that this one is not in the middle of a free. The region
// ends all the same, a second later.
#include "../api/api_ebb.h"

#include <cstddef>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../api/region_support.h"

namespace {

using namespace regions;
using support::KiB;
using support::MiB;

// For this thread and those that it starts.
bool refuse_membarrier()
{
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {sizeof code / sizeof code[0], code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 &&
           syscall(SYS_membarrier, 0, 0, 0) == -1;
}

class RegionWithoutMembarrier : public testing::Test {
protected:
    void SetUp() override
    {
        if (!refuse_membarrier())
            GTEST_SKIP() << "no seccomp filter here";
    }
};

bool all_end(const char *label)
{
    return eventually([label] { return trimmed_line(label).open == 0; });
}

TEST_F(RegionWithoutMembarrier, WhatAnotherThreadClosesEnds)
{
    constexpr std::size_t count = 500;
    Worker owner;
    ebb_region *regions[count];
    void *kept[count];
    owner.run([&] {
        for (std::size_t i = 0; i < count; i++) {
            regions[i] = open("closed elsewhere");
            kept[i] = take_filled(regions[i], 1000, i);
            ebb_free(take(regions[i], 30 * KiB));
        }
    });
    for (ebb_region *region : regions)
        ebb_region_close(region);
    owner.run([&] {
        for (std::size_t i = 0; i < count; i += 2) {
            EXPECT_TRUE(is_filled(kept[i], 1000, i));
            ebb_free(kept[i]);
        }
    });
    EXPECT_TRUE(all_end("closed elsewhere"));
    const ebb_lifetime_stats now = trimmed_line("closed elsewhere");
    EXPECT_EQ(now.closed, count);
    EXPECT_EQ(now.demoted, count / 2) << "each of the others has ended with its last block";
    for (std::size_t i = 1; i < count; i += 2) {
        EXPECT_TRUE(is_filled(kept[i], 1000, i));
        ebb_free(kept[i]);
    }
    EXPECT_EQ(trimmed_line("closed elsewhere").held_bytes, 0U);
}

// Nobody owns the regions that are opened after the first refusal.
TEST_F(RegionWithoutMembarrier, LaterOnesDoNotWait)
{
    Worker owner;
    for (int i = 0; i < 500; i++) {
        ebb_region *region = nullptr;
        owner.run([&] {
            region = open("one by one");
            ebb_free(take_filled(region, 1000, 1));
        });
        ebb_region_close(region);
        ASSERT_LE(line("one by one").open, 1U) << "at " << i;
    }
    EXPECT_TRUE(all_end("one by one"));
    EXPECT_EQ(line("one by one").closed, 500U);
    EXPECT_EQ(trimmed_line("one by one").held_bytes, 0U);
}

// The close alone, without a pass: a later one finds what has waited long enough.
TEST_F(RegionWithoutMembarrier, ALaterCloseEndsWhatHasWaited)
{
    Worker owner;
    ebb_region *first = nullptr, *later = open("later");
    owner.run([&] { first = open("first"); });
    ebb_region_close(first);
    EXPECT_EQ(line("first").open, 1U);
    std::this_thread::sleep_for(std::chrono::milliseconds(1300));
    ebb_region_close(later);
    EXPECT_EQ(line("first").open, 0U);
}

TEST_F(RegionWithoutMembarrier, ParentsEndAfterTheirChildren)
{
    Worker owner;
    ebb_region *parent = nullptr;
    void *kept[10];
    owner.run([&] {
        parent = open("parent");
        for (void *&block : kept)
            block = take_filled(open("child", parent), 100, 1);
    });
    ebb_region_close(parent);
    EXPECT_EQ(line("parent").open, 1U);
    EXPECT_EQ(line("child").open, 10U);
    EXPECT_TRUE(all_end("child"));
    EXPECT_TRUE(all_end("parent"));
    for (void *block : kept) {
        EXPECT_TRUE(is_filled(block, 100, 1));
        ebb_free(block);
    }
    EXPECT_EQ(trimmed_line("child").held_bytes, 0U);
}

// A child that was closed is not released with its parent.
TEST_F(RegionWithoutMembarrier, AReleaseLeavesAClosedChildsBlocks)
{
    Worker owner;
    for (bool by_reset : {false, true}) {
        ebb_region *parent = open("released"), *child = nullptr;
        void *kept = nullptr;
        owner.run([&] {
            child = open("closed child", parent);
            kept = take_filled(child, 100, 1);
        });
        ebb_region_close(child);
        by_reset ? ebb_region_reset(parent) : ebb_region_release(parent);
        EXPECT_EQ(line("closed child").open, 0U);
        EXPECT_TRUE(is_filled(kept, 100, 1));
        EXPECT_EQ(ebb_region_of(kept), nullptr);
        ebb_free(kept);
        if (by_reset)
            ebb_region_release(parent);
    }
    EXPECT_EQ(trimmed_line("closed child").held_bytes, 0U);
}

TEST_F(RegionWithoutMembarrier, AHandleThatIsOverIsNone)
{
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_DEATH(
        {
            Worker owner;
            ebb_region *region = nullptr;
            refuse_membarrier();
            owner.run([&] { region = open("is over"); });
            ebb_region_close(region);
            ebb_region_release(region);
        },
        "release of a region that has ended.*\"is over\"");
}

// The owner is in the middle of frees when the region is closed; each is counted once.
TEST_F(RegionWithoutMembarrier, NoFreeIsLost)
{
    constexpr std::size_t regions_at_once = 60, blocks_each = 2000;
    std::vector<void *> blocks(regions_at_once * blocks_each);
    std::vector<ebb_region *> regions(regions_at_once);
    Worker owner;
    owner.run([&] {
        for (std::size_t i = 0; i < blocks.size(); i++) {
            ebb_region *&region = regions[i / blocks_each];
            region = i % blocks_each == 0 ? open("freed meanwhile") : region;
            blocks[i] = take(region, 16);
        }
    });
    std::atomic<std::size_t> freed{0};
    std::thread closes([&] {
        for (std::size_t i = 0; i < regions_at_once; i++) {
            while (freed < i * blocks_each + blocks_each / 2)
                std::this_thread::yield();
            ebb_region_close(regions[i]);
        }
    });
    owner.run([&] {
        for (void *block : blocks) {
            ebb_free(block);
            freed++;
        }
    });
    closes.join();
    EXPECT_TRUE(all_end("freed meanwhile"));
    EXPECT_EQ(trimmed_line("freed meanwhile").held_bytes, 0U);
}

// In the child nobody else frees: what waits has ended there.
TEST_F(RegionWithoutMembarrier, WhatWaitsEndsInTheChildOfAFork)
{
    if (support::under_tsan)
        GTEST_SKIP() << "TSan ends a child forked from several threads";
    Worker owner;
    ebb_region *parent = open("forked parent"), *child = nullptr;
    void *kept = nullptr;
    owner.run([&] {
        child = open("forked child", parent);
        kept = take_filled(child, 100, 1);
    });
    ebb_region_close(child);
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        bool right = line("forked child").open == 0 && is_filled(kept, 100, 1);
        ebb_free(kept);
        ebb_region_release(parent);
        _exit(right && trimmed_line("forked child").held_bytes == 0 ? 42 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 42);
    EXPECT_TRUE(all_end("forked child"));
    ebb_free(kept);
    ebb_region_release(parent);
}

} // namespace
