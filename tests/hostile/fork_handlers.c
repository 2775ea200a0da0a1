// SPDX-License-Identifier: MIT OR Apache-2.0
// A program's own fork handlers, registered before it has allocated anything: they may allocate, wait for
// threads that allocate, and create threads, as nothing of the allocator is locked around them.
//   fork_handlers allocate|join|create THREADS
#include "hostile.h"

static void (*handler)(void);
static atomic_int stop;
static pthread_t threads[8];
static long count;
static void *kept;

static void *churns(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    while (!atomic_load(&stop))
        churn(&seed, 200);
    return NULL;
}

static void allocates(void)
{
    free(kept);
    kept = malloc(100);
    unsigned seed = 5;
    churn(&seed, 300);
}

static void joins(void)
{
    atomic_store(&stop, 1);
    for (long i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    count = 0;
    allocates();
}

static void creates(void)
{
    unsigned seed = 3;
    churn(&seed, 10);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, churns, NULL) == 0, "pthread_create in a handler");
    int before = atomic_exchange(&stop, 1);
    pthread_join(thread, NULL);
    atomic_store(&stop, before);
}

static void handle(void) { handler(); }

static void forks(void *how)
{
    static void (*const all[])(void) = {allocates, joins, creates};
    handler = all[(long)how];
    MUST(pthread_atfork(handle, handle, handle) == 0, "pthread_atfork");
    for (long i = 0; i < count; i++)
        threads[i] = start(churns, (void *)(i + 1));
    nap_ms(5);
    for (int round = 0; round < 20; round++) {
        pid_t child = fork();
        MUST(child >= 0, "fork: %s", strerror(errno));
        if (child == 0) {
            allocates();
            _exit(0);
        }
        int status;
        MUST(waitpid(child, &status, 0) == child && status == 0, "the child: %s",
             status_text(status));
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    MUST(argc == 3, "usage: fork_handlers allocate|join|create THREADS");
    long how = argv[1][0] == 'a' ? 0 : argv[1][0] == 'j' ? 1 : 2;
    count = atol(argv[2]);
    char err[4096];
    int status = run_child(forks, (void *)how, 20, err, sizeof err);
    MUST(status == 0, "%s, stderr: %s", status_text(status), err);
    return pass("handlers ran");
}
