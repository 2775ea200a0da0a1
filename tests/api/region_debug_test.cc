// SPDX-License-Identifier: MIT OR Apache-2.0
// EBB_REGION_DEBUG: what is used after its region's release is reported, with the label, the place in
// the block, and both stacks. Each statement runs in a process of its own, started with the option.
#include "api_ebb.h"

#include <csignal>

#include <sys/wait.h>

#include "anew.h"
#include "region_support.h"

namespace {

using namespace regions;
using support::KiB;
using support::MiB;

// For the exact offsets of the report: block sizes on both sides of every border.
const std::size_t sizes[] = {16, 48, 5008, 60 * KiB, 128 * KiB, 200 * KiB, 5 * MiB, 40 * MiB};

struct RegionDebugDeathTest : anew::DeathTest {
    void SetUp() override
    {
        anew::DeathTest::SetUp();
        setenv("EBB_REGION_DEBUG", "64m", 1);
    }
    void TearDown() override { unsetenv("EBB_REGION_DEBUG"); }
};

using anew::Exited, anew::Killed, anew::prepare;

struct Block {
    ebb_region *region;
    char *p;
};

// With neighbours, so that the block is neither the first nor the last of its region.
Block make_block(std::size_t bytes, const char *label = "quarantined")
{
    ebb_region *region = open(label);
    take_filled(region, 100, 1);
    char *p = static_cast<char *>(take_filled(region, bytes, 2));
    take_filled(region, 100, 3);
    return {region, p};
}

char *released_block(std::size_t bytes)
{
    prepare();
    const Block block = make_block(bytes);
    ebb_region_release(block.region);
    return block.p;
}

void read_at(const char *p) { support::opaque(*static_cast<const volatile char *>(p)); }
void write_at(char *p) { *static_cast<volatile char *>(p) = 1; }

const char *const stacks = "(found|used) by thread [1-9][0-9]* at:\n(    [^\n]+[+]0x[0-9a-f]+\n)+"
                           "released at:\n(    [^\n]+[+]0x[0-9a-f]+\n)+"
                           "allocated at:\n(    [^\n]+[+]0x[0-9a-f]+\n)+$";

std::string report_of(const char *what, std::size_t offset, std::size_t bytes,
                      const char *label = "quarantined")
{
    char text[240];
    std::snprintf(
        text, sizeof text,
        "^ebbtide: [^ ]+: %s after release: 0x[0-9a-f]+ lies %zu bytes into a block of %zu bytes "
        "of region \"%s\" [(]number [1-9][0-9]*[)]\n",
        what, offset, bytes, label);
    return text + std::string(stacks);
}

TEST_F(RegionDebugDeathTest, Read)
{
    for (std::size_t bytes : sizes)
        EXPECT_EXIT((read_at(released_block(bytes) + bytes - 1), _exit(0)), Killed(SIGSEGV),
                    report_of("use", bytes - 1, bytes))
            << bytes;
}

TEST_F(RegionDebugDeathTest, Write)
{
    for (std::size_t bytes : sizes)
        EXPECT_EXIT((write_at(released_block(bytes) + 5), _exit(0)), Killed(SIGSEGV),
                    report_of("use", 5, bytes))
            << bytes;
}

TEST_F(RegionDebugDeathTest, Reset)
{
    for (std::size_t bytes : sizes) {
        const auto misuse = [bytes] {
            prepare();
            const Block block = make_block(bytes);
            ebb_region_reset(block.region);
            take_filled(block.region, bytes, 4);
            read_at(block.p);
            _exit(0);
        };
        EXPECT_EXIT(misuse(), Killed(SIGSEGV), report_of("use", 0, bytes)) << bytes;
    }
}

TEST_F(RegionDebugDeathTest, CallsThatTakeABlock)
{
    const auto spare = [] { return open("spare"); };
    for (std::size_t bytes : sizes) {
        const std::string used = report_of("use", 0, bytes);
        EXPECT_EXIT((ebb_free(released_block(bytes)), _exit(0)), Killed(SIGABRT),
                    report_of("free", 0, bytes))
            << bytes;
        EXPECT_EXIT((ebb_retire(released_block(bytes)), _exit(0)), Killed(SIGABRT),
                    report_of("retire", 0, bytes))
            << bytes;
        EXPECT_EXIT((ebb_malloc_usable_size(released_block(bytes)), _exit(0)), Killed(SIGABRT),
                    used)
            << bytes;
        EXPECT_EXIT((api::resize(released_block(bytes), 10), _exit(0)), Killed(SIGABRT), used)
            << bytes;
        EXPECT_EXIT((ebb_region_realloc(spare(), released_block(bytes), 10), _exit(0)),
                    Killed(SIGABRT), used)
            << bytes;
        EXPECT_EXIT((ebb_region_promote(released_block(bytes), nullptr), _exit(0)), Killed(SIGABRT),
                    used)
            << bytes;
    }
}

TEST_F(RegionDebugDeathTest, InteriorPointerFreed)
{
    EXPECT_EXIT((ebb_free(released_block(5008) + 32), _exit(0)), Killed(SIGABRT),
                report_of("free", 32, 5008));
}

// Not the block's fault any more: who freed it had it last.
TEST_F(RegionDebugDeathTest, FreedBeforeTheRelease)
{
    const auto misuse = [](void (*use)(char *)) {
        prepare();
        const Block block = make_block(1008);
        ebb_free(block.p);
        ebb_region_release(block.region);
        use(block.p);
        _exit(0);
    };
    const std::string freed =
        " after release: 0x[0-9a-f]+ lies 0 bytes into free memory of 1008 bytes of "
        "region \"quarantined\" [(]number [0-9]+[)], freed or unused before the release\n"
        "(found|used) by thread [0-9]+ at:\n(    [^\n]+\n)+released at:\n(    [^\n]+\n)+$";
    EXPECT_EXIT(misuse([](char *p) { read_at(p); }), Killed(SIGSEGV),
                "^ebbtide: [^ ]+: use" + freed);
    EXPECT_EXIT(misuse([](char *p) { ebb_free(p); }), Killed(SIGABRT),
                "^ebbtide: [^ ]+: free" + freed);
}

TEST_F(RegionDebugDeathTest, MemoryThatWasNeverHandedOut)
{
    EXPECT_EXIT((read_at(released_block(48) + 10 * KiB), _exit(0)), Killed(SIGSEGV),
                "^ebbtide: [^ ]+: use after release: 0x[0-9a-f]+ lies [0-9]+ bytes into free "
                "memory of [0-9]+ "
                "bytes of region \"quarantined\"");
}

TEST_F(RegionDebugDeathTest, ChildOfAReleasedRegion)
{
    const auto misuse = [] {
        prepare();
        ebb_region *parent = open("parent");
        char *p = static_cast<char *>(take_filled(open("its child", parent), 96, 1));
        ebb_region_release(parent);
        read_at(p);
        _exit(0);
    };
    EXPECT_EXIT(misuse(), Killed(SIGSEGV), report_of("use", 0, 96, "its child"));
}

TEST_F(RegionDebugDeathTest, PlainMallocInAScope)
{
    const auto misuse = [] {
        prepare();
        ebb_region *region = open("entered");
        ebb_scope before = ebb_region_enter(region);
        char *p = static_cast<char *>(api::allocate(96));
        ebb_leave(before);
        ebb_region_release(region);
        write_at(p + 95);
        _exit(0);
    };
    EXPECT_EXIT(misuse(), Killed(SIGSEGV), report_of("use", 95, 96, "entered"));
}

TEST_F(RegionDebugDeathTest, AllocatedAndUsedByOtherThreads)
{
    const auto misuse = [] {
        prepare();
        ebb_region *region = open("of several");
        char *p = nullptr;
        in_thread([&] { p = static_cast<char *>(take_filled(region, 320, 1)); });
        in_thread([&] { ebb_region_release(region); });
        in_thread([&] { read_at(p + 300); });
        _exit(0);
    };
    EXPECT_EXIT(misuse(), Killed(SIGSEGV), report_of("use", 300, 320, "of several"));
}

// ---- fork ----------------------------------------------------------------------------------------

// What becomes of a child that runs `run`: this process ends likewise.
template <typename Run> void in_child(Run run)
{
    const pid_t child = fork();
    if (child == 0) {
        run();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    _exit(WIFSIGNALED(status) ? 100 + WTERMSIG(status) : WEXITSTATUS(status));
}

TEST_F(RegionDebugDeathTest, InTheChildOfAFork)
{
    const auto before = [] {
        char *p = released_block(96);
        in_child([p] { read_at(p + 7); });
    };
    EXPECT_EXIT(before(), Exited(100 + SIGSEGV), report_of("use", 7, 96));
    const auto after = [] {
        prepare();
        const Block block = make_block(96);
        in_child([&] {
            ebb_region_release(block.region);
            read_at(block.p + 7);
        });
    };
    EXPECT_EXIT(after(), Exited(100 + SIGSEGV), report_of("use", 7, 96));
    const auto anew = [] {
        ebb_region_release(open());
        in_child([] { read_at(released_block(96) + 7); });
    };
    EXPECT_EXIT(anew(), Exited(100 + SIGSEGV), report_of("use", 7, 96));
}

// ---- pins ----------------------------------------------------------------------------------------

TEST_F(RegionDebugDeathTest, ReadersMayGoOnUntilTheirPinEnds)
{
    const auto misuse = [](std::size_t bytes, bool unpin) {
        prepare();
        ebb_pin();
        const Block block = make_block(bytes);
        ebb_region_release(block.region);
        if (!is_filled(block.p, bytes, 2) || ebb_malloc_usable_size(block.p) < bytes)
            _exit(3);
        if (unpin) {
            ebb_unpin();
            ebb_synchronize();
            ebb_trim();
            ebb_trim();
        }
        read_at(block.p);
        _exit(unpin ? 2 : 0);
    };
    for (std::size_t bytes : sizes) {
        EXPECT_EXIT(misuse(bytes, false), Exited(0), "^$") << bytes;
        EXPECT_EXIT(misuse(bytes, true), Killed(SIGSEGV), report_of("use", 0, bytes)) << bytes;
    }
}

// ---- the quarantine ------------------------------------------------------------------------------

TEST_F(RegionDebugDeathTest, TheLatestReleaseStaysWhateverTheBudget)
{
    setenv("EBB_REGION_DEBUG", "1", 1);
    const auto misuse = [](bool latest) {
        prepare();
        const Block old = make_block(5 * MiB, "the older");
        ebb_region_release(old.region);
        const Block young = make_block(300, "the younger");
        take_filled(young.region, 5 * MiB, 4);
        ebb_region_release(young.region);
        ebb_region_release(open("of nothing"));
        read_at(latest ? young.p : old.p);
        _exit(0);
    };
    EXPECT_EXIT(misuse(true), Killed(SIGSEGV), report_of("use", 0, 304, "the younger"));
    EXPECT_EXIT(misuse(false), Exited(0), "^$");
}

// Releases 1 GiB in all, touched, and says how much address space the arena used at most.
std::size_t committed_after_a_gigabyte()
{
    prepare();
    for (int i = 0; i < 128; i++) {
        ebb_region *region = open("a gigabyte");
        for (int block = 0; block < 64; block++)
            take_filled(region, 112 * KiB, 1);
        take_filled(region, MiB, 2);
        ebb_region_release(region);
    }
    ebb_stats stats;
    ebb_stats_get(&stats);
    if (line("a gigabyte").held_bytes != 0 || stats.live_bytes > 64 * MiB)
        _exit(3);
    return stats.committed_bytes;
}

TEST_F(RegionDebugDeathTest, TheBudgetBoundsAddressSpace)
{
    setenv("EBB_REGION_DEBUG", "32m", 1);
    EXPECT_EXIT(_exit(committed_after_a_gigabyte() <= 96 * MiB ? 0 : 1), Exited(0), "^$");
    setenv("EBB_REGION_DEBUG", "64g", 1);
    EXPECT_EXIT(_exit(committed_after_a_gigabyte() >= 900 * MiB ? 0 : 1), Exited(0), "^$");
}

TEST_F(RegionDebugDeathTest, QuarantinedMemoryIsNotResident)
{
    setenv("EBB_REGION_DEBUG", "64g", 1);
    EXPECT_EXIT((committed_after_a_gigabyte(), ebb_trim(),
                 _exit(support::resident_bytes() < 128 * MiB ? 0 : 1)),
                Exited(0), "^$");
}

// A survivor of a close is no escape.
TEST_F(RegionDebugDeathTest, CloseLeavesBlocksAlone)
{
    const auto use = [] {
        prepare();
        for (std::size_t bytes : sizes) {
            const Block block = make_block(bytes);
            ebb_region_close(block.region);
            ebb_region_release(open());
            if (!is_filled(block.p, bytes, 2))
                _exit(1);
            ebb_free(block.p);
        }
        _exit(0);
    };
    EXPECT_EXIT(use(), Exited(0), "^$");
}

// ---- off -----------------------------------------------------------------------------------------

TEST_F(RegionDebugDeathTest, OffIsNothing)
{
    const auto use = [] {
        char *p = released_block(300);
        read_at(p);
        write_at(p);
        struct sigaction now;
        sigaction(SIGSEGV, nullptr, &now);
        _exit(now.sa_handler == SIG_DFL ? 0 : 1);
    };
    for (const char *off : {"", "0"}) {
        if (off[0] == '\0')
            unsetenv("EBB_REGION_DEBUG");
        else
            setenv("EBB_REGION_DEBUG", off, 1);
        EXPECT_EXIT(use(), Exited(0), "^$");
        for (std::size_t bytes : {std::size_t{304}, 5 * MiB})
            EXPECT_EXIT((ebb_free(released_block(bytes)), _exit(0)), Killed(SIGABRT),
                        "^ebbtide: [^ ]+: invalid free: [^\n]+\n$");
    }
}

} // namespace
