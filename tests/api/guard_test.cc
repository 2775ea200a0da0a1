// SPDX-License-Identifier: MIT OR Apache-2.0
// EBB_GUARD: what is wrong with a guarded block is reported with the stacks of its allocation, free and use; what is right
// with it works as with any other.
#include <algorithm>
#include <chrono>
#include <thread>

#include <sys/mman.h>
#include <sys/wait.h>

#include "anew.h"
#include "guarded.h"

#include "ebbtide/profile.h"
#include "ebbtide/reclaim.h"

namespace {

using anew::Killed;

const std::size_t sizes[] = {1, 15, 101, 4093, 5001, guarded::most() - 1};

using GuardDeathTest = anew::DeathTest;

char *block(std::size_t bytes)
{
    anew::prepare(100);
    return guarded::make(bytes);
}

char *freed(std::size_t bytes)
{
    char *p = block(bytes);
    ebb_free(p);
    return p;
}

void read_at(const char *p) { support::opaque(*static_cast<const volatile char *>(p)); }
void write_at(char *p) { *static_cast<volatile char *>(p) = 1; }

const std::string calls = " by thread [1-9][0-9]* at:\n(    [^\n]+[+]0x[0-9a-f]+\n)+";

std::string place(const char *what, std::size_t distance, const char *where, std::size_t bytes)
{
    return std::string("^ebbtide: [^ ]+: ") + what + ": 0x[0-9a-f]+ lies " +
           std::to_string(distance) + " bytes " + where + " a block of " + std::to_string(bytes) +
           " bytes at 0x[0-9a-f]+\n";
}

TEST_F(GuardDeathTest, UseAfterFree)
{
    for (std::size_t bytes : sizes) {
        const std::string report = place("use after free", bytes - 1, "into", bytes) + "used" +
                                   calls + "allocated" + calls + "freed" + calls;
        EXPECT_EXIT((read_at(freed(bytes) + bytes - 1), _exit(0)), Killed(SIGSEGV), report);
        EXPECT_EXIT((write_at(freed(bytes) + bytes - 1), _exit(0)), Killed(SIGSEGV), report);
    }
}

// Of blocks that are never freed.
[[gnu::noinline]] bool keep_one()
{
    const bool is = guarded::is(ebb_malloc(101), 101);
    support::opaque(is);
    return is;
}

TEST(Guard, WhatLivesForLongLeavesRoom)
{
    std::size_t kept = 0;
    for (int i = 0; i < 1000 && kept < 300; i++) {
        for (int one = 0; one < 300; one++)
            kept += keep_one() ? 1 : 0;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_GE(kept, 256U);
    EXPECT_LT(kept, 300U) << "all that are made by the same calls";
    EXPECT_NE(nullptr, guarded::make(101));
}

// Linux 6.13 has them. Emulators take any advice for followed.
bool has_markers()
{
    const std::size_t page = 4096;
    void *p = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool marks = madvise(p, page, 102) == 0 && madvise(p, page, 22) != 0; // install, populate
    munmap(p, page);
    return marks;
}

TEST_F(GuardDeathTest, UseAfterManyOthersWereFreed)
{
    const int others = has_markers() ? 1500 : 500;
    const auto use_late = [others] {
        char *p = freed(101);
        for (int i = 0; i < others; i++)
            ebb_free(guarded::make(101));
        read_at(p);
        _exit(0);
    };
    EXPECT_EXIT(use_late(), Killed(SIGSEGV), place("use after free", 0, "into", 101));
}

// Behind the end, from the next page on; before the start, up to the page before.
TEST_F(GuardDeathTest, AccessBesideTheBlock)
{
    for (std::size_t bytes : sizes) {
        const std::size_t gap = (bytes + 15) / 16 * 16 - bytes;
        EXPECT_EXIT((read_at(block(bytes) + bytes + gap), _exit(0)), Killed(SIGSEGV),
                    place("overflow", gap, "behind", bytes) + "used" + calls + "allocated" + calls);
        EXPECT_EXIT((write_at(block(bytes) - 4096), _exit(0)), Killed(SIGSEGV),
                    place("underflow", 4096, "before", bytes) + "used" + calls + "allocated" +
                        calls);
    }
}

TEST_F(GuardDeathTest, WhatWasWrittenBesideItsFreeFinds)
{
    const std::string end = "found" + calls + "allocated" + calls + "$";
    const auto write_and_free = [](std::ptrdiff_t at, std::size_t bytes) {
        char *p = block(bytes);
        p[at]++;
        ebb_free(p);
        _exit(0);
    };
    for (std::size_t bytes : {std::size_t{1}, std::size_t{101}, std::size_t{5001}}) {
        EXPECT_EXIT(write_and_free(static_cast<std::ptrdiff_t>(bytes), bytes), Killed(SIGABRT),
                    "overflow: 1 bytes were written behind a block of [^\n]+\n" + end);
        EXPECT_EXIT(write_and_free(-1, bytes), Killed(SIGABRT),
                    "underflow: 1 bytes were written before a block of [^\n]+\n" + end);
    }
}

TEST_F(GuardDeathTest, CallsThatTakeABlock)
{
    const std::string history = "found" + calls + "allocated" + calls + "freed" + calls;
    EXPECT_EXIT((ebb_free(freed(101)), _exit(0)), Killed(SIGABRT),
                place("double free", 0, "into", 101) + history);
    EXPECT_EXIT((ebb_free(freed(101) + 1), _exit(0)), Killed(SIGABRT),
                place("double free", 1, "into", 101) + history);
    EXPECT_EXIT((support::opaque(ebb_realloc(freed(101), 10)), _exit(0)), Killed(SIGABRT),
                place("use after free", 0, "into", 101) + history);
    EXPECT_EXIT((ebb_retire(freed(101)), _exit(0)), Killed(SIGABRT),
                place("retire after free", 0, "into", 101) + history);
    EXPECT_EXIT((ebb_free(block(101) + 16), _exit(0)), Killed(SIGABRT),
                place("invalid free", 16, "into", 101) + "found" + calls + "allocated" + calls);
}

TEST_F(GuardDeathTest, WhatIsRetired)
{
    const std::string waits = ": retired, waits for its grace period";
    EXPECT_EXIT(anew::retire_and(ebb_retire, block(101)), Killed(SIGABRT),
                place(("invalid retire" + waits).c_str(), 0, "into", 101) + "found" + calls +
                    "allocated" + calls + "$");
    EXPECT_EXIT(anew::retire_and(ebb_free, block(101)), Killed(SIGABRT),
                place(("invalid free" + waits).c_str(), 0, "into", 101) + "found" + calls +
                    "allocated" + calls + "$");
}

TEST_F(GuardDeathTest, OfAnotherThread)
{
    const auto misuse = [] {
        char *p = nullptr;
        std::thread([&p] { p = block(101); }).join();
        std::thread([p] { ebb_free(p); }).join();
        std::thread([p] { write_at(p); }).join();
        _exit(0);
    };
    EXPECT_EXIT(misuse(), Killed(SIGSEGV),
                place("use after free", 0, "into", 101) + "used" + calls + "allocated" + calls +
                    "freed" + calls);
}

TEST_F(GuardDeathTest, NothingAtAllIsNotToBeTouched)
{
    EXPECT_EXIT((read_at(block(0)), _exit(0)), Killed(SIGSEGV),
                place("overflow", 0, "behind", 0) + "used" + calls + "allocated" + calls);
}

TEST_F(GuardDeathTest, AFaultElsewhereIsTheProgramsOwn)
{
    EXPECT_EXIT((block(10), read_at(reinterpret_cast<char *>(8)), _exit(0)), Killed(SIGSEGV), "^$");
}

TEST(Guard, ABlockIsAsGoodAsAnyOther)
{
    for (std::size_t bytes : {0UL, 1UL, 16UL, 101UL, 4096UL, 4097UL, 30000UL, guarded::most()})
        for (std::size_t align = 16; align <= 4096; align *= 4) {
            char *p = guarded::make(bytes, align);
            ASSERT_NE(nullptr, p);
            EXPECT_EQ(0U, support::address(p) % align);
            std::memset(p, 0x5a, bytes);
            if (bytes == 0) {
                ebb_free(p);
                continue;
            }
            p = static_cast<char *>(ebb_realloc(p, bytes / 2 + 1));
            EXPECT_EQ(static_cast<std::ptrdiff_t>(bytes / 2 + 1),
                      std::count(p, p + bytes / 2 + 1, 0x5a));
            p = static_cast<char *>(ebb_realloc(p, 3 * bytes));
            EXPECT_EQ(0x5a, p[bytes / 2]);
            ebb_free(p);
        }
}

TEST(Guard, ClearedIfAskedFor)
{
    int found = 0;
    for (int i = 0; i < 2000000 && found < 50; i++) {
        auto *p = static_cast<char *>(ebb_calloc(1, 5001));
        ASSERT_EQ(5001, std::count(p, p + 5001, 0));
        found += guarded::is(p, 5001);
        std::memset(p, 1, 5001);
        ebb_free(p);
        if (i % 64 == 0)
            ebb_trim(); // so that magazines are empty
    }
    EXPECT_LT(0, found);
}

TEST(Guard, AtMost512AtATime)
{
    std::vector<void *> kept;
    std::size_t found = 0;
    for (int i = 0; i < 400000 && found < 512; i++) {
        void *p = ebb_malloc(6000);
        found += guarded::is(p, 6000);
        kept.push_back(p);
        if (i % 100 == 0)
            usleep(1000);
    }
    for (int i = 0; i < 1000; i++) {
        kept.push_back(ebb_malloc(6000));
        EXPECT_TRUE(found < 512 || !guarded::is(kept.back(), 6000));
    }
    for (void *p : kept)
        ebb_free(p);
    EXPECT_NE(nullptr, guarded::make(101)) << "those that were freed make room";
}

TEST(Guard, RetiredOnesAreHeldBehindTheirGracePeriod)
{
    char *p = guarded::make(101);
    ebb_pin();
    ebb_retire(p);
    std::memset(p, 1, 101);
    ebb_unpin();
    ebb_synchronize();
    ebb_reclaim();
    ebb_barrier();
    EXPECT_NE(nullptr, guarded::make(101));
}

TEST(Guard, SamplesOfAProfileMayBeGuardedAndCount)
{
    ASSERT_EQ(0, ebb_profile_start(1));
    int found = 0;
    for (int i = 0; i < 3000; i++) {
        void *p = ebb_malloc(101);
        found += guarded::is(p, 101);
        ebb_free(p);
        usleep(10);
    }
    ebb_profile_stop();
    EXPECT_LT(0, found) << "although its magazine is never empty";
}

TEST(Guard, TheChildOfAForkGoesOn)
{
    char *p = guarded::make(101);
    std::memset(p, 7, 101);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        const bool same = p[100] == 7;
        ebb_free(p);
        char *own = guarded::make(101);
        ebb_free(own);
        _exit(same && own != nullptr ? 0 : 1);
    }
    int status = 1;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
    EXPECT_EQ(7, p[100]);
    ebb_free(p);
}

} // namespace
