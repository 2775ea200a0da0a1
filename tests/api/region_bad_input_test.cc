// SPDX-License-Identifier: MIT OR Apache-2.0
// Misuse of regions: each ends in an abort after one line that starts with "ebbtide: ", and for blocks
// names the pointer. The memory in question has not been used again, so each must be found.
#include "api_ebb.h"

#include <functional>

#include "region_support.h"

namespace {

using namespace regions;
using support::KiB;
using support::MiB;

const char *const our_line = "^ebbtide: ";

struct RegionDeathTest : testing::Test {
    void SetUp() override { testing::FLAGS_gtest_death_test_style = "fast"; }
};

void expect_death(const char *what, const std::function<void()> &misuse,
                  const std::string &line = our_line)
{
    EXPECT_DEATH(
        {
            alarm(30);
            misuse();
            _exit(0);
        },
        line)
        << what;
}

std::string line_about(const void *pointer)
{
    char text[64];
    std::snprintf(text, sizeof text, "^ebbtide: [^\n]*0x0*%zx",
                  static_cast<std::size_t>(support::address(pointer)));
    return text;
}

const std::size_t sizes[] = {1, 16, 100, 5000, 60 * KiB, 200 * KiB, 5 * MiB};

// A region with neighbours on both sides of the block, so that its memory stays the region's.
struct Scene {
    explicit Scene(std::size_t bytes) : region(open("misused"))
    {
        take(region, 100);
        block = static_cast<char *>(take(region, bytes));
        take(region, 100);
    }
    ~Scene() { ebb_region_release(region); }
    Scene(const Scene &) = delete;
    Scene &operator=(const Scene &) = delete;
    ebb_region *region;
    char *block;
};

TEST_F(RegionDeathTest, BlockFreedTwice)
{
    for (std::size_t bytes : sizes) {
        Scene scene(bytes);
        const auto free_block = [&] { ebb_free(scene.block); };
        const std::string line = line_about(scene.block);
        expect_death(
            "here", [&] { free_block(), free_block(); }, line);
        expect_death(
            "here, then elsewhere", [&] { free_block(), in_thread(free_block); }, line);
        expect_death(
            "elsewhere, then here", [&] { in_thread(free_block), free_block(); }, line);
        expect_death(
            "elsewhere", [&] { in_thread(free_block), in_thread(free_block); }, line);
        expect_death(
            "twice in one thread elsewhere",
            [&] { in_thread([&] { free_block(), free_block(); }); }, line);
    }
}

TEST_F(RegionDeathTest, BlockFreedTwiceAroundTheClose)
{
    for (std::size_t bytes : sizes) {
        Scene scene(bytes);
        const auto free_block = [&] { ebb_free(scene.block); };
        const auto close = [&] { ebb_region_close(scene.region); };
        const std::string line = line_about(scene.block);
        expect_death(
            "before and after", [&] { free_block(), close(), free_block(); }, line);
        expect_death(
            "after", [&] { close(), free_block(), free_block(); }, line);
        expect_death(
            "after, elsewhere", [&] { close(), free_block(), in_thread(free_block); }, line);
    }
}

// The last survivor takes its memory with it.
TEST_F(RegionDeathTest, LastBlockOfAClosedRegionFreedTwice)
{
    for (std::size_t bytes : sizes) {
        ebb_region *region = open();
        void *block = take(region, bytes);
        expect_death(
            "last",
            [&] {
                ebb_region_close(region);
                ebb_free(block);
                ebb_free(block);
            },
            line_about(block));
        ebb_region_release(region);
    }
}

TEST_F(RegionDeathTest, InteriorPointers)
{
    for (std::size_t bytes : {std::size_t{32}, std::size_t{100}, 5 * KiB, 200 * KiB, 5 * MiB}) {
        Scene scene(bytes);
        for (std::size_t offset : {std::size_t{1}, std::size_t{8}, std::size_t{16}, bytes - 1}) {
            char *inside = scene.block + offset;
            expect_death(
                "free", [&] { ebb_free(inside); }, line_about(inside));
            expect_death(
                "elsewhere", [&] { in_thread([&] { ebb_free(inside); }); }, line_about(inside));
            expect_death(
                "realloc", [&] { ebb_region_realloc(scene.region, inside, 10); },
                line_about(inside));
            expect_death(
                "after the close",
                [&] {
                    ebb_region_close(scene.region);
                    ebb_free(inside);
                },
                line_about(inside));
        }
    }
}

TEST_F(RegionDeathTest, NeverAllocatedMemoryOfARegion)
{
    Scene scene(100);
    char *beyond = scene.block + 8 * KiB; // of the first 64 KiB, not handed out yet
    expect_death(
        "free", [&] { ebb_free(beyond); }, line_about(beyond));
}

TEST_F(RegionDeathTest, BlockFreedAfterTheReleaseOrReset)
{
    for (std::size_t bytes : sizes) {
        Scene scene(bytes);
        const std::string line = line_about(scene.block);
        expect_death(
            "release",
            [&] {
                ebb_region_release(scene.region);
                ebb_free(scene.block);
            },
            line);
        expect_death(
            "release, elsewhere",
            [&] {
                ebb_region_release(scene.region);
                in_thread([&] { ebb_free(scene.block); });
            },
            line);
        expect_death(
            "reset",
            [&] {
                ebb_region_reset(scene.region);
                ebb_free(scene.block);
            },
            line);
        expect_death(
            "realloc",
            [&] {
                ebb_region_release(scene.region);
                ebb_free(ebb_realloc(scene.block, bytes + 100));
            },
            line);
    }
}

struct Use {
    const char *name;
    void (*with)(ebb_region *region);
};

void do_nothing(void *) {}

const Use uses[] = {
    {"release", [](ebb_region *r) { ebb_region_release(r); }},
    {"reset", [](ebb_region *r) { ebb_region_reset(r); }},
    {"close", [](ebb_region *r) { ebb_region_close(r); }},
    {"cleanup", [](ebb_region *r) { ebb_region_cleanup(r, do_nothing, nullptr); }},
    {"alloc", [](ebb_region *r) { take(r, 100); }},
    {"large alloc", [](ebb_region *r) { take(r, MiB); }},
    {"calloc", [](ebb_region *r) { ebb_region_calloc(r, 1, 100); }},
    {"aligned", [](ebb_region *r) { ebb_region_aligned_alloc(r, 64, 100); }},
    {"realloc", [](ebb_region *r) { ebb_region_realloc(r, nullptr, 100); }},
    {"promote", [](ebb_region *r) { ebb_region_promote(ebb_malloc(100), r); }},
    {"enter", [](ebb_region *r) { ebb_region_enter(r); }},
    {"detach", [](ebb_region *r) { ebb_region_detach(r); }},
    {"child", [](ebb_region *r) { open("child", r); }},
    {"stats", [](ebb_region *r) { stats(r); }},
    {"label", [](ebb_region *r) { ebb_region_label(r); }},
};

TEST_F(RegionDeathTest, HandleUsedAfterItsEnd)
{
    for (const Use &use : uses)
        for (bool with_memory : {false, true}) {
            ebb_region *region = open("ended");
            if (with_memory)
                take(region, 100);
            expect_death((std::string(use.name) + " after the release").c_str(), [&] {
                ebb_region_release(region);
                use.with(region);
            });
            expect_death((std::string(use.name) + " after the release, elsewhere").c_str(), [&] {
                ebb_region_release(region);
                in_thread([&] { use.with(region); });
            });
            ebb_region_release(region);
        }
}

// A close ends the handle too, but a use may say EINVAL for a parent that is closed.
TEST_F(RegionDeathTest, HandleUsedAfterItsClose)
{
    for (const Use &use : uses) {
        if (std::strcmp(use.name, "child") == 0)
            continue;
        ebb_region *region = open("ended by close");
        void *survivor = take(region, 100);
        expect_death((std::string(use.name) + " after the close").c_str(), [&] {
            ebb_region_close(region);
            use.with(region);
        });
        ebb_free(survivor);
        ebb_region_release(region);
    }
}

TEST_F(RegionDeathTest, ChildUsedAfterItsParentsEnd)
{
    for (const Use &use : uses) {
        ebb_region *parent = open();
        ebb_region *child = open("orphan", parent);
        expect_death((std::string(use.name) + " of a child after the release").c_str(), [&] {
            ebb_region_release(parent);
            use.with(child);
        });
        ebb_region_release(parent);
    }
}

TEST_F(RegionDeathTest, EndedWhileCurrent)
{
    for (bool by_reset : {false, true}) {
        ebb_region *parent = open();
        ebb_region *region = open("current", parent);
        const auto end = [&](ebb_region *which) {
            if (by_reset)
                ebb_region_reset(which);
            else
                ebb_region_release(which);
        };
        const std::string line =
            our_line + std::string(by_reset ? "[^\n]*reset of" : "[^\n]*release of");
        const auto stay_inside = [&](auto misuse) {
            Worker worker;
            worker.run([&] { ebb_region_enter(region); });
            misuse();
            worker.run([] { _exit(0); }); // it must not be left: the end is the misuse
        };
        expect_death(
            "here", [&] { ebb_region_enter(region), end(region); }, line);
        expect_death("child is current here", [&] { ebb_region_enter(region), end(parent); });
        expect_death(
            "elsewhere", [&] { stay_inside([&] { end(region); }); }, line);
        expect_death("child is current elsewhere", [&] { stay_inside([&] { end(parent); }); });
        expect_death("not the innermost", [&] {
            ebb_region_enter(region);
            ebb_heap_enter();
            end(region);
        });
        ebb_region_release(parent);
    }
}

// Control: what was left is not current any more, in whichever thread.
TEST_F(RegionDeathTest, EndedAfterItWasLeftIsRight)
{
    ebb_region *region = open();
    Worker worker;
    ebb_scope before = {};
    worker.run([&] { before = ebb_region_enter(region); });
    worker.run([&] { ebb_leave(before); });
    {
        const InRegion scope(region);
    }
    ebb_region_reset(region);
    in_thread([&] { const InRegion scope(region); });
    ebb_region_release(region);
}

TEST_F(RegionDeathTest, PromoteOfWhatIsNoBlock)
{
    Scene scene(100);
    int on_stack = 0;
    auto *heap_block = static_cast<char *>(ebb_malloc(200 * KiB));
    for (ebb_region *to : {scene.region, static_cast<ebb_region *>(nullptr)}) {
        expect_death(
            "stack", [&] { ebb_region_promote(&on_stack, to); }, line_about(&on_stack));
        expect_death(
            "interior", [&] { ebb_region_promote(scene.block + 16, to); },
            line_about(scene.block + 16));
        expect_death(
            "interior of a large heap block", [&] { ebb_region_promote(heap_block + 4096, to); },
            line_about(heap_block + 4096));
        expect_death(
            "freed",
            [&] {
                ebb_free(scene.block);
                ebb_region_promote(scene.block, to);
            },
            line_about(scene.block));
    }
    ebb_free(heap_block);
}

TEST(RegionBadInput, NullIsAllowedWhereItIsNamed)
{
    ebb_region_release(nullptr);
    ebb_region_close(nullptr);
    EXPECT_EQ(ebb_region_of(nullptr), nullptr);
    ebb_region *region = ebb_region_open(nullptr);
    ASSERT_NE(region, nullptr);
    EXPECT_STREQ(ebb_region_label(region), "region");
    ebb_region_release(region);
}

// While something is current in it a closed region still has its handle.
TEST(RegionBadInput, ClosedParentIsRefused)
{
    ebb_region *parent = open();
    const InRegion scope(parent);
    ebb_region_close(parent);
    errno = 0;
    EXPECT_EQ(open("of a closed one", parent), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

void count_call(void *counter) { ++*static_cast<int *>(counter); }

// Too late to be called at the close: refused, or called when the last thread has left. Never lost.
TEST(RegionBadInput, CleanupAfterTheCloseIsNotLost)
{
    ebb_region *region = open("late cleanup");
    int calls = 0;
    int taken = 0;
    {
        const InRegion scope(region);
        ebb_region_close(region);
        taken = ebb_region_cleanup(region, count_call, &calls) == 0 ? 1 : 0;
    }
    EXPECT_EQ(calls, taken);
}

TEST(RegionBadInput, CloseOfAParentClosesItsChildren)
{
    ebb_region *parent = open();
    ebb_region *children[10];
    void *survivors[10];
    for (std::size_t i = 0; i < 10; i++) {
        children[i] = open("closed with its parent", i < 5 ? parent : children[i - 5]);
        survivors[i] = take_filled(children[i], 1000, i);
    }
    ebb_region_close(parent);
    EXPECT_EQ(line("closed with its parent").open, 0U);
    EXPECT_EQ(line("closed with its parent").closed, 10U);
    for (std::size_t i = 0; i < 10; i++) {
        EXPECT_TRUE(is_filled(survivors[i], 1000, i));
        EXPECT_EQ(ebb_region_of(survivors[i]), nullptr);
        ebb_free(survivors[i]);
    }
    EXPECT_EQ(line("closed with its parent").held_bytes, 0U);
}

} // namespace
