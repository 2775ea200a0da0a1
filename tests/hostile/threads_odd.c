// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads with less than usual: the smallest stack, no thread-specific key left in the process, and
// destructors that allocate and free when the allocator may have said good-bye to the thread.
#include "hostile.h"
#include <ebbtide.h>
#include <limits.h>
#include <malloc.h>

static void ask_libc(void)
{
#ifdef __GLIBC__
    (void)mallinfo2();
#endif
}

static size_t heaps(void)
{
    struct ebb_stats stats = {0};
    void (*get)(struct ebb_stats *) =
        (void (*)(struct ebb_stats *))dlsym(RTLD_DEFAULT, "ebb_stats_get");
    if (get != NULL)
        get(&stats);
    return stats.heaps;
}

// Slow paths of every kind, with little on the stack.
static void *_Atomic held[512];
static void slow_paths(unsigned *seed)
{
    for (int i = 0; i < 4000; i++) {
        unsigned shape = chance(seed) % 100;
        size_t size = shape < 90   ? 1 + chance(seed) % 3000
                      : shape < 99 ? 1 + chance(seed) % 300000
                                   : (size_t)(3 * MIB);
        char *p = shape % 3 == 0 ? calloc(1, size) : malloc(size);
        MUST(p != NULL, "no memory");
        p[0] = p[size - 1] = 1;
        if (shape % 7 == 0)
            p = realloc(p, size + size / 2);
        free(atomic_exchange(&held[chance(seed) % 512], p));
    }
}

static void *in_small_stack(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    slow_paths(&seed);
    malloc_trim(0);
    ask_libc();
    free(aligned_alloc(1 << 16, 1 << 16));
    if (seed % 2 == 0)
        (void)heaps();
    return NULL;
}

static void small_stack(long unused)
{
    (void)unused;
    pthread_attr_t small;
    pthread_attr_init(&small);
    size_t stack =
        PTHREAD_STACK_MIN < 16384 ? 16384 : PTHREAD_STACK_MIN; // musl's would hold no call
    MUST(pthread_attr_setstacksize(&small, stack) == 0, "stack size");
    for (long round = 0; round < 20; round++) {
        pthread_t threads[4];
        for (long i = 0; i < 4; i++) {
            int error =
                pthread_create(&threads[i], &small, in_small_stack, (void *)(round * 4 + i));
            MUST(error == 0, "pthread_create: %s", strerror(error));
        }
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
    }
}

static void *ordinary(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    void *blocks[40];
    for (int i = 0; i < 40; i++)
        blocks[i] = malloc(1 + chance(&seed) % 3000);
    for (int i = 0; i < 40; i++)
        free(blocks[i]);
    return NULL;
}

static void must_stay_small(const char *when)
{
    size_t have = heaps();
    MUST(have < 100, "%s: %zu heaps", when, have);
    MUST(resident() < 40 * MIB, "%s: %ld KiB resident", when, resident() / KIB);
}

// The program has taken all keys before any thread was there.
static void no_keys(long unused)
{
    (void)unused;
    pthread_key_t key;
    int count = 0;
    while (pthread_key_create(&key, free) == 0)
        count++;
    MUST(count > 100, "only %d keys", count);
    for (long i = 0; i < 3000; i++)
        pthread_join(start(ordinary, (void *)i), NULL);
    must_stay_small("without keys");
}

static pthread_key_t again_key;
static void frees_and_comes_again(void *value)
{
    int round = *(int *)value;
    free(value);
    ordinary((void *)(intptr_t)round);
    if (round >= PTHREAD_DESTRUCTOR_ITERATIONS - 1)
        return;
    int *next = malloc(sizeof *next);
    MUST(next != NULL, "no memory");
    *next = round + 1;
    pthread_setspecific(again_key, next);
}

static void *with_destructors(void *argument)
{
    int *value = malloc(sizeof *value);
    MUST(value != NULL, "no memory");
    *value = 0;
    pthread_setspecific(again_key, value);
    return ordinary(argument);
}

// Destructors that allocate and free in every iteration.
static void destructors(long first)
{
    if (first)
        free(malloc(1)); // 0: the key is the program's first act
    MUST(pthread_key_create(&again_key, frees_and_comes_again) == 0, "no key");
    for (long i = 0; i < 3000; i += 30) {
        pthread_t threads[30];
        for (long k = 0; k < 30; k++)
            threads[k] = start(with_destructors, (void *)(i + k));
        for (long k = 0; k < 30; k++)
            pthread_join(threads[k], NULL);
    }
    must_stay_small("with destructors");
}

// Statistics while threads come and go.
static atomic_int stop;
static void *asks(void *unused)
{
    while (!atomic_load(&stop)) {
        ask_libc();
        (void)heaps();
        FILE *file = fopen("/dev/null", "w");
        if (file != NULL) {
            malloc_info(0, file);
            fclose(file);
        }
        malloc_trim(0);
    }
    return unused;
}

static void statistics(long unused)
{
    (void)unused;
    pthread_t asking = start(asks, NULL);
    for (long i = 0; i < 3000; i += 10) {
        pthread_t threads[10];
        for (long k = 0; k < 10; k++)
            threads[k] = start(ordinary, (void *)(i + k));
        for (long k = 0; k < 10; k++)
            pthread_join(threads[k], NULL);
    }
    atomic_store(&stop, 1);
    pthread_join(asking, NULL);
    must_stay_small("with statistics");
}

int main(int argc, char **argv)
{
    static const struct topic topics[] = {{"small_stack", small_stack},
                                          {"no_keys", no_keys},
                                          {"destructors", destructors},
                                          {"statistics", statistics},
                                          {NULL, NULL}};
    run_topic(topics, argc, argv);
    return pass("%zu heaps", heaps());
}
