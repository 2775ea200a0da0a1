// SPDX-License-Identifier: MIT OR Apache-2.0
// A handler that allocates, run at single instructions of a call (the processor's trap flag): the
// call and the handler work, or the process ends by a line of the library. No moment may be left in
// which it waits for itself. The helper is off: at each moment the handler runs in a child by _Fork,
// which has no other thread. One moment in EBBTEST_STRIDE (4) is tried, others in each run.
#include "hostile.h"

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <sys/ucontext.h>

enum { BLOCKS = 200, SOME = 40, LARGE = 300000, TRAP_FLAG = 0x100 };

static void *blocks[BLOCKS], *volatile handlers_blocks[2];
static size_t handlers_size;
static long moments, stride, worked, ended;
static int errors;

static void handle(void)
{
    for (int i = 0; i < 8; i++) {
        handlers_blocks[0] =
            malloc(handlers_size); // volatile: or the compiler leaves both calls out
        handlers_blocks[1] = malloc(48);
        free(handlers_blocks[0]);
        free(handlers_blocks[1]);
    }
}

static void at_a_step(int unused, siginfo_t *unused_too, void *context)
{
    (void)unused, (void)unused_too;
    if (moments++ % stride != 0)
        return;
    char err[1024];
    int saved = errno;
    MUST(ftruncate(errors, 0) == 0 && lseek(errors, 0, SEEK_SET) == 0, "%s", strerror(errno));
    pid_t child = _Fork();
    MUST(child >= 0, "_Fork: %s", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(errors, 2);
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
        handle();
        errno = saved;
        return;
    }
    int status = await_child(child, 10);
    ssize_t got = pread(errors, err, sizeof err - 1, 0);
    err[got < 0 ? 0 : got] = 0;
    int by_library = ended_by_the_library(status, err);
    MUST(status == 0 || by_library, "moment %ld: %s, stderr: %s", moments, status_text(status),
         err);
    *(by_library ? &ended : &worked) += 1;
    errno = saved;
}

static void stepping(int on)
{
    unsigned long flags = __builtin_ia32_readeflags_u64();
    __builtin_ia32_writeeflags_u64(on ? flags | TRAP_FLAG : flags & ~(unsigned long)TRAP_FLAG);
}

static void refills(void) // perhaps not by the first
{
    for (int i = 0; i < 16; i++)
        blocks[i] = malloc(handlers_size);
}
static void free_blocks(int from, int to)
{
    for (int i = from; i < to; i++)
        free(blocks[i]), blocks[i] = NULL;
}
static void frees_some(void) { free_blocks(BLOCKS - SOME, BLOCKS); }
static void fills(void)
{
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = malloc(3000);
}
static void fills_and_frees(void) // so often that a magazine is given up whole
{
    fills();
    free_blocks(0, BLOCKS - SOME);
}

static void grows(void) { blocks[0] = realloc(blocks[0], LARGE); }

static const struct {
    void (*before)(void), (*stepped)(void);
    size_t handlers_size;
    int two;   // threads have allocated, so that there may be a second place to take from
    int fresh; // in a thread that has not allocated yet
} calls[] = {
    {NULL, refills, 48, 0, 0},
    {NULL, refills, 3000, 0, 0},
    {NULL, refills, LARGE, 0, 0},
    {fills_and_frees, frees_some, 3000, 0, 0},
    {fills_and_frees, frees_some, LARGE, 0, 0},
    {fills, grows, 3000, 0, 0},
    {fills, grows, LARGE, 0, 0},
    {NULL, refills, 3000, 1, 0},
    {fills_and_frees, frees_some, 3000, 1, 0},
    {NULL, refills, 48, 0, 1},
};

static void *perhaps_allocates(void *two)
{
    if (two != NULL) {
        void *volatile block = malloc(3000);
        free(block);
    }
    return NULL;
}

static void *step(void *call)
{
    pid_t parent = getpid();
    stepping(1);
    calls[(long)call].stepped();
    stepping(0);
    free_blocks(0, BLOCKS);
    if (getpid() != parent)
        _exit(0);
    return NULL;
}

static void stepped(long call)
{
    if (!under_ebbtide())
        skip("glibc promises nothing");
    pthread_join(start(perhaps_allocates, calls[call].two ? blocks : NULL),
                 NULL); // from here on locks are locks
    const char *every = getenv("EBBTEST_STRIDE");
    stride = every == NULL ? 4 : atol(every);
    MUST(stride > 0, "EBBTEST_STRIDE=%s", every);
    moments = getpid() % stride;
    errors = memfd_create("stderr", MFD_CLOEXEC);
    MUST(errors >= 0, "memfd_create: %s", strerror(errno));
    struct sigaction action = {.sa_sigaction = at_a_step, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    handlers_size = calls[call].handlers_size;
    free(malloc(LARGE / 2)); // the program's tables are bound
    if (calls[call].before != NULL)
        calls[call].before();
    if (calls[call].fresh)
        pthread_join(start(step, (void *)call), NULL);
    else
        (void)step((void *)call);
    MUST(moments > 100, "%ld moments", moments);
    say(2, "%ld moments: at %ld it worked, at %ld the library ended the process", moments, worked,
        ended);
}

#else
static void stepped(long call)
{
    (void)call;
    skip("needs the trap flag of x86-64, and nothing that follows each access");
}
#endif

int main(int argc, char **argv)
{
    stepped(argc > 1 ? atol(argv[1]) : 0);
    return pass("every moment");
}
