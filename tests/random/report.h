// SPDX-License-Identifier: MIT OR Apache-2.0
// What a failing check says: one line with the operation, the step, the seed and what was expected.
// Also when the library itself ends the process. Never allocates: the heap may be the culprit.
#pragma once

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

namespace random_test {

inline const char *const mode_names[] = {"single", "threads", "fork",
                                         "forks",  "refused", "filtered"};
inline constexpr unsigned modes = 6;

// Shared with the processes that a run forks, so that the steps of all count.
struct Board {
    std::atomic<std::uint64_t> steps;
    std::atomic<std::uint64_t> seed;
    std::atomic<std::uint64_t> runs;
    std::atomic<std::uint64_t> skipped_checks;
    std::atomic<unsigned> mode;
    char said[1024]; // by the last that failed
};

inline Board &board()
{
    static Board *const shared = static_cast<Board *>(
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    return *shared;
}

struct Place {
    const char *op = "start";
    std::uint64_t step = 0;
    unsigned thread = 0;
};
inline thread_local Place place;
inline unsigned fork_depth;        // 0: the process that began the run
inline const char *case_name = ""; // of the file that is replayed, if one is
inline std::atomic<bool> failing;

inline int describe_place(char *out, std::size_t size)
{
    const Board &now = board();
    const unsigned mode = now.mode.load() % modes;
    const auto seed = static_cast<unsigned long long>(now.seed.load());
    int length = std::snprintf(out, size, "; op %s, step %llu, thread %u, fork depth %u, mode %s, ",
                               place.op, static_cast<unsigned long long>(place.step), place.thread,
                               fork_depth, mode_names[mode]);
    char *const rest = out + length;
    const std::size_t left = size - static_cast<std::size_t>(length);
    if (*case_name != '\0')
        return length + std::snprintf(rest, left, "case %s. Again: RANDOM_CASE=%s random_random\n",
                                      case_name, case_name);
    return length + std::snprintf(rest, left,
                                  "seed %llu. Again: RANDOM_SEED=%llu random_random "
                                  "--gtest_filter='*.%s'\n",
                                  seed, seed, mode_names[mode]);
}

inline void say(const char *line, std::size_t length)
{
    std::memcpy(board().said, line, length);
    board().said[length] = '\0';
    if (write(STDERR_FILENO, line, length) < 0)
        _exit(98);
}

[[noreturn]] __attribute__((format(printf, 1, 2))) inline void fail(const char *format, ...)
{
    char line[1024] = "random: ";
    va_list arguments;
    va_start(arguments, format);
    std::size_t length = 8;
    length += static_cast<std::size_t>(std::vsnprintf(line + 8, 600, format, arguments));
    va_end(arguments);
    length += static_cast<std::size_t>(describe_place(line + length, sizeof line - length));
    say(line, length);
    failing = true;
    std::abort();
}

inline void report_signal(int number)
{
    if (!failing.exchange(true)) {
        char line[1024];
        int length = std::snprintf(line, 200, "random: signal %d (%s)", number,
                                   number == SIGALRM ? "nothing ended in time" : strsignal(number));
        length += describe_place(line + length, sizeof line - static_cast<std::size_t>(length));
        say(line, static_cast<std::size_t>(length));
    }
    signal(number, SIG_DFL);
    raise(number);
}

// Not in libFuzzer's process, which has handlers of its own.
inline void report_signals()
{
    for (int number : {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGALRM})
        signal(number, report_signal);
}

#define RANDOM_CHECK(condition, format, ...)                                                       \
    do {                                                                                           \
        if (!(condition)) [[unlikely]]                                                             \
            random_test::fail("expected %s: " format, #condition __VA_OPT__(, ) __VA_ARGS__);      \
    } while (false)

} // namespace random_test
