// SPDX-License-Identifier: MIT OR Apache-2.0
// What the hostile programs share: verdicts, figures from /proc, children with a time limit. A
// program prints one line and exits 0 (passed), 1 (failed) or 77 (cannot be tried here). Nothing in
// here allocates, so that the allocator under test sees the program's own calls alone.
#ifndef HOSTILE_H
#define HOSTILE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef __GLIBC__ // the library brings them to musl, whose headers do not know them
int malloc_trim(size_t pad);
int malloc_info(int flags, FILE *stream);
#endif

#define MAYBE_UNUSED __attribute__((unused)) static
#define KIB (1024L)
#define MIB (1024L * 1024L)
#define GIB (1024L * MIB)

// One line by one write: dprintf would lock stdio's list of streams, and a test may be about that.
MAYBE_UNUSED void say_list(int file, const char *head, const char *format, va_list list)
{
    char line[1024];
    size_t length = (size_t)snprintf(line, sizeof line, "%s", head);
    vsnprintf(line + length, sizeof line - 1 - length, format, list);
    for (length = 0; line[length] != 0; length++) // it is to stay one line
        if (line[length] == '\n')
            line[length] = ' ';
    line[length++] = '\n';
    if (write(file, line, length) < 0)
        _exit(1);
}

__attribute__((format(printf, 2, 3))) MAYBE_UNUSED void say(int file, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say_list(file, "", format, list);
    va_end(list);
}

__attribute__((format(printf, 1, 2))) MAYBE_UNUSED _Noreturn void fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say_list(1, "failed: ", format, list);
    _exit(1);
}

__attribute__((format(printf, 1, 2))) MAYBE_UNUSED _Noreturn void skip(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say_list(1, "skipped: ", format, list);
    _exit(77);
}

// Prints the line of success; main then returns 0.
__attribute__((format(printf, 1, 2))) MAYBE_UNUSED int pass(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say_list(1, "passed: ", format, list);
    va_end(list);
    return 0;
}

#define MUST(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail(__VA_ARGS__);                                                                     \
    } while (0)

MAYBE_UNUSED double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

MAYBE_UNUSED void nap_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        continue;
}

// A cheap generator: the programs must not depend on libc's.
MAYBE_UNUSED unsigned chance(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

MAYBE_UNUSED long scaled(long count)
{
    const char *scale = getenv("EBBTEST_SCALE");
    long factor = scale == NULL ? 1 : atol(scale);
    return count * (factor < 1 ? 1 : factor);
}

MAYBE_UNUSED int under_ebbtide(void) { return dlsym(RTLD_DEFAULT, "ebb_stats_get") != NULL; }

// The number after `name` in a file of /proc, in KiB where that is the file's unit; -1: not found.
MAYBE_UNUSED long proc_number(const char *path, const char *name)
{
    char text[8192];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    size_t length = 0;
    ssize_t got;
    while (length < sizeof text - 1 &&
           (got = read(file, text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    close(file);
    text[length] = 0;
    const char *at = strstr(text, name);
    return at == NULL ? -1 : strtol(at + strlen(name), NULL, 10);
}

// Bytes resident, exact (VmRSS may be stale by some pages a processor).
MAYBE_UNUSED long resident(void)
{
    long kib = proc_number("/proc/self/smaps_rollup", "\nRss:");
    if (kib < 0)
        kib = proc_number("/proc/self/status", "\nVmRSS:");
    return kib * KIB;
}

// Waits up to `ms` until no more than `limit` is resident. What is resident then.
MAYBE_UNUSED long resident_within(long ms, long limit)
{
    double end = now() + (double)ms / 1e3;
    long have = resident();
    while (have > limit && now() < end) {
        nap_ms(50);
        have = resident();
    }
    return have;
}

// Waits for a child; HUNG when it had to be killed, its status otherwise.
enum { HUNG = -1 };
MAYBE_UNUSED int await_child(pid_t child, double seconds)
{
    double end = now() + seconds;
    int status = 0;
    for (long round = 0;; round++) {
        pid_t got = waitpid(child, &status, WNOHANG);
        if (got == child)
            return status;
        if (got < 0 && errno != EINTR)
            fail("waitpid: %s", strerror(errno));
        if (now() > end)
            break;
        struct timespec nap = {0, round < 50 ? 100000 : 2000000};
        nanosleep(&nap, NULL);
    }
    kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    return HUNG;
}

// Runs body(argument) in a child that exits 0 after it. What it wrote to stderr goes to `err`.
MAYBE_UNUSED int run_child(void (*body)(void *), void *argument, double seconds, char *err,
                           size_t size)
{
    int file = memfd_create("stderr", MFD_CLOEXEC);
    MUST(file >= 0, "memfd_create: %s", strerror(errno));
    pid_t child = fork();
    MUST(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        struct rlimit none = {0, 0};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setrlimit(RLIMIT_CORE, &none);
        dup2(file, 2);
        body(argument);
        _exit(0);
    }
    int status = await_child(child, seconds);
    ssize_t got = pread(file, err, size - 1, 0);
    err[got < 0 ? 0 : got] = 0;
    close(file);
    return status;
}

// The documented end of a process that misused its memory: abort after a line "ebbtide: ...".
MAYBE_UNUSED int ended_by_the_library(int status, const char *err)
{
    return status != HUNG && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT &&
           (strncmp(err, "ebbtide: ", 9) == 0 || strstr(err, "\nebbtide: ") != NULL);
}

MAYBE_UNUSED const char *status_text(int status)
{
    static char text[64];
    if (status == HUNG)
        return "hung";
    if (WIFSIGNALED(status))
        snprintf(text, sizeof text, "signal %d", WTERMSIG(status));
    else
        snprintf(text, sizeof text, "exit %d", WEXITSTATUS(status));
    return text;
}

MAYBE_UNUSED pthread_t start(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    int error = pthread_create(&thread, NULL, body, argument);
    MUST(error == 0, "pthread_create: %s", strerror(error));
    return thread;
}

// Allocates `count` blocks of 16 bytes to 64 KiB, writes them and frees them in a mixed order.
MAYBE_UNUSED void churn(unsigned *seed, int count)
{
    enum { SLOTS = 64 };
    unsigned char *slots[SLOTS] = {NULL};
    for (int i = 0; i < count; i++) {
        unsigned slot = chance(seed) % SLOTS;
        free(slots[slot]);
        unsigned shape = chance(seed) % 100;
        size_t size = shape < 80 ? 16 + chance(seed) % 500 : 16 + chance(seed) % 65536;
        slots[slot] = malloc(size);
        if (slots[slot] == NULL)
            continue;
        slots[slot][0] = 1;
        slots[slot][size - 1] = 2;
    }
    for (int i = 0; i < SLOTS; i++)
        free(slots[i]);
}

// A program's cases: argv[1] is a name, argv[2] perhaps a number.
struct topic {
    const char *name;
    void (*run)(long number);
};
MAYBE_UNUSED void run_topic(const struct topic *topics, int argc, char **argv)
{
    for (; topics->name != NULL; topics++)
        if (argc > 1 && strcmp(topics->name, argv[1]) == 0) {
            topics->run(argc > 2 ? atol(argv[2]) : 0);
            return;
        }
    fail("no such case");
}

#endif
