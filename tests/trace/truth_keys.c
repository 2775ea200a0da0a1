// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads whose destructors, of thread-local objects and of keys, allocate and free. truth_keys THREADS
#include "truth.h"

int __cxa_thread_atexit_impl(void (*destructor)(void *), void *object, void *library);

extern void *__dso_handle;
static pthread_key_t keys[3];
static _Thread_local struct item local, of_key[3];
static _Thread_local int rounds;

static void local_ends(void *unused)
{
    (void)unused;
    end(local);
    local = make(100);
    end(local);
}

// Set again, so that it runs as often as POSIX allows.
static void key_ends(void *item)
{
    struct item *kept = item;
    long i = kept - of_key;
    end(*kept);
    if (rounds++ < 6) {
        *kept = make_any();
        pthread_setspecific(keys[i], kept);
    }
}

static void *work(void *number)
{
    begin_thread((int)(intptr_t)number);
    local = make(50);
    MUST(__cxa_thread_atexit_impl(local_ends, NULL, &__dso_handle) == 0);
    for (int i = 0; i < 3; i++) {
        of_key[i] = make_any();
        pthread_setspecific(keys[i], &of_key[i]);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    MUST(argc == 2);
    int threads = atoi(argv[1]);
    for (int i = 0; i < 3; i++) {
        MUST(pthread_key_create(&keys[i], key_ends) == 0);
    }
    for (intptr_t i = 1; i <= threads; i++) {
        pthread_t thread;
        MUST(pthread_create(&thread, NULL, work, (void *)i) == 0);
        pthread_join(thread, NULL);
    }
    end(make(1));
    return tell_truth(threads + 1);
}
