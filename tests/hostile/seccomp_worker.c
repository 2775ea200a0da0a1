// SPDX-License-Identifier: MIT OR Apache-2.0
// A sandboxed worker: it sets itself up, forbids every system call but those that it and a malloc
// need, and works. A call outside of the list ends it, also when the allocator is who makes it.
#include "seccomp.h"
#include <ebbtide/reclaim.h>
#include <ebbtide/region.h>
#include <linux/futex.h>

static atomic_int go, finished;

// Like a kill, but it says which call it was. No thread can survive it.
static void on_violation(int unused, siginfo_t *info, void *context)
{
    (void)unused;
    (void)context;
    say(1, "failed: the filter was violated by system call %d", info->si_syscall);
    _exit(1);
}

static void sandbox_for(const int *allowed, size_t count)
{
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "%s", strerror(errno)); // as libseccomp does
    install_filter(allowed, count, SECCOMP_RET_ALLOW, SECCOMP_RET_TRAP);
}

#define BARE                                                                                       \
    SYS_read, SYS_write, SYS_exit, SYS_exit_group, SYS_futex, SYS_mmap, SYS_munmap, SYS_mprotect,  \
        SYS_madvise, SYS_brk, SYS_rt_sigreturn, SYS_clock_gettime, SYS_getpid, SYS_gettid

// Without membarrier, prctl, prlimit64, sched_yield and tgkill. The last ones are those of pthread_create.
static void sandbox(void)
{
    static const int allowed[] = {BARE,     SYS_rt_sigprocmask,  SYS_getcpu,      SYS_clone3,
                                  SYS_rseq, SYS_set_robust_list, SYS_rt_sigaction};
    sandbox_for(allowed, sizeof allowed / sizeof *allowed);
}

// What docs/deploy.md asks for, and what a worker of one thread uses itself.
static void sandbox_bare(void)
{
    static const int allowed[] = {BARE};
    sandbox_for(allowed, sizeof allowed / sizeof *allowed);
}

static void rest(void)
{
    static atomic_int nobody;
    const struct timespec ms = {0, 1000000};
    syscall(SYS_futex, &nobody, FUTEX_WAIT_PRIVATE, 0, &ms, NULL, 0);
}

// No sleep is allowed.
static void busy_seconds(double seconds)
{
    double end = now() + seconds;
    while (now() < end)
        continue;
}

static void use_and_free(size_t total)
{
    static const size_t sizes[] = {16, 100, 1000, 5000, 30000, 100000, 700000, 5000000, 40000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void **last = NULL;
        for (size_t have = 0; have < total / 8; have += sizes[i]) {
            void **p = malloc(sizes[i]);
            MUST(p != NULL, "malloc(%zu): %s", sizes[i], strerror(errno));
            memset(p, 1, sizes[i]);
            if (have % 3 == 0)
                p = realloc(p, sizes[i] + sizes[i] / 2);
            *p = last;
            last = p;
        }
        while (last != NULL) {
            void **next = *last;
            free(last);
            last = next;
        }
    }
}

static void *worker(void *unused)
{
    unsigned seed = 1;
    churn(&seed, 2000);
    while (!atomic_load(&go))
        rest();
    use_and_free((size_t)(100 * MIB));
    atomic_fetch_add(&finished, 1);
    return unused;
}

static void *brief(void *unused)
{
    use_and_free((size_t)(20 * MIB));
    return unused;
}

// The filter's process has no thread but main.
static void single(long unused)
{
    (void)unused;
    use_and_free((size_t)(10 * MIB));
    sandbox();
    use_and_free((size_t)(200 * MIB));
    busy_seconds(2);
    use_and_free((size_t)(50 * MIB));
}

// Threads worked, were joined, and then comes the filter, `ms` later.
static void joined(long ms)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        threads[i] = start(brief, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    nap_ms(ms);
    sandbox();
    use_and_free((size_t)(200 * MIB));
    busy_seconds(2);
    use_and_free((size_t)(50 * MIB));
}

static void threads_work(void)
{
    atomic_store(&go, 1);
    use_and_free((size_t)(200 * MIB));
    while (atomic_load(&finished) < 3)
        rest();
    busy_seconds(2);
    use_and_free((size_t)(50 * MIB));
}

// Threads live on below the filter.
static void threads(long unused)
{
    (void)unused;
    for (int i = 0; i < 3; i++)
        pthread_detach(start(worker, NULL));
    use_and_free((size_t)(10 * MIB));
    nap_ms(100);
    sandbox();
    threads_work();
}

// They begin below the filter, and so does the helper.
static void later(long unused)
{
    (void)unused;
    sandbox();
    for (int i = 0; i < 3; i++)
        pthread_detach(start(worker, NULL));
    threads_work();
}

static void *retires(void *unused)
{
    for (int i = 0; i < 200000; i++) {
        ebb_pin();
        void *p = malloc(100);
        MUST(p != NULL, "malloc: %s", strerror(errno));
        ebb_retire(p);
        ebb_unpin();
    }
    atomic_fetch_add(&finished, 1);
    while (!atomic_load(&go))
        rest();
    return unused;
}

// Threads that have pinned without fences sleep, and others retire on below the filter.
static void pins(long unused)
{
    (void)unused;
    for (int i = 0; i < 2; i++)
        pthread_detach(start(retires, NULL));
    while (atomic_load(&finished) < 2)
        rest();
    sandbox();
    pthread_detach(start(retires, NULL));
    while (atomic_load(&finished) < 3)
        rest();
    ebb_synchronize();
    MUST(ebb_collector_is_fenced(NULL), "fences did not take the place of membarriers");
}

static void *stays_pinned(void *unused)
{
    ebb_pin();
    atomic_store(&go, 1);
    for (;;)
        rest();
    return unused;
}

// Nothing that is retired can go, for long: who retires asks whether the pinned thread lives, and lets it run.
static void held_up(long unused)
{
    (void)unused;
    pthread_detach(start(stays_pinned, NULL));
    while (!atomic_load(&go))
        rest();
    sandbox();
    for (int i = 0; i < 300000; i++) {
        void *p = malloc(100);
        MUST(p != NULL, "malloc: %s", strerror(errno));
        ebb_retire(p);
    }
}

static void *waits(void *unused)
{
    for (;;)
        rest();
    return unused;
}

static void begin_and_sandbox(unsigned seed)
{
    start(waits, NULL);
    for (volatile unsigned i = chance(&seed) % 100000; i > 0; i--)
        continue;
    sandbox();
    for (int i = 0; i < 20; i++)
        rest();
    _exit(0);
}

// The filter comes while the helper is just beginning.
static void beginning(long unused)
{
    (void)unused;
    for (unsigned i = 0; i < 300; i++) {
        pid_t child = fork();
        MUST(child >= 0, "fork: %s", strerror(errno));
        if (child == 0)
            begin_and_sandbox(i);
        int status = await_child(child, 15);
        MUST(status == 0, "process %u: %s", i, status_text(status));
    }
}

// Without moving pages, for which the filter has no call.
static void grow_and_cut(char *p)
{
    static const size_t mib[] = {3, 50, 80, 30, 5, 1};
    MUST(p != NULL, "malloc: %s", strerror(errno));
    p[100] = 'x';
    for (size_t i = 0; i < sizeof mib / sizeof *mib; i++) {
        char *to = realloc(p, mib[i] * (size_t)MIB);
        MUST(to != NULL && to[100] == 'x', "realloc to %zu MiB", mib[i]);
        to[mib[i] * (size_t)MIB - 1] = 1;
        p = to;
    }
    free(p);
}

// Every kind of call, and what is left for later by some.
static void bare(long unused)
{
    (void)unused;
    struct ebb_domain *domain = ebb_domain_open("bare");
    char *before = realloc(malloc(1000), 4 * (size_t)MIB);
    sandbox_bare();
    use_and_free((size_t)(100 * MIB));
    grow_and_cut(before);
    grow_and_cut(malloc(40 * (size_t)MIB));
    grow_and_cut(malloc(1000));
    for (int i = 0; i < 20; i++) {
        ebb_retire(malloc(500 * (size_t)KIB));
        ebb_pin();
        ebb_unpin();
    }
    ebb_pin();
    for (int i = 0; i < 3000; i++)
        ebb_retire(malloc(50));
    ebb_unpin();
    ebb_pin();
    ebb_unpin();
    struct ebb_region *region = ebb_region_open(NULL);
    MUST(ebb_region_alloc(region, 100) != NULL, "region: %s", strerror(errno));
    struct ebb_region_stats of_region;
    ebb_region_stats_get(region, &of_region);
    MUST(of_region.resident_bytes > 0, "a region without a page");
    struct ebb_scope scope = ebb_domain_enter(domain);
    void *volatile p = malloc(100);
    ebb_leave(scope);
    struct ebb_lifetime_stats lines[4];
    (void)ebb_lifetimes_get(lines, 4);
    struct ebb_stats stats;
    ebb_stats_get(&stats);
    MUST(stats.live_bytes > 0, "nothing lives");
    ebb_synchronize();
    free(p);
    ebb_region_close(region);
    (void)ebb_trim();
}

static void frees_what_is_none(void *kind)
{
    size_t bytes = *(const size_t *)kind;
    void *volatile p = bytes == 0 ? (void *)0x1000 : malloc(bytes);
    signal(SIGSYS, SIG_DFL);
    sandbox_bare();
    free(p);
    free(p);
}

// The line is written whatever the filter says of the signals that end the process.
static void named(long unused)
{
    (void)unused;
    static size_t sizes[] = {0, 50, 50000, 50000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char err[2000];
        int status = run_child(frees_what_is_none, &sizes[i], 20, err, sizeof err);
        MUST(status != 0 && strstr(err, i == 0 ? "invalid free" : "double free") != NULL,
             "%zu bytes: %s, %s", sizes[i], status_text(status), err);
    }
}

// Of each the first byte: what the program fills of them is looked at where no filter may mind.
static void here_and_there(long unused)
{
    static const struct {
        size_t bytes;
        int count;
    } kinds[] = {{20000, 3000}, {200000, 300}, {5000000, 30}, {40000000, 8}};
    (void)unused;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        for (int k = 0; k < kinds[i].count; k++) {
            char *p = malloc(kinds[i].bytes);
            MUST(p != NULL, "malloc(%zu): %s", kinds[i].bytes, strerror(errno));
            *p = 1;
        }
    }
}

static void begins_below(void *topic)
{
    static const int forbidden[] = {SYS_mincore};
    signal(SIGSYS, SIG_DFL);
    install_filter(forbidden, 1, SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
    if (topic != NULL)
        execl("/proc/self/exe", "seccomp_worker", topic, NULL);
    unsigned char there[1];
    syscall(SYS_mincore, (uintptr_t)there & ~(uintptr_t)4095, 4096, there);
}

static bool has_huge_pages(void)
{
    char text[100] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    if (file != NULL) {
        (void)!fgets(text, sizeof text, file);
        fclose(file);
    }
    return strstr(text, "[madvise]") != NULL || strstr(text, "[always]") != NULL;
}

// The filter was there before the process. Nobody looks, unless the user says that it allows that.
static void before(long unused)
{
    (void)unused;
    char err[2000];
    int status = run_child(begins_below, "here_and_there", 30, err, sizeof err);
    MUST(status == 0, "%s, %s", status_text(status), err);
    status = run_child(begins_below, NULL, 30, err, sizeof err);
    MUST(status != HUNG && WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS,
         "the call is allowed: %s", status_text(status));
    if (!has_huge_pages())
        return;
    setenv("EBB_MINCORE", "1", 1);
    status = run_child(begins_below, "here_and_there", 30, err, sizeof err);
    MUST(status != HUNG && WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS,
         "nobody looks who was asked to: %s", status_text(status));
}

int main(int argc, char **argv)
{
    static const struct topic topics[] = {{"single", single},
                                          {"joined", joined},
                                          {"threads", threads},
                                          {"later", later},
                                          {"pins", pins},
                                          {"held_up", held_up},
                                          {"beginning", beginning},
                                          {"bare", bare},
                                          {"named", named},
                                          {"before", before},
                                          {"here_and_there", here_and_there},
                                          {NULL, NULL}};
    struct sigaction action = {.sa_sigaction = on_violation, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
    run_topic(topics, argc, argv);
    return pass("it lived in the sandbox");
}
