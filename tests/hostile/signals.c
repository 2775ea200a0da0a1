// SPDX-License-Identifier: MIT OR Apache-2.0
// Signals. Handlers that allocate are documented as an error: they work, or the process ends by a
// line of the library, but it never hangs.
#include "hostile.h"
#include <sys/time.h>

static volatile sig_atomic_t signals;
static void *_Atomic offered[16];

static void allocates(int unused)
{
    (void)unused;
    int saved = errno;
    for (size_t size = 16; size < 3000; size = size * 2 + 16)
        free(malloc(size));
    if (signals % 16 == 0)
        free(malloc(200000));
    signals++;
    errno = saved;
}

static void frees(int unused)
{
    (void)unused;
    int saved = errno;
    free(atomic_exchange(&offered[signals % 16], NULL));
    signals++;
    errno = saved;
}

static void reallocates(int unused)
{
    (void)unused;
    int saved = errno;
    void *p = atomic_exchange(&offered[signals % 16], NULL);
    free(realloc(p, 1000 + (size_t)signals % 5000));
    signals++;
    errno = saved;
}

static void (*const handlers[])(int) = {allocates, frees, reallocates};

static void *nothing(void *unused) { return unused; }

static void interrupted(void *kind)
{
    struct sigaction action = {.sa_handler = handlers[(long)kind % 10], .sa_flags = SA_RESTART};
    if ((long)kind >= 10)
        pthread_join(start(nothing, NULL), NULL);
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &timer, NULL);
    unsigned seed = 1;
    while (signals < 3000) {
        churn(&seed, 200);
        for (int i = 0; i < 16; i++)
            free(atomic_exchange(&offered[i], malloc(1 + chance(&seed) % 3000)));
    }
}

// +10: the process had a thread before.
static void handler(long kind)
{
    if (!under_ebbtide())
        skip("glibc promises nothing");
    char err[4096];
    int status = run_child(interrupted, (void *)kind, 20, err, sizeof err);
    MUST(status == 0 || ended_by_the_library(status, err), "%s, stderr: %s", status_text(status),
         err);
}

int main(int argc, char **argv)
{
    handler(argc > 1 ? atol(argv[1]) : 0);
    return pass("3000 signals");
}
