// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer region: orphans from inside: nobody waits for the pass that gives their pages back, a fork leaves
// nothing of it behind, and a label knows its oldest one.
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <future>

#include "ebbtide/region.h"
#include "support/engine.h"

namespace {

using namespace unit;

// A closed region with one block left in it, behind 40 KiB that are free.
void *leave_orphan(const char *label)
{
    ebb_region_options options = {};
    options.label = label;
    ebb_region *region = ebb_region_open(&options);
    void *freed = ebb_region_alloc(region, 40 * KiB);
    std::memset(freed, 1, 40 * KiB);
    void *kept = ebb_region_alloc(region, 100);
    ebb_free(freed);
    ebb_region_close(region);
    return kept;
}

const ebbi_label *label_of(const void *p) { return ebbi_sheet_of(p)->label; }

std::function<void()> during_purge;

struct Orphans : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_threaded(false);
        fake_os_clock(100000);
    }
    void TearDown() override { fake_os_watch_purge(nullptr); }
    // In the next call of the kernel that gives pages back.
    static void in_purge(std::function<void()> call)
    {
        during_purge = std::move(call);
        fake_os_watch_purge([](std::uintptr_t, std::size_t) {
            fake_os_watch_purge(nullptr);
            during_purge();
        });
    }
};

// By another thread, as the lock would be this one's.
bool ends_soon(std::function<void()> call)
{
    static std::vector<std::future<void>> calls; // waited for when the program ends
    calls.push_back(std::async(std::launch::async, std::move(call)));
    return calls.back().wait_for(std::chrono::seconds(5)) == std::future_status::ready;
}

TEST_F(Orphans, NobodyWaitsForThePass)
{
    void *kept = leave_orphan("passed"), *other = leave_orphan("passed");
    const ebbi_label *label = label_of(kept);
    bool closed = false, ended = false;
    in_purge([&] {
        closed = ends_soon([] { ebb_free(leave_orphan("beside")); });
        ended = ends_soon([&] {
            ebb_free(kept);
            ebb_free(other);
        });
    });
    fake_os_clock_advance(10000);
    ebb_trim();
    EXPECT_TRUE(closed) << "a close waited for the kernel";
    EXPECT_TRUE(ended) << "the last free of an orphan waited for the kernel";
    EXPECT_EQ(0U, label->demoted);
    EXPECT_EQ(0U, label->demoted_bytes);
    EXPECT_EQ(0U, label->oldest_ms);
}

// The pass is in another thread; its claim is of no effect in the child.
TEST_F(Orphans, AForkDuringThePass)
{
    fake_os_threaded(true);
    void *kept = leave_orphan("forked");
    const ebbi_label *label = label_of(kept);
    int status = -1;
    std::promise<void> in_the_kernel, forked;
    in_purge([&] {
        in_the_kernel.set_value();
        forked.get_future().wait();
    });
    fake_os_clock_advance(10000);
    std::thread passes([] { ebb_trim(); });
    in_the_kernel.get_future().wait();
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        ebb_trim(); // nobody else is at it
        bool right = label->demoted == 1;
        ebb_free(kept);
        _exit(right && label->demoted == 0 ? 42 : 1);
    }
    ASSERT_EQ(child, waitpid(child, &status, 0));
    forked.set_value();
    passes.join();
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(42, WEXITSTATUS(status));
    ebb_free(kept);
    EXPECT_EQ(0U, label->demoted);
}

TEST_F(Orphans, ALabelKnowsItsOldest)
{
    std::vector<void *> kept;
    for (int i = 0; i < 6; i++) {
        kept.push_back(leave_orphan(i % 3 == 0 ? "mine" : "another's"));
        fake_os_clock_advance(1000);
    }
    const ebbi_label *mine = label_of(kept[0]), *other = label_of(kept[1]);
    EXPECT_EQ(100000U, mine->oldest_ms);
    EXPECT_EQ(101000U, other->oldest_ms);
    ebb_free(kept[0]);
    EXPECT_LE(mine->oldest_ms, 103000U) << "until the next pass";
    EXPECT_GT(mine->oldest_ms, 100000U);
    ebb_trim();
    EXPECT_EQ(103000U, mine->oldest_ms);
    EXPECT_EQ(101000U, other->oldest_ms);
    ebb_free(kept[3]);
    EXPECT_EQ(0U, mine->oldest_ms);
    for (int i : {1, 2, 4})
        ebb_free(kept[static_cast<std::size_t>(i)]);
    ebb_trim();
    EXPECT_EQ(105000U, other->oldest_ms);
    ebb_free(kept[5]);
    EXPECT_EQ(0U, other->oldest_ms);
}

// More than are looked at under the lock at once.
TEST_F(Orphans, ThePassReachesThemAll)
{
    std::vector<void *> kept;
    for (int i = 0; i < 300; i++)
        kept.push_back(leave_orphan("many"));
    const std::size_t before = fake_os_count(FAKE_PURGE);
    fake_os_clock_advance(10000);
    ebb_trim();
    const std::size_t all = fake_os_count(FAKE_PURGE) - before;
    EXPECT_GE(all, 300U * 9);
    ebb_trim();
    EXPECT_EQ(before + all, fake_os_count(FAKE_PURGE)) << "nothing has happened since";
    for (void *p : kept)
        ebb_free(p);
    EXPECT_EQ(before + all, fake_os_count(FAKE_PURGE));
}

} // namespace
