// SPDX-License-Identifier: MIT OR Apache-2.0
// Cancellation: malloc and free are no cancellation points. With a cancellation pending they return
// normally, on their slow paths too, and the thread goes on until it asks for its end itself.
#include "hostile.h"
#include <malloc.h>

static atomic_int finished;

// Every function of the family, on sizes of every kind.
static void everything(unsigned *seed, long calls)
{
    enum { SLOTS = 256 };
    static _Thread_local void *slots[SLOTS];
    for (long i = 0; i < calls; i++) {
        void **slot = &slots[chance(seed) % SLOTS];
        unsigned shape = chance(seed) % 1000;
        size_t size = shape < 900   ? 1 + chance(seed) % 2000
                      : shape < 990 ? 1 + chance(seed) % 60000
                      : shape < 999 ? 100000 + chance(seed) % 900000
                                    : (size_t)(8 * MIB);
        switch (chance(seed) % 6) {
        case 0: {
            void *bigger = realloc(*slot, size);
            if (bigger != NULL)
                *slot = bigger;
            break;
        }
        case 1:
            free(*slot);
            *slot = calloc(1, size);
            break;
        case 2:
            free(*slot);
            *slot = aligned_alloc(64, size);
            break;
        case 3:
            free(*slot);
            *slot = NULL;
            break;
        default:
            free(*slot);
            *slot = malloc(size);
        }
        if (*slot != NULL)
            *(char *)*slot = 1;
        if (i % 20000 == 19999)
            malloc_trim(0);
    }
    for (int i = 0; i < SLOTS; i++) {
        free(slots[i]);
        slots[i] = NULL;
    }
}

static void *pending(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    pthread_cancel(pthread_self());
    everything(&seed, 100000);
    atomic_fetch_add(&finished, 1);
    pthread_testcancel();
    return NULL;
}

// The cancellation is pending from the thread's first call on; alone, then with three at once.
static void is_pending(long threads)
{
    pthread_t all[8];
    for (int round = 0; round < 3; round++) {
        atomic_store(&finished, 0);
        for (long i = 0; i < threads; i++)
            all[i] = start(pending, (void *)(i + 1));
        for (long i = 0; i < threads; i++) {
            void *result = NULL;
            pthread_join(all[i], &result);
            MUST(result == PTHREAD_CANCELED, "a thread was not cancelled at all");
        }
        MUST(atomic_load(&finished) == threads, "a thread was cancelled inside malloc or free");
    }
}

struct victim {
    atomic_int inside, bad, ready;
};

static void note(void *argument)
{
    struct victim *victim = argument;
    if (atomic_load(&victim->inside))
        atomic_store(&victim->bad, 1);
}

static void *loops(void *argument)
{
    struct victim *victim = argument;
    unsigned seed = (unsigned)(uintptr_t)&seed;
    pthread_cleanup_push(note, victim);
    for (;;) {
        atomic_store(&victim->inside, 1);
        everything(&seed, 200);
        atomic_store(&victim->inside, 0);
        atomic_store(&victim->ready, 1);
        pthread_testcancel();
    }
    pthread_cleanup_pop(0);
    return NULL;
}

// Cancelled from outside at any time: acted upon outside of the allocator alone.
static void at_any_time(long unused)
{
    (void)unused;
    for (int round = 0; round < 500; round++) {
        struct victim victims[3] = {0};
        pthread_t all[3];
        for (int i = 0; i < 3; i++)
            all[i] = start(loops, &victims[i]);
        while (!atomic_load(&victims[round % 3].ready))
            sched_yield();
        struct timespec nap = {0, round * 5000L};
        nanosleep(&nap, NULL);
        for (int i = 0; i < 3; i++)
            pthread_cancel(all[i]);
        for (int i = 0; i < 3; i++)
            pthread_join(all[i], NULL);
        for (int i = 0; i < 3; i++)
            MUST(!atomic_load(&victims[i].bad), "cancelled inside malloc or free");
        unsigned seed = (unsigned)round;
        everything(&seed, 200);
    }
}

int main(int argc, char **argv)
{
    static const struct topic topics[] = {
        {"pending", is_pending}, {"any_time", at_any_time}, {NULL, NULL}};
    run_topic(topics, argc, argv);
    return pass("cancelled where it was asked for");
}
