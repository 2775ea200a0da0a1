// SPDX-License-Identifier: MIT OR Apache-2.0
// Many threads that are there at once, and allocate a little whenever all are let go. truth_parked THREADS
#include "truth.h"

enum { ROUNDS = 5 };

static pthread_barrier_t barrier;

static void *work(void *number)
{
    begin_thread((int)(intptr_t)number);
    struct item kept = make(100);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&barrier);
        end(kept);
        kept = make_any();
    }
    end(kept);
    return NULL;
}

int main(int argc, char **argv)
{
    MUST(argc == 2);
    long threads = atol(argv[1]);
    pthread_t *started = malloc((size_t)threads * sizeof *started);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (long i = 0; i < threads; i++) {
        MUST(pthread_create(&started[i], &attributes, work, (void *)(intptr_t)(i + 1)) == 0);
    }
    for (long i = 0; i < threads; i++) {
        pthread_join(started[i], NULL);
    }
    free(started);
    return tell_truth((int)threads + 1);
}
