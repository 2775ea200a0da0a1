// SPDX-License-Identifier: MIT OR Apache-2.0
// What befalls a recorded process: forks, closed descriptors, limits, signals. It prints the same with and without
// the recorder. bad_day CASE [ARGUMENT]
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEPT = 4000 };

static void *kept[KEPT];
extern char **environ;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char line[256];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (write(1, line, (size_t)length) != length) {
        _exit(8);
    }
}

static void churn(unsigned seed, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        void **place = &kept[rand_r(&seed) % KEPT];
        size_t size = (size_t)rand_r(&seed) % 500 + (i % 500 == 0 ? 150000 : 0);
        if (rand_r(&seed) % 3 == 0 && *place != NULL) {
            *place = realloc(*place, size + 1);
        } else {
            free(*place);
            *place = malloc(size);
        }
        if (*place != NULL && size > 0) {
            memset(*place, 1, size);
        }
    }
}

static void *other_thread(void *rounds)
{
    void *own[64] = {0};
    for (long i = 0; i < (long)rounds; i++) {
        free(own[i % 64]);
        own[i % 64] = malloc((size_t)(i * 37 % 700));
    }
    for (int i = 0; i < 64; i++) {
        free(own[i]);
    }
    return NULL;
}

static pthread_t start(long rounds)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, other_thread, (void *)rounds) != 0) {
        say("no thread\n");
        _exit(7);
    }
    return thread;
}

static void await(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    say("child ended with %d\n", status);
}

// Each generation frees what it has inherited, goes on, and forks again.
static void do_fork(long depth)
{
    churn(1, 20000);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        threads[i] = start(300000);
    }
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            churn((unsigned)i, 10000);
            if (depth > 0) {
                do_fork(depth - 1);
            }
            pthread_join(start(1000), NULL);
            exit(i);
        }
        churn((unsigned)depth, 1000);
        await(child);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void do_spawn(long unused)
{
    (void)unused;
    churn(1, 5000);
    char *words[] = {(char *)"echo", (char *)"spawned", NULL};
    pid_t child;
    if (posix_spawnp(&child, "echo", NULL, NULL, words, environ) == 0) {
        await(child);
    }
    say("system: %d\n", system("echo from system"));
    child = vfork();
    if (child == 0) {
        execlp("echo", "echo", "vfork", (char *)NULL);
        _exit(127);
    }
    await(child);
    FILE *pipe = popen("echo popen", "r");
    char line[64] = "";
    say("%s", fgets(line, sizeof line, pipe));
    say("pclose: %d\n", pclose(pipe));
    churn(2, 5000);
}

static void do_exec(long left)
{
    churn((unsigned)left, 20000);
    char number[32];
    snprintf(number, sizeof number, "%ld", left - 1);
    say("exec %ld\n", left);
    if (left > 0) {
        execl("/proc/self/exe", "again", "exec", number, (char *)NULL);
    }
}

// SIGKILL, SIGSEGV, SIGABRT or, 0, _exit, beside threads that allocate.
static void do_end(long how)
{
    churn(1, 100000);
    start(100000000);
    start(100000000);
    churn(2, 100000);
    usleep(20000);
    say("ends by %ld\n", how);
    if (how == SIGABRT) {
        abort();
    }
    if (how == SIGSEGV) {
        *(volatile int *)NULL = 1;
    }
    if (how != 0) {
        kill(getpid(), (int)how);
    }
    _exit(3);
}

static void close_all(long how)
{
    if (how == 0) {
        closefrom(3);
    } else if (how == 1) {
        for (int fd = 3; fd < 1024; fd++) {
            close(fd);
        }
    } else {
        for (int fd = 3; fd < 1024; fd++) {
            dup2(1, fd);
        }
    }
}

// It goes on in several threads, and writes a file of its own, which nobody else may write into.
static void do_close(long how)
{
    churn(1, 30000);
    close_all(how);
    FILE *own = tmpfile();
    for (int i = 0; i < 20; i++) {
        churn((unsigned)i, 10000);
        pthread_join(start(50000), NULL);
        close_all(how < 2 ? how : 1);
        if (own != NULL) {
            fclose(own); // says EBADF
        }
        own = tmpfile();
        fprintf(own, "round %d\n", i);
        fflush(own);
        say("%ld bytes, descriptor %d\n", (long)lseek(fileno(own), 0, SEEK_END), fileno(own) > 2);
    }
}

static void do_daemon(long unused)
{
    (void)unused;
    churn(1, 20000);
    int ends[2];
    if (pipe(ends) != 0) {
        _exit(6);
    }
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 0);
        if (daemon(0, 1) == 0) {
            closefrom(3);
            churn(3, 20000);
            pthread_join(start(30000), NULL);
            (void)!write(1, "daemon\n", 7);
        }
        _exit(0);
    }
    await(child);
    close(ends[1]);
    churn(4, 20000);
    sleep(1);
}

static void do_root(long how)
{
    churn(1, 20000);
    int error = how == 0 ? chdir("/") : how == 1 ? chroot("/proc") : setuid(65534);
    say("%d\n", error);
    churn(2, 100000);
    pthread_join(start(100000), NULL);
    pid_t child = fork();
    if (child == 0) {
        churn(3, 10000);
        _exit(0);
    }
    await(child);
}

static void do_limit(long what)
{
    static const struct {
        __rlimit_resource_t which;
        rlim_t most;
    } LIMITS[] = {{RLIMIT_FSIZE, 300000}, {RLIMIT_NOFILE, 16}, {RLIMIT_AS, 500 << 20}};
    struct rlimit limit = {LIMITS[what].most, LIMITS[what].most};
    say("%d\n", setrlimit(LIMITS[what].which, &limit));
    for (int i = 0; i < 20; i++) {
        churn((unsigned)i, 50000);
        pthread_t threads[3];
        for (int n = 0; n < 3; n++) {
            threads[n] = start(20000);
        }
        for (int n = 0; n < 3; n++) {
            pthread_join(threads[n], NULL);
        }
    }
}

static void on_alarm(int unused)
{
    (void)unused;
    free(malloc(200));
}

// Not allowed, and done: a handler that allocates. Of glibc's calls only those that do not lock stand it.
static void do_handler(long unused)
{
    (void)unused;
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 500}, {0, 500}}, NULL);
    for (int i = 0; i < 300; i++) {
        churn((unsigned)i, 1000);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
}

static volatile sig_atomic_t forks;

static void on_alarm_fork(int unused)
{
    (void)unused;
    int saved = errno;
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    waitpid(child, NULL, 0);
    forks++;
    errno = saved;
}

// Allowed: a handler that forks, in a process of one thread.
static void do_handler_forks(long least)
{
    struct sigaction action = {.sa_handler = on_alarm_fork, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 700}, {0, 700}}, NULL);
    while (forks < least) {
        churn((unsigned)forks, 1000);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
}

static void *until_cancelled(void *unused)
{
    for (unsigned i = 0; i != UINT32_MAX; i++) {
        free(malloc(i % 700));
        if (i % 10000 == 9999) {
            pthread_testcancel();
        }
    }
    return unused;
}

// malloc is no point where a thread is cancelled: each ends in its own testcancel.
static void do_cancel(long count)
{
    for (long i = 0; i < count; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, until_cancelled, NULL);
        usleep(i % 7 == 0 ? 0 : (useconds_t)(i * 97 % 3000));
        pthread_cancel(thread);
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED) {
            say("not cancelled\n");
        }
        churn((unsigned)i, 1000);
    }
}

static void *small_thread(void *unused)
{
    churn(7, 30000);
    return unused;
}

static void do_small_stack(long unused)
{
    (void)unused;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    say("%d\n", pthread_attr_setstacksize(&attributes, 16384 + 4096));
    pthread_t thread;
    say("%d\n", pthread_create(&thread, &attributes, small_thread, NULL));
    pthread_join(thread, NULL);
}

static void do_libraries(long count)
{
    for (long i = 0; i < count; i++) {
        void *library = dlopen("libm.so.6", RTLD_NOW);
        void *other = dlopen("libz.so.1", RTLD_NOW);
        say("%d\n", library != NULL);
        churn((unsigned)i, 1000);
        dlclose(library);
        if (other != NULL) {
            dlclose(other);
        }
    }
}

static void *thread_of_large(void *from)
{
    void **blocks = from;
    for (int i = 0; i < 50; i++) {
        free(blocks[i]);
    }
    return NULL;
}

// Large blocks that end in threads which are not recorded, since the recording has stopped.
static void do_large_after_stop(long unused)
{
    (void)unused;
    void *blocks[100];
    struct rlimit limit = {20000, 20000};
    for (int i = 0; i < 100; i++) {
        blocks[i] = malloc(200000);
    }
    setrlimit(RLIMIT_FSIZE, &limit);
    churn(1, 300000);
    pthread_t thread;
    pthread_create(&thread, NULL, thread_of_large, blocks);
    pthread_join(thread, NULL);
    for (int i = 50; i < 100; i++) {
        blocks[i] = realloc(blocks[i], 300000);
        free(blocks[i]);
    }
    say("large blocks are freed\n");
}

static void do_raw_fork(long how)
{
    churn(1, 20000);
    pid_t child = how == 0 ? (pid_t)syscall(SYS_fork) : _Fork();
    if (child == 0) {
        churn(2, 50000);
        _exit(0);
    }
    churn(3, 50000);
    await(child);
    churn(4, 20000);
}

static const struct {
    const char *name;
    void (*run)(long);
} CASES[] = {
    {"fork", do_fork},           {"spawn", do_spawn},
    {"exec", do_exec},           {"end", do_end},
    {"close", do_close},         {"daemon", do_daemon},
    {"root", do_root},           {"limit", do_limit},
    {"handler", do_handler},     {"handler_forks", do_handler_forks},
    {"cancel", do_cancel},       {"small_stack", do_small_stack},
    {"libraries", do_libraries}, {"large_after_stop", do_large_after_stop},
    {"raw_fork", do_raw_fork},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof CASES / sizeof CASES[0]; i++) {
        if (strcmp(argv[1], CASES[i].name) == 0) {
            CASES[i].run(argc > 2 ? atol(argv[2]) : 0);
            say("the end\n");
            return 0;
        }
    }
    return 2;
}
