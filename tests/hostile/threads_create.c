// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads that come and go: idle ones, joined and detached, short ones by the thousand, and some
// whose first call is a free. The process must end, and neither heaps nor memory may pile up.
#include "hostile.h"
#include <ebbtide.h>

static pthread_barrier_t gate;
static atomic_long ended;

// Where nothing returns memory but what threads call, one goes on allocating.
static void must_be_small(long before, long growth)
{
    void (*get)(struct ebb_stats *) =
        (void (*)(struct ebb_stats *))dlsym(RTLD_DEFAULT, "ebb_stats_get");
    if (get != NULL) {
        struct ebb_stats stats;
        get(&stats);
        MUST(stats.heaps < 100, "%zu heaps", stats.heaps);
    }
    unsigned seed = 1;
    long have = resident();
    for (int looks = 0; looks < 100 && have > before + growth; looks++) {
        churn(&seed, 100);
        have = resident_within(50, before + growth);
    }
    MUST(have <= before + growth, "%ld KiB resident, %ld before", have / KIB, before / KIB);
}

static void *idle(void *unused) { return unused; }

static void *gated(void *unused)
{
    pthread_barrier_wait(&gate);
    return unused;
}

static void *gated_with_block(void *unused)
{
    void *p = malloc(100);
    pthread_barrier_wait(&gate);
    free(p);
    return unused;
}

static void *count(void *unused)
{
    atomic_fetch_add(&ended, 1);
    return unused;
}

// n threads: in turn, all at once, and all at once with a block each.
static void join(long n)
{
    static pthread_t threads[1000];
    void *(*const bodies[])(void *) = {idle, gated, gated_with_block};
    MUST(n > 0 && n <= 1000, "bad count");
    for (int kind = 0; kind < 3; kind++)
        for (int round = 0; round < 3; round++) {
            pthread_barrier_init(&gate, NULL, (unsigned)n);
            for (long i = 0; i < n; i++)
                threads[i] = start(bodies[kind], NULL);
            for (long i = 0; i < n; i++)
                pthread_join(threads[i], NULL);
            pthread_barrier_destroy(&gate);
        }
    unsigned seed = 1;
    churn(&seed, 10000);
}

// Bursts of detached threads: libc frees a thread's own storage when it is all but gone.
static void burst(long unused)
{
    (void)unused;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    for (long round = 1; round <= 200; round++) {
        for (int i = 0; i < 32; i++) {
            pthread_t thread;
            int error = pthread_create(&thread, &detached, count, NULL);
            MUST(error == 0, "pthread_create: %s", strerror(error));
        }
        while (atomic_load(&ended) < round * 32)
            nap_ms(1);
    }
    nap_ms(300);
    must_be_small(0, 30 * MIB);
}

static void *sleeper(void *unused)
{
    void *blocks[50];
    for (int i = 0; i < 50; i++)
        blocks[i] = malloc(16 + 40 * (size_t)i);
    nap_ms(1000);
    for (int i = 0; i < 50; i++)
        free(blocks[i]);
    return unused;
}

static void sleepers(long unused)
{
    (void)unused;
    long before = resident();
    pthread_t threads[100];
    for (int i = 0; i < 100; i++)
        threads[i] = start(sleeper, NULL);
    for (int i = 0; i < 100; i++)
        pthread_join(threads[i], NULL);
    must_be_small(before, 20 * MIB);
}

static void *short_life(void *seed)
{
    unsigned own = (unsigned)(uintptr_t)seed;
    void *blocks[20];
    for (int i = 0; i < 20; i++)
        blocks[i] = malloc(1 + chance(&own) % 3000);
    for (int i = 0; i < 20; i++)
        free(blocks[i]);
    return NULL;
}

// 10,000 threads, `group` of them at a time.
static void in_groups(long group)
{
    pthread_t threads[100];
    long before = resident();
    for (long i = 0; i < 10000; i += group) {
        for (long k = 0; k < group; k++)
            threads[k] = start(short_life, (void *)(i + k));
        for (long k = 0; k < group; k++)
            pthread_join(threads[k], NULL);
    }
    must_be_small(before, 30 * MIB);
}

struct gift {
    void *blocks[40];
};

static void *frees_first(void *argument)
{
    struct gift *gift = argument;
    for (int i = 0; i < 40; i++)
        free(gift->blocks[i]);
    free(gift);
    return NULL;
}

static void first_is_free(long detached)
{
    long before = resident();
    unsigned seed = 7;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (detached)
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (int round = 0; round < 3000; round++) {
        struct gift *gift = malloc(sizeof *gift);
        MUST(gift != NULL, "no memory");
        for (int i = 0; i < 40; i++) {
            size_t size = 1 + chance(&seed) % (i == 39 ? 300000 : 4000);
            gift->blocks[i] = malloc(size);
            MUST(gift->blocks[i] != NULL, "no memory");
            memset(gift->blocks[i], 1, size);
        }
        pthread_t thread;
        int error = pthread_create(&thread, &attributes, frees_first, gift);
        MUST(error == 0, "pthread_create: %s", strerror(error));
        if (!detached)
            pthread_join(thread, NULL);
        else if (round % 16 == 0)
            nap_ms(2);
    }
    must_be_small(before, getenv("EBB_PURGE_THREAD") != NULL ? 20 * MIB : 8 * MIB);
}

int main(int argc, char **argv)
{
    static const struct topic topics[] = {{"join", join},
                                          {"burst", burst},
                                          {"sleepers", sleepers},
                                          {"groups", in_groups},
                                          {"first_is_free", first_is_free},
                                          {NULL, NULL}};
    run_topic(topics, argc, argv);
    return pass("%ld KiB resident", resident() / KIB);
}
