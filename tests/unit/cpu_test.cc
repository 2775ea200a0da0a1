// SPDX-License-Identifier: MIT OR Apache-2.0
// Which CPU a thread is on, on machines and under filters that are not here: libc's two functions that
// os/linux.c asks are the test's.
#include <cerrno>
#include <cstdarg>
#include <set>

#include <dlfcn.h>
#include <sys/syscall.h>

#include "support/engine.h"
extern "C" {
#include "support/real_os.h"
}

namespace {

std::vector<std::size_t> cpus; // that the kernel says the process may run on; empty: the real ones
std::size_t mask_bytes;        // of the kernel's mask
int current;                   // -1: refused
int asked;

} // namespace

extern "C" {

int sched_getcpu(void) noexcept
{
    asked++;
    if (current < 0)
        errno = ENOSYS;
    return current;
}

long syscall(long number, ...) noexcept
{
    using function = long (*)(long, ...);
    static const function real = reinterpret_cast<function>(dlsym(RTLD_NEXT, "syscall"));
    // As many as the library passes: there is nothing behind them.
    const int count = number == SYS_gettid  ? 0
                      : number == SYS_close ? 1
                      : number == SYS_futex ? 6
                                            : 3;
    long a[6] = {};
    std::va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < count; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (number != SYS_sched_getaffinity || mask_bytes == 0)
        return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (static_cast<std::size_t>(a[1]) < mask_bytes) {
        errno = EINVAL;
        return -1;
    }
    auto *mask = reinterpret_cast<unsigned char *>(a[2]);
    std::memset(mask, 0, mask_bytes);
    for (std::size_t cpu : cpus)
        mask[cpu / 8] = static_cast<unsigned char>(mask[cpu / 8] | 1U << cpu % 8);
    return static_cast<long>(mask_bytes);
}
}

namespace {

struct Cpus : testing::Test {
    static void start(std::vector<std::size_t> numbers, std::size_t bytes)
    {
        cpus = std::move(numbers);
        mask_bytes = bytes;
        real_os_start();
    }
    static std::size_t on(int cpu)
    {
        current = cpu;
        return real_os_cpu();
    }
};

TEST_F(Cpus, AreCountedBeyondWhatLibcsMaskHolds)
{
    std::vector<std::size_t> many;
    for (std::size_t cpu = 0; cpu < 3000; cpu++)
        many.push_back(cpu);
    start(many, 512);
    EXPECT_EQ(3000U, ebbi_os_cpus());
    for (int cpu : {0, 63, 64, 1023, 1024, 2999})
        EXPECT_EQ(static_cast<std::size_t>(cpu), on(cpu));
    start({65535}, 8192);
    EXPECT_EQ(1U, ebbi_os_cpus());
    EXPECT_EQ(0U, on(65535));
}

TEST_F(Cpus, OfASparseSetAreNumberedWithoutGaps)
{
    start({0, 64}, 128);
    EXPECT_EQ(2U, ebbi_os_cpus());
    EXPECT_EQ(0U, on(0));
    EXPECT_EQ(1U, on(64));
    start({3, 7, 65, 66, 1000}, 128);
    std::size_t next = 0;
    for (int cpu : {3, 7, 65, 66, 1000})
        EXPECT_EQ(next++, on(cpu));
}

TEST_F(Cpus, OutsideOfTheSetHaveANumberToo)
{
    start({0, 64}, 128);
    EXPECT_LT(on(65), 2U);
    EXPECT_LT(on(70000), 2U);
}

TEST_F(Cpus, WithoutAMaskAreTheKernelsNumbers)
{
    start({}, 1 << 20); // refused
    EXPECT_EQ(1U, ebbi_os_cpus());
    EXPECT_EQ(5U, on(5));
}

// As under a filter: not asked again, and threads are still told apart.
TEST_F(Cpus, ThatNobodyMayAskForAreThreads)
{
    start({0, 1}, 128);
    errno = 0;
    const std::size_t here = on(-1);
    EXPECT_EQ(0, errno);
    asked = 0;
    EXPECT_EQ(here, on(-1));
    std::set<std::size_t> numbers;
    std::vector<std::thread> threads;
    std::mutex lock;
    for (int i = 0; i < 16; i++)
        threads.emplace_back([&] {
            const std::lock_guard<std::mutex> guard(lock);
            numbers.insert(real_os_cpu());
        });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(0, asked);
    EXPECT_GE(numbers.size(), 2U);
}

} // namespace
