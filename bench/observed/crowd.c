// SPDX-License-Identifier: MIT OR Apache-2.0
// crowd: many threads that have allocated and sleep, and many open regions with data in them; the first thread
// allocates a little, so that there is something new at each look. Answers "ready", and ends with its input.
#include "told.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define EBB_REGION_NO_INLINE
#include <ebbtide/region.h>

enum { STACK_BYTES = 64 << 10, LARGE_EVERY = 100, LARGE_BYTES = 1 << 20, MOST_LIVE = 4096 };

static uint64_t thread_count = 500, region_count = 10000, label_count = 10000, pause_ms = 20;

static const struct bench_option options[] = {
    {"threads", &thread_count, 1, 10000, "threads"},
    {"regions", &region_count, 0, 1000000, "open regions, each thread's share"},
    {"labels", &label_count, 1, 1000000, "that they have, one after the other"},
    {"pause-ms", &pause_ms, 1, 3600000, "between two things that the first thread does"},
};
static const struct bench_program program = {"crowd", "many threads and regions, to be looked at",
                                             options, sizeof options / sizeof options[0]};

static struct ebb_region *(*region_open)(const struct ebb_region_options *);
static void *(*region_alloc)(struct ebb_region *, size_t);
static pthread_barrier_t all_there;
static pthread_mutex_t over = PTHREAD_MUTEX_INITIALIZER;

// ISO C has no cast from an object pointer to a function pointer; POSIX says that they are the same bytes.
static void find(const char *name, void *slot)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    if (found == NULL)
        bench_fail("the allocator that is loaded has no %s", name);
    memcpy(slot, &found, sizeof found);
}

static void fill_region(uint64_t number)
{
    char label[EBB_LABEL_BYTES];
    snprintf(label, sizeof label, "kind %05llu", (unsigned long long)(number % label_count));
    struct ebb_region_options named = {.label = label};
    struct ebb_region *region = region_open(&named);
    for (uint64_t kib = 0; region != NULL && kib <= number * 37 % 16; kib++) {
        void *block = region_alloc(region, 1024);
        if (block == NULL)
            bench_fail("a region has no memory");
        memset(block, 1, 1024);
    }
    if (region == NULL || (number % LARGE_EVERY == 0 && region_alloc(region, LARGE_BYTES) == NULL))
        bench_fail("a region has no memory");
}

static void *allocate_and_sleep(void *argument)
{
    uint64_t first = (uint64_t)(uintptr_t)argument;
    for (size_t size = 16; size <= 8192; size *= 2) {
        bench_touch(bench_alloc(size), size, 1);
        free(bench_alloc(size + 8));
    }
    for (uint64_t number = first; number < region_count; number += thread_count)
        fill_region(number);
    pthread_barrier_wait(&all_there);
    pthread_mutex_lock(&over); // for ever
    return NULL;
}

static void start_threads(void)
{
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK_BYTES);
    pthread_barrier_init(&all_there, NULL, (unsigned)thread_count + 1);
    pthread_mutex_lock(&over);
    for (uint64_t number = 0; number < thread_count; number++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, allocate_and_sleep, (void *)(uintptr_t)number) != 0)
            bench_fail("cannot start a thread");
    }
    pthread_barrier_wait(&all_there);
}

int main(int argc, char **argv)
{
    static unsigned char *live[MOST_LIVE];
    char line[16];
    uint32_t random = 1;
    bench_open(&program, argc, argv);
    find("ebb_region_open", &region_open);
    find("ebb_region_alloc", &region_alloc);
    start_threads();
    told_answer("ready");
    while (told_next(line, sizeof line, (int)pause_ms)) {
        for (int i = 0; i < 64; i++) {
            random = bench_xs32(random);
            unsigned char **slot = &live[random % MOST_LIVE];
            free(*slot);
            *slot = bench_alloc(16 + (random >> 16) % 4000);
        }
    }
    return 0;
}
