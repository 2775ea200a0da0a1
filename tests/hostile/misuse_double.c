// SPDX-License-Identifier: MIT OR Apache-2.0
// Double frees, in the default build, of those that docs/adr/0014 promises to find. The library ends the
// process at the second free, or at the latest before it would hand the block out again: no two owners.
#include "misuse.h"
#include <malloc.h>

static const size_t sizes[] = {1, 16, 48, 64, 500, 2000, 30000, 100000, 64 << 20, 0};

static void twice(size_t size, long unused)
{
    (void)unused;
    char *p = malloc(size);
    free(p);
    free(p);
}

static void aba(size_t size, long unused)
{
    (void)unused;
    char *p = malloc(size), *q = malloc(size);
    free(p);
    free(q);
    free(p);
}

// `number` frees of the same class between, of blocks that were allocated before.
static void between_frees(size_t size, long number)
{
    char *others[100], *p = malloc(size);
    if (size > 1 << 20 && number > 3)
        number = 3;
    for (long i = 0; i < number; i++)
        others[i] = malloc(size);
    keep(size);
    free(p);
    for (long i = 0; i < number; i++)
        free(others[i]);
    free(p);
}

// Frees and mallocs between. Once the block has a new owner, the second free is that owner's.
static void between_both(size_t size, long number)
{
    char *others[100], *p = malloc(size);
    if (size > 1 << 20 && number > 3)
        number = 3;
    for (long i = 0; i < number; i++)
        others[i] = malloc(size);
    free(p);
    for (long i = 0; i < number; i++) {
        free(others[i]);
        char *fresh = keep(size);
        if (fresh == p)
            return;
    }
    free(p);
}

// A thousand of them at once, in two orders.
static void many(size_t size, long backwards)
{
    static char *blocks[1000];
    int count = size > 20000 ? 20 : 1000;
    if (size > 1 << 20)
        count = 3;
    for (int i = 0; i < count; i++)
        blocks[i] = malloc(size);
    for (int i = 0; i < count; i++)
        free(blocks[i]);
    for (int i = 0; i < count; i++)
        free(blocks[backwards ? count - 1 - i : i]);
}

// Threads are there before the first free, for their start might be given the block, rightly.
static char *victim;
static size_t victim_size;
static atomic_int turn, stays;

static void *frees_in_turn(void *mine)
{
    while (atomic_load(&turn) < (int)(intptr_t)mine)
        sched_yield();
    free(victim);
    while (atomic_load(&stays))
        sched_yield();
    return NULL;
}

// 0: another thread frees first and has ended; 1: and lives on; 2: this one frees first; 3: at once;
// 4: two others, one after the other, which end; 5: which live on until both have done it.
static void two_threads(size_t size, long kind)
{
    victim = malloc(size);
    keep(size);
    atomic_store(&stays, kind == 1 || kind == 5);
    pthread_t first = start(frees_in_turn, (void *)1), second = start(frees_in_turn, (void *)2);
    if (kind == 2)
        free(victim);
    atomic_store(&turn, 1);
    if (kind == 3)
        free(victim);
    if (atomic_load(&stays))
        nap_ms(20);
    else
        pthread_join(first, NULL);
    if (kind == 0 || kind == 1)
        free(victim);
    if (kind < 4)
        victim = NULL; // for the second
    atomic_store(&turn, 2);
    if (kind == 5)
        nap_ms(20);
    int first_lives = atomic_exchange(&stays, 0);
    if (first_lives)
        pthread_join(first, NULL);
    pthread_join(second, NULL);
}

// realloc of what is free, in place or to a larger one: its result may be a block, but only one.
static void reallocates(size_t size, long larger)
{
    char *p = malloc(size);
    keep(size);
    free(p);
    char *q = realloc(p, larger ? size * 3 : size);
    if (q == NULL)
        return;
    record->kept[record->kept_count++] = q;
    memset(q, 0x3c, size);
}

enum { TOGETHER = 21 };

static void *makes(void *blocks)
{
    for (int i = 0; i < TOGETHER; i++)
        MUST((((char **)blocks)[i] = malloc(victim_size)) != NULL, "no memory");
    return NULL;
}

// realloc of the first of many that are free, to a smaller class: it may need what these leave.
static void replaces(size_t size, long unused)
{
    (void)unused;
    char *blocks[TOGETHER];
    victim_size = size;
    pthread_join(start(makes, blocks), NULL);
    for (int i = 0; i < TOGETHER; i++)
        free(blocks[i]);
    char *q = realloc(blocks[0], size / 3);
    for (int i = 0; q != NULL && i < 64; i++)
        MUST(malloc(size / 3) != q, "what realloc gave is another's");
}

static void measures(size_t size, long unused)
{
    (void)unused;
    char *p = malloc(size);
    keep(size);
    free(p);
    (void)malloc_usable_size(p);
}

// The magazine of the class was emptied meanwhile.
static void after_trim(size_t size, long by_thread)
{
    victim = malloc(size);
    keep(size);
    pthread_t thread = start(frees_in_turn, (void *)1);
    free(victim);
    malloc_trim(0);
    if (!by_thread) {
        free(victim);
        victim = NULL;
    }
    atomic_store(&turn, 1);
    pthread_join(thread, NULL);
}

static void by_fork(size_t size, long unused)
{
    (void)unused;
    char *p = malloc(size);
    free(p);
    pid_t child = fork();
    int status = 0;
    if (child == 0)
        free(p); // the child goes on with the checks; the parent takes over its end
    else if (waitpid(child, &status, 0) == child) {
        if (WIFSIGNALED(status)) {
            signal(WTERMSIG(status), SIG_DFL);
            raise(WTERMSIG(status));
        }
        _exit(WEXITSTATUS(status));
    }
}

static atomic_int ready;

static void *frees_at_once(void *p)
{
    atomic_fetch_add(&ready, 1);
    while (atomic_load(&ready) < 2)
        ;
    free(p);
    return p;
}

// By two threads in the same instant.
static void at_once(size_t size, long unused)
{
    (void)unused;
    atomic_store(&ready, 0);
    void *p = malloc(size);
    pthread_t first = start(frees_at_once, p), second = start(frees_at_once, p);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
}

static void try_at_once(const struct misuse *misuse)
{
    static const size_t large[] = {200000, 2000000, 0};
    for (int i = 0; i < 50; i++)
        try_misuse(misuse, large, 0, 1);
}

static void try_replaces(const struct misuse *misuse)
{
    static const size_t long_ones[] = {60000, 100000, 131072, 0};
    for (int i = 0; i < 15; i++)
        try_misuse(misuse, long_ones, 0, 0);
}

int main(int argc, char **argv)
{
    static const struct misuse list[] = {{"twice", twice},
                                         {"aba", aba},
                                         {"between_frees", between_frees},
                                         {"between_both", between_both},
                                         {"many", many},
                                         {"two_threads", two_threads},
                                         {"reallocates", reallocates},
                                         {"replaces", replaces},
                                         {"measures", measures},
                                         {"after_trim", after_trim},
                                         {"by_fork", by_fork},
                                         {"at_once", at_once},
                                         {NULL, NULL}};
    MUST(argc > 1, "no case");
    if (!under_ebbtide())
        skip("only Ebbtide promises it");
    const struct misuse *misuse = find_misuse(list, argv[1]);
    if (misuse->run == at_once)
        try_at_once(misuse);
    else if (misuse->run == replaces)
        try_replaces(misuse);
    else
        try_misuse(misuse, sizes, argc > 2 ? atol(argv[2]) : 0, 0);
    return pass("one owner each");
}
