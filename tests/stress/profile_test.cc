// SPDX-License-Identifier: MIT OR Apache-2.0
// The heap profile against the truth: what each of a few functions allocates is counted here as well. And what
// goes on beside it: starts and stops, threads that come and go, forks, refused memory.
#include "../api/api_ebb.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "../api/profile_file.h"
#include "ebbtide/profile.h"
#include "ebbtide/reclaim.h"
#include "ebbtide/region.h"

namespace {

using profile_file::Profile;
using support::KiB;
using support::MiB;

Profile take()
{
    const int file = memfd_create("profile", MFD_CLOEXEC);
    EXPECT_EQ(0, ebb_profile_write(("/proc/self/fd/" + std::to_string(file)).c_str())) << errno;
    Profile profile = profile_file::read(profile_file::contents(file));
    close(file);
    EXPECT_EQ("", profile.wrong);
    return profile;
}

// ---- places ----------------------------------------------------------------------------------------

// A function that allocates, in a section of its own, so that its calls are known in a stack.
#define PLACE(name, expression)                                                                    \
    extern "C" const char __start_profile_##name[], __stop_profile_##name[];                       \
    __attribute__((noinline, section("profile_" #name))) void *name()                              \
    {                                                                                              \
        void *p = (expression);                                                                    \
        asm volatile("" : "+r"(p) : : "memory");                                                   \
        return p;                                                                                  \
    }
#define PLACE_OF(name, bytes, times)                                                               \
    {                                                                                              \
#name, name, __start_profile_##name, __stop_profile_##name, bytes, times                   \
    }

ebb_domain *domain()
{
    static ebb_domain *const one = ebb_domain_open("profiled");
    return one;
}

void *in_domain(std::size_t bytes)
{
    const ebb_scope before = ebb_domain_enter(domain());
    void *const p = ebb_malloc(bytes);
    ebb_leave(before);
    return p;
}

void *resized(std::size_t from, std::size_t to) { return ebb_realloc(ebb_malloc(from), to); }

PLACE(one_byte, ebb_malloc(1))
PLACE(small, ebb_malloc(100))
PLACE(middle, ebb_malloc(20000))
PLACE(large, ebb_malloc(200000))
PLACE(zeroed, ebb_calloc(3, 100))
PLACE(large_zeroed, ebb_calloc(3, 100000))
PLACE(aligned, ebb_aligned_alloc(64, 640))
PLACE(large_aligned, ebb_aligned_alloc(128 * KiB, 128 * KiB))
PLACE(domain_small, in_domain(200))
PLACE(domain_large, in_domain(60000))

struct Place {
    const char *name;
    void *(*call)();
    const char *start, *end;
    std::size_t bytes, times;
};

const std::vector<Place> &places()
{
    static const std::vector<Place> all = {
        PLACE_OF(one_byte, 1, 60000),       PLACE_OF(small, 100, 40000),
        PLACE_OF(middle, 20000, 1000),      PLACE_OF(large, 200000, 200),
        PLACE_OF(zeroed, 300, 20000),       PLACE_OF(large_zeroed, 300000, 100),
        PLACE_OF(aligned, 640, 10000),      PLACE_OF(large_aligned, 128 * KiB, 200),
        PLACE_OF(domain_small, 200, 20000), PLACE_OF(domain_large, 60000, 400)};
    return all;
}

bool is_in(const profile_file::Sample &sample, const Place &place)
{
    return std::any_of(sample.calls.begin(), sample.calls.end(), [&](std::uint64_t call) {
        return call >= reinterpret_cast<std::uintptr_t>(place.start) &&
               call < reinterpret_cast<std::uintptr_t>(place.end);
    });
}

using Values = std::array<double, 4>;

Values sums_of(const Profile &profile, const Place &place)
{
    Values sums{};
    for (const profile_file::Sample &sample : profile.samples)
        for (unsigned i = 0; i < 4 && is_in(sample, place); i++)
            sums[i] += static_cast<double>(sample.values[i]);
    return sums;
}

// ---- truth -----------------------------------------------------------------------------------------

// Six standard errors, where the sum is of at least fifty samples.
void expect_near(double told, double objects, const Place &place, double unit, double mean,
                 const char *what)
{
    const double odds = -std::expm1(-static_cast<double>(place.bytes) / mean);
    if (objects * odds < 50)
        return;
    const double error = unit * std::sqrt(objects * (1 - odds) / odds);
    EXPECT_NEAR(objects * unit, told, 6 * error + 2 * unit)
        << place.name << ", " << what << ", mean " << mean;
}

struct Blocks {
    std::vector<void *> kept;
    std::vector<double> in_use;
};

// A third each is freed at once, freed later, retired.
Blocks use_places()
{
    Blocks blocks;
    for (const Place &place : places()) {
        double kept = 0;
        for (std::size_t i = 0; i < place.times; i++) {
            void *const p = place.call();
            if (i % 3 == 0) {
                ebb_free(p);
            } else if (i % 3 == 1) {
                ebb_retire(p);
            } else {
                blocks.kept.push_back(p);
                kept++;
            }
        }
        blocks.in_use.push_back(kept);
    }
    ebb_barrier();
    ebb_reclaim();
    return blocks;
}

void compare_with_truth(std::size_t mean)
{
    ASSERT_EQ(0, ebb_profile_start(mean)) << errno;
    const Profile before = take();
    Blocks blocks;
    std::thread([&] { blocks = use_places(); }).join();
    const Profile now = take();
    for (std::size_t i = 0; i < places().size(); i++) {
        const Place &place = places()[i];
        const Values told = sums_of(now, place), old = sums_of(before, place);
        const auto times = static_cast<double>(place.times);
        const auto bytes = static_cast<double>(place.bytes), means = static_cast<double>(mean);
        expect_near(told[0] - old[0], times, place, 1, means, "alloc_objects");
        expect_near(told[1] - old[1], times, place, bytes, means, "alloc_space");
        expect_near(told[2], blocks.in_use[i], place, 1, means, "inuse_objects");
        expect_near(told[3], blocks.in_use[i], place, bytes, means, "inuse_space");
    }
    for (void *const p : blocks.kept) // by another thread
        ebb_free(p);
    EXPECT_EQ(0U, take().sum(2)) << "in use after all was freed";
    EXPECT_EQ(0U, take().sum(3)) << "in use after all was freed";
    ebb_profile_stop();
}

TEST(ProfileTruth, SumsByPlace)
{
    for (const std::size_t mean : {1, 100, 4096, 65536})
        compare_with_truth(mean);
}

// ---- realloc ---------------------------------------------------------------------------------------

PLACE(grown_in_page, resized(16, 4000))
PLACE(shrunk_a_little, resized(1000, 520))
PLACE(shrunk_much, resized(4000, 100))
PLACE(large_grown, resized(200000, 400000))
PLACE(large_shrunk, resized(1000000, 300000))

// What is in use has the size that it was given last, wherever it lies.
void expect_last_size(const Place &place, std::size_t mean)
{
    ASSERT_EQ(0, ebb_profile_start(mean)) << errno;
    std::vector<void *> blocks;
    std::thread([&] {
        for (std::size_t i = 0; i < place.times; i++)
            blocks.push_back(place.call());
    }).join();
    ebb_profile_stop();
    const auto bytes = static_cast<double>(place.bytes);
    const double truth = bytes * static_cast<double>(blocks.size());
    EXPECT_NEAR(truth, sums_of(take(), place)[3], truth * 0.09) << place.name << ", mean " << mean;
    for (void *const p : blocks)
        ebb_free(p);
    EXPECT_EQ(0U, take().sum(2)) << place.name;
}

// Six standard errors are below 9 %: at least 4500 samples, or all of them.
TEST(ProfileTruth, ReallocChangesTheSize)
{
    const std::vector<Place> all = {
        PLACE_OF(grown_in_page, 4000, 2000), PLACE_OF(shrunk_a_little, 520, 40000),
        PLACE_OF(shrunk_much, 100, 2000), PLACE_OF(large_grown, 400000, 100),
        PLACE_OF(large_shrunk, 300000, 100)};
    for (const Place &place : all)
        expect_last_size(place, place.times > 10000 ? 2000 : 1);
}

// ---- beside it ---------------------------------------------------------------------------------------

void churn(const std::atomic<bool> &stop, std::atomic<std::uint64_t> &allocations)
{
    std::uint64_t count = 0;
    for (; !stop; count++)
        ebb_free(ebb_malloc(16));
    allocations += count;
}

void churn_by_realloc(const std::atomic<bool> &stop, std::atomic<std::uint64_t> &allocations)
{
    std::uint64_t count = 0;
    for (; !stop; count += 3)
        ebb_free(ebb_realloc(ebb_realloc(ebb_malloc(30000), 300000), 90000));
    allocations += count;
}

// A sample is weighed by the mean by which it was drawn. By the large one an allocation of b bytes is a sample in
// 2^40 / b, and then stands for so many: of 16 bytes there is one in 10^4 runs, of the larger ones in every third.
// Their number is without bias all the same; `variance` is that of what one allocation adds.
constexpr double large_mean = 0x1p40;
void change_the_mean(decltype(churn) *work, double variance)
{
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> allocations{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++)
        threads.emplace_back([&] { work(stop, allocations); });
    for (std::size_t i = 0; i < support::scaled(20000); i++) {
        ASSERT_EQ(0, ebb_profile_start(i % 2 == 0 ? 1 : static_cast<std::size_t>(large_mean)));
        usleep(10);
    }
    stop = true;
    for (std::thread &thread : threads)
        thread.join();
    ebb_profile_stop();
    const Profile profile = take();
    const auto count = static_cast<double>(allocations);
    EXPECT_LE(static_cast<double>(profile.sum(0)), count + 2 + 10 * std::sqrt(count * variance));
    EXPECT_EQ(0U, profile.sum(2));
}

TEST(ProfileBeside, AnotherMean) { change_the_mean(churn, 0); }
TEST(ProfileBeside, AnotherMeanAsBlocksMove)
{
    change_the_mean(churn_by_realloc,
                    (large_mean / 30000 + large_mean / 300000 + large_mean / 90000) / 3);
}

struct Shelf { // of blocks that other threads free
    std::mutex mutex;
    std::deque<void *> blocks;
    void *swap(void *p)
    {
        const std::lock_guard lock(mutex);
        blocks.push_back(p);
        void *const first = blocks.size() > 100 ? blocks.front() : nullptr;
        if (first != nullptr)
            blocks.pop_front();
        return first;
    }
};

void come_and_go(Shelf &shelf, unsigned seed)
{
    support::Random random(seed);
    for (int i = 0; i < 30; i++) {
        void *const p = ebb_realloc(ebb_malloc(random.between(1, 3000)), random.between(1, 6000));
        ebb_free(shelf.swap(p));
    }
}

TEST(ProfileBeside, ThreadsComeAndGoAsItStartsAndStops)
{
    Shelf shelf;
    std::atomic<bool> stop{false};
    std::thread starter([&] {
        support::Random random(1);
        while (!stop) {
            EXPECT_EQ(0, ebb_profile_start(std::size_t{1} << random.between(0, 20)));
            take();
            ebb_profile_stop();
        }
    });
    for (unsigned i = 0; i < support::scaled(2000); i += 2) {
        std::thread one(come_and_go, std::ref(shelf), i),
            other(come_and_go, std::ref(shelf), i + 1);
        one.join();
        other.join();
    }
    stop = true;
    starter.join();
    for (void *const p : shelf.blocks)
        ebb_free(p);
    EXPECT_EQ(0U, take().sum(2));
    EXPECT_EQ(0U, take().sum(3));
}

// In the child, where nobody else is left.
[[noreturn]] void profile_alone()
{
    alarm(20);
    if (ebb_profile_start(1) != 0)
        _exit(1);
    void *const p = large();
    const Place place = PLACE_OF(large, 200000, 1);
    const Values held = sums_of(take(), place);
    ebb_free(p);
    const Values freed = sums_of(take(), place);
    _exit(held[2] == 1 && held[3] == 200000 && freed[2] == 0 && freed[0] == 1 ? 0 : 2);
}

TEST(ProfileBeside, AChildGoesOn)
{
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> allocations{0};
    std::thread starter([&] {
        while (!stop) {
            EXPECT_EQ(0, ebb_profile_start(100000));
            EXPECT_EQ(0, ebb_profile_write("/dev/null"));
        }
    });
    std::thread other([&] { churn(stop, allocations); });
    for (std::size_t i = 0; i < support::scaled(300) && !HasFailure(); i++) {
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0)
            profile_alone();
        int status = 0;
        ASSERT_EQ(child, waitpid(child, &status, 0));
        EXPECT_EQ(0, status) << "fork " << i;
    }
    stop = true;
    starter.join();
    other.join();
}

#ifndef EBBTEST_SANITIZED
TEST(ProfileBeside, RefusedMemoryChangesNothing)
{
    EXPECT_EQ(0, ebb_profile_start(0)); // what it loads, it loads now
    ebb_profile_stop();
    const pid_t child = fork();
    if (child == 0) {
        const rlimit none = {0, 0};
        ebb_free(ebb_malloc(100));
        setrlimit(RLIMIT_AS, &none);
        (void)ebb_profile_start(1);
        bool good = true;
        for (int i = 0; i < 1000; i++) { // of what there is
            void *const p = ebb_malloc(100);
            good = good && p != nullptr;
            ebb_free(p);
        }
        _exit(good ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
}

// Refused, a block that shrinks stays where it is.
[[noreturn]] void shrink_without_memory(rlimit limit)
{
    std::array<void *, 100> blocks;
    std::vector<void *> fill;
    fill.reserve(1 << 20);
    for (void *&p : blocks)
        p = ebb_malloc(200000);
    const rlimit none = {0, limit.rlim_max};
    setrlimit(RLIMIT_AS, &none);
    while (void *const p = ebb_malloc(1000))
        fill.push_back(p);
    for (void *&p : blocks)
        p = ebb_realloc(p, 1000);
    setrlimit(RLIMIT_AS, &limit);
    for (void *const p : blocks)
        ebb_free(p);
    for (void *const p : fill)
        ebb_free(p);
    _exit(take().sum(2) == 0 && take().sum(3) == 0 ? 0 : 1);
}

TEST(ProfileBeside, ABlockThatCannotMove)
{
    ASSERT_EQ(0, ebb_profile_start(1));
    rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    const pid_t child = fork();
    if (child == 0)
        shrink_without_memory(limit);
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status) << "sampled blocks are in use after all was freed";
}
#endif

// ---- stacks ----------------------------------------------------------------------------------------

__attribute__((noinline)) void *from_the_depth(unsigned calls)
{
    void *p = calls == 0 ? small() : from_the_depth(calls - 1);
    asm volatile("" : "+r"(p) : : "memory");
    return p;
}

TEST(ProfileStacks, TheInnermostCallsAreKept)
{
    ASSERT_EQ(0, ebb_profile_start(1));
    const Place place = PLACE_OF(small, 100, 1);
    for (const unsigned calls : {0, 10, 60, 70, 1000, 10000})
        ebb_free(from_the_depth(calls));
    ebb_profile_stop();
    EXPECT_EQ(6, sums_of(take(), place)[0]);
}

} // namespace
