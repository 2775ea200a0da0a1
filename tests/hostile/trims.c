// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads that allocate, look after what they have written and free, with naps now and then, while others
// trim all the time: what they hold stays theirs, wherever in a call the processor was taken from them.
//   trims THREADS TRIMMERS
#include "hostile.h"
#include <malloc.h>

enum { HELD = 64 };
static atomic_int stop;
static atomic_long calls;

struct held {
    uint64_t *block; // its first and last words are `mark`
    size_t words;
    uint64_t mark;
};

static void look(const struct held *h)
{
    MUST(h->block[0] == h->mark && h->block[h->words - 1] == h->mark,
         "a block of %zu bytes at %p, %#llx, is somebody else's too: %#llx, %#llx",
         h->words * sizeof *h->block, (void *)h->block, (unsigned long long)h->mark,
         (unsigned long long)h->block[0], (unsigned long long)h->block[h->words - 1]);
}

static void *works(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    struct held all[HELD] = {0};
    long done = 0;
    for (; !atomic_load(&stop); done++) {
        struct held *h = &all[chance(&seed) % HELD];
        if (h->block != NULL) {
            look(h);
            free(h->block);
            h->block = NULL;
            continue;
        }
        h->words = 1 + chance(&seed) % 8; // few sizes: the same magazines again and again
        h->mark = (uint64_t)seed << 32 | (uintptr_t)argument;
        h->block = malloc(h->words * sizeof *h->block);
        MUST(h->block != NULL, "no memory");
        h->block[0] = h->block[h->words - 1] = h->mark;
        if (chance(&seed) % 200000 == 0)
            nap_ms(5);
    }
    for (int i = 0; i < HELD; i++)
        if (all[i].block != NULL) {
            look(&all[i]);
            free(all[i].block);
        }
    atomic_fetch_add(&calls, done);
    return NULL;
}

static void *trims(void *unused)
{
    while (!atomic_load(&stop))
        malloc_trim(0);
    return unused;
}

int main(int argc, char **argv)
{
    enum { MOST = 64 };
    MUST(argc == 3, "usage: trims THREADS TRIMMERS");
    long threads = atol(argv[1]), trimmers = atol(argv[2]);
    MUST(threads + trimmers <= MOST, "too many");
    pthread_t all[MOST];
    for (long i = 0; i < threads + trimmers; i++)
        all[i] = start(i < threads ? works : trims, (void *)(i + 1));
    nap_ms(scaled(2000));
    atomic_store(&stop, 1);
    for (long i = 0; i < threads + trimmers; i++)
        pthread_join(all[i], NULL);
    return pass("%ld calls", atomic_load(&calls));
}
