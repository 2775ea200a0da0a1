// SPDX-License-Identifier: MIT OR Apache-2.0
// What a profile tells beside the stacks: by which thread, for which domain and when what is in use was allocated, and
// how long it was in use what was freed. With a mean of one byte, so that sums are exact.
#include "profile_file.h"
#include "support.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "ebbtide/profile.h"
#include "ebbtide/reclaim.h"
#include "ebbtide/region.h"

namespace {

using Bytes = std::map<std::string, double>; // by a label's text

// A function that allocates, in a section of its own, so that its calls are known in a stack.
extern "C" const char __start_labels_block[], __stop_labels_block[];
__attribute__((noinline, section("labels_block"))) void *block(std::size_t bytes)
{
    void *p = ebb_malloc(bytes);
    asm volatile("" : "+r"(p) : : "memory");
    return p;
}

bool is_block(const profile_file::Sample &sample)
{
    return std::any_of(sample.calls.begin(), sample.calls.end(), [](std::uint64_t call) {
        return call >= reinterpret_cast<std::uintptr_t>(__start_labels_block) &&
               call < reinterpret_cast<std::uintptr_t>(__stop_labels_block);
    });
}

profile_file::Profile written()
{
    const int file = memfd_create("profile", MFD_CLOEXEC);
    EXPECT_EQ(0, ebb_profile_write(("/proc/self/fd/" + std::to_string(file)).c_str())) << errno;
    profile_file::Profile profile = profile_file::read(profile_file::contents(file));
    EXPECT_EQ("", profile.wrong);
    close(file);
    return profile;
}

Bytes by(const std::string &name, unsigned value = 3)
{
    Bytes found;
    const profile_file::Profile profile = written();
    for (const profile_file::Sample &sample : profile.samples)
        if (is_block(sample) && sample.values[value] != 0)
            found[profile.label(sample, name)] += static_cast<double>(sample.values[value]);
    return found;
}

std::string me() { return std::to_string(gettid()); }
std::string me(const std::string &name) { return name + " (" + me() + ")"; }

// Runs it in a thread: its number. The kernel may know a thread for a moment after its join.
std::string in_another(const std::function<void()> &body)
{
    std::string number;
    std::thread([&] {
        number = me();
        body();
    }).join();
    while (access(("/proc/self/task/" + number).c_str(), F_OK) == 0)
        std::this_thread::yield();
    return number;
}

class ProfileLabels : public testing::Test {
protected:
    void SetUp() override
    {
        pthread_setname_np(pthread_self(), "first of all");
        ASSERT_EQ(0, ebb_profile_start(1));
    }
};

// ---- threads ---------------------------------------------------------------------------------------

TEST_F(ProfileLabels, WhoAllocatedIsTold)
{
    void *mine = block(1000);
    std::array<void *, 2> theirs{};
    const std::string ended = in_another([&] {
        pthread_setname_np(pthread_self(), "a worker");
        theirs = {block(200), block(300)};
        EXPECT_EQ((Bytes{{me("a worker"), 500},
                         {"first of all (" + std::to_string(getpid()) + ")", 1000}}),
                  by("thread"));
    });
    EXPECT_EQ((Bytes{{ended, 500}, {me("first of all"), 1000}}), by("thread"));
    ebb_free(theirs[0]); // by another thread than it was allocated by
    EXPECT_EQ((Bytes{{ended, 300}, {me("first of all"), 1000}}), by("thread"));
    std::thread([&] { ebb_free(mine); }).join();
    EXPECT_EQ((Bytes{{ended, 300}}), by("thread"));
    ebb_free(theirs[1]);
    EXPECT_EQ(Bytes{}, by("thread"));
}

struct Made {
    std::string thread;
    std::array<void *, 2> blocks;
};

Made in_a_thread()
{
    Made made;
    made.thread = in_another([&] {
        for (void *&p : made.blocks)
            p = block(1000);
    });
    return made;
}

TEST_F(ProfileLabels, ThreadsWithTheSameStacksAreToldApart)
{
    const std::array<Made, 3> made = {in_a_thread(), in_a_thread(), in_a_thread()};
    Bytes expected = {{made[0].thread, 2000}, {made[1].thread, 2000}, {made[2].thread, 2000}};
    EXPECT_EQ(expected, by("thread"));
    for (const std::size_t which : {1, 0, 2}) {
        const Made &one = made[which];
        ebb_free(one.blocks[0]);
        expected[one.thread] = 1000;
        EXPECT_EQ(expected, by("thread"));
        ebb_free(one.blocks[1]);
        expected.erase(one.thread);
        EXPECT_EQ(expected, by("thread"));
    }
}

TEST_F(ProfileLabels, WhoResizesABlockAllocatesIt)
{
    void *p = block(200000); // stays where it is
    const std::string other = in_another([&] { p = ebb_realloc(p, 199000); });
    const profile_file::Profile profile = written();
    double found = 0;
    for (const profile_file::Sample &sample : profile.samples)
        if (profile.label(sample, "thread") == other)
            found += static_cast<double>(sample.inuse_space());
    EXPECT_EQ(199000, found);
    EXPECT_EQ(Bytes{}, by("thread"));
    ebb_free(p);
}

TEST_F(ProfileLabels, AChildHasItsOwnThread)
{
    void *kept = block(1000);
    const std::string parent = me();
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);
        void *more = block(2000);
        const Bytes both = by("thread");
        ebb_free(kept);
        const Bytes one = by("thread");
        ebb_free(more);
        _exit(both == Bytes{{parent, 1000}, {me("first of all"), 2000}} &&
                      one == Bytes{{me("first of all"), 2000}} && by("thread").empty()
                  ? 0
                  : 1);
    }
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
    EXPECT_EQ((Bytes{{me("first of all"), 1000}}), by("thread"));
    ebb_free(kept);
}

// ---- labels of domains -------------------------------------------------------------------------------

void *block_in(const char *name, std::size_t bytes)
{
    const ebb_scope before = ebb_domain_enter(ebb_domain_open(name));
    void *const p = block(bytes);
    ebb_leave(before);
    return p;
}

TEST_F(ProfileLabels, TheDomainThatWasCurrentIsTold)
{
    std::vector<void *> blocks = {block(100), block_in("checkout", 200), block_in("search", 300000),
                                  block_in("checkout", 400)};
    EXPECT_EQ((Bytes{{"", 100}, {"checkout", 600}, {"search", 300000}}), by("label"));
    // Its epochs end, and so do the threads that were in it, while samples of it live.
    std::thread([&] { blocks.push_back(block_in("checkout", 5000)); }).join();
    ebb_domain_advance(ebb_domain_open("checkout"));
    EXPECT_EQ((Bytes{{"", 100}, {"checkout", 5600}, {"search", 300000}}), by("label"));
    ebb_free(blocks[1]);
    ebb_free(blocks[2]);
    EXPECT_EQ((Bytes{{"", 100}, {"checkout", 5400}}), by("label"));
    for (const std::size_t left : {0, 3, 4})
        ebb_free(blocks[left]);
    EXPECT_EQ(Bytes{}, by("label"));
}

// What is no UTF-8 is no text of a message: a label may be any bytes, and the kernel cuts names of threads.
TEST_F(ProfileLabels, NamesAreTexts)
{
    const Bytes named = {{"\xc3\xa9t\xc3\xa9", 100}, {"cut?", 200}, {"????z", 300}, {"???", 400}};
    std::vector<void *> blocks = {block_in("\xc3\xa9t\xc3\xa9", 100), block_in("cut\xc3", 200),
                                  block_in("\xff\xed\xa0\x80z", 300),
                                  block_in("\xf0\x8f\xbf", 400)};
    EXPECT_EQ(named, by("label"));
    for (void *p : blocks)
        ebb_free(p);
}

// ---- ages and lifetimes --------------------------------------------------------------------------------

using Clock = std::chrono::steady_clock;
constexpr std::array<const char *, 8> terms = {"<1ms", "<10ms", "<100ms", "<1s",
                                               "<10s", "<1min", "<1h",    ">=1h"};

std::size_t term_of(Clock::duration time)
{
    using namespace std::chrono_literals;
    const std::array<Clock::duration, 7> ends = {1ms, 10ms, 100ms, 1s, 10s, 1min, 1h};
    return static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), time) -
                                    ends.begin());
}

struct Span { // that something took: no shorter, no longer
    Clock::duration least, most;
};

// Of blocks with these times as many bytes as `told` must lie in each term: between those that certainly do, and those
// that may.
void expect_terms(const Bytes &told, const std::vector<Span> &times, double bytes)
{
    double whole = 0;
    for (std::size_t term = 0; term < terms.size(); term++) {
        const auto found = told.find(terms[term]);
        const double here = found == told.end() ? 0 : found->second;
        double least = 0, most = 0;
        for (const Span &time : times) {
            const bool begins = term_of(time.least) == term, ends = term_of(time.most) == term;
            least += begins && ends ? bytes : 0;
            most += term_of(time.least) <= term && term <= term_of(time.most) ? bytes : 0;
        }
        EXPECT_LE(least, here) << terms[term];
        EXPECT_GE(most, here) << terms[term];
        whole += here;
    }
    EXPECT_EQ(bytes * static_cast<double>(times.size()), whole);
}

constexpr std::size_t size = 1000;

// Frees what it makes after so long. `end`: how it is freed.
Span held_for(std::chrono::milliseconds time, const std::function<void(void *)> &end)
{
    const Clock::time_point before = Clock::now();
    void *const p = block(size);
    const Clock::time_point made = Clock::now();
    std::this_thread::sleep_for(time);
    const Clock::time_point asked = Clock::now();
    end(p);
    return {asked - made, Clock::now() - before};
}

TEST_F(ProfileLabels, HowLongItWasInUseIsTold)
{
    const auto by_another = [](void *p) { std::thread([=] { ebb_free(p); }).join(); };
    const auto in_two = [](void *p) { // the first is over when it is resized
        p = ebb_realloc(p, 0);
        EXPECT_EQ(nullptr, p);
    };
    std::vector<Span> times;
    for (const int ms : {0, 0, 0, 2, 15, 150, 1010}) {
        times.push_back(held_for(std::chrono::milliseconds(ms), ebb_free));
        times.push_back(held_for(std::chrono::milliseconds(ms / 2), by_another));
        times.push_back(held_for(std::chrono::milliseconds(ms / 3), in_two));
    }
    void *const kept = block(size);
    Bytes told = by("lifetime", 1);
    EXPECT_EQ(size, told[""]) << "in use";
    told.erase("");
    expect_terms(told, times, size);
    EXPECT_EQ((Bytes{{"", size}}), by("lifetime", 3));
    ebb_free(kept);
}

TEST_F(ProfileLabels, HowOldItIsIsTold)
{
    std::vector<std::pair<Clock::time_point, Clock::time_point>> made;
    std::vector<void *> blocks;
    for (const int ms : {1010, 150, 15, 2, 0}) {
        const Clock::time_point before = Clock::now();
        blocks.push_back(block(size));
        made.emplace_back(before, Clock::now());
        std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    }
    const Clock::time_point before = Clock::now();
    const Bytes told = by("age");
    const Clock::time_point after = Clock::now();
    std::vector<Span> times;
    for (const auto &[first, last] : made)
        times.push_back({before - last, after - first});
    expect_terms(told, times, size);
    for (void *const p : blocks)
        ebb_free(p);
}

// ---- sums --------------------------------------------------------------------------------------------

// Values of one stack are rounded as one: its samples add up to what they were when it had a single one.
TEST(ProfileLabelsSums, AreThoseOfTheStack)
{
    constexpr std::size_t mean = 1000, bytes = 700;
    ASSERT_EQ(0, ebb_profile_start(mean));
    std::vector<void *> blocks;
    for (int i = 0; i < 20; i++)
        std::thread([&] {
            for (int j = 0; j < 50; j++)
                blocks.push_back(block(bytes));
        }).join();
    const double each = -1 / std::expm1(-static_cast<double>(bytes) / mean);
    for (std::size_t i = 0; i <= blocks.size(); i++) {
        if (i % 97 == 0) {
            std::array<double, 4> sums{};
            for (const profile_file::Profile profile = written();
                 const profile_file::Sample &sample : profile.samples)
                for (std::size_t value = 0; value < 4 && is_block(sample); value++)
                    sums[value] += static_cast<double>(sample.values[value]);
            const double made = std::round(sums[0] / each), live = std::round(sums[2] / each);
            EXPECT_EQ(std::round(made * each), sums[0]);
            EXPECT_EQ(std::round(made * each * bytes), sums[1]);
            EXPECT_EQ(std::round(live * each), sums[2]);
            EXPECT_EQ(std::round(live * each * bytes), sums[3]);
        }
        if (i < blocks.size())
            ebb_free(blocks[i]);
    }
}

// Of each thread every other block is freed at once. Within five standard errors, of 700 samples and more.
TEST(ProfileLabelsSums, AreRightOnTheAverage)
{
    constexpr std::size_t mean = 4096, bytes = 300;
    ASSERT_EQ(0, ebb_profile_start(mean));
    std::vector<void *> kept;
    std::map<std::string, double> live; // blocks by thread
    double freed = 0;
    for (std::size_t count = 10000; count <= 40000; count *= 2) {
        const std::string thread = in_another([&] {
            for (std::size_t i = 0; i < count; i++) {
                kept.push_back(block(bytes));
                ebb_free(block(bytes));
            }
        });
        live[thread] = static_cast<double>(count);
        freed += static_cast<double>(count);
    }
    const double odds = -std::expm1(-static_cast<double>(bytes) / mean);
    const auto expect = [=](double told, double blocks) {
        EXPECT_NEAR(blocks * bytes, told, 5 * bytes * std::sqrt(blocks * (1 - odds) / odds));
    };
    Bytes threads = by("thread"), lifetimes = by("lifetime", 1);
    EXPECT_EQ(live.size(), threads.size());
    for (const auto &[thread, blocks] : live)
        expect(threads[thread], blocks);
    double soon = 0; // within a second
    for (std::size_t term = 0; term < 4; term++)
        soon += lifetimes[terms[term]];
    expect(soon, freed);
    expect(lifetimes[""], freed); // as many are in use
    for (void *const p : kept)
        ebb_free(p);
    EXPECT_EQ(Bytes{}, by("thread"));
}

} // namespace
