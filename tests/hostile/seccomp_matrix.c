// SPDX-License-Identifier: MIT OR Apache-2.0
// One system call is refused (EPERM or ENOSYS), from before the start of the program or from its main
// on, and everything must go on: no hang, no crash, no word on stderr; success or ENOMEM.
//   seccomp_matrix <call> <errno's name> exec|main
#include "seccomp.h"
#include <malloc.h>

static const struct {
    const char *name;
    int number;
} calls[] = {
#define CALL(name)                                                                                 \
    {                                                                                              \
#name, SYS_##name                                                                          \
    }
#ifdef SYS_open
    CALL(open),
#endif
    CALL(membarrier),
    CALL(madvise),
    CALL(mremap),
    CALL(getcpu),
    CALL(mincore),
    CALL(sched_getaffinity),
    CALL(sched_setaffinity),
    CALL(sched_setscheduler),
    CALL(prctl),
    CALL(openat),
    CALL(clone3),
    CALL(mprotect),
    CALL(munmap),
    CALL(prlimit64),
    CALL(getrandom),
    CALL(rt_sigprocmask),
    CALL(clock_nanosleep),
    CALL(sched_yield),
    CALL(rseq),
    CALL(set_robust_list),
    CALL(getpid),
    CALL(gettid),
    CALL(readlinkat),
    CALL(uname),
    CALL(sysinfo),
    CALL(brk),
    CALL(capget),
    CALL(sched_getscheduler),
    CALL(pread64)};

static atomic_long refusals;

static void *must(void *p, size_t size)
{
    if (p == NULL) {
        MUST(errno == ENOMEM, "%zu bytes failed with errno %d", size, errno);
        atomic_fetch_add(&refusals, 1);
    }
    return p;
}

static void release(void *p)
{
    errno = EXFULL;
    free(p);
    MUST(errno == EXFULL, "free left errno %d", errno);
}

// Blocks of calloc are clear, whatever became of the purges before.
static void clears(size_t size)
{
    unsigned char *blocks[64];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 64; i++) {
            blocks[i] = must(malloc(size), size);
            if (blocks[i] != NULL)
                memset(blocks[i], 0xa5, size);
        }
        for (int i = 0; i < 64; i++)
            release(blocks[i]);
        if (round == 1)
            malloc_trim(0);
        for (int i = 0; i < 64; i++) {
            blocks[i] = must(calloc(1, size), size);
            for (size_t k = 0; blocks[i] != NULL && k < size; k += 7)
                MUST(blocks[i][k] == 0, "calloc(%zu) is not clear", size);
        }
        for (int i = 0; i < 64; i++)
            release(blocks[i]);
    }
}

// A large block that grows and moves keeps its contents.
static void grows(size_t most)
{
    size_t size = 50000;
    unsigned char *p = must(malloc(size), size);
    if (p == NULL)
        return;
    memset(p, 7, size);
    while (size < most) {
        unsigned char *q = must(realloc(p, size * 2), size * 2);
        if (q == NULL)
            break;
        p = q;
        for (size_t k = 0; k < size; k += 4096)
            MUST(p[k] == 7, "realloc lost the contents");
        memset(p + size, 7, size);
        size *= 2;
    }
    p = realloc(p, 100);
    MUST(p != NULL && p[99] == 7, "realloc lost the contents");
    release(p);
}

static _Atomic(void *) mailbox[64];

static void *mixed(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (int round = 0; round < 4; round++) {
        churn(&seed, 3000);
        clears(3000);
        clears(200000);
        grows(round == 0 ? (size_t)(40 * MIB) : (size_t)(2 * MIB)); // above 32 MiB by other calls
        for (int i = 0; i < 2000; i++) { // frees of other threads' blocks
            size_t size = 1 + chance(&seed) % 3000;
            release(atomic_exchange(&mailbox[chance(&seed) % 64], must(malloc(size), size)));
        }
        release(must(aligned_alloc(1 << 20, 1 << 20), 1 << 20));
        release(must(malloc(40 * MIB), 40 * MIB)); // a mapping of its own
        nap_ms(round == 2 ? 250 : 0);              // longer than the purge delay of its cases
    }
    return NULL;
}

static void workload(void)
{
    pthread_t threads[3];
    int created[3];
    for (long i = 0; i < 3; i++)
        created[i] = pthread_create(&threads[i], NULL, mixed, (void *)(i + 1)) == 0;
    mixed((void *)9);
    for (int i = 0; i < 3; i++)
        if (created[i])
            pthread_join(threads[i], NULL);
    for (int i = 0; i < 64; i++)
        release(mailbox[i]);
    nap_ms(250);
    malloc_trim(0);
}

struct plan {
    const char *call, *error;
    int from_main, with_preload;
};

static void filter(const struct plan *plan)
{
    int error = strcmp(plan->error, "ENOSYS") == 0 ? ENOSYS : EPERM;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(calls[i].name, plan->call) == 0) {
            install_filter(&calls[i].number, 1, SECCOMP_RET_ERRNO | (unsigned)error,
                           SECCOMP_RET_ALLOW);
            return;
        }
    skip("no such system call here");
}

static void in_child(void *argument)
{
    const struct plan *plan = argument;
    if (!plan->with_preload)
        unsetenv("LD_PRELOAD");
    if (!plan->from_main)
        filter(plan);
    execl("/proc/self/exe", "seccomp_matrix", "work", plan->call, plan->error,
          plan->from_main ? "main" : "exec", NULL);
    _exit(3);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "work") == 0) {
        struct plan plan = {argv[2], argv[3], 1, 1};
        if (strcmp(argv[4], "main") == 0)
            filter(&plan);
        workload();
        // ENOMEM now and then, not always; but an arena may live by mprotect.
        return atomic_load(&refusals) > 1000 && strcmp(argv[2], "mprotect") != 0;
    }
    MUST(argc == 4, "usage: seccomp_matrix CALL ERROR exec|main");
    struct plan plan = {argv[1], argv[2], strcmp(argv[3], "main") == 0, 1};
    char err[4096];
    int status = run_child(in_child, &plan, 25, err, sizeof err);
    if (status == 0 && err[0] == 0)
        return pass("nothing was noticed");
    struct plan without = plan;
    without.with_preload = 0;
    char own[4096];
    if (status != HUNG && WIFEXITED(status) && WEXITSTATUS(status) == 77)
        return 77;
    if (run_child(in_child, &without, 25, own, sizeof own) != 0)
        skip("no program works so (%s, %.200s)", status_text(status), own);
    fail("%s, stderr: %s", status_text(status), err);
}
