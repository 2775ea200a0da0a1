// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer override: the calls in which threads of unchanged programs wait. With EBB_DOMAIN_TICK=block
// each of them ends the calling thread's epoch first; without, one branch is in the way. Only in the
// shared library: in a program that is linked statically there is no next function to find.
//
// The next function (libc's, or another preload's) is tail-called: no frame of ours is on the stack
// when a thread is cancelled in it. Its address is looked up at the first wait of the process, as most
// programs never wait; with the option on, at load. That lookup takes the loader's lock, which a
// thread in dlopen holds while constructors run: our dlopen looks up first.
//
// A signal handler may wait, too, and the thread that it interrupted may be anywhere in malloc. POSIX
// lets it do so in the calls marked HANDLERS_TOO: they end no epoch in a thread that blocks a signal,
// as every handler does but one installed with SA_NODEFER, which must not wait under this option.
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

#include "ebbtide/detail/atomic.h"
#include "front/front.h"
#include "lifetime/domain.h"
#include "os/options.h"
#include "override/block.h"

// glibc has an older pthread_cond_wait of the same name, for another layout of the condition.
#if defined(__GLIBC__) && defined(__x86_64__)
#define CONDITIONS "GLIBC_2.3.2"
#elif defined(__GLIBC__) && defined(__aarch64__)
#define CONDITIONS "GLIBC_2.17"
#else
#define CONDITIONS ""
#endif

// WAIT(name, who may call it, version, parameters, arguments...); all return int.
#define WAITS(WAIT)                                                                                \
    WAIT(accept, HANDLERS_TOO, "", (int fd, void *address, void *length), fd, address, length)     \
    WAIT(accept4, HANDLERS_TOO, "", (int fd, void *address, void *length, int flags), fd, address, \
         length, flags)                                                                            \
    WAIT(clock_nanosleep, HANDLERS_TOO, "",                                                        \
         (clockid_t clock, int flags, const struct timespec *time, struct timespec *left), clock,  \
         flags, time, left)                                                                        \
    WAIT(epoll_pwait, THREADS, "",                                                                 \
         (int fd, struct epoll_event *events, int most, int timeout, const sigset_t *mask), fd,    \
         events, most, timeout, mask)                                                              \
    WAIT(epoll_wait, THREADS, "", (int fd, struct epoll_event *events, int most, int timeout), fd, \
         events, most, timeout)                                                                    \
    WAIT(nanosleep, HANDLERS_TOO, "", (const struct timespec *time, struct timespec *left), time,  \
         left)                                                                                     \
    WAIT(poll, HANDLERS_TOO, "", (struct pollfd * fds, nfds_t nfds, int timeout), fds, nfds,       \
         timeout)                                                                                  \
    WAIT(ppoll, HANDLERS_TOO, "",                                                                  \
         (struct pollfd * fds, nfds_t nfds, const struct timespec *timeout, const sigset_t *mask), \
         fds, nfds, timeout, mask)                                                                 \
    WAIT(pselect, HANDLERS_TOO, "",                                                                \
         (int nfds, fd_set *in, fd_set *out, fd_set *except, const struct timespec *timeout,       \
          const sigset_t *mask),                                                                   \
         nfds, in, out, except, timeout, mask)                                                     \
    WAIT(select, HANDLERS_TOO, "",                                                                 \
         (int nfds, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout), nfds, in,   \
         out, except, timeout)                                                                     \
    WAIT(pthread_cond_timedwait, THREADS, CONDITIONS,                                              \
         (pthread_cond_t * condition, pthread_mutex_t * mutex, const struct timespec *until),      \
         condition, mutex, until)                                                                  \
    WAIT(pthread_cond_wait, THREADS, CONDITIONS,                                                   \
         (pthread_cond_t * condition, pthread_mutex_t * mutex), condition, mutex)                  \
    WAITS_OF_GLIBC(WAIT)

// What std::condition_variable waits by until a time.
#ifdef __GLIBC__
#define WAITS_OF_GLIBC(WAIT)                                                                       \
    WAIT(pthread_cond_clockwait, THREADS, "",                                                      \
         (pthread_cond_t * condition, pthread_mutex_t * mutex, clockid_t clock,                    \
          const struct timespec *until),                                                           \
         condition, mutex, clock, until)
#else
#define WAITS_OF_GLIBC(WAIT)
#endif

#define INDEX(name, who, version, parameters, ...) WAIT_##name,
enum wait { WAITS(INDEX) WAIT_COUNT };
#undef INDEX

// Arrays, not pointers that the loader would have to relocate in every process.
#define NAME(name, who, version, parameters, ...) {#name, version},
static const struct {
    char name[24];
    char version[12];
} symbols[WAIT_COUNT] = {WAITS(NAME)};
#undef NAME

enum who { THREADS, HANDLERS_TOO };
enum mode { UNKNOWN, OFF, ON };
typedef void (*function)(void);

static function next[WAIT_COUNT];
static uint32_t mode;

static function find_next(const char *name, const char *version)
{
    function found;
    void *symbol = version[0] != '\0' ? dlvsym(RTLD_NEXT, name, version) : dlsym(RTLD_NEXT, name);
    __builtin_memcpy(&found, &symbol, sizeof found);
    return found;
}

EBBI_COLD void ebbi_block_prepare(void)
{
    (void)ebbi_start(); // reads the options, also before any constructor
    for (size_t i = 0; i < WAIT_COUNT; i++) {
        // relaxed: every writer stores the same value, and `mode` publishes it
        ebbi_store_relaxed(&next[i], find_next(symbols[i].name, symbols[i].version));
    }
    bool on = ebbi_option(EBBI_OPTION_DOMAIN_TICK) != 0;
    // release[wait-mode-set -> wait-mode-read]: the functions
    ebbi_store_release(&mode, (uint32_t)(on ? ON : OFF));
}

__attribute__((constructor)) static void prepare_at_load(void)
{
    (void)ebbi_start();
    if (ebbi_option(EBBI_OPTION_DOMAIN_TICK) != 0) {
        ebbi_block_prepare();
    }
}

static bool may_be_handler(void)
{
    sigset_t blocked;
    (void)sigemptyset(&blocked);
    (void)pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    return !sigisemptyset(&blocked);
}

EBBI_COLD static void before_wait(enum who who)
{
    int saved = errno;
    // acquire[wait-mode-read <- wait-mode-set]: the functions
    if (ebbi_load_acquire(&mode) == UNKNOWN) {
        ebbi_block_prepare();
    }
    // relaxed: `mode` may just have been set here; `ebbi_dying` by this thread, or it is of no matter
    bool wanted = ebbi_load_relaxed(&mode) == ON && !ebbi_load_relaxed(&ebbi_dying);
    if (wanted && !(who == HANDLERS_TOO && may_be_handler())) {
        struct ebbi_heap *own = ebbi_heap_get();
        if (own != NULL) {
            ebbi_domain_block(own);
            ebbi_serve();
        }
    }
    errno = saved;
}

EBBI_INLINE bool is_off(void)
{
    // acquire[wait-mode-read <- wait-mode-set]: the functions
    return ebbi_load_acquire(&mode) == OFF;
}

EBBI_INLINE function next_of(enum wait wait)
{
    return ebbi_load_relaxed(&next[wait]); // relaxed: ordered by `mode`
}

// Here and not from sys/socket.h, whose type of an address is a union of pointers in glibc.
int accept(int fd, void *address, void *length);
int accept4(int fd, void *address, void *length, int flags);

// Two functions each, so that the first one saves no registers.
#define DEFINE(name, who, version, parameters, ...)                                                \
    typedef int call_##name parameters;                                                            \
    EBBI_COLD static int block_##name parameters                                                   \
    {                                                                                              \
        before_wait(who);                                                                          \
        return ((call_##name *)next_of(WAIT_##name))(__VA_ARGS__);                                 \
    }                                                                                              \
    __attribute__((visibility("default"))) int name parameters                                     \
    {                                                                                              \
        return EBBI_LIKELY(is_off()) ? ((call_##name *)next_of(WAIT_##name))(__VA_ARGS__)          \
                                     : block_##name(__VA_ARGS__);                                  \
    }
WAITS(DEFINE)
