// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: what debuggers ask of Linux, refused accesses; and the signal that asks for statistics.
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "ebbtide/detail/atomic.h"
#include "os/os.h"

static bool handles(const struct sigaction *action)
{
    return action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
}

static bool has_handler(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && handles(&action);
}

static bool blocks_one_with_a_handler(void)
{
    sigset_t blocked;
    if (pthread_sigmask(SIG_BLOCK, NULL, &blocked) != 0) {
        return true;
    }
    if (sigisemptyset(&blocked)) {
        return false;
    }
    for (int number = 1; number <= SIGRTMAX; number++) {
        if (sigismember(&blocked, number) == 1 && has_handler(number)) {
            return true;
        }
    }
    return false;
}

bool ebbi_os_may_handle_signal(void)
{
    bool may = true;
    if (ebbi_os_call_begins()) {
        may = blocks_one_with_a_handler();
        ebbi_os_call_ends();
    }
    return may;
}

// ---- fences --------------------------------------------------------------------------------------

// Older headers do not have them.
#define GUARD_INSTALL 102
#define GUARD_REMOVE 103

static bool fences_mark;    // atomic
static bool fences_protect; // atomic: some are no markers

// Emulators take any advice for followed: a page that has a marker cannot be made readable.
bool ebbi_os_fences_begin(void)
{
    int saved = errno;
    bool marks = false;
    size_t bytes = ebbi_os_page_size();
    void *page = ebbi_os_map(NULL, bytes);
    if (page != NULL) {
        marks = madvise(page, bytes, GUARD_INSTALL) == 0 &&
                madvise(page, bytes, EBBI_OS_POPULATE_READ) != 0 && errno == EFAULT &&
                madvise(page, bytes, GUARD_REMOVE) == 0 &&
                madvise(page, bytes, EBBI_OS_POPULATE_READ) == 0;
        ebbi_store_relaxed(&fences_mark, marks); // relaxed: without, there is protection
        ebbi_os_release(page, bytes);
    }
    errno = saved;
    return marks;
}

int ebbi_os_fence(void *start, size_t bytes)
{
    int saved = errno;
    int result = 0;
    // relaxed: as above
    if (!ebbi_load_relaxed(&fences_mark) || madvise(start, bytes, GUARD_INSTALL) != 0) {
        ebbi_store_relaxed(&fences_protect, true); // relaxed: before the place is handed on
        result = ebbi_os_guard(start, bytes);
    }
    errno = saved;
    return result;
}

int ebbi_os_unfence(void *start, size_t bytes)
{
    int saved = errno;
    // relaxed: as above, here and below
    bool done = !ebbi_load_relaxed(&fences_mark) || madvise(start, bytes, GUARD_REMOVE) == 0;
    if (ebbi_load_relaxed(&fences_protect)) {
        done = ebbi_os_commit(start, bytes) == 0 && done;
    }
    errno = saved;
    return done ? 0 : -ENOMEM;
}

// ---- faults --------------------------------------------------------------------------------------

static void (*fault_looks[2])(uintptr_t address, uintptr_t pc);
static struct sigaction before_fault[2]; // of SIGSEGV, SIGBUS

// The default and, for what the kernel itself sends, "ignore" too: the process ends, by this signal,
// where it was raised.
static void end_by_default(int number, bool again)
{
    struct sigaction plain = {0};
    plain.sa_handler = SIG_DFL;
    (void)sigaction(number, &plain, NULL);
    if (!again) {
        (void)raise(number); // when this handler returns
    }
}

static void pass_fault_on(int number, siginfo_t *info, void *context)
{
    EBBI_ASSERT(number == SIGSEGV || number == SIGBUS);
    struct sigaction *kept = &before_fault[number == SIGBUS];
    struct sigaction before = *kept;
    bool by_kernel = info->si_code > 0; // so it comes again when this handler returns
    bool takes_info = (before.sa_flags & SA_SIGINFO) != 0;
    if (!takes_info && before.sa_handler == SIG_IGN && !by_kernel) {
        return;
    }
    if (!takes_info && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)) {
        end_by_default(number, by_kernel);
        return;
    }
    if ((before.sa_flags & (int)SA_RESETHAND) != 0) {
        kept->sa_handler = SIG_DFL;
        kept->sa_flags = 0;
    }
    if ((before.sa_flags & SA_NODEFER) != 0) {
        sigset_t own;
        (void)sigemptyset(&own);
        (void)sigaddset(&own, number);
        (void)pthread_sigmask(SIG_UNBLOCK, &own, NULL);
    }
    if (takes_info) {
        before.sa_sigaction(number, info, context);
    } else {
        before.sa_handler(number);
    }
}

static uintptr_t code_place(const void *context)
{
    const mcontext_t *at = &((const ucontext_t *)context)->uc_mcontext;
#if defined(__x86_64__)
    return (uintptr_t)at->gregs[REG_RIP];
#elif defined(__aarch64__)
    return at->pc;
#endif
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    EBBI_ASSERT(fault_looks[0] != NULL);
    for (size_t i = 0; i < 2 && info->si_code > 0 && fault_looks[i] != NULL; i++) {
        fault_looks[i]((uintptr_t)info->si_addr, code_place(context));
    }
    errno = saved;
    pass_fault_on(number, info, context);
}

void ebbi_os_watch_faults(void (*look)(uintptr_t address, uintptr_t pc))
{
    static const int signals[] = {SIGSEGV, SIGBUS};
    int saved = errno;
    size_t place = fault_looks[0] == NULL || fault_looks[0] == look ? 0 : 1;
    EBBI_ASSERT(look != NULL && (fault_looks[place] == NULL || fault_looks[place] == look));
    fault_looks[place] = look;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction ours = {0};
        struct sigaction before;
        (void)sigaction(signals[i], NULL, &before);
        if (before.sa_sigaction == on_fault) {
            continue; // by a thread that a fork has left behind
        }
        before_fault[i] = before;
        ours.sa_sigaction = on_fault;
        ours.sa_mask = before_fault[i].sa_mask;
        // On the stack where the program's own handler would run.
        ours.sa_flags = SA_SIGINFO | (before.sa_flags & (SA_RESTART | SA_ONSTACK)) |
                        (handles(&before) ? 0 : SA_ONSTACK);
        (void)sigaction(signals[i], &ours, NULL);
    }
    errno = saved;
}

// ---- signals that ask -----------------------------------------------------------------------------

static void (*signal_look)(void);

static void on_signal(int number)
{
    int saved = errno;
    (void)number;
    EBBI_ASSERT(signal_look != NULL);
    signal_look();
    errno = saved;
}

// Sent by the kernel for what an instruction did, which a handler that returns would repeat.
static bool is_fault(int number)
{
    return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL;
}

bool ebbi_os_watch_signal(int number, void (*look)(void))
{
    EBBI_ASSERT(look != NULL && number > 0);
    int saved = errno;
    struct sigaction ours = {0};
    struct sigaction before;
    bool watched = !is_fault(number) && sigaction(number, NULL, &before) == 0 &&
                   (before.sa_flags & SA_SIGINFO) == 0 &&
                   (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN);
    if (watched) {
        signal_look = look;
        ours.sa_handler = on_signal;
        ours.sa_flags = SA_RESTART | SA_ONSTACK;
        watched = sigaction(number, &ours, NULL) == 0;
    }
    errno = saved;
    return watched;
}
