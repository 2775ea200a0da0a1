// SPDX-License-Identifier: MIT OR Apache-2.0
// EBB_REGION_DEBUG and the program's own signal handlers; and that the stacks name the callers.
#include "api_ebb.h"

#include <csetjmp>
#include <csignal>

#include <link.h>
#include <sys/mman.h>

#include "anew.h"
#include "region_support.h"

namespace {

using namespace regions;
using support::KiB;

struct RegionDebugHandlerDeathTest : anew::DeathTest {
    void SetUp() override
    {
        anew::DeathTest::SetUp();
        setenv("EBB_REGION_DEBUG", "64m", 1);
    }
    void TearDown() override { unsetenv("EBB_REGION_DEBUG"); }
};

using anew::Exited, anew::Killed, anew::prepare;

const char *const our_report = "^ebbtide: [^ ]+: use after release: 0x";
const char *const silence = "^$";

volatile std::sig_atomic_t faults;
char *volatile wanted;
sigjmp_buf resume;

struct sigaction plain(void (*handler)(int), int flags = 0)
{
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    return action;
}

struct sigaction with_info(void (*handler)(int, siginfo_t *, void *), int flags = 0)
{
    struct sigaction action = {};
    action.sa_sigaction = handler;
    action.sa_flags = flags | SA_SIGINFO;
    return action;
}

// Installs the action as the program's, then has a released block.
char *released_under(const struct sigaction &action, int number = SIGSEGV)
{
    prepare();
    sigaction(number, &action, nullptr);
    ebb_region *region = open("handled");
    char *p = static_cast<char *>(take_filled(region, 5 * KiB, 1));
    ebb_region_release(region);
    wanted = p;
    return p;
}

void read_at(const char *p) { support::opaque(*static_cast<const volatile char *>(p)); }
const char *nowhere() { return support::opaque(reinterpret_cast<const char *>(8)); }

void exit_42(int) { _exit(42); }

void exit_43_if_wanted(int, siginfo_t *info, void *context)
{
    _exit(info->si_addr == wanted && context != nullptr ? 43 : 1);
}

void jump_out(int)
{
    faults = faults + 1;
    siglongjmp(resume, 1);
}

TEST_F(RegionDebugHandlerDeathTest, TheProgramsHandlerRunsAfterTheReport)
{
    EXPECT_EXIT(read_at(released_under(plain(exit_42))), Exited(42), our_report);
    EXPECT_EXIT(read_at(released_under(with_info(exit_43_if_wanted))), Exited(43), our_report);
    EXPECT_EXIT(read_at(released_under(with_info(exit_43_if_wanted, SA_ONSTACK | SA_NODEFER))),
                Exited(43), our_report);
}

TEST_F(RegionDebugHandlerDeathTest, OtherFaultsGoToTheProgramsHandlerUnreported)
{
    EXPECT_EXIT((released_under(plain(exit_42)), read_at(nowhere())), Exited(42), silence);
    EXPECT_EXIT((released_under(plain(exit_42)), raise(SIGSEGV)), Exited(42), silence);
    EXPECT_EXIT((released_under(plain(exit_42), SIGBUS), raise(SIGBUS)), Exited(42), silence);
    EXPECT_EXIT((released_under(plain(SIG_DFL)), read_at(nowhere()), _exit(0)), Killed(SIGSEGV),
                silence);
    EXPECT_EXIT((released_under(plain(SIG_DFL)), raise(SIGSEGV), _exit(0)), Killed(SIGSEGV),
                silence);
    EXPECT_EXIT((released_under(plain(SIG_DFL), SIGBUS), raise(SIGBUS), _exit(0)), Killed(SIGBUS),
                silence);
}

char other_stack[64 * KiB];

void exit_by_stack(int)
{
    const char here = 0;
    _exit(static_cast<std::size_t>(&here - other_stack) < sizeof other_stack ? 45 : 46);
}

TEST_F(RegionDebugHandlerDeathTest, TheProgramsHandlerRunsOnTheStackThatItAskedFor)
{
    const auto misuse = [](int flags) {
        stack_t stack = {};
        stack.ss_sp = other_stack;
        stack.ss_size = sizeof other_stack;
        sigaltstack(&stack, nullptr);
        read_at(released_under(plain(exit_by_stack, flags)));
    };
    EXPECT_EXIT(misuse(SA_ONSTACK), Exited(45), our_report);
    EXPECT_EXIT(misuse(0), Exited(46), our_report);
}

// The kernel ends a process for a fault that it ignores, and does not for a signal that was sent.
TEST_F(RegionDebugHandlerDeathTest, Ignored)
{
    EXPECT_EXIT((read_at(released_under(plain(SIG_IGN))), _exit(0)), Killed(SIGSEGV), our_report);
    EXPECT_EXIT((released_under(plain(SIG_IGN)), raise(SIGSEGV), _exit(44)), Exited(44), silence);
}

TEST_F(RegionDebugHandlerDeathTest, AHandlerForOnceIsCalledOnce)
{
    const auto misuse = [] {
        const char *p = released_under(plain(jump_out, SA_RESETHAND));
        if (sigsetjmp(resume, 1) == 0)
            read_at(p);
        if (faults == 1)
            read_at(p);
        _exit(0);
    };
    EXPECT_EXIT(misuse(), Killed(SIGSEGV), our_report);
}

TEST_F(RegionDebugHandlerDeathTest, EachAccessIsReported)
{
    const auto misuse = [] {
        const char *p = released_under(plain(jump_out));
        for (faults = 0; faults < 3;)
            if (sigsetjmp(resume, 1) == 0)
                read_at(p + faults * 1000);
        _exit(faults == 3 ? 45 : 1);
    };
    EXPECT_EXIT(misuse(), Exited(45), "lies 0 bytes.*lies 1000 bytes.*lies 2000 bytes");
}

// A jump that leaves the mask alone, as SA_NODEFER allows.
TEST_F(RegionDebugHandlerDeathTest, AHandlerThatDoesNotDeferJumpsOut)
{
    const auto misuse = [] {
        const char *p = released_under(plain(jump_out, SA_NODEFER));
        for (faults = 0; faults < 3;)
            if (sigsetjmp(resume, 0) == 0)
                read_at(p);
        _exit(faults == 3 ? 45 : 1);
    };
    EXPECT_EXIT(misuse(), Exited(45), our_report);
}

TEST_F(RegionDebugHandlerDeathTest, OnASmallAlternateStack)
{
    const auto misuse = [] {
        static char small[16 * KiB];
        stack_t stack = {};
        stack.ss_sp = small;
        stack.ss_size = sizeof small;
        sigaltstack(&stack, nullptr);
        read_at(released_under(plain(exit_42, SA_ONSTACK)));
    };
    EXPECT_EXIT(misuse(), Exited(42), our_report);
}

TEST_F(RegionDebugHandlerDeathTest, TheHandlerIsInstalledWithTheFirstRegion)
{
    const auto look = [] {
        struct sigaction before, after, errors;
        sigaction(SIGSEGV, nullptr, &before);
        ebb_free(support::opaque(ebb_malloc(100)));
        ebb_region_release(open());
        sigaction(SIGSEGV, nullptr, &after);
        sigaction(SIGBUS, nullptr, &errors);
        const int flags = SA_SIGINFO | SA_ONSTACK;
        const bool right = before.sa_handler == SIG_DFL && (after.sa_flags & flags) == flags &&
                           after.sa_sigaction == errors.sa_sigaction;
        _exit(right ? 0 : 1);
    };
    EXPECT_EXIT(look(), Exited(0), silence);
}

// ---- stacks --------------------------------------------------------------------------------------

// One call in each; the call's address is somewhere in the first few bytes.
__attribute__((noinline)) char *allocate_here(ebb_region *region)
{
    void *p = take(region, 100);
    support::fill_pattern(p, 0, 100, 1);
    return static_cast<char *>(p);
}

__attribute__((noinline)) int release_here(ebb_region *region)
{
    ebb_region_release(region);
    return support::opaque(0);
}

int report_file;
constexpr std::uintptr_t function_bytes = 400; // of each of the two, at most

std::uintptr_t program_base()
{
    std::uintptr_t base = 0;
    dl_iterate_phdr(
        [](dl_phdr_info *info, std::size_t, void *out) {
            *static_cast<std::uintptr_t *>(out) = info->dlpi_addr;
            return 1; // the program itself comes first
        },
        &base);
    return base;
}

// Whether a line between `from` and the next heading has an offset within the function.
bool names(const char *text, const char *from, std::uintptr_t function)
{
    char program[512] = {};
    if (readlink("/proc/self/exe", program, sizeof program - 1) <= 0)
        return false;
    const char *at = std::strstr(text, from);
    for (at = at != nullptr ? std::strchr(at, '\n') : nullptr; at != nullptr && at[1] == ' ';
         at = std::strchr(at + 1, '\n')) {
        const char *plus = std::strchr(at, '+');
        char name[512] = {};
        if (plus == nullptr || std::sscanf(at, " %511[^+]", name) != 1)
            continue;
        const std::size_t length = std::strlen(name), whole = std::strlen(program);
        const bool ours = length <= whole && std::strcmp(program + whole - length, name) == 0;
        if (ours &&
            std::strtoull(plus + 1, nullptr, 16) - (function - program_base()) < function_bytes)
            return true;
    }
    return false;
}

void judge_report(int)
{
    static char text[16 * KiB];
    if (pread(report_file, text, sizeof text - 1, 0) <= 0)
        _exit(1);
    const bool allocated =
        names(text, "allocated at:", reinterpret_cast<std::uintptr_t>(allocate_here));
    const bool released =
        names(text, "released at:", reinterpret_cast<std::uintptr_t>(release_here));
    _exit(allocated && released ? 46 : 1);
}

TEST_F(RegionDebugHandlerDeathTest, TheStacksNameWhoAllocatedAndWhoReleased)
{
    const auto misuse = [] {
        prepare();
        report_file = memfd_create("report", 0);
        dup2(report_file, 2);
        const struct sigaction judge = plain(judge_report);
        sigaction(SIGSEGV, &judge, nullptr);
        ebb_region *region = open("of known callers");
        ebb_region_alloc(region, 16);
        const char *p = allocate_here(region);
        ebb_region_alloc(region, 16);
        release_here(region);
        read_at(p);
    };
    EXPECT_EXIT(misuse(), Exited(46), silence);
}

} // namespace
