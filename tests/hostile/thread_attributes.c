// SPDX-License-Identifier: MIT OR Apache-2.0
// What a thread that the library starts takes from the program: nothing. Not the policy, nice value,
// processors, rights or user of the thread that happened to cause its start. And it stays.
#include "hostile.h"
#include <dirent.h>
#include <linux/capability.h>
#include <sys/syscall.h>

static cpu_set_t at_start;
static int nice_at_start;
static int seen;

// Calls look(tid) for each thread of the library that there is now; how many.
static int each_helper(void (*look)(pid_t thread))
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    MUST(tasks != NULL, "/proc/self/task: %s", strerror(errno));
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        char path[300], name[32] = "";
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", entry->d_name);
        int file = open(path, O_RDONLY);
        if (file < 0)
            continue;
        if (read(file, name, sizeof name - 1) < 0)
            name[0] = 0;
        close(file);
        if (strcmp(name, "ebb-purge\n") != 0)
            continue;
        look((pid_t)atoi(entry->d_name));
        count++;
    }
    closedir(tasks);
    seen += count;
    return count;
}

static void *frees_much(void *unused)
{
    enum { COUNT = 2000 };
    static _Thread_local void *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(20000);
        MUST(blocks[i] != NULL, "no memory");
        memset(blocks[i], 1, 20000);
    }
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
    return unused;
}

// Looks for two seconds while threads free.
static void watch(void (*look)(pid_t thread))
{
    for (int round = 0; round < 4; round++) {
        pthread_join(start(frees_much, NULL), NULL);
        for (int i = 0; i < 25; i++) {
            each_helper(look);
            nap_ms(20);
        }
    }
}

static void look_at_scheduling(pid_t thread)
{
    cpu_set_t now_set;
    int policy = sched_getscheduler(thread);
    MUST(policy <= 0, "the library's thread has policy %d", policy);
    if (sched_getaffinity(thread, sizeof now_set, &now_set) == 0)
        MUST(CPU_EQUAL(&now_set, &at_start), "the library's thread is on %d of %d processors",
             CPU_COUNT(&now_set), CPU_COUNT(&at_start));
    errno = 0;
    int nice_value = getpriority(PRIO_PROCESS, (id_t)thread);
    if (errno == 0)
        MUST(nice_value == nice_at_start, "the library's thread has nice value %d", nice_value);
}

static atomic_int waits;

// The thread that causes the start keeps its attributes and stays.
static void *odd_one(void *kind)
{
    if ((long)kind == 0) {
        struct sched_param param = {.sched_priority = 10};
        if (sched_setscheduler(0, SCHED_FIFO, &param) != 0)
            skip("SCHED_FIFO: %s", strerror(errno));
    } else if ((long)kind == 1) {
        cpu_set_t one;
        CPU_ZERO(&one);
        for (int i = 0; i < CPU_SETSIZE; i++)
            if (CPU_ISSET(i, &at_start)) {
                CPU_SET(i, &one);
                break;
            }
        MUST(sched_setaffinity(0, sizeof one, &one) == 0, "affinity: %s", strerror(errno));
    } else {
        MUST(setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 15) == 0, "setpriority");
    }
    for (int i = 0; i < 5; i++) {
        frees_much(NULL);
        for (int k = 0; k < 10; k++) {
            each_helper(look_at_scheduling);
            nap_ms(20);
        }
    }
    atomic_fetch_add(&waits, 1);
    return NULL;
}

static void odd(long kind)
{
    pthread_t thread = start(odd_one, (void *)kind);
    for (int i = 0; !atomic_load(&waits) && i < 1000; i++) {
        each_helper(look_at_scheduling);
        nap_ms(10);
    }
    pthread_join(thread, NULL);
}

static void look_at_rights(pid_t thread)
{
    char path[100];
    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)thread);
    char text[4096];
    int file = open(path, O_RDONLY);
    if (file < 0)
        return;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length < 0 ? 0 : length] = 0;
    const char *rights = strstr(text, "\nCapEff:");
    if (rights != NULL)
        MUST(strtoull(rights + 8, NULL, 16) == 0, "the library's thread has rights %.17s",
             rights + 8);
}

// The only thread gives up its rights; what the library starts later has none. With `late`, there
// were threads before (all joined), and the library's own may still be there.
static void capabilities(long late)
{
    if (late) {
        for (int i = 0; i < 3; i++)
            pthread_join(start(frees_much, NULL), NULL);
    }
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
    MUST(syscall(SYS_capset, &header, none) == 0, "capset: %s", strerror(errno));
    watch(look_at_rights);
}

static void look_at_user(pid_t thread)
{
    char path[100];
    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)thread);
    long user = proc_number(path, "\nUid:");
    MUST(user == 65534 || user == -1, "the library's thread has user %ld", user);
}

static void *frees_slowly(void *unused)
{
    for (int i = 0; i < 10; i++) {
        frees_much(NULL);
        nap_ms(100);
    }
    return unused;
}

// setuid changes all threads, by a signal of libc: it must not hang, nor leave one out.
static void user(long unused)
{
    (void)unused;
    if (getuid() != 0)
        skip("not root");
    pthread_t thread = start(frees_much, NULL);
    frees_much(NULL);
    pthread_join(thread, NULL);
    thread = start(frees_slowly, NULL);
    nap_ms(100);
    MUST(setgid(65534) == 0 && setuid(65534) == 0, "setuid: %s", strerror(errno));
    watch(look_at_user);
    pthread_join(thread, NULL);
}

static pid_t found;

static void note(pid_t thread) { found = thread; }

// A process of several threads leaves no namespace that wants one: nobody has to make way, again and again.
static void stays(long unused)
{
    (void)unused;
    pthread_t thread = start(frees_slowly, NULL);
    for (int i = 0; each_helper(note) == 0 && i < 100; i++)
        nap_ms(10);
    MUST(found != 0, "there is none");
    pid_t first = found;
    for (int i = 0; i < 20; i++) {
        if (unshare(CLONE_FS) != 0)
            skip("unshare: %s", strerror(errno));
        each_helper(note);
        MUST(found == first, "thread %d is another than %d", (int)found, (int)first);
    }
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    static const struct topic topics[] = {{"odd", odd},
                                          {"capabilities", capabilities},
                                          {"user", user},
                                          {"stays", stays},
                                          {NULL, NULL}};
    sched_getaffinity(0, sizeof at_start, &at_start);
    nice_at_start = getpriority(PRIO_PROCESS, 0);
    run_topic(topics, argc, argv);
    return pass("a thread of the library was looked at %d times", seen);
}
