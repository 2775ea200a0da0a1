// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer unwind: the stacks of calls of every form, beside libgcc's; code that nothing is written down for.
#include <alloca.h>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <ucontext.h>
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#define BESIDE_LIBGCC 1
#endif

#include <gtest/gtest.h>

#include "support/engine.h"

extern "C" {
#include "os/os.h"
#include "unwind/unwind.h"
}

// Calls its argument. Nothing says how to get out of it; it has a frame pointer, or puts its second argument there.
extern "C" void unwind_test_bare(void (*call)(void));
extern "C" void unwind_test_astray(void (*call)(void), std::uintptr_t frame_pointer);
// The same, and says that it has a frame pointer: as what a made-up return address leads to.
extern "C" void unwind_test_lying(void (*call)(void), std::uintptr_t frame_pointer);
#if defined(__x86_64__)
asm(".text\n.globl unwind_test_bare, unwind_test_astray, unwind_test_lying\n"
    "unwind_test_bare:\n push %rbp\n mov %rsp, %rbp\n call *%rdi\n pop %rbp\n ret\n"
    "unwind_test_astray:\n push %rbp\n mov %rsi, %rbp\n call *%rdi\n pop %rbp\n ret\n"
    "unwind_test_lying:\n .cfi_startproc\n push %rbp\n .cfi_def_cfa %rbp, 16\n .cfi_offset %rbp, "
    "-16\n"
    " mov %rsi, %rbp\n call *%rdi\n pop %rbp\n ret\n .cfi_endproc\n");
#else
asm(".text\n.globl unwind_test_bare, unwind_test_astray, unwind_test_lying\n"
    "unwind_test_bare:\n stp x29, x30, [sp, -16]!\n mov x29, sp\n blr x0\n ldp x29, x30, [sp], "
    "16\n ret\n"
    "unwind_test_astray:\n stp x29, x30, [sp, -16]!\n mov x29, x1\n blr x0\n ldp x29, x30, [sp], "
    "16\n ret\n"
    "unwind_test_lying:\n .cfi_startproc\n stp x29, x30, [sp, -16]!\n .cfi_def_cfa x29, 16\n"
    " .cfi_offset x29, -16\n .cfi_offset x30, -8\n mov x29, x1\n blr x0\n ldp x29, x30, [sp], 16\n "
    "ret\n"
    " .cfi_endproc\n");
#endif

namespace {

#define NOT_INLINE __attribute__((noinline))
constexpr std::size_t most = 100;

struct Unwind : testing::Test {
    void SetUp() override { ebbi_os_unwind_by(dlsym(RTLD_DEFAULT, "_dl_find_object")); }
};

std::uintptr_t calls[most];
std::size_t depth;
NOT_INLINE void take()
{
    depth = ebbi_unwind(calls, most);
    asm volatile("" ::: "memory");
}

// Whether a call was made from the function, which begins there and is shorter than that.
bool is_from(const void *function, std::size_t bytes = 400)
{
    for (std::size_t i = 0; i < depth; i++)
        if (calls[i] - reinterpret_cast<std::uintptr_t>(function) < bytes)
            return true;
    return false;
}

volatile int sink;

// ---- beside libgcc ------------------------------------------------------------------------------------------
#ifdef BESIDE_LIBGCC
int compared, different;
NOT_INLINE void compare()
{
    std::uintptr_t ours[most];
    void *theirs[most];
    const std::size_t found = ebbi_unwind(ours, most);
    const auto there = static_cast<std::size_t>(backtrace(theirs, most));
    // A place in what a signal interrupted is one byte on.
    const auto fits = [](std::uintptr_t call, const void *its) {
        const auto place = reinterpret_cast<std::uintptr_t>(its);
        return call == place - 1 || call == place;
    };
    std::size_t caller = 1; // theirs begin in here, or in a sanitizer's backtrace
    while (caller < 3 && caller < there && !fits(ours[2], theirs[caller]))
        caller++;
    bool same = caller < there && found - 2 >= there - caller;
    for (std::size_t i = 0; same && caller + i < there; i++)
        same = fits(ours[2 + i], theirs[caller + i]);
    compared++;
    different += same ? 0 : 1;
}

NOT_INLINE void of_any_size(int n)
{
    char *bytes = static_cast<char *>(alloca(static_cast<std::size_t>(n) * 16 + 1));
    std::memset(bytes, n, static_cast<std::size_t>(n));
    sink = sink + bytes[0];
    compare();
    sink = sink + bytes[0];
}

// Two forms in which the compiler finds its own frame by a copy of the caller's stack pointer.
NOT_INLINE void aligned(int n)
{
    alignas(64) char bytes[256];
    std::memset(bytes, n, sizeof bytes);
    char *more = static_cast<char *>(alloca(static_cast<std::size_t>(n) + 1));
    more[0] = bytes[3];
    of_any_size(n + 1);
    sink = sink + bytes[n] + more[0];
}
NOT_INLINE void more_aligned(int a, int b, int c, int d, int e, int f, int g, int h)
{
    alignas(128) volatile char bytes[300] = {};
    bytes[a] = 1;
    aligned(3 + b);
    sink = sink + bytes[c] + d + e + f + g + h;
}
void deep() { more_aligned(1, 2, 3, 4, 5, 6, 7, 8); }

struct AtItsEnd {
    ~AtItsEnd() { deep(); }
};
NOT_INLINE void thrower(int n)
{
    const AtItsEnd here;
    if (n == 0)
        throw std::runtime_error("on the way");
    thrower(n - 1);
    sink = sink + 1;
}

void expect_same(const char *where)
{
    EXPECT_GT(compared, 0) << where;
    EXPECT_EQ(0, different) << where << ", of " << compared;
    compared = different = 0;
}

TEST_F(Unwind, FindsWhatLibgccFinds)
{
    deep();
    expect_same("large and aligned frames");
    EXPECT_THROW(thrower(5), std::runtime_error);
    expect_same("destructors amid an exception");
    int numbers[50];
    for (int i = 0; i < 50; i++)
        numbers[i] = 50 - i;
    std::qsort(numbers, 50, sizeof numbers[0], [](const void *a, const void *b) {
        deep();
        return *static_cast<const int *>(a) - *static_cast<const int *>(b);
    });
    expect_same("calls from libc");
    std::thread([] {
        const std::function<void(int)> go = [&](int n) { n > 0 ? go(n - 1) : deep(); };
        go(10);
    }).join();
    expect_same("a thread");
}

TEST_F(Unwind, FindsTheSameByTheLoadersList)
{
    ebbi_os_unwind_by(nullptr);
    ebbi_unwind_forget();
    deep();
    expect_same("modules from the loader's list");
}

TEST_F(Unwind, FindsItsWayThroughSignalHandlers)
{
#ifdef EBBTEST_EMULATED
    GTEST_SKIP() << "the emulator's frames of signal handlers are its own";
#endif
    std::vector<char> stack(1 << 20);
    const stack_t other = {.ss_sp = stack.data(), .ss_flags = 0, .ss_size = stack.size()};
    ASSERT_EQ(0, sigaltstack(&other, nullptr));
    for (const int flags : {0, SA_ONSTACK, SA_SIGINFO | SA_ONSTACK}) {
        struct sigaction action = {};
        action.sa_handler = [](int) { deep(); };
        action.sa_flags = flags;
        ASSERT_EQ(0, sigaction(SIGUSR1, &action, nullptr));
        ASSERT_EQ(0, raise(SIGUSR1));
        expect_same("a signal handler");
    }
    const stack_t none = {.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    ASSERT_EQ(0, sigaltstack(&none, nullptr));
}

ucontext_t outside, inside;
TEST_F(Unwind, EndsWhereAStackOfTheProgramsOwnDoes)
{
    std::vector<char> stack(1 << 20);
    ASSERT_EQ(0, getcontext(&inside));
    inside.uc_stack.ss_sp = stack.data();
    inside.uc_stack.ss_size = stack.size();
    inside.uc_link = &outside;
    makecontext(&inside, deep, 0);
    ASSERT_EQ(0, swapcontext(&outside, &inside));
    expect_same("a coroutine");
}
#endif

// ---- without information --------------------------------------------------------------------------------------

NOT_INLINE void through_bare()
{
    unwind_test_bare(take);
    asm volatile("" ::: "memory");
}

TEST_F(Unwind, FollowsFramePointersWhereNothingIsWrittenDown)
{
    through_bare();
    EXPECT_TRUE(is_from(reinterpret_cast<const void *>(unwind_test_bare), 12));
    EXPECT_TRUE(is_from(reinterpret_cast<const void *>(through_bare)));
    EXPECT_GT(depth, 5U); // up to main
}

TEST_F(Unwind, IsNotLedAstrayByARegisterUsedOtherwise)
{
    const std::uintptr_t here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    const std::size_t page = ebbi_os_page_size();
    void *const nothing = mmap(nullptr, 16 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(MAP_FAILED, nothing);
    std::vector<std::uintptr_t> candidates = {0, 1, 8, reinterpret_cast<std::uintptr_t>(nothing),
                                              0x36a7adb0fcf5aca8};
    for (std::uintptr_t below = 8; below <= 4096 + 64; below += 8)
        candidates.push_back(0 - below);
    for (std::uintptr_t above = 0; above < (std::uintptr_t{1} << 21); above += 4096 - 8)
        candidates.push_back(here / 16 * 16 + above); // the stack, its end, and what lies behind
    for (const std::uintptr_t each : candidates) {
        unwind_test_astray(take, each);
        EXPECT_GE(depth, 3U);
        EXPECT_TRUE(is_from(reinterpret_cast<const void *>(unwind_test_astray), 12)) << each;
        unwind_test_lying(take, each);
        EXPECT_TRUE(is_from(reinterpret_cast<const void *>(unwind_test_lying), 12)) << each;
    }
}

TEST_F(Unwind, KeepsErrnoAndItsRoom)
{
    errno = 77;
    std::uintptr_t few[3] = {0, 0, 99};
    EXPECT_EQ(2U, ebbi_unwind(few, 2));
    EXPECT_EQ(99U, few[2]);
    EXPECT_EQ(0U, ebbi_unwind(few, 0));
    unwind_test_astray(take, 8);
    EXPECT_EQ(77, errno);
}

// ---- rules ----------------------------------------------------------------------------------------------------

bool same_rule(const ebbi_rule &a, const ebbi_rule &b)
{
    return a.kind == b.kind && a.fp_kind == b.fp_kind && a.has_ra == b.has_ra && a.cfa == b.cfa &&
           a.fp == b.fp && a.ra == b.ra;
}

// Every place in 256 KiB of code, most of them amid instructions, where rules hold as well.
TEST_F(Unwind, ARuleThatIsKeptIsTheRuleThatWasFound)
{
    const auto near = reinterpret_cast<std::uintptr_t>(ebbi_unwind);
    std::map<ebbi_rule_kind, int> kinds;
    for (std::uintptr_t pc = near - (128 << 10); pc < near + (128 << 10); pc++) {
        const unsigned char *const table = ebbi_os_unwind_table(pc);
        const ebbi_rule found = ebbi_cfi_rule(table, pc);
        ASSERT_TRUE(same_rule(found, ebbi_rule_at(pc))) << pc - near;
        ASSERT_TRUE(same_rule(found, ebbi_rule_at(pc))) << pc - near;
        if (pc % 4096 == 0)
            ebbi_unwind_forget();
        kinds[found.kind]++;
    }
    EXPECT_GT(kinds[EBBI_RULE_SP] + kinds[EBBI_RULE_FP], 100000);
}

TEST_F(Unwind, WhatIsForgottenIsAskedForAgain)
{
    const auto pc = reinterpret_cast<std::uintptr_t>(ebbi_unwind);
    const ebbi_rule before = ebbi_rule_at(pc);
    for (int i = 0; i < 1 << 17; i++) { // more than there are generations
        ebbi_unwind_forget();
        ASSERT_TRUE(i % 1000 != 0 || same_rule(before, ebbi_rule_at(pc)));
    }
}

TEST_F(Unwind, ManyThreadsKeepRulesInTheSamePlaces)
{
    const auto near = reinterpret_cast<std::uintptr_t>(ebbi_unwind);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&, i] {
            for (int round = 0; round < 20; round++)
                for (std::uintptr_t pc = near + static_cast<std::uintptr_t>(i) * 7;
                     pc < near + (32 << 10); pc += 13) {
                    const ebbi_rule found = ebbi_cfi_rule(ebbi_os_unwind_table(pc), pc);
                    wrong += same_rule(found, ebbi_rule_at(pc)) ? 0 : 1;
                }
        });
    for (std::thread &each : threads)
        each.join();
    EXPECT_EQ(0, wrong);
}

} // namespace
