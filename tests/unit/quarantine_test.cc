// SPDX-License-Identifier: MIT OR Apache-2.0
// The debug mode of regions when the OS refuses: what cannot be guarded is given back, what cannot be
// let out stays, and neither is ever lost.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "ebbtide/region.h"
#include "support/engine.h"

namespace {

using namespace unit;

struct Quarantine : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        setenv("EBB_REGION_DEBUG", "1", 1);
        ebbi_report_goes_on = true; // else a report ends the process
        ebbi_options_read();
        fake_os_pretend_threads();
        fake_os_capture();
    }
    void TearDown() override { unsetenv("EBB_REGION_DEBUG"); }
};

ebb_region *open_region()
{
    ebb_region_options options = {};
    options.label = "refused";
    return ebb_region_open(&options);
}

std::uintptr_t released(std::size_t bytes)
{
    ebb_region *region = open_region();
    void *p = ebb_region_alloc(region, bytes);
    EXPECT_NE(nullptr, p);
    ebb_region_release(region);
    return address(p);
}

bool is_quarantined(std::uintptr_t p) { return ebbi_escape_report(p, "use"); }

std::size_t used_bytes() { return ebbi_arena_used_bytes(); }

TEST_F(Quarantine, KeepsTheLatestReleaseAlone)
{
    const std::uintptr_t first = released(1000);
    EXPECT_TRUE(is_quarantined(first));
    const std::uintptr_t second = released(1000);
    EXPECT_NE(first, second);
    EXPECT_FALSE(is_quarantined(first));
    EXPECT_TRUE(is_quarantined(second));
    EXPECT_FALSE(is_quarantined(second + 64 * KiB));
}

TEST_F(Quarantine, ReportsByName)
{
    const std::uintptr_t p = released(1000);
    EXPECT_TRUE(is_quarantined(p + 100));
    const std::string report = fake_os_captured();
    EXPECT_NE(std::string::npos, report.find("lies 100 bytes into a block of 1008 bytes of region "
                                             "\"refused\" (number "))
        << report;
    EXPECT_NE(std::string::npos, report.find("allocated at:\n    ")) << report;
    EXPECT_EQ(std::string::npos, report.find("(no stack was kept)")) << report;
}

TEST_F(Quarantine, WhatCannotBeGuardedIsGivenBack)
{
    for (std::size_t bytes : {std::size_t{1000}, 5 * MiB}) {
        released(100);
        const std::size_t before = used_bytes();
        fake_os_refuse(FAKE_GUARD, 1, true);
        EXPECT_FALSE(is_quarantined(released(bytes)));
        EXPECT_LE(used_bytes(), before) << bytes;
        fake_os_allow();
    }
    EXPECT_TRUE(is_quarantined(released(1000)));
}

// Address space that is held beside the notes of blocks' stacks, 256 MiB for each GiB in use.
std::size_t held_beside_notes() { return fake_os_held_bytes() % (256 * MiB); }

TEST_F(Quarantine, ThePlaceOfAHugeObjectMayBeLost)
{
    released(100);
    const std::size_t held = held_beside_notes();
    ebb_region *region = open_region();
    void *p = ebb_region_alloc(region, 40 * MiB);
    ASSERT_NE(nullptr, p);
    fake_os_refuse(FAKE_RESERVE, 1, true);
    ebb_region_release(region);
    EXPECT_FALSE(is_quarantined(address(p)));
    EXPECT_EQ(held_beside_notes(), held);
    fake_os_allow();
    EXPECT_TRUE(is_quarantined(released(40 * MiB)));
    EXPECT_EQ(held_beside_notes(), held + 40 * MiB);
    released(100);
    EXPECT_EQ(held_beside_notes(), held);
}

TEST_F(Quarantine, WhatCannotBeLetOutStays)
{
    const std::uintptr_t kept = released(2 * MiB);
    ebb_region *region = open_region();
    ASSERT_NE(nullptr, ebb_region_alloc(region, 100));
    fake_os_refuse(FAKE_COMMIT, 1, true);
    ebb_region_release(region);
    EXPECT_TRUE(is_quarantined(kept));
    fake_os_allow();
    (void)released(100);
    EXPECT_FALSE(is_quarantined(kept));
}

TEST_F(Quarantine, IsOffWhereItsTablesAreRefused)
{
    fake_os_refuse(FAKE_MAP, 1, true);
    ebb_region *region = ebb_region_open(nullptr);
    fake_os_allow();
    EXPECT_NE(
        std::string::npos,
        std::string(fake_os_captured()).find("EBB_REGION_DEBUG: no memory for its tables: off"));
    ASSERT_NE(nullptr, region);
    void *p = ebb_region_alloc(region, 1000);
    ebb_region_release(region);
    EXPECT_FALSE(is_quarantined(address(p)));
}

// One stack fewer is no reason to fail.
TEST_F(Quarantine, BlocksWithoutAStack)
{
    ebb_region *region = ebb_region_open(nullptr);
    fake_os_refuse(FAKE_MAP, 1, true);
    void *p = ebb_region_alloc(region, 1000);
    fake_os_allow();
    ASSERT_NE(nullptr, p);
    ebb_region_release(region);
    EXPECT_TRUE(is_quarantined(address(p)));
    EXPECT_NE(std::string::npos,
              std::string(fake_os_captured()).find("allocated at:\n    (no stack was kept)\n"));
}

// ---- fork ----------------------------------------------------------------------------------------

template <typename Run> void expect_right_in_child(Run run)
{
    const pid_t child = fork();
    if (child == 0) {
        alarm(10);
        _exit(run() ? 42 : 1);
    }
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    ASSERT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
    EXPECT_EQ(42, WEXITSTATUS(status));
}

// Another thread had begun with the mode, and is not there to go on.
TEST_F(Quarantine, BeginsAnewInTheChildOfAFork)
{
    fake_os_threaded(true);   // of another thread
    ebb_free(ebb_malloc(10)); // fork is watched
    ebbi_quarantine_mode = EBBI_QUARANTINE_BEGINS;
    expect_right_in_child([] { return is_quarantined(released(1000)); });
    ebbi_quarantine_mode = EBBI_QUARANTINE_UNKNOWN;
}

// Another thread is writing a report, into a pipe that is full.
TEST_F(Quarantine, ReportsInTheChildOfAForkDuringAReport)
{
    const std::uintptr_t gone = released(1000);
    fake_os_reset(); // no capture: what is written blocks
    fake_os_pretend_threads();
    int ends[2];
    ASSERT_EQ(0, pipe(ends));
    ASSERT_EQ(0, fcntl(ends[1], F_SETFL, O_NONBLOCK));
    std::vector<char> fill(4096, 'x');
    while (write(ends[1], fill.data(), fill.size()) > 0) {
    }
    while (write(ends[1], fill.data(), 1) > 0) {
    }
    ASSERT_EQ(0, fcntl(ends[1], F_SETFL, 0));
    const int kept = dup(2);
    dup2(ends[1], 2);
    std::thread reports([gone] { (void)is_quarantined(gone); });
    std::this_thread::sleep_for(std::chrono::milliseconds(200)); // it is at it by now
    const pid_t child = fork();
    if (child == 0) {
        alarm(10);
        dup2(kept, 2);
        _exit(is_quarantined(gone) ? 42 : 1);
    }
    int status = 0;
    EXPECT_EQ(child, waitpid(child, &status, 0));
    dup2(kept, 2);
    while (read(ends[0], fill.data(), fill.size()) == static_cast<ssize_t>(fill.size())) {
    }
    reports.join();
    EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
    EXPECT_EQ(42, WEXITSTATUS(status));
}

} // namespace
