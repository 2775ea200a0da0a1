// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: Linux (glibc and musl). The only file beside fault.c that makes system calls.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__has_include)
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define HAVE_SINGLE_THREADED 1
#endif
#endif

#include "ebbtide/detail/atomic.h"
#include "os/os.h"

static void *map_pages(void *at, size_t bytes, int protection)
{
    int saved = errno;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *got = mmap(at, bytes, protection, flags, -1, 0); // `at` is a hint: never replaces
    errno = saved;
    if (got == MAP_FAILED) {
        return NULL;
    }
    if (at != NULL && got != at) {
        ebbi_os_release(got, bytes);
        return NULL;
    }
    return got;
}

void *ebbi_os_reserve(void *at, size_t bytes) { return map_pages(at, bytes, PROT_NONE); }
void *ebbi_os_reserve_readable(size_t bytes) { return map_pages(NULL, bytes, PROT_READ); }
void *ebbi_os_map(void *at, size_t bytes) { return map_pages(at, bytes, PROT_READ | PROT_WRITE); }

int ebbi_os_commit(void *start, size_t bytes)
{
    int saved = errno;
    int result = mprotect(start, bytes, PROT_READ | PROT_WRITE) == 0 ? 0 : -ENOMEM;
    errno = saved;
    return result;
}

bool ebbi_os_purge(void *start, size_t bytes)
{
    int saved = errno;
    bool done = madvise(start, bytes, MADV_DONTNEED) == 0;
    errno = saved;
    return done;
}

int ebbi_os_guard(void *start, size_t bytes)
{
    int saved = errno;
    int result = mprotect(start, bytes, PROT_NONE) == 0 ? 0 : -ENOMEM;
    if (result == 0) {
        (void)madvise(start, bytes, MADV_DONTNEED);
    }
    errno = saved;
    return result;
}

void ebbi_os_release(void *start, size_t bytes)
{
    int saved = errno;
    (void)munmap(start, bytes);
    errno = saved;
}

bool ebbi_os_resize(void *start, size_t old_bytes, size_t new_bytes)
{
    int saved = errno;
    bool done = mremap(start, old_bytes, new_bytes, 0) != MAP_FAILED;
    errno = saved;
    return done;
}

bool ebbi_os_move(void *start, size_t old_bytes, void *to, size_t new_bytes)
{
    int saved = errno;
    bool done =
        mremap(start, old_bytes, new_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED;
    errno = saved;
    return done;
}

bool ebbi_os_resident(const void *start, size_t bytes, unsigned char *vector)
{
    int saved = errno;
    bool known = mincore((void *)(uintptr_t)start, bytes, vector) == 0;
    errno = saved;
    return known;
}

void ebbi_os_advise_huge(void *start, size_t bytes, enum ebbi_os_huge advice)
{
    int saved = errno;
    if (advice != EBBI_HUGE_SYSTEM) {
        (void)madvise(start, bytes, advice == EBBI_HUGE_ALWAYS ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    }
    errno = saved;
}

// Reads at most size - 1 bytes of a small file into text; returns the length, 0 when unreadable.
static size_t read_small_file(const char *path, char *text, size_t size)
{
    int saved = errno;
    ssize_t length = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        do {
            length = read(fd, text, size - 1);
        } while (length < 0 && errno == EINTR);
        (void)close(fd);
    }
    errno = saved;
    text[length > 0 ? length : 0] = '\0';
    return length > 0 ? (size_t)length : 0;
}

bool ebbi_os_huge_by_default(void)
{
    char text[64];
    size_t length =
        read_small_file("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
    return length > 7 && text[0] == '[' && text[1] == 'a';
}

size_t ebbi_os_page_size(void)
{
    static size_t known;
    // relaxed: every writer stores the same value
    size_t size = ebbi_load_relaxed(&known);
    if (size == 0) {
        size = (size_t)getauxval(AT_PAGESZ);
        ebbi_store_relaxed(&known, size); // relaxed: as above
    }
    return size;
}

size_t ebbi_os_address_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return SIZE_MAX;
    }
    return (size_t)limit.rlim_cur;
}

size_t ebbi_os_cpus(void)
{
    int saved = errno;
    cpu_set_t set;
    size_t count = sched_getaffinity(0, sizeof set, &set) == 0 ? (size_t)CPU_COUNT(&set) : 1;
    errno = saved;
    return count;
}

size_t ebbi_os_cpu(void)
{
    int saved = errno;
    int cpu = sched_getcpu(); // glibc reads a word that the kernel keeps (rseq), else by the vDSO
    errno = saved;
    return cpu < 0 ? 0 : (size_t)cpu;
}

uint64_t ebbi_os_now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
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

size_t ebbi_os_resident_bytes(void)
{
    char text[128];
    size_t length = read_small_file("/proc/self/statm", text, sizeof text);
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

uint32_t ebbi_os_thread_number(void) { return (uint32_t)syscall(SYS_gettid); }

void ebbi_os_yield(void) { (void)sched_yield(); }

static bool membarrier_command(int command)
{
    int saved = errno;
    bool done = syscall(SYS_membarrier, command, 0, 0) == 0;
    errno = saved;
    return done;
}

bool ebbi_os_membarrier_register(void)
{
    return membarrier_command(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
}

bool ebbi_os_membarrier(void) { return membarrier_command(MEMBARRIER_CMD_PRIVATE_EXPEDITED); }

void ebbi_os_wait(uint32_t *word, uint32_t expected, uint32_t timeout_ms)
{
    int saved = errno;
    struct timespec limit = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L};
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, timeout_ms ? &limit : NULL, NULL,
                  0);
    errno = saved;
}

void ebbi_os_wake(uint32_t *word, int how_many)
{
    int saved = errno;
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, how_many, NULL, NULL, 0);
    errno = saved;
}

static void *thread_main(void *argument)
{
    const struct ebbi_os_thread *thread = argument;
    (void)prctl(PR_SET_NAME, thread->name);
    thread->run();
    return NULL;
}

bool ebbi_os_start_thread(const struct ebbi_os_thread *thread)
{
    int saved = errno;
    sigset_t all;
    sigset_t before;
    pthread_attr_t attributes;
    pthread_t handle;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attributes, (size_t)256 << 10);
    bool started =
        pthread_create(&handle, &attributes, thread_main, (void *)(uintptr_t)thread) == 0;
    (void)pthread_attr_destroy(&attributes);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = saved;
    return started;
}

void ebbi_os_write(int fd, const char *text, size_t length)
{
    int saved = errno;
    while (length > 0) {
        ssize_t written = write(fd, text, length);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            break;
        }
        text += written;
        length -= (size_t)written;
    }
    errno = saved;
}
