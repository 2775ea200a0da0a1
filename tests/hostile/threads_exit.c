// SPDX-License-Identifier: MIT OR Apache-2.0
// The end of a process that has threads: main leaves by pthread_exit, or exit() comes while the
// others allocate.
#include "hostile.h"

static void *busy(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (;;)
        churn(&seed, 1000);
    return NULL;
}

static void *goes_on(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    double end = now() + 1.2;
    while (now() < end) {
        churn(&seed, 3000);
        char *large = malloc((size_t)(5 * MIB));
        if (large != NULL)
            memset(large, 1, (size_t)(5 * MIB));
        free(large);
        nap_ms(20);
    }
    return NULL;
}

static void leave_by_thread_exit(void *threads)
{
    for (long i = 0; i < (long)threads; i++)
        pthread_detach(start(goes_on, (void *)(i + 1)));
    unsigned seed = 1;
    churn(&seed, 20000);
    pthread_exit(NULL);
}

// exit() with three threads in the allocator; the moment moves with the round.
static void exits_at_once(void *round)
{
    for (long i = 0; i < 3; i++)
        pthread_detach(start(busy, (void *)(i + 1)));
    struct timespec nap = {0, (long)round * 20000L};
    nanosleep(&nap, NULL);
    exit(0);
}

static void *naps(void *ms)
{
    nap_ms((long)ms);
    return NULL;
}

// Whoever runs them: signals reach it, and it has room.
static void must_be_of_the_program(void)
{
    char name[32] = "";
    sigset_t blocked;
    prctl(PR_GET_NAME, name);
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    MUST(sigismember(&blocked, SIGUSR1) == 0, "exit handlers run in %s, signals blocked", name);
    volatile char room[MIB];
    room[0] = 1; // at its far end
    MUST(room[0] == 1, "no room");
}

static void leave_with_handlers(void *threads)
{
    atexit(must_be_of_the_program);
    for (long i = 0; i < (long)threads; i++)
        pthread_detach(start(naps, (void *)(i * 150)));
    free(malloc(100));
    pthread_exit(NULL);
}

static void may_exit(void)
{
    unsigned seed = 9;
    churn(&seed, 1000);
}

static void expect_zero(void (*body)(void *), long argument)
{
    char err[4096];
    int status = run_child(body, (void *)argument, 20, err, sizeof err);
    MUST(status == 0, "round %ld: %s, stderr: %s", argument, status_text(status), err);
}

// The process ends with its last thread, which is to be one of the program's.
static void exit_handlers(long unused)
{
    (void)unused;
    for (long round = 0; round < 20; round++)
        expect_zero(leave_with_handlers, round % 4);
}

static void main_leaves(long unused)
{
    (void)unused;
    for (long threads = 1; threads <= 4; threads++)
        expect_zero(leave_by_thread_exit, threads);
}

static void exit_early(long unused)
{
    (void)unused;
    atexit(may_exit);
    for (long round = 0; round < 200; round++)
        expect_zero(exits_at_once, round);
}

int main(int argc, char **argv)
{
    static const struct topic topics[] = {{"main_leaves", main_leaves},
                                          {"exit", exit_early},
                                          {"exit_handlers", exit_handlers},
                                          {NULL, NULL}};
    run_topic(topics, argc, argv);
    return pass("all ended");
}
