// SPDX-License-Identifier: MIT OR Apache-2.0
// fork() at bad moments: while other threads hold stdio's locks and allocate under them, and in
// signal handlers that interrupt malloc. A fork must return, in both processes.
#include "hostile.h"
#include <dirent.h>
#include <sys/time.h>

static atomic_int stop;
static atomic_long rounds[4];

static void *forks(void *unused)
{
    while (!atomic_load(&stop)) {
        pid_t child = fork();
        if (child == 0) {
            void *p = malloc(1000);
            free(p);
            _exit(p == NULL);
        }
        MUST(child > 0, "fork: %s", strerror(errno));
        int status = 1;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            continue;
        MUST(status == 0, "a child ended with %s", status_text(status));
        atomic_fetch_add(&rounds[0], 1);
    }
    return unused;
}

// getline grows its buffer, to sizes of every kind, with the stream's lock held.
static void *reads_lines(void *unused)
{
    FILE *file = tmpfile();
    MUST(file != NULL, "tmpfile");
    for (int length = 10; length < 2000000; length = length * 3 / 2) {
        for (int i = 0; i < length; i++)
            putc_unlocked('x', file);
        putc_unlocked('\n', file);
    }
    while (!atomic_load(&stop)) {
        rewind(file);
        char *line = NULL;
        size_t size = 0;
        while (getline(&line, &size, file) > 0) {
            free(line);
            line = NULL;
            size = 0;
            atomic_fetch_add(&rounds[1], 1);
        }
        free(line);
    }
    fclose(file);
    return unused;
}

static void *flushes(void *unused)
{
    while (!atomic_load(&stop)) {
        fflush(NULL);
        atomic_fetch_add(&rounds[2], 1);
    }
    return unused;
}

// fopen and fclose allocate and free with the list of streams locked or nearly so.
static void *opens(void *unused)
{
    while (!atomic_load(&stop)) {
        FILE *file = fopen("/dev/null", "w");
        if (file == NULL)
            continue;
        fprintf(file, "%s", "text");
        fclose(file);
        atomic_fetch_add(&rounds[3], 1);
    }
    return unused;
}

static void stdio(long seconds)
{
    void *(*const bodies[])(void *) = {forks, reads_lines, reads_lines, flushes, opens};
    pthread_t threads[5];
    for (int i = 0; i < 5; i++)
        threads[i] = start(bodies[i], NULL);
    for (long i = 0, last = 0; i < scaled(seconds); i++) {
        nap_ms(1000);
        long done = atomic_load(&rounds[0]);
        for (int more = 0; done == last && more < 20; more++) {
            nap_ms(500);
            done = atomic_load(&rounds[0]);
        }
        MUST(done > last, "hung after %ld forks, %ld reads, %ld flushes, %ld opens", done,
             atomic_load(&rounds[1]), atomic_load(&rounds[2]), atomic_load(&rounds[3]));
        last = done;
    }
    atomic_store(&stop, 1);
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 15;
    for (int i = 0; i < 5; i++)
        MUST(pthread_timedjoin_np(threads[i], NULL, &limit) == 0,
             "thread %d hung at its end, %ld forks, %ld reads, %ld flushes, %ld opens", i,
             atomic_load(&rounds[0]), atomic_load(&rounds[1]), atomic_load(&rounds[2]),
             atomic_load(&rounds[3]));
}

static int child_allocates;
static volatile sig_atomic_t forked, failed_children;
static volatile int last_status;

static void on_alarm(int unused)
{
    (void)unused;
    int saved = errno;
    pid_t child = fork();
    if (child == 0) {
        alarm(20); // its default action: a hung child ends
        signal(SIGALRM, SIG_DFL);
        if (child_allocates)
            for (size_t size = 16; size < 5000; size += 48)
                free(malloc(size));
        _exit(0);
    }
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (status != 0) {
        failed_children++;
        last_status = status;
    }
    forked++;
    errno = saved;
}

static void *nothing(void *unused) { return unused; }

static int tasks(void)
{
    DIR *folder = opendir("/proc/self/task");
    MUST(folder != NULL, "/proc/self/task: %s", strerror(errno));
    int count = -2; // . and ..
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

enum { NO_THREADS, THREADS_GONE, HELPER_LEFT };
static int threads_kind;

static void forks_in_handlers(void *unused)
{
    (void)unused;
    for (int i = 0; threads_kind != NO_THREADS && i < 3; i++)
        pthread_join(start(nothing, NULL), NULL);
    while (threads_kind == THREADS_GONE && tasks() > 1)
        usleep(1000);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    unsigned seed = 1;
    while (forked < 2000)
        churn(&seed, 500);
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, NULL);
    if (failed_children != 0)
        say(2, "%d children failed, the last with %s", (int)failed_children,
            status_text(last_status));
    _exit(failed_children != 0);
}

// The first is what a program may count on, and what glibc's malloc survives; the others are more.
// 0: children leave at once; 1: they allocate, although malloc was interrupted; +10: there were threads, and
// nothing of them is left; +20: the helper is: it may be at work, and the library ends the process by a line.
static void handler(long kind)
{
    char err[4096];
    child_allocates = (int)(kind % 10);
    threads_kind = (int)(kind / 10);
    int status = run_child(forks_in_handlers, NULL, 50, err, sizeof err);
    MUST(status == 0 || (threads_kind == HELPER_LEFT && ended_by_the_library(status, err)),
         "%s, stderr: %s", status_text(status), err);
}

int main(int argc, char **argv)
{
    static const struct topic topics[] = {{"stdio", stdio}, {"handler", handler}, {NULL, NULL}};
    run_topic(topics, argc, argv);
    return pass("%ld forks", atomic_load(&rounds[0]));
}
