// SPDX-License-Identifier: MIT OR Apache-2.0
// Storms and limits: realloc storms, signals in the middle of everything, bursts that go idle, and
// an address space with an end: NULL with ENOMEM, an intact heap, and allocation again after a
// free. The file that includes this one has chosen the form of the API before.
#pragma once

#include <algorithm>
#include <atomic>
#include <csignal>
#include <string>
#include <thread>

#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

namespace {

using support::KiB;
using support::MiB;

struct Grown {
    void *data;
    std::size_t bytes;
};

// Grows and shrinks a few buffers at random, as string builders and vectors do.
std::size_t realloc_storm(std::size_t steps, std::size_t largest, unsigned seed)
{
    support::Random random(seed);
    support::MappedArray<Grown> buffers(32);
    std::size_t errors = 0;
    for (std::size_t i = 0; i < steps; i++) {
        const std::size_t slot = random.below(buffers.size());
        Grown &buffer = buffers[slot];
        const std::size_t grown = buffer.bytes * 3 / 2 + random.between(1, 100);
        const std::size_t bytes = grown > largest ? random.between(1, 200) : grown;
        void *data = api::resize(buffer.data, bytes);
        const std::size_t kept = std::min({buffer.bytes, bytes, 4 * KiB});
        errors += data == nullptr ||
                  support::find_mismatch(data, kept, static_cast<unsigned>(slot)) != kept;
        support::fill_pattern(data, 0, std::min(bytes, 4 * KiB), static_cast<unsigned>(slot));
        buffer = {data, bytes};
    }
    for (Grown &buffer : buffers)
        api::release(buffer.data);
    return errors;
}

TEST(Storm, ReallocSmall) { EXPECT_EQ(realloc_storm(support::scaled(100000), 8 * KiB, 1), 0U); }

TEST(Storm, ReallocLarge) { EXPECT_EQ(realloc_storm(support::scaled(10000), 32 * MiB, 2), 0U); }

TEST(Storm, ReallocInFourThreads)
{
    std::atomic<std::size_t> errors{0};
    std::vector<std::thread> threads;
    for (unsigned id = 0; id < 4; id++)
        threads.emplace_back(
            [&errors, id] { errors += realloc_storm(support::scaled(20000), MiB, id + 5); });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(errors.load(), 0U);
}

volatile std::sig_atomic_t signals_seen = 0;

void count_signal(int) { signals_seen = signals_seen + 1; }

// Signals interrupt system calls of the allocator as well; none may surface as a failure.
TEST(Signals, ArrivingAllTheTimeChangeNothing)
{
    struct sigaction action = {};
    struct sigaction previous = {};
    action.sa_handler = count_signal;
    ASSERT_EQ(sigaction(SIGALRM, &action, &previous), 0);
    const itimerval often = {{0, 500}, {0, 500}};
    const itimerval never = {{0, 0}, {0, 0}};
    ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
    std::size_t errors = 0;
    for (unsigned round = 0; round < 200 && signals_seen < 100; round++)
        errors += realloc_storm(support::scaled(2000), 4 * MiB, round);
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &previous, nullptr);
    EXPECT_EQ(errors, 0U);
    EXPECT_GT(signals_seen, 10);
}

TEST(Burst, RepeatedBurstsDoNotRatchet)
{
    support::MappedArray<void *> blocks(40000);
    std::size_t early = 0;
    const std::size_t rounds = support::scaled(20);
    for (std::size_t round = 0; round < rounds; round++) {
        for (std::size_t i = 0; i < blocks.size(); i++) {
            const std::size_t bytes = 16 + (i * 7 + round * 131) % 1500;
            blocks[i] = api::allocate(bytes);
            std::memset(blocks[i], 1, bytes);
        }
        for (void *block : blocks)
            api::release(block);
        if (round == rounds / 4)
            early = support::resident_bytes();
    }
    support::expect_resident_at_most(early + 24 * MiB, "memory ratchets");
}

constexpr int outcome_right = 42;
constexpr int outcome_no_limit = 70;
constexpr int outcome_no_exec = 71;

std::size_t address_space_limit()
{
    rlimit limit = {};
    getrlimit(RLIMIT_AS, &limit);
    return static_cast<std::size_t>(limit.rlim_cur);
}

// Takes blocks until NULL. Stops at twice the limit: then nothing enforces it.
std::size_t take_until_refused(support::MappedArray<void *> &blocks, std::size_t bytes)
{
    std::size_t count = 0;
    for (errno = 0; count < blocks.size(); count++) {
        blocks[count] = api::allocate(bytes);
        if (blocks[count] == nullptr)
            return count;
        static_cast<char *>(blocks[count])[bytes / 2] = 1;
        if (count * bytes > 2 * address_space_limit())
            _exit(outcome_no_limit);
    }
    return count;
}

// share: of the limit, in hundredths, that can be had at least.
void exhaust_twice(std::size_t bytes, std::size_t share = 25)
{
    support::MappedArray<void *> blocks(2 * MiB);
    std::size_t counts[2] = {};
    for (std::size_t &count : counts) {
        count = take_until_refused(blocks, bytes);
        ASSERT_EQ(errno, ENOMEM);
        ASSERT_GT(count * bytes, address_space_limit() / 100 * share)
            << "too little of the limit could be used";
        for (std::size_t i = 0; i < count; i++)
            api::release(blocks[i]);
        void *block = api::allocate(bytes);
        ASSERT_NE(block, nullptr) << "nothing can be allocated after everything was freed";
        api::release(block);
    }
    EXPECT_GE(counts[1], counts[0] * 9 / 10) << "the second exhaustion came earlier";
}

void exhaust_small() { exhaust_twice(600); }

void exhaust_medium() { exhaust_twice(20 * KiB); }

void exhaust_large() { exhaust_twice(3 * MiB); }

// Large beside the limit: no part of it is lost to what they leave of chunks.
void exhaust_huge() { exhaust_twice(address_space_limit() / 25, 85); }

// After the small blocks took everything and left, a block of another kind must fit.
void exhaust_small_then_take_large()
{
    support::MappedArray<void *> blocks(2 * MiB);
    const std::size_t count = take_until_refused(blocks, 900);
    for (std::size_t i = 0; i < count; i++)
        api::release(blocks[i]);
    void *large = api::allocate(address_space_limit() / 4);
    EXPECT_NE(large, nullptr) << "freed small blocks still hold the address space";
    api::release(large);
}

void fail_to_resize()
{
    void *block = api::allocate(MiB);
    ASSERT_NE(block, nullptr);
    support::fill_pattern(block, 0, MiB, 4);
    errno = 0;
    EXPECT_EQ(api::resize(block, address_space_limit() * 2), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(support::find_mismatch(block, MiB, 4), MiB);
    api::release(block);
}

void exhaust_in_two_threads()
{
    std::atomic<std::size_t> wrong{0};
    const auto exhaust = [&wrong] {
        support::MappedArray<void *> blocks(64 * 1024);
        const std::size_t count = take_until_refused(blocks, 30 * KiB);
        wrong += count < blocks.size() && errno != ENOMEM;
        for (std::size_t i = 0; i < count; i++)
            api::release(blocks[i]);
        void *block = api::allocate(100);
        wrong += block == nullptr;
        api::release(block);
    };
    std::thread first(exhaust);
    std::thread second(exhaust);
    first.join();
    second.join();
    EXPECT_EQ(wrong.load(), 0U);
}

struct LimitedCase {
    const char *name;
    void (*run)();
    std::size_t limit_mib;
    double from_scale;
};

// Without a readable form the name of a case would print addresses, which differ in each run.
void PrintTo(const LimitedCase &limited, std::ostream *out)
{
    *out << limited.name << " under " << limited.limit_mib << " MiB";
}

const LimitedCase limited_cases[] = {
    {"Small", exhaust_small, 512, 0.0},
    {"Medium", exhaust_medium, 512, 0.0},
    {"Large", exhaust_large, 512, 0.0},
    {"Huge", exhaust_huge, 512, 0.0},
    {"SmallThenLarge", exhaust_small_then_take_large, 512, 0.0},
    {"FailedRealloc", fail_to_resize, 512, 0.0},
    {"TwoThreads", exhaust_in_two_threads, 512, 0.0},
    {"Small", exhaust_small, 2048, 2.0},
    {"Medium", exhaust_medium, 2048, 0.0},
    {"Large", exhaust_large, 2048, 0.0},
    {"SmallThenLarge", exhaust_small_then_take_large, 2048, 2.0},
    {"Huge", exhaust_huge, 2048, 0.0},
    {"TwoThreads", exhaust_in_two_threads, 2048, 0.0},
};

// Becomes this test again, from the start of the process, with an address space that has an end.
[[noreturn]] void restart_limited(const LimitedCase &limited, const char *own_name)
{
    char filter[256];
    std::snprintf(filter, sizeof filter, "--gtest_filter=%s", own_name);
    const rlimit limit = {limited.limit_mib * MiB, limited.limit_mib * MiB};
    setrlimit(RLIMIT_AS, &limit);
    setenv("TEST_LIMITED_CHILD", "1", 1);
    unsetenv("GTEST_OUTPUT");
    alarm(100);
    execl("/proc/self/exe", "limited", filter, nullptr);
    _exit(outcome_no_exec);
}

// An exit status of its own tells a limited run from one in which no test was selected.
[[noreturn]] void run_limited(const LimitedCase &limited)
{
    limited.run();
    _exit(testing::Test::HasFailure() ? 1 : outcome_right);
}

void expect_right_outcome(int status)
{
    ASSERT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
    if (WEXITSTATUS(status) == outcome_no_limit || WEXITSTATUS(status) == outcome_no_exec)
        GTEST_SKIP() << "no address space limit here (an emulator ignores it)";
    EXPECT_EQ(WEXITSTATUS(status), outcome_right) << "the limited run failed, see above";
}

class Limited : public testing::TestWithParam<LimitedCase> {};

TEST_P(Limited, AllocatesUntilRefusedAndAgainAfterwards)
{
    const LimitedCase &limited = GetParam();
    if (std::getenv("TEST_LIMITED_CHILD") != nullptr)
        run_limited(limited);
    if (support::under_sanitizer)
        GTEST_SKIP() << "a sanitizer needs more address space than the limit";
    if (support::scale() < limited.from_scale)
        GTEST_SKIP() << "long, runs from EBBTEST_SCALE=" << limited.from_scale << " on";
    const testing::TestInfo *info = testing::UnitTest::GetInstance()->current_test_info();
    const std::string own_name = std::string(info->test_suite_name()) + "." + info->name();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0)
        restart_limited(limited, own_name.c_str());
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    expect_right_outcome(status);
}

std::string name_of_case(const testing::TestParamInfo<LimitedCase> &info)
{
    return std::string(info.param.name) + "Under" + std::to_string(info.param.limit_mib) + "MiB";
}

INSTANTIATE_TEST_SUITE_P(AddressSpace, Limited, testing::ValuesIn(limited_cases), name_of_case);

} // namespace
