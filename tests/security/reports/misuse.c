// SPDX-License-Identifier: MIT OR Apache-2.0
// One kind of misuse, the library preloaded: `misuse KIND BYTES`. The first thread allocates, a second one frees, a third one
// misuses; their numbers, and the block's address, are on stdout before that. `misuse KIND BYTES alone|threads|fork`: thousands, for
// EBB_CHECK=log, and a look whether the heap is sound afterwards. `misuse KIND BYTES last|child`: the last thread ends the
// process, or it is a child of fork that comes to its end. Exit status 7: it has come to its end.
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern void free_sized(void *p, size_t bytes) __attribute__((weak));

enum {
    OWN_STATUS = 7,
    USAGE = 2,
    UNSOUND = 3,
    TIMES = 3000,
    THREADS = 4,
    BLOCKS = 2000,
    MOST_BYTES = 3000,
    TURNS = 500
};

static _Thread_local char *volatile block;
static size_t bytes;
static char foreign[64];
static pthread_key_t ending;

// ---- kinds -------------------------------------------------------------------------------------

static void free_block(void) { free(block); }
static void free_inside(void) { free(block + 16); }
static void free_foreign(void) { free(foreign + 16); }
static void free_size(void) { free_sized(block, bytes + 500); }
static void write_block(void) { block[bytes / 2]++; }

static void free_overflown(void)
{
    block[bytes] ^= 0x55;
    free(block);
}

static void free_underflown(void)
{
    block[-1] ^= 0x55;
    free(block);
}

static void overflow_kept(void) { block[bytes] ^= 0x55; }
static void underflow_kept(void) { block[-1] ^= 0x55; }

static void *sleep_on(void *unused)
{
    sleep(1000);
    return unused;
}

static void overflow_beside_thread(void)
{
    pthread_t thread;
    overflow_kept();
    if (pthread_create(&thread, NULL, sleep_on, NULL) != 0)
        exit(USAGE);
}

// The thread has ended for the library, as for who joins it, but not yet for the kernel.
static void end_slowly(void *times)
{
    if (--*(int *)times > 0)
        pthread_setspecific(ending, times);
    else
        usleep(30000);
}

static void *end_at_last(void *unused)
{
    static int times = PTHREAD_DESTRUCTOR_ITERATIONS;
    pthread_setspecific(ending, &times);
    return unused;
}

static void overflow_beside_last_steps(void)
{
    pthread_t thread;
    pthread_key_create(&ending, end_slowly);
    overflow_kept();
    if (pthread_create(&thread, NULL, end_at_last, NULL) != 0 || pthread_detach(thread) != 0)
        exit(USAGE);
    usleep(10000);
}

// None: the children end at once, in which threads of the parent have blocks half made.
static void *churn(void *unused)
{
    unsigned seed = 1;
    for (;;) {
        char *some[200];
        for (int i = 0; i < 200; i++) {
            seed = seed * 1103515245 + 12345;
            size_t size = 1 + seed / 65536 % 20000;
            some[i] = memset(malloc(size), i, size);
        }
        for (int i = 0; i < 200; i++)
            free(some[i]);
    }
    return unused;
}

static void fork_beside_threads(void)
{
    pthread_t thread;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread, NULL, churn, NULL);
    for (int i = 0; i < 200; i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0)
            exit(OWN_STATUS);
        if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != OWN_STATUS)
            _exit(UNSOUND);
    }
    _exit(OWN_STATUS);
}

// The same block, by two threads at a time.
static atomic_int turn, turns_of_other;

static void *resize_as_well(void *shared)
{
    for (int i = 1; i <= TURNS; i++) {
        while (atomic_load(&turn) < i)
            sched_yield();
        char *p = atomic_load((_Atomic(char *) *)shared);
        if (realloc(p, bytes / 2) == NULL && errno != EINVAL)
            exit(UNSOUND);
        atomic_store(&turns_of_other, i);
    }
    return NULL;
}

static void resize_beside_thread(void)
{
    static _Atomic(char *) shared;
    pthread_t thread;
    pthread_create(&thread, NULL, resize_as_well, &shared);
    for (int i = 1; i <= TURNS; i++) {
        atomic_store(&shared, malloc(bytes));
        atomic_store(&turn, i);
        if (realloc(atomic_load(&shared), bytes / 2) == NULL && errno != EINVAL)
            exit(UNSOUND);
        while (atomic_load(&turns_of_other) < i)
            sched_yield();
    }
    _exit(OWN_STATUS);
}

static void resize(char *p)
{
    errno = 0;
    if (realloc(p, 2 * bytes) != NULL || errno != EINVAL)
        exit(UNSOUND);
}

static void resize_block(void) { resize(block); }
static void resize_foreign(void) { resize(foreign + 16); }

static void ask_size(void)
{
    if (malloc_usable_size(block) != 0)
        exit(UNSOUND);
}

static const struct kind {
    const char *name;
    void (*misuse)(void);
    int is_freed; // before it
} kinds[] = {
    {"double_free", free_block, 1},
    {"invalid_free", free_inside, 0},
    {"foreign_free", free_foreign, 0},
    {"mismatch", free_size, 0},
    {"overflow", free_overflown, 0},
    {"underflow", free_underflown, 0},
    {"write_after_free", write_block, 1},
    {"realloc_freed", resize_block, 1},
    {"realloc_foreign", resize_foreign, 0},
    {"size_of_freed", ask_size, 1},
    {"overflow_kept", overflow_kept, 0},
    {"underflow_kept", underflow_kept, 0},
    {"overflow_beside_thread", overflow_beside_thread, 0},
    {"overflow_beside_last_steps", overflow_beside_last_steps, 0},
    {"fork_beside_threads", fork_beside_threads, 0},
    {"resize_beside_thread", resize_beside_thread, 0},
};

// ---- one, in three threads -----------------------------------------------------------------------

struct step {
    const struct kind *kind;
    char *block;
    int thread;
};

static void *misuse_it(void *argument)
{
    const struct step *step = argument;
    block = step->block;
    printf("%d %p\n", gettid(), block);
    fflush(stdout);
    step->kind->misuse();
    return NULL;
}

static void *free_it(void *argument)
{
    struct step *step = argument;
    step->thread = gettid();
    free(step->block);
    return NULL;
}

static void in_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, argument) != 0 || pthread_join(thread, NULL) != 0)
        exit(USAGE);
}

static void run_once(const struct kind *kind)
{
    struct step step = {kind, malloc(bytes), 0};
    memset(step.block, 1, bytes);
    if (kind->is_freed)
        in_thread(free_it, &step);
    printf("%d %d ", getpid(), step.thread);
    in_thread(misuse_it, &step);
}

static void *end_soon(void *unused)
{
    usleep(20000);
    return unused;
}

static void end_as_last(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, end_soon, NULL) != 0)
        exit(USAGE);
    pthread_exit(NULL);
}

static void *end_at_once(void *unused)
{
    free(malloc(10));
    return unused;
}

// Behind threads that have been joined.
static void end_in_child(void)
{
    int status = 0;
    pthread_t threads[20];
    for (int i = 0; i < 20; i++)
        pthread_create(&threads[i], NULL, end_at_once, NULL);
    for (int i = 0; i < 20; i++)
        pthread_join(threads[i], NULL);
    pid_t child = fork();
    if (child == 0)
        exit(OWN_STATUS);
    _exit(waitpid(child, &status, 0) == child && WIFSIGNALED(status) ? OWN_STATUS : UNSOUND);
}

static void run_to_end(const struct kind *kind, const char *how)
{
    run_once(kind);
    if (strcmp(how, "last") == 0)
        end_as_last();
    end_in_child();
}

// ---- thousands -----------------------------------------------------------------------------------

// Blocks that are filled, kept and looked at: nobody else has them.
static void verify(void)
{
    unsigned char **blocks = malloc(BLOCKS * sizeof *blocks);
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(1 + i * 7 % MOST_BYTES);
        memset(blocks[i], (int)i & 0xFF, 1 + i * 7 % MOST_BYTES);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        for (size_t at = 0; at < 1 + i * 7 % MOST_BYTES; at++) {
            if (blocks[i][at] != (i & 0xFF))
                _exit(UNSOUND);
        }
        free(blocks[i]);
    }
    free(blocks);
}

static void *run_many(void *argument)
{
    const struct kind *kind = argument;
    for (int i = 0; i < TIMES; i++) {
        char *other = malloc(bytes);
        block = malloc(bytes);
        if (kind->is_freed)
            free(block);
        kind->misuse();
        free(other);
    }
    verify();
    return NULL;
}

static void run_threads(const struct kind *kind)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, run_many, (void *)kind);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void run_loop(const struct kind *kind, const char *how)
{
    int status = 0;
    if (strcmp(how, "last") == 0 || strcmp(how, "child") == 0)
        run_to_end(kind, how);
    run_many((void *)kind);
    if (strcmp(how, "threads") == 0)
        run_threads(kind);
    if (strcmp(how, "fork") != 0)
        return;
    pid_t child = fork();
    if (child == 0) {
        run_threads(kind);
        exit(OWN_STATUS);
    }
    run_many((void *)kind);
    if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != OWN_STATUS)
        exit(UNSOUND);
}

int main(int count, char **arguments)
{
    for (size_t i = 0; count >= 3 && i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(arguments[1], kinds[i].name) == 0) {
            bytes = strtoul(arguments[2], NULL, 10);
            count > 3 ? run_loop(&kinds[i], arguments[3]) : run_once(&kinds[i]);
            verify();
            return OWN_STATUS;
        }
    }
    return USAGE;
}
