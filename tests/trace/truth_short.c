// SPDX-License-Identifier: MIT OR Apache-2.0
// Many short threads, a few at a time, that leave objects to the first one and free what it made.
// truth_short THREADS
#include "truth.h"

enum { AT_ONCE = 20, EACH = 30 };

static struct item left[AT_ONCE][EACH];

static void *work(void *number)
{
    int i = (int)(intptr_t)number;
    begin_thread(i + 1);
    for (int n = 0; n < EACH; n++) {
        end(left[i % AT_ONCE][n]);
        left[i % AT_ONCE][n] = make_any();
    }
    return NULL;
}

static void run_some(int first)
{
    pthread_t threads[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++) {
        for (int n = 0; n < EACH; n++) {
            left[i][n] = make(1 + dice(300));
        }
        MUST(pthread_create(&threads[i], NULL, work, (void *)(intptr_t)(first + i)) == 0);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        pthread_join(threads[i], NULL);
        for (int n = 0; n < EACH; n++) {
            end(left[i][n]);
        }
    }
}

int main(int argc, char **argv)
{
    MUST(argc == 2);
    int threads = atoi(argv[1]);
    for (int i = 0; i < threads; i += AT_ONCE) {
        run_some(i);
    }
    return tell_truth(threads + 1);
}
