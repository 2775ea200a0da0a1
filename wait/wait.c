// SPDX-License-Identifier: MIT OR Apache-2.0
// libebbtide_wait.so, preloaded beside libebbtide.so: the calls in which threads of unchanged programs wait.
// Each of them ends the calling thread's unit of work first (ebb_thread_idle).
//
// The next function (libc's, or another preload's) is tail-called: no frame of ours is on the stack
// when a thread is cancelled in it. All are looked up at load, which no later wait of a thread that dlopen
// runs constructors beside has to do: the lookup takes the loader's lock.
//
// A signal handler may wait, too, and the thread that it interrupted may be anywhere in malloc. So nothing
// is ended in a thread that blocks a signal, as every handler does but one installed with SA_NODEFER and no
// mask: such a handler must not wait with this library. And a handler that comes in a wait may leave it by a
// jump, or hold its thread there while others go on: so while a unit ends no signal comes.
//
// Left out: sleep, usleep, pause and the sigwait family (short programs, or threads that hold
// nothing); sem_wait, read and the recv family (called far too often, mostly without waiting).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#include "ebbtide/detail/atomic.h"
#include "ebbtide/region.h"

// glibc has an older pthread_cond_wait of the same name, for another layout of the condition.
#if defined(__GLIBC__) && defined(__x86_64__)
#define CONDITIONS "GLIBC_2.3.2"
#elif defined(__GLIBC__) && defined(__aarch64__)
#define CONDITIONS "GLIBC_2.17"
#else
#define CONDITIONS ""
#endif
#ifndef __GLIBC__ // whose symbols alone have versions
#define dlvsym(handle, name, version) dlsym(handle, name)
#endif

// WAIT(name, version, parameters, arguments...); all return int.
#define WAITS(WAIT)                                                                                \
    WAIT(accept, "", (int fd, void *address, void *length), fd, address, length)                   \
    WAIT(accept4, "", (int fd, void *address, void *length, int flags), fd, address, length,       \
         flags)                                                                                    \
    WAIT(clock_nanosleep, "",                                                                      \
         (clockid_t clock, int flags, const struct timespec *time, struct timespec *left), clock,  \
         flags, time, left)                                                                        \
    WAIT(epoll_pwait, "",                                                                          \
         (int fd, struct epoll_event *events, int most, int timeout, const sigset_t *mask), fd,    \
         events, most, timeout, mask)                                                              \
    WAIT(epoll_wait, "", (int fd, struct epoll_event *events, int most, int timeout), fd, events,  \
         most, timeout)                                                                            \
    WAIT(nanosleep, "", (const struct timespec *time, struct timespec *left), time, left)          \
    WAIT(poll, "", (struct pollfd * fds, nfds_t nfds, int timeout), fds, nfds, timeout)            \
    WAIT(ppoll, "",                                                                                \
         (struct pollfd * fds, nfds_t nfds, const struct timespec *timeout, const sigset_t *mask), \
         fds, nfds, timeout, mask)                                                                 \
    WAIT(pselect, "",                                                                              \
         (int nfds, fd_set *in, fd_set *out, fd_set *except, const struct timespec *timeout,       \
          const sigset_t *mask),                                                                   \
         nfds, in, out, except, timeout, mask)                                                     \
    WAIT(select, "", (int nfds, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout), \
         nfds, in, out, except, timeout)                                                           \
    WAIT(pthread_cond_timedwait, CONDITIONS,                                                       \
         (pthread_cond_t * condition, pthread_mutex_t * mutex, const struct timespec *until),      \
         condition, mutex, until)                                                                  \
    WAIT(pthread_cond_wait, CONDITIONS, (pthread_cond_t * condition, pthread_mutex_t * mutex),     \
         condition, mutex)                                                                         \
    WAITS_OF_GLIBC(WAIT)

// What std::condition_variable waits by until a time.
#ifdef __GLIBC__
#define WAITS_OF_GLIBC(WAIT)                                                                       \
    WAIT(pthread_cond_clockwait, "",                                                               \
         (pthread_cond_t * condition, pthread_mutex_t * mutex, clockid_t clock,                    \
          const struct timespec *until),                                                           \
         condition, mutex, clock, until)
#else
#define WAITS_OF_GLIBC(WAIT)
#endif

#define INDEX(name, version, parameters, ...) WAIT_##name,
enum wait { WAITS(INDEX) WAIT_COUNT };
#undef INDEX

// Arrays, not pointers that the loader would have to relocate in every process.
#define NAME(name, version, parameters, ...) {#name, version},
static const struct {
    char name[24];
    char version[12];
} symbols[WAIT_COUNT] = {WAITS(NAME)};
#undef NAME

typedef void (*function)(void);

// Weak: of the library beside this one, if there is one.
#pragma weak ebb_thread_idle

static function next[WAIT_COUNT];
static bool ready; // atomic

static function find_next(const char *name, const char *version)
{
    function found;
    void *symbol = version[0] != '\0' ? dlvsym(RTLD_NEXT, name, version) : dlsym(RTLD_NEXT, name);
    __builtin_memcpy(&found, &symbol, sizeof found);
    return found;
}

static void prepare(void)
{
    int saved = errno;
    for (size_t i = 0; i < WAIT_COUNT; i++) {
        // relaxed: every writer stores the same value, and `ready` publishes it
        ebbi_store_relaxed(&next[i], find_next(symbols[i].name, symbols[i].version));
    }
    // release[wait-found -> wait-find]: the functions
    ebbi_store_release(&ready, true);
    errno = saved;
}

__attribute__((constructor)) static void prepare_at_load(void)
{
    static const char alone[] =
        "libebbtide_wait: libebbtide.so is not preloaded beside it: waits are as without\n";
    if (ebb_thread_idle == NULL) {
        ssize_t written = write(STDERR_FILENO, alone, sizeof alone - 1);
        (void)written;
    }
    prepare();
}

// What a fault sends comes all the same: else the kernel would end the process without a word.
static void end_unit(void)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t most;
    sigset_t before;
    (void)sigfillset(&most);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        (void)sigdelset(&most, faults[i]);
    }
    (void)pthread_sigmask(SIG_SETMASK, &most, &before);
    if (sigisemptyset(&before)) { // else it may be a handler
        ebb_thread_idle();
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static function before_wait(enum wait wait)
{
    // acquire[wait-find <- wait-found]: the functions
    if (!ebbi_load_acquire(&ready)) { // in a constructor that runs before ours
        prepare();
    }
    if (ebb_thread_idle != NULL) {
        end_unit();
    }
    return ebbi_load_relaxed(&next[wait]); // relaxed: ordered by `ready`
}

// Here and not from sys/socket.h, whose type of an address is a union of pointers in glibc.
int accept(int fd, void *address, void *length);
int accept4(int fd, void *address, void *length, int flags);

#define DEFINE(name, version, parameters, ...)                                                     \
    typedef int call_##name parameters;                                                            \
    __attribute__((visibility("default"))) int name parameters                                     \
    {                                                                                              \
        return ((call_##name *)before_wait(WAIT_##name))(__VA_ARGS__);                             \
    }
WAITS(DEFINE)
