// SPDX-License-Identifier: MIT OR Apache-2.0
// Memory that is locked. Address space that is only reserved must not be locked or count; purges are
// refused by the kernel then (madvise fails), and a block of calloc must be clear all the same.
#include "hostile.h"
#include <malloc.h>

static void *works(void *unused)
{
    unsigned seed = 3;
    churn(&seed, 3000);
    return unused;
}

// What was freed, and could not be returned, comes back by calloc.
static void calloc_must_be_clear(size_t size)
{
    enum { COUNT = 2000 };
    static unsigned char *blocks[COUNT];
    size_t count = 40 * (size_t)MIB / size < COUNT ? 40 * (size_t)MIB / size : COUNT;
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < count; i++) {
            blocks[i] = malloc(size);
            MUST(blocks[i] != NULL, "malloc(%zu): %s", size, strerror(errno));
            memset(blocks[i], 0xa5, size);
        }
        for (size_t i = 0; i < count; i++)
            free(blocks[i]);
        if (round == 1)
            malloc_trim(0);
        if (round == 2)
            nap_ms(1200);
        for (size_t i = 0; i < count; i++) {
            blocks[i] = calloc(1, size);
            MUST(blocks[i] != NULL, "calloc(%zu): %s", size, strerror(errno));
            for (size_t k = 0; k < size; k++)
                MUST(blocks[i][k] == 0, "calloc(%zu) has 0x%x at %zu", size, blocks[i][k], k);
        }
        for (size_t i = 0; i < count; i++)
            free(blocks[i]);
    }
}

static void work(int with_threads)
{
    static const size_t sizes[] = {64, 3000, 20000, 100000, 5 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        calloc_must_be_clear(sizes[i]);
    for (int i = 0; i < 3 && with_threads; i++) {
        pthread_t thread = start(works, NULL);
        pthread_join(thread, NULL);
    }
    unsigned seed = 5;
    churn(&seed, 10000);
}

// As root: nothing is refused, but what is reserved must not become memory.
static void as_root(long unused)
{
    (void)unused;
    unsigned seed = 1;
    churn(&seed, 1000);
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        skip("mlockall: %s", strerror(errno));
    work(1);
    long have = proc_number("/proc/self/status", "\nVmHWM:");
    MUST(have <= 200 * KIB, "%ld KiB were resident", have);
}

// 100 MiB are filled with blocks, freed, and go home, locked or not.
static void goes_home(long size)
{
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        skip("mlockall: %s", strerror(errno));
    size_t count = 100 * (size_t)MIB / (size_t)size;
    char **blocks = malloc(count * sizeof *blocks);
    MUST(blocks != NULL, "malloc");
    for (size_t i = 0; i < count; i++) {
        blocks[i] = malloc((size_t)size);
        MUST(blocks[i] != NULL, "malloc(%ld)", size);
        memset(blocks[i], 1, (size_t)size);
    }
    for (size_t i = 0; i < count; i++)
        free(blocks[i]);
    free(blocks);
    void *page = mmap(NULL, 1 << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || madvise(page, 1 << 12, 24) != 0) // MADV_DONTNEED_LOCKED
        skip("a kernel before 5.18");
    malloc_trim(0);
    MUST(resident() <= 40 * MIB, "%ld KiB resident after the trim", resident() / KIB);
}

static void drop_root(void)
{
    if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        skip("setuid: %s", strerror(errno));
}

// With a limit in MiB and without the right to exceed it.
static void limited(long mib)
{
    struct rlimit limit = {(rlim_t)(mib * MIB), (rlim_t)(mib * MIB)};
    unsigned seed = 1;
    churn(&seed, 1000);
    long space = proc_number("/proc/self/status", "\nVmSize:"); // what the kernel compares
    MUST(space * KIB <= mib * MIB, "mlockall would fail: %ld KiB of address space", space);
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        skip("setrlimit: %s", strerror(errno));
    drop_root();
    MUST(mlockall(MCL_CURRENT) == 0, "mlockall of %ld KiB: %s",
         proc_number("/proc/self/status", "\nVmSize:"), strerror(errno));
    MUST(mlockall(MCL_CURRENT | MCL_FUTURE) == 0, "mlockall, the future too: %s", strerror(errno));
    for (int round = 0; round < 20; round++) {
        void *blocks[100];
        for (int i = 0; i < 100; i++) {
            blocks[i] = malloc(20000);
            MUST(blocks[i] != NULL, "no memory below the limit");
            memset(blocks[i], 1, 20000);
        }
        for (int i = 0; i < 100; i++)
            free(blocks[i]);
    }
    churn(&seed, 10000);
}

static atomic_int go;

static void *waits_then_works(void *unused)
{
    while (!atomic_load(&go))
        nap_ms(5);
    for (int i = 0; i < 5; i++) {
        void *large = malloc(20 << 20);
        if (large != NULL)
            memset(large, 1, 20 << 20);
        free(large);
        works(NULL);
        nap_ms(300);
    }
    return unused;
}

// No thread may be started any more, by nobody, while those that there are go on.
static void no_more_threads(void *unused)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        threads[i] = start(waits_then_works, unused);
    drop_root();
    struct rlimit limit = {0, 0};
    if (setrlimit(RLIMIT_NPROC, &limit) != 0)
        skip("setrlimit: %s", strerror(errno));
    pthread_t refused;
    if (pthread_create(&refused, NULL, works, NULL) == 0)
        skip("threads are not limited");
    atomic_store(&go, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 200; i++)
        MUST(pthread_create(&refused, NULL, works, NULL) != 0, "created");
    work(0);
    long have = resident_within(4000, 60 * MIB);
    MUST(have <= 60 * MIB, "%ld KiB resident at the end", have / KIB);
}

static void no_threads(long unused)
{
    (void)unused;
    char err[4096];
    int status = run_child(no_more_threads, NULL, 40, err, sizeof err);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        _exit(77);
    MUST(status == 0 && err[0] == 0, "%s, stderr: %s", status_text(status), err);
}

static void must_end(const volatile char *p, int ends, const char *what)
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        (void)*p;
        _exit(0);
    }
    int status;
    MUST(child > 0 && waitpid(child, &status, 0) == child, "no child: %s", strerror(errno));
    MUST(WIFSIGNALED(status) == ends, "%s: %s", what, status_text(status));
}

static void must_be_fenced(const char *empty, const char *used, const char *freed, const char *when)
{
    must_end(empty, 1, when);
    must_end(used, 0, when);
    must_end(used + 200000 + 4096, 1, when);
    must_end(freed, 1, when);
}

static void guarded_round(void)
{
    for (int i = 0; i < 1500; i++) {
        free(malloc(0));
        free(memset(malloc(140000), 1, 140000));
    }
}

// With EBB_CHECK: what was fenced before, and what is while memory is locked, of which the kernel refuses markers.
static void guards(long unused)
{
    (void)unused;
    char *old[] = {malloc(0), malloc(200000), malloc(200000)};
    free(old[2]);
    must_be_fenced(old[0], old[1], old[2], "before");
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        skip("mlockall: %s", strerror(errno));
    char *locked[] = {malloc(0), malloc(200000), malloc(200000)};
    free(locked[2]);
    must_be_fenced(locked[0], locked[1], locked[2], "locked");
    must_be_fenced(old[0], old[1], old[2], "from before");
    guarded_round();
    free(old[1]);
    must_end(old[1], 1, "freed meanwhile");
    munlockall();
    guarded_round();
    must_end(locked[0], 1, "unlocked");
    must_end(locked[1], 0, "unlocked");
    free(locked[0]);
    free(locked[1]);
    guarded_round();
}

int main(int argc, char **argv)
{
    static const struct topic topics[] = {{"root", as_root},          {"guards", guards},
                                          {"goes_home", goes_home},   {"limited", limited},
                                          {"no_threads", no_threads}, {NULL, NULL}};
    run_topic(topics, argc, argv);
    return pass("%ld KiB locked at most", proc_number("/proc/self/status", "\nVmHWM:"));
}
