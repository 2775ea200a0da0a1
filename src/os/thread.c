// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: threads of our own, and what threads wait for.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ebbtide/detail/atomic.h"
#include "os/os.h"

#define THREAD_STACK ((size_t)256 << 10)
#define GATE_MS 1000
#define PAUSES 64 // in the place of a yield

// The kernel's numbers, whose headers musl systems have in a package of their own.
enum { WAIT_PRIVATE = 0 | 128, WAKE_PRIVATE = 1 | 128 };              // of futex
enum { BARRIER_PRIVATE = 1 << 3, BARRIER_REGISTER_PRIVATE = 1 << 4 }; // of membarrier

// Before the process filters its system calls, the calls that it may not know of are over, and none begins.
static bool sandboxed;   // atomic
static uint32_t in_call; // atomic: threads

// Of the process, from before its start. Only where ebbi_os_prctl sees what comes later.
static uint32_t filter; // atomic
enum { UNSEEN, UNKNOWN, NONE, SOME };
static bool looks_anyway; // atomic

uint32_t ebbi_os_thread_number(void)
{
    int saved = errno; // a filter may refuse it
    uint32_t number = (uint32_t)syscall(SYS_gettid);
    errno = saved;
    return number;
}

bool ebbi_os_is_first_thread(void) { return ebbi_os_thread_number() == (uint32_t)getpid(); }

void ebbi_os_call_ends(void)
{
    // release[filtered-call -> filter]: the call
    (void)ebbi_fetch_sub_release(&in_call, 1u);
}

bool ebbi_os_call_begins(void)
{
    (void)ebbi_fetch_add_relaxed(&in_call, 1u); // relaxed: the fence orders it
    // full[filtered-call <-> filter]: either this thread sees the word, or it is waited for
    ebbi_fence_full();
    bool may = !ebbi_load_relaxed(&sandboxed); // relaxed: behind the fence
    if (!may) {
        ebbi_os_call_ends();
    }
    return may;
}

void ebbi_os_filters_see(void) { ebbi_store_relaxed(&filter, (uint32_t)UNKNOWN); } // relaxed: alone

void ebbi_os_look_anyway(void) { ebbi_store_relaxed(&looks_anyway, true); } // relaxed: alone

bool ebbi_os_may_look(void)
{
    int saved = errno;
    uint32_t known = ebbi_load_relaxed(&filter); // relaxed: a fact
    if (known == UNKNOWN && ebbi_os_call_begins()) {
        known = syscall(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0) == 0 ? NONE : SOME;
        ebbi_store_relaxed(&filter, known); // relaxed: the same from any thread
        ebbi_os_call_ends();
    }
    errno = saved;
    bool may = known == NONE || ebbi_load_relaxed(&looks_anyway); // relaxed: since the start
    return may && !ebbi_load_relaxed(&sandboxed); // relaxed: a hint, calls look again
}

void ebbi_os_yield(void)
{
    if (ebbi_os_call_begins()) {
        (void)sched_yield();
        ebbi_os_call_ends();
        return;
    }
    for (int i = 0; i < PAUSES; i++) { // no nap: who yields does so a thousand times
        ebbi_pause();
    }
}

uint64_t ebbi_os_thread_ns(void)
{
    struct timespec now;
    int failed = -1, saved = errno;
    if (ebbi_os_call_begins()) {
        failed = clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        ebbi_os_call_ends();
    }
    errno = saved;
    return failed == 0 ? (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec
                       : ebbi_os_now_ns();
}

void ebbi_os_forget_threads(void) { ebbi_store_relaxed(&in_call, 0u); } // relaxed: the only thread

// Not for ever: the caller may be a signal handler amid such a call.
static void close_gate(void)
{
    ebbi_store_relaxed(&sandboxed, true); // relaxed: the fence orders it
    // full[filter <-> filtered-call]: see ebbi_os_call_begins
    ebbi_fence_full();
    for (int ms = 0; ms < GATE_MS; ms++) {
        // acquire[filter <- filtered-call]: the call
        uint32_t others = ebbi_load_acquire(&in_call);
        if (others == 0) {
            break;
        }
        ebbi_os_wait(&in_call, others, 1);
    }
}

int ebbi_os_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)
{
    // A filter without privileges is made after the first, whoever makes it by another call.
    if (option == PR_SET_NO_NEW_PRIVS || option == PR_SET_SECCOMP) {
        close_gate();
    }
    return (int)syscall(SYS_prctl, option, a, b, c, d);
}

static bool membarrier_command(int command)
{
    int saved = errno;
    bool done = false;
    if (ebbi_os_call_begins()) {
        done = syscall(SYS_membarrier, command, 0, 0) == 0;
        ebbi_os_call_ends();
    }
    errno = saved;
    return done;
}

bool ebbi_os_membarrier_register(void) { return membarrier_command(BARRIER_REGISTER_PRIVATE); }

bool ebbi_os_membarrier(void) { return membarrier_command(BARRIER_PRIVATE); }

void ebbi_os_wait(uint32_t *word, uint32_t expected, uint32_t timeout_ms)
{
    EBBI_ASSERT((uintptr_t)word % sizeof *word == 0); // else the kernel refuses at once, for ever
    int saved = errno;
    struct timespec limit = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L};
    (void)syscall(SYS_futex, word, WAIT_PRIVATE, expected, timeout_ms ? &limit : NULL, NULL, 0);
    errno = saved;
}

void ebbi_os_wake(uint32_t *word, int how_many)
{
    EBBI_ASSERT(how_many > 0);
    int saved = errno;
    (void)syscall(SYS_futex, word, WAKE_PRIVATE, how_many, NULL, NULL, 0);
    errno = saved;
}

// What the thread that created it would have handed on. Not under a filter of system calls, which
// may end the process for any of these; the first question is one that sandboxes allow.
static void be_ordinary(void)
{
    struct sched_param none = {0};
    if (syscall(SYS_prctl, PR_GET_SECCOMP) == 0) {
        (void)sched_setscheduler(0, SCHED_OTHER, &none);
        ebbi_os_run_anywhere();
    }
}

static void *thread_main(void *argument)
{
    const struct ebbi_os_thread *thread = argument;
    if (ebbi_os_call_begins()) {
        be_ordinary();
        (void)syscall(SYS_prctl, PR_SET_NAME, thread->name);
        ebbi_os_call_ends();
    }
    thread->run();
    return NULL;
}

bool ebbi_os_is_own_thread(void *(*run)(void *)) { return run == thread_main; }

static uintptr_t create_thread(const struct ebbi_os_thread *thread, size_t stack_bytes)
{
    pthread_attr_t attributes;
    pthread_t handle;
    (void)pthread_attr_init(&attributes);
    if (stack_bytes != 0) {
        (void)pthread_attr_setstacksize(&attributes, stack_bytes);
    }
    bool started =
        pthread_create(&handle, &attributes, thread_main, (void *)(uintptr_t)thread) == 0;
    (void)pthread_attr_destroy(&attributes);
    return started ? (uintptr_t)handle : 0;
}

uintptr_t ebbi_os_start_thread(const struct ebbi_os_thread *thread)
{
    EBBI_ASSERT(thread->run != NULL);
    EBBI_ASSERT(__builtin_strlen(thread->name) <= 15);
    int saved = errno;
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    uintptr_t handle = create_thread(thread, THREAD_STACK);
    if (handle == 0) { // perhaps too small for the program's thread-local variables
        handle = create_thread(thread, 0);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = saved;
    return handle;
}

// libc's own: of threads that a sanitizer's runtime has not seen begin its pthread_join knows nothing.
static int (*join_function)(pthread_t, void **) = pthread_join;
static int (*try_function)(pthread_t, void **) = pthread_tryjoin_np;
static int (*detach_function)(pthread_t) = pthread_detach;

void ebbi_os_join_by(void *join, void *try_join, void *detach)
{
    if (join != NULL && try_join != NULL && detach != NULL) {
        memcpy(&join_function, &join, sizeof join);
        memcpy(&try_function, &try_join, sizeof try_join);
        memcpy(&detach_function, &detach, sizeof detach);
    }
}

void ebbi_os_join_thread(uintptr_t handle)
{
    int saved = errno;
    int cancel;
    if (handle != 0) {
        EBBI_ASSERT(!pthread_equal((pthread_t)handle, pthread_self()));
        (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
        (void)join_function((pthread_t)handle, NULL);
        (void)pthread_setcancelstate(cancel, NULL);
    }
    errno = saved;
}

uintptr_t ebbi_os_own_thread(void) { return (uintptr_t)pthread_self(); }

bool ebbi_os_thread_lives(uint32_t number)
{
    int saved = errno;
    bool lives = true; // a filter of system calls is no death
    if (ebbi_os_call_begins()) {
        // The second: a thread of another process may share this one's memory.
        lives = syscall(SYS_tgkill, getpid(), number, 0) == 0 || errno != ESRCH ||
                syscall(SYS_kill, number, 0) == 0 || errno != ESRCH;
        ebbi_os_call_ends();
    }
    errno = saved;
    return lives;
}

uint32_t ebbi_os_thread_count(void)
{
    int saved = errno;
    struct stat tasks = {.st_nlink = 0};
    if (ebbi_os_call_begins()) {
        // Not libc's, which is a symbol of glibc 2.33; its structure is the kernel's where words have 64 bits.
        (void)syscall(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &tasks, 0);
        ebbi_os_call_ends();
    }
    errno = saved;
    return tasks.st_nlink > 2 ? (uint32_t)tasks.st_nlink - 2 : 0; // the folder itself has two
}

void ebbi_os_leave_thread(uintptr_t handle)
{
    int saved = errno;
    if (handle != 0 && try_function((pthread_t)handle, NULL) != 0) {
        (void)detach_function((pthread_t)handle);
    }
    errno = saved;
}
