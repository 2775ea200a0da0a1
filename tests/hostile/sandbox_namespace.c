// SPDX-License-Identifier: MIT OR Apache-2.0
// Namespaces: a process whose threads have all been joined has one thread again and may enter a user
// namespace; /proc and /sys may be missing, and the root may be another when the first malloc comes.
#include "hostile.h"
#include <sys/mount.h>
#include <sys/stat.h>

static void *works(void *unused)
{
    enum { COUNT = 1024 };
    static _Thread_local char *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(16 * (size_t)KIB);
        MUST(blocks[i] != NULL, "no memory");
        memset(blocks[i], 1, 16 * (size_t)KIB);
    }
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
    return unused;
}

static void tries_unshare(void *unused)
{
    (void)unused;
    _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : 77);
}

// unshare(CLONE_NEWUSER) wants a process of one thread; `ms` after its threads' end.
static void user(long ms)
{
    char err[1000];
    if (run_child(tries_unshare, NULL, 5, err, sizeof err) != 0)
        skip("no user namespaces here");
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = start(works, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    nap_ms(ms);
    // The kernel may count a thread for a moment after it was joined.
    int error = 0;
    for (int i = 0; i < 20; i++) {
        error = unshare(CLONE_NEWUSER) == 0 ? 0 : errno;
        if (error == 0)
            break;
        struct timespec nap = {0, 1000000};
        nanosleep(&nap, NULL);
    }
    MUST(error == 0, "unshare: %s, %ld threads", strerror(error),
         proc_number("/proc/self/status", "\nThreads:"));
    works(NULL);
}

static void everything(void)
{
    unsigned seed = 1;
    churn(&seed, 5000);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = start(works, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    nap_ms(800);
    churn(&seed, 5000);
    pid_t child = fork();
    if (child == 0) {
        works(NULL);
        _exit(0);
    }
    int status = await_child(child, 10);
    MUST(status == 0, "the child: %s", status_text(status));
}

static void without_proc(void *program)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/proc", "tmpfs", 0, NULL) != 0 ||
        mount("none", "/sys", "tmpfs", 0, NULL) != 0)
        _exit(77);
    execl(path, program, "after_exec", NULL);
    _exit(3);
}

static void no_proc(long unused)
{
    (void)unused;
    char err[4096];
    int status = run_child(without_proc, "sandbox_namespace", 30, err, sizeof err);
    if (status != HUNG && WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip("no mounts here");
    MUST(status == 0 && err[0] == 0, "%s, stderr: %s", status_text(status), err);
}

static void after_exec(long unused)
{
    (void)unused;
    MUST(access("/proc/self", F_OK) != 0, "there is a /proc");
    everything();
    _exit(0); // without a line
}

static void in_chroot(void *directory)
{
    if (chroot(directory) != 0 || chdir("/") != 0)
        _exit(77);
    everything();
}

static void empty_root(long unused)
{
    (void)unused;
    char directory[] = "/tmp/hostile_XXXXXX", err[4096];
    MUST(mkdtemp(directory) != NULL, "mkdtemp: %s", strerror(errno));
    int status = run_child(in_chroot, directory, 30, err, sizeof err);
    rmdir(directory);
    if (status != HUNG && WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip("no chroot here");
    MUST(status == 0 && err[0] == 0, "%s, stderr: %s", status_text(status), err);
}

// No descriptor is free, and all that there were are closed: nothing of the library may need one, or
// hold one that the program closes.
static void no_descriptors(long unused)
{
    (void)unused;
    pthread_t thread = start(works, NULL);
    pthread_join(thread, NULL);
    for (int i = 3; i < 1024; i++)
        close(i);
    struct rlimit limit = {3, 3};
    MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit: %s", strerror(errno));
    everything();
}

int main(int argc, char **argv)
{
    static const struct topic topics[] = {{"user", user},
                                          {"no_proc", no_proc},
                                          {"after_exec", after_exec},
                                          {"empty_root", empty_root},
                                          {"no_descriptors", no_descriptors},
                                          {NULL, NULL}};
    run_topic(topics, argc, argv);
    return pass("as outside");
}
