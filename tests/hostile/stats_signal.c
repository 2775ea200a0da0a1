// SPDX-License-Identifier: MIT OR Apache-2.0
// SIGUSR2, which EBB_STATS=signal takes: statistics come at any moment, and a program that wants the
// signal for itself gets it, or is told.
#include "hostile.h"
#include <sys/time.h>

static volatile sig_atomic_t signals;

static void *nothing(void *unused) { return unused; }

static void counts(int unused)
{
    (void)unused;
    signals++;
}

static void runs_again(void *topic)
{
    execl("/proc/self/exe", "stats_signal", topic, NULL);
    _exit(3);
}

static void owns_the_signal(void *unused)
{
    (void)unused;
    struct sigaction action = {.sa_handler = counts}, now_set;
    MUST(sigaction(SIGUSR2, &action, NULL) == 0, "sigaction");
    unsigned seed = 1;
    for (int i = 0; i < 1000; i++) {
        churn(&seed, 100);
        if (i == 500)
            pthread_join(start(nothing, NULL), NULL);
        raise(SIGUSR2);
        if (signals != i + 1)
            _exit(6);
    }
    if (sigaction(SIGUSR2, NULL, &now_set) != 0 || now_set.sa_handler != counts)
        _exit(7);
}

// EBB_STATS=signal in the environment of a program that has a handler for SIGUSR2: that one runs, or
// the library says that it has taken the signal. (1: in a forked child.)
static void own_handler(long forked)
{
    char err[4096];
    if (!forked) {
        if (getenv("HOSTILE_AGAIN") != NULL) {
            owns_the_signal(NULL);
            _exit(0);
        }
        setenv("HOSTILE_AGAIN", "1", 1);
        int status = run_child(runs_again, "own_handler", 20, err, sizeof err);
        MUST(status == 0 || strstr(err, "SIGUSR2") != NULL, "%s (6: a signal was lost), stderr: %s",
             status_text(status), err);
        return;
    }
    int status = run_child(owns_the_signal, NULL, 20, err, sizeof err);
    MUST(status == 0 || strstr(err, "SIGUSR2") != NULL, "%s (6: a signal was lost), stderr: %s",
         status_text(status), err);
}

static void waits_for(void *unused)
{
    (void)unused;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < 100; i++) {
        pthread_join(start(nothing, NULL), NULL);
        free(malloc(5 << 20));
        kill(getpid(), SIGUSR2);
        struct timespec limit = {5, 0};
        if (sigtimedwait(&set, NULL, &limit) != SIGUSR2)
            _exit(4);
    }
}

// A program that takes SIGUSR2 by sigwait must get it: no thread of the library may eat it.
static void waited(long unused)
{
    (void)unused;
    char err[4096];
    int status = run_child(waits_for, NULL, 20, err, sizeof err);
    MUST(status == 0, "%s, stderr: %s", status_text(status), err);
}

static void is_asked(void *unused)
{
    struct itimerval timer = {{0, 1000}, {0, 1000}};
    struct sigaction action;
    sigaction(SIGUSR2, NULL, &action);
    action.sa_flags |= SA_RESTART;
    signal(SIGALRM, SIG_IGN);
    setitimer(ITIMER_REAL, &timer, NULL);
    unsigned seed = 1;
    double end = now() + 2;
    for (int i = 0; now() < end; i++) {
        churn(&seed, 300);
        if (i % 50 == 0)
            raise(SIGUSR2);
        if (i == 200)
            pthread_join(start(nothing, unused), NULL);
    }
}

// Statistics at any point of malloc, asked for by another process. 1: of a forked child.
static void stormed(long forked)
{
    if (!under_ebbtide())
        skip("SIGUSR2 would end the process");
    if (getenv("HOSTILE_AGAIN") != NULL) {
        is_asked(NULL);
        _exit(0);
    }
    setenv("HOSTILE_AGAIN", "1", 1);
    int file = memfd_create("stderr", MFD_CLOEXEC);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(file, 2);
        if (!forked)
            runs_again("stormed");
        is_asked(NULL);
        _exit(0);
    }
    nap_ms(200);
    for (int i = 0; i < 500; i++) {
        kill(child, SIGUSR2);
        nap_ms(2);
    }
    int status = await_child(child, 20);
    MUST(status == 0, "%s", status_text(status));
    MUST(lseek(file, 0, SEEK_END) > 100, "no statistics");
}

int main(int argc, char **argv)
{
    static const struct topic topics[] = {
        {"own_handler", own_handler}, {"waited", waited}, {"stormed", stormed}, {NULL, NULL}};
    run_topic(topics, argc, argv);
    return pass("no signal was lost");
}
