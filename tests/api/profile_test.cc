// SPDX-License-Identifier: MIT OR Apache-2.0
// The sampled heap profile, by the text of ebbtide/profile.h. With a mean of one byte every allocation of more than
// 40 bytes is a sample and stands for itself alone, so that sums are exact.
#include "profile_file.h"
#include "support.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "ebbtide/profile.h"
#include "ebbtide/reclaim.h"
#include "ebbtide/region.h"

namespace {

struct Values {
    double alloc_objects = 0, alloc_bytes = 0, objects = 0, bytes = 0;
};

// By the functions named below: the sums of the samples that have a call in them.
using Function = void *(*)(std::size_t bytes);

bool is_in(const profile_file::Sample &sample, Function function)
{
    const auto start = reinterpret_cast<std::uintptr_t>(function);
    return std::any_of(sample.calls.begin(), sample.calls.end(),
                       [=](std::uint64_t call) { return call - start < 64; });
}

Values sums_of(const profile_file::Profile &profile, Function function)
{
    Values sums;
    for (const profile_file::Sample &sample : profile.samples) {
        if (is_in(sample, function)) {
            sums.alloc_objects += static_cast<double>(sample.alloc_objects());
            sums.alloc_bytes += static_cast<double>(sample.alloc_space());
            sums.objects += static_cast<double>(sample.inuse_objects());
            sums.bytes += static_cast<double>(sample.inuse_space());
        }
    }
    return sums;
}

profile_file::Profile written()
{
    const std::string name = testing::TempDir() + "profile." + std::to_string(getpid());
    EXPECT_EQ(0, ebb_profile_write(name.c_str())) << errno;
    const int file = open(name.c_str(), O_RDONLY | O_CLOEXEC);
    profile_file::Profile profile = profile_file::read(profile_file::contents(file));
    EXPECT_EQ("", profile.wrong);
    close(file);
    (void)std::remove(name.c_str());
    return profile;
}

Values sums(Function function) { return sums_of(written(), function); }

#define NOT_INLINE __attribute__((noinline))
NOT_INLINE void *first(std::size_t bytes)
{
    void *p = ebb_malloc(bytes);
    asm volatile("" : "+r"(p));
    return p;
}
NOT_INLINE void *second(std::size_t bytes)
{
    void *p = ebb_calloc(1, bytes);
    asm volatile("" : "+r"(p) : : "memory");
    return p;
}

void *grown_to;
NOT_INLINE void *grown_alone(std::size_t bytes)
{
    void *p = ebb_realloc(grown_to, bytes);
    asm volatile("" : "+r"(p));
    return p;
}
void *grown(void *p, std::size_t bytes)
{
    grown_to = p;
    return grown_alone(bytes);
}

class Profile : public testing::Test {
protected:
    void SetUp() override { ASSERT_EQ(0, ebb_profile_start(1)); }
};

TEST(ProfileOff, IsEmptyBeforeTheFirstStart)
{
    ebb_free(first(100));
    const profile_file::Profile profile = written();
    EXPECT_TRUE(profile.samples.empty());
    EXPECT_EQ(5U, profile.types.size());
    ebb_profile_stop();
}

TEST(ProfileOff, RefusesWhatItCannotDo)
{
    errno = 0;
    EXPECT_EQ(-1, ebb_profile_start((std::size_t{1} << 40) + 1));
    EXPECT_EQ(EINVAL, errno);
    EXPECT_EQ(-1, ebb_profile_write(nullptr));
    EXPECT_EQ(EFAULT, errno);
    EXPECT_EQ(-1, ebb_profile_write("/nowhere/at/all"));
    EXPECT_EQ(ENOENT, errno);
    EXPECT_EQ(-1, ebb_profile_write("/dev/full"));
    EXPECT_EQ(ENOSPC, errno);
}

// Of 8 blocks of a page one is left: what is free beside it is told as it is now.
// In C++ it is noexcept: to be cancelled there ends the process.
TEST_F(Profile, WritesInAThreadThatIsAboutToBeCancelled)
{
    static int written = -1;
    pthread_t thread;
    const auto run = [](void *) -> void * {
        pthread_cancel(pthread_self());
        written = ebb_profile_write("/dev/null");
        pthread_testcancel();
        return nullptr;
    };
    ASSERT_EQ(0, pthread_create(&thread, nullptr, run, nullptr));
    void *result = nullptr;
    ASSERT_EQ(0, pthread_join(thread, &result));
    EXPECT_EQ(PTHREAD_CANCELED, result);
    EXPECT_EQ(0, written);
}

TEST_F(Profile, KnowsWhatIsKeptByWhatIsInUse)
{
    constexpr std::size_t bytes = 512, pages = 500, on_page = 8;
    std::vector<void *> blocks;
    for (std::size_t i = 0; i < pages * on_page; i++)
        blocks.push_back(first(bytes));
    ebb_profile_stop();
    const double before = static_cast<double>(written().sum(4));
    for (std::size_t i = 0; i < blocks.size(); i++)
        if (i % on_page != 3)
            ebb_free(blocks[i]);
    ebb_trim();
    const double kept = static_cast<double>(written().sum(4)), free = pages * (on_page - 1) * bytes;
    EXPECT_LT(before, free / 20);
    EXPECT_NEAR(free, kept, free / 20);
    for (std::size_t i = 3; i < blocks.size(); i += on_page)
        ebb_free(blocks[i]);
    EXPECT_EQ(0U, written().sum(4));
}

// What is held beside each sample is not the program's.
TEST_F(Profile, CountsEachBlockOnce)
{
    constexpr std::size_t bytes = 12000, count = 500;
    ebb_free(first(bytes));
    ebb_trim();
    ebb_stats before, stats;
    ebb_snapshot snapshot_before, snapshot;
    ebb_stats_get(&before);
    ebb_snapshot_get(&snapshot_before);
    std::vector<void *> blocks;
    for (std::size_t i = 0; i < count; i++)
        blocks.push_back(std::memset(first(bytes), 1, bytes));
    ebb_stats_get(&stats);
    ebb_snapshot_get(&snapshot);
    EXPECT_NEAR(count, static_cast<double>(stats.live_blocks - before.live_blocks), 20);
    const auto grown = [&](std::size_t ebb_snapshot::*of) {
        return static_cast<double>(snapshot.*of) - static_cast<double>(snapshot_before.*of);
    };
    EXPECT_NEAR(0, grown(&ebb_snapshot::live_bytes), 20 * bytes) << "of classes";
    EXPECT_NEAR(count * bytes, grown(&ebb_snapshot::span_bytes), support::MiB / 2);
    for (void *&p : blocks) // where it is, and no sample any more, or elsewhere
        p = ebb_realloc(p, bytes - 100);
    for (std::size_t i = 0; i < 50; i++)
        blocks.push_back(second(100000));
    ebb_snapshot_get(&snapshot);
    EXPECT_NEAR(count * bytes + 50 * 100000,
                grown(&ebb_snapshot::live_bytes) + grown(&ebb_snapshot::span_bytes),
                support::MiB / 2);
    for (void *p : blocks)
        ebb_free(p);
    ebb_trim();
    ebb_snapshot_get(&snapshot);
    EXPECT_NEAR(0, grown(&ebb_snapshot::span_bytes), support::MiB / 2);
}

// Also where the realloc is a sample, beside which a block is held: that would be this one.
TEST_F(Profile, AReallocOfAFreedBlockIsReported)
{
    for (const std::size_t bytes : {100U, 1000U, 8000U}) {
        ebb_profile_stop();
        void *p = ebb_malloc(bytes);
        ASSERT_EQ(0, ebb_profile_start(1));
        ebb_free(p);
        EXPECT_DEATH(ebb_realloc(p, bytes), "double free|free already") << bytes;
        EXPECT_DEATH(ebb_realloc(p, bytes - 4), "double free|free already") << bytes;
    }
}

TEST_F(Profile, KnowsWhatIsInUseAndWhatWas)
{
    void *kept = first(1000), *freed = first(3000), *other = second(100000);
    ebb_free(freed);
    const profile_file::Profile profile = written();
    const Values a = sums_of(profile, first), b = sums_of(profile, second);
    EXPECT_EQ(2, a.alloc_objects);
    EXPECT_EQ(4000, a.alloc_bytes);
    EXPECT_EQ(1, a.objects);
    EXPECT_EQ(1000, a.bytes);
    EXPECT_EQ(1, b.objects);
    EXPECT_EQ(100000, b.bytes);
    ebb_profile_stop();
    ebb_free(first(50)); // none any more
    ebb_free(kept);
    ebb_free(other);
    const profile_file::Profile after = written();
    EXPECT_EQ(0, sums_of(after, first).bytes);
    EXPECT_EQ(0, sums_of(after, second).objects);
    EXPECT_EQ(2, sums_of(after, first).alloc_objects);
}

TEST_F(Profile, EveryKindOfBlockLeavesIt)
{
    ebb_domain *domain = ebb_domain_open("profiled");
    ASSERT_NE(nullptr, domain);
    for (const std::size_t bytes :
         {std::size_t{64}, std::size_t{5000}, std::size_t{300000}, std::size_t{40} << 20}) {
        ebb_free(first(bytes));
        void *grown = ebb_realloc(first(bytes), bytes * 3);
        support::fill_pattern(grown, 0, bytes * 3, 1);
        grown = ebb_realloc(grown, bytes / 2);
        EXPECT_EQ(bytes / 2, support::find_mismatch(grown, bytes / 2, 1));
        ebb_free(grown);
        ebb_retire(first(bytes));
        std::thread([p = second(bytes)] { ebb_free(p); }).join();
        const ebb_scope before = ebb_domain_enter(domain);
        void *in_domain = second(bytes);
        ebb_leave(before);
        ebb_free(in_domain);
    }
    ebb_synchronize();
    ebb_reclaim();
    const profile_file::Profile profile = written();
    EXPECT_EQ(12, sums_of(profile, first).alloc_objects);
    EXPECT_EQ(0, sums_of(profile, first).bytes);
    EXPECT_EQ(0, sums_of(profile, first).objects);
    EXPECT_EQ(8, sums_of(profile, second).alloc_objects);
    EXPECT_EQ(0, sums_of(profile, second).bytes);
}

// In place or elsewhere, up and down, from and to each kind of block.
TEST_F(Profile, AReallocIsAFreeAndAnAllocation)
{
    for (const std::size_t from : {100, 4000, 100000, 1000000, 40000000})
        for (const std::size_t to : {60, 3000, 90000, 1500000, 50000000}) {
            const Values before = sums(first);
            void *p = grown(first(from), to);
            const Values in_use = sums(first), now = sums(grown_alone);
            EXPECT_EQ(before.bytes, in_use.bytes) << from << " to " << to;
            EXPECT_EQ(static_cast<double>(to), now.bytes) << from << " to " << to;
            ebb_profile_stop();
            p = ebb_realloc(p, to - 1); // where it is; not known any more
            EXPECT_EQ(0, sums(grown_alone).bytes);
            ebb_free(p);
            ASSERT_EQ(0, ebb_profile_start(1));
        }
}

TEST_F(Profile, SampledBlocksAreBlocks)
{
    for (std::size_t bytes = 1; bytes < 1 << 20; bytes = bytes * 3 / 2 + 1) {
        void *p = first(bytes);
        EXPECT_GE(ebb_malloc_usable_size(p), bytes);
        support::fill_pattern(p, 0, ebb_malloc_usable_size(p), 7);
        void *aligned = ebb_aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        EXPECT_EQ(0U, reinterpret_cast<std::uintptr_t>(aligned) % 4096);
        EXPECT_EQ(ebb_malloc_usable_size(p),
                  support::find_mismatch(p, ebb_malloc_usable_size(p), 7));
        ebb_free(p);
        ebb_free(aligned);
        auto *zeroed = static_cast<char *>(second(bytes));
        for (std::size_t i = 0; i < bytes; i++)
            ASSERT_EQ(0, zeroed[i]);
        ebb_free(zeroed);
    }
}

TEST_F(Profile, ADoubleFreeOfASampleIsFound)
{
    void *p = first(100);
    EXPECT_DEATH(
        {
            ebb_free(p);
            ebb_free(p);
        },
        "ebbtide: .*free");
    ebb_free(p);
}

TEST_F(Profile, ItsEndAndBeginningReachEveryThread)
{
    std::atomic<int> phase{0};
    std::thread other([&] {
        for (int seen = 0; seen < 3;) {
            phase.wait(seen);
            seen = phase.load();
            ebb_free(seen == 1 ? second(100) : first(100));
            phase.store(-seen);
            phase.notify_all();
            phase.wait(-seen);
        }
    });
    const auto let_run = [&](int number) {
        phase.store(number);
        phase.notify_all();
        phase.wait(number);
    };
    let_run(1);
    EXPECT_EQ(1, sums(second).alloc_objects);
    ebb_profile_stop();
    let_run(2);
    EXPECT_EQ(0, sums(first).alloc_objects) << "off";
    EXPECT_EQ(0, ebb_profile_start(1));
    let_run(3);
    EXPECT_EQ(1, sums(first).alloc_objects) << "on again";
    phase.store(4);
    phase.notify_all();
    other.join();
}

// What a thread has left of the distance of one round is nothing to the next.
TEST(ProfileRounds, EachBeginsAnew)
{
    for (int round = 1; round < 4; round++) {
        ASSERT_EQ(0, ebb_profile_start(std::size_t{1} << 40));
        for (int i = 0; i < 100; i++)
            ebb_free(second(100));
        ebb_profile_stop();
        ASSERT_EQ(0, ebb_profile_start(1));
        ebb_free(first(100));
        ebb_profile_stop();
        EXPECT_EQ(round, sums(first).alloc_objects);
    }
}

// As far as chance goes: a sample of so many stands for 1.58, and two in three are.
TEST_F(Profile, WhatHasNoBytesCountsAsOneByte)
{
    constexpr int count = 1000;
    for (int i = 0; i < count; i++)
        ebb_free(first(0));
    EXPECT_NEAR(count, sums(first).alloc_objects, 150);
    EXPECT_EQ(0, sums(first).alloc_bytes);
}

TEST_F(Profile, GoesOnInAChild)
{
    void *kept = first(1000);
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);
        void *more = first(2000);
        ebb_free(kept);
        const Values a = sums(first);
        ebb_free(more);
        _exit(a.alloc_bytes == 3000 && a.bytes == 2000 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
    EXPECT_EQ(1000, sums(first).bytes);
    ebb_free(kept);
}

double estimate_in_a_child()
{
    int ends[2];
    double sum = -1;
    EXPECT_EQ(0, pipe(ends));
    const pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 20000; i++)
            ebb_free(first(100));
        sum = sums(first).alloc_bytes;
        _exit(write(ends[1], &sum, sizeof sum) == sizeof sum ? 0 : 1);
    }
    EXPECT_EQ(static_cast<ssize_t>(sizeof sum), read(ends[0], &sum, sizeof sum));
    EXPECT_EQ(child, waitpid(child, nullptr, 0));
    close(ends[0]);
    close(ends[1]);
    return sum;
}

// What they draw is each one's own: of as many processes their sum would be no better known than of one.
TEST(ProfileRounds, ChildrenOfOneProcessDrawAnew)
{
    ASSERT_EQ(0, ebb_profile_start(5000));
    for (int i = 0; i < 1000; i++)
        ebb_free(first(100));
    std::set<double> estimates;
    for (int i = 0; i < 6; i++)
        estimates.insert(estimate_in_a_child());
    EXPECT_GE(estimates.size(), 3U) << "of a process with one thread";
    std::atomic<bool> ends{false};
    std::thread other([&] { ends.wait(false); });
    estimates.clear();
    for (int i = 0; i < 6; i++)
        estimates.insert(estimate_in_a_child());
    EXPECT_GE(estimates.size(), 3U) << "of one with two";
    ends = true;
    ends.notify_all();
    other.join();
}

// 2,000 samples or so: the sums are within five of their standard errors.
TEST(ProfileSums, AreRightOnTheAverage)
{
    constexpr std::size_t mean = 16384;
    if (ebb_profile_start(mean) != 0)
        GTEST_SKIP() << "libc cannot tell a stack";
    std::vector<void *> kept;
    double objects = 0, bytes = 0, variance_objects = 0, variance_bytes = 0;
    for (std::size_t i = 0; i < 400000; i++) {
        const std::size_t size = 1 + i * 7919 % 200;
        kept.push_back(first(size));
        const double odds = -std::expm1(-static_cast<double>(size) / mean);
        objects++;
        bytes += static_cast<double>(size);
        variance_objects += 1 / odds;
        variance_bytes += static_cast<double>(size) * static_cast<double>(size) / odds;
    }
    const Values a = sums(first);
    EXPECT_NEAR(objects, a.objects, 5 * std::sqrt(variance_objects));
    EXPECT_NEAR(bytes, a.bytes, 5 * std::sqrt(variance_bytes));
    for (void *p : kept)
        ebb_free(p);
    EXPECT_EQ(0, sums(first).bytes);
}

} // namespace
