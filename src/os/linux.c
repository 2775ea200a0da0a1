// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: Linux (glibc and musl).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>
#if defined(__has_include) && !defined(EBB_GLIBC_2_28)
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define HAVE_SINGLE_THREADED 1
#endif
#endif

#include "ebbtide/detail/atomic.h"
#include "os/os.h"
#include "os/text.h"

#define MOST_CPUS 65536u

// Of start-up, constant afterwards.
static uint64_t cpu_mask[MOST_CPUS / 64]; // that the process might run on
static uint16_t cpu_rank[MOST_CPUS / 64]; // how many of them are in the words before
static size_t cpu_count;                  // 0: unknown
static bool huge_by_default, huge_on_request;

// Reads at most size - 1 bytes of a small file into text; returns the length, 0 when unreadable. By
// system calls that are no cancellation points: callers hold locks.
static size_t read_small_file(const char *path, char *text, size_t size)
{
    int saved = errno;
    long length = -1;
    long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        do {
            length = syscall(SYS_read, fd, text, size - 1);
        } while (length < 0 && errno == EINTR);
        (void)syscall(SYS_close, fd);
    }
    errno = saved;
    text[length > 0 ? length : 0] = '\0';
    return length > 0 ? (size_t)length : 0;
}

static void read_huge(void)
{
    char text[64];
    size_t length =
        read_small_file("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
    huge_by_default = length > 7 && text[0] == '[' && text[1] == 'a';
    huge_on_request = huge_by_default || (length > 9 && text[7] == '[' && text[8] == 'm');
}

// libc's cpu_set_t ends at 1,024 CPUs, and the kernel refuses a mask that is shorter than its own.
static void read_cpus(void)
{
    int saved = errno;
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof cpu_mask, cpu_mask);
    errno = saved;
    cpu_count = 0;
    for (size_t w = 0; bytes > 0 && w < (size_t)bytes / sizeof cpu_mask[0]; w++) {
        cpu_rank[w] = (uint16_t)cpu_count;
        cpu_count += (size_t)__builtin_popcountll(cpu_mask[w]);
    }
}

void ebbi_os_run_anywhere(void)
{
    if (cpu_count != 0) {
        (void)syscall(SYS_sched_setaffinity, 0, sizeof cpu_mask, cpu_mask);
    }
}

void ebbi_os_start(void)
{
    ebbi_message_start();
    read_huge();
    read_cpus();
}

bool ebbi_os_huge_by_default(void) { return huge_by_default; }
bool ebbi_os_huge_on_request(void) { return huge_on_request; }

size_t ebbi_os_page_size(void)
{
    static size_t known;
    // relaxed: every writer stores the same value
    size_t size = ebbi_load_relaxed(&known);
    if (size == 0) {
        size = (size_t)getauxval(AT_PAGESZ);
        EBBI_ASSERT(ebbi_is_power_of_two(size));
        ebbi_store_relaxed(&known, size); // relaxed: as above
    }
    return size;
}

size_t ebbi_os_address_limit(void)
{
    static size_t known = SIZE_MAX; // atomic: as it was said last
    if (ebbi_os_call_begins()) {
        int saved = errno;
        struct rlimit limit;
        bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
        size_t now = limited ? (size_t)limit.rlim_cur : SIZE_MAX;
        ebbi_store_relaxed(&known, now); // relaxed: a number
        errno = saved;
        ebbi_os_call_ends();
    }
    return ebbi_load_relaxed(&known); // relaxed: as above
}

// atexit lies in an archive whose use of __dso_handle not every linker can put into a library.
int __cxa_atexit(void (*call)(void *), void *argument, void *owner);

void ebbi_os_at_exit(void (*call)(void *unused)) { (void)__cxa_atexit(call, NULL, NULL); }

size_t ebbi_os_memory_bytes(void)
{
    int saved = errno;
    struct sysinfo info;
    bool known = sysinfo(&info) == 0;
    errno = saved;
    return known ? ebbi_max((size_t)info.totalram * info.mem_unit, 1) : 1;
}

// Among the CPUs of the start, so that those of a sparse set are numbered without gaps. Others, of a
// set that has grown since, share their numbers.
static size_t dense(size_t cpu)
{
    size_t word = cpu / 64;
    uint64_t bit = (uint64_t)1 << (cpu % 64);
    if (cpu_count == 0) {
        return cpu;
    }
    if (cpu >= MOST_CPUS || (cpu_mask[word] & bit) == 0) {
        return cpu % cpu_count;
    }
    EBBI_ASSERT(cpu_rank[word] < cpu_count);
    return cpu_rank[word] + (size_t)__builtin_popcountll(cpu_mask[word] & (bit - 1));
}

size_t ebbi_os_cpus(void) { return ebbi_max(cpu_count, 1); }

// libc reads a word that the kernel keeps (rseq, glibc from 2.35), else by the vDSO, else by a system
// call. Where a filter refuses that, a thread has a number of its own for good.
size_t ebbi_os_cpu(void)
{
    static bool refused;
    if (!ebbi_load_relaxed(&refused)) { // relaxed: a hint
        int saved = errno;
        int cpu = sched_getcpu();
        errno = saved;
        if (cpu >= 0) {
            return dense((size_t)cpu);
        }
        ebbi_store_relaxed(&refused, true); // relaxed: a hint
    }
    uint64_t thread = (uint64_t)(uintptr_t)pthread_self() * 0x9E3779B97F4A7C15u;
    return (size_t)(thread >> 58);
}

uint64_t ebbi_os_now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

uint64_t ebbi_os_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t ebbi_os_date_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

uint64_t ebbi_os_entropy(void)
{
    // Sixteen bytes that the kernel gives each process at its start: no call, no failure.
    const char *random = (const char *)getauxval(AT_RANDOM);
    uint64_t bits = 0;
    if (random != NULL) {
        __builtin_memcpy(&bits, random + sizeof bits, sizeof bits);
    }
    return bits * 0x9E3779B97F4A7C15u;
}

bool ebbi_os_is_secure(void) { return getauxval(AT_SECURE) != 0; }

bool ebbi_os_is_threaded(void)
{
#ifdef HAVE_SINGLE_THREADED
    return !__libc_single_threaded;
#else
    return true;
#endif
}

bool ebbi_os_first_has_ended(void)
{
    char text[64]; // "number (name) state ...", a name of 15 bytes at most
    size_t length = 0;
    if (ebbi_os_call_begins()) {
        length = read_small_file("/proc/self/stat", text, sizeof text);
        ebbi_os_call_ends();
    }
    while (length > 0 && text[length - 1] != ')') {
        length--;
    }
    return length > 0 && length + 1 < sizeof text && text[length + 1] == 'Z';
}

size_t ebbi_os_resident_bytes(void)
{
    char text[128];
    size_t length = 0;
    if (ebbi_os_call_begins()) {
        length = read_small_file("/proc/self/statm", text, sizeof text);
        ebbi_os_call_ends();
    }
    text[length] = '\0';
    const char *c = text;
    while (*c != '\0' && *c != ' ') {
        c++;
    }
    size_t pages = 0;
    for (c += (*c == ' '); *c >= '0' && *c <= '9'; c++) {
        pages = pages * 10 + (size_t)(*c - '0');
    }
    return length == 0 ? 0 : pages * ebbi_os_page_size();
}

uint32_t ebbi_os_process_number(void) { return (uint32_t)getpid(); }
// glibc's own, for its fork; no other libc has them.
void _IO_list_lock(void) __attribute__((weak));
void _IO_list_unlock(void) __attribute__((weak));
void _IO_list_resetlock(void) __attribute__((weak));

void ebbi_os_streams_lock(void)
{
    if (_IO_list_lock != NULL && _IO_list_unlock != NULL && _IO_list_resetlock != NULL) {
        _IO_list_lock();
    }
}

void ebbi_os_streams_unlock(void)
{
    if (_IO_list_lock != NULL && _IO_list_unlock != NULL && _IO_list_resetlock != NULL) {
        _IO_list_unlock();
    }
}

void ebbi_os_streams_reset(void)
{
    if (_IO_list_resetlock != NULL) {
        _IO_list_resetlock();
    }
}

static uint64_t signal_bit(int number) { return (uint64_t)1 << (number - 1); }

struct ebbi_os_signals ebbi_os_hold_signals(void)
{
    int saved = errno;
    struct ebbi_os_signals signals = {.held = ebbi_os_call_begins()};
    uint64_t faults = signal_bit(SIGSEGV) | signal_bit(SIGBUS) | signal_bit(SIGILL) |
                      signal_bit(SIGFPE) | signal_bit(SIGTRAP) | signal_bit(SIGABRT) |
                      signal_bit(SIGSYS);
    uint64_t others = ~faults;
    if (signals.held &&
        syscall(SYS_rt_sigprocmask, SIG_BLOCK, &others, &signals.before, sizeof others) != 0) {
        signals.held = false;
        ebbi_os_call_ends();
    }
    errno = saved;
    return signals;
}

void ebbi_os_let_signals(struct ebbi_os_signals signals)
{
    int saved = errno;
    if (signals.held) {
        (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &signals.before, NULL,
                      sizeof signals.before);
        ebbi_os_call_ends();
    }
    errno = saved;
}

// A limit on the size of files, or a reader that has gone, is an error, no signal that ends the program, unless below a
// filter. Raw: libc's calls would keep the mask in a type that is larger than the kernel's.
static long write_once(long fd, const char *text, size_t length)
{
    bool asks = ebbi_os_call_begins();
    const uint64_t pipe = signal_bit(SIGPIPE), limit = signal_bit(SIGXFSZ);
    const uint64_t both = pipe | limit;
    const struct timespec at_once = {0};
    uint64_t before = 0, waits = 0;
    bool blocks = asks && syscall(SYS_rt_sigprocmask, SIG_BLOCK, &both, &before, sizeof both) == 0;
    if (blocks && (before & both) != 0) {
        (void)syscall(SYS_rt_sigpending, &waits, sizeof waits);
    }
    long written = syscall(SYS_write, fd, text, length);
    int error = errno;
    uint64_t raised = written >= 0 ? 0 : error == EFBIG ? limit : error == EPIPE ? pipe : 0;
    if (blocks && (raised & ~waits) != 0) {
        (void)syscall(SYS_rt_sigtimedwait, &raised, NULL, &at_once, sizeof raised);
    }
    if (blocks) {
        (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
    }
    if (asks) {
        ebbi_os_call_ends();
    }
    errno = error;
    return written;
}

int ebbi_os_write(int fd, const char *text, size_t length)
{
    int saved = errno;
    int result = 0;
    while (length > 0 && result == 0) {
        long written = write_once(fd, text, length);
        if (written > 0) {
            text += written;
            length -= (size_t)written;
        } else if (written == 0 || errno != EINTR) {
            result = written == 0 ? -EIO : -errno;
        }
    }
    errno = saved;
    return result;
}

int ebbi_os_append(const char *path, const char *text, size_t length)
{
    const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    int saved = errno;
    long fd = syscall(SYS_openat, AT_FDCWD, path, flags, 0666);
    long written = -1;
    if (fd >= 0) {
        do {
            written = write_once(fd, text, length);
        } while (written < 0 && errno == EINTR);
    }
    int result = written < 0 ? -errno : (size_t)written < length ? -ENOSPC : 0;
    if (fd >= 0) {
        (void)syscall(SYS_close, fd);
    }
    errno = saved;
    return result;
}

int ebbi_os_file_open(const char *path)
{
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    int saved = errno;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_NONBLOCK, 0666);
    if (fd >= 0) {
        (void)syscall(SYS_fcntl, fd, F_SETFL, flags); // else what is read slowly is cut off
    }
    int result = fd < 0 ? -errno : fd;
    errno = saved;
    return result;
}

int ebbi_os_file_close(int fd)
{
    int saved = errno;
    int result = syscall(SYS_close, fd) == 0 ? 0 : -errno;
    errno = saved;
    return result;
}

int ebbi_os_file_begin(const char *path, const char *to)
{
    int saved = errno;
    struct stat old;
    bool replaces = syscall(SYS_newfstatat, AT_FDCWD, to, &old, AT_SYMLINK_NOFOLLOW) == 0;
    mode_t mode = replaces ? old.st_mode & 0777 : 0666;
    int result = -EINVAL;
    if (!replaces || S_ISREG(old.st_mode)) {
        (void)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
        long fd =
            syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        result = fd < 0 ? -errno : (int)fd;
    }
    errno = saved;
    return result;
}

int ebbi_os_file_end(int fd, const char *path, const char *to)
{
    int saved = errno;
    bool done = syscall(SYS_close, fd) == 0 && to != NULL &&
                syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, to, 0) == 0;
    int result = done || to == NULL ? 0 : -errno;
    if (!done) {
        (void)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    }
    errno = saved;
    return result;
}

size_t ebbi_os_thread_name(uint32_t number, char *name, size_t size)
{
    char path[48];
    struct ebbi_text text = {path, path + sizeof path - 1};
    ebbi_text_put(&text, "/proc/self/task/");
    ebbi_text_number(&text, number, 10);
    ebbi_text_put(&text, "/comm");
    *text.at = '\0';
    size_t length = read_small_file(path, name, size);
    if (length > 0 && name[length - 1] == '\n') {
        name[--length] = '\0';
    }
    return length;
}
