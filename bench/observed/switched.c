// SPDX-License-Identifier: MIT OR Apache-2.0
// switched: threads that malloc and free in a loop and keep the longest gap between two of their calls. Each line of
// input ends a window; the answer is its longest gaps in ns: by the clock; by the thread's own processor time; and by
// the clock without what the scheduler says that the thread waited for a processor. And how many of each are above
// 1 ms, and how many loops there were.
#include "told.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST_THREADS = 1024, SLOTS = 64, LONG_NS = 1000000 };
enum { WALL, OWN, PAUSED, KINDS };

struct worker {
    _Alignas(64) atomic_uint_fast64_t longest[KINDS], above[KINDS], loops;
    pthread_t thread;
};

static uint64_t thread_count = 64, size_bytes = 1000;
static struct worker workers[MOST_THREADS];
static atomic_bool is_over;

static const struct bench_option options[] = {
    {"threads", &thread_count, 1, MOST_THREADS, "busy threads"},
    {"size", &size_bytes, 1, 1 << 20, "bytes at most of a block"},
};
static const struct bench_program program = {"switched", "the longest gap between two calls",
                                             options, sizeof options / sizeof options[0]};

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int open_schedule(void)
{
    char name[64];
    snprintf(name, sizeof name, "/proc/self/task/%ld/schedstat", syscall(SYS_gettid));
    return open(name, O_RDONLY | O_CLOEXEC);
}

// How long the thread has waited for a processor so far.
static uint64_t waited_ns(int schedule)
{
    char text[96];
    unsigned long long ran = 0, waited = 0;
    ssize_t length = pread(schedule, text, sizeof text - 1, 0);
    if (length <= 0)
        bench_fail("the kernel has no schedstat");
    text[length] = 0;
    if (sscanf(text, "%llu %llu", &ran, &waited) != 2)
        bench_fail("the kernel's schedstat is another one");
    return waited;
}

static void note(struct worker *self, int kind, uint64_t gap_ns)
{
    if (gap_ns > atomic_load_explicit(&self->longest[kind], memory_order_relaxed))
        atomic_store_explicit(&self->longest[kind], gap_ns, memory_order_relaxed);
    if (gap_ns > LONG_NS)
        atomic_fetch_add_explicit(&self->above[kind], 1, memory_order_relaxed);
}

static void *work(void *argument)
{
    struct worker *self = argument;
    unsigned char *blocks[SLOTS] = {0};
    uint32_t random = (uint32_t)(self - workers) + 1;
    int schedule = open_schedule();
    uint64_t waited = waited_ns(schedule);
    uint64_t wall = now_ns(CLOCK_MONOTONIC), own = now_ns(CLOCK_THREAD_CPUTIME_ID);
    while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
        random = bench_xs32(random);
        free(blocks[random % SLOTS]);
        blocks[random % SLOTS] = bench_alloc(1 + (random >> 8) % size_bytes);
        uint64_t wall_now = now_ns(CLOCK_MONOTONIC), own_now = now_ns(CLOCK_THREAD_CPUTIME_ID);
        note(self, WALL, wall_now - wall);
        note(self, OWN, own_now - own);
        atomic_fetch_add_explicit(&self->loops, 1, memory_order_relaxed);
        if (wall_now - wall > LONG_NS / 4) {
            uint64_t waited_now = waited_ns(schedule), more = waited_now - waited;
            note(self, PAUSED, wall_now - wall > more ? wall_now - wall - more : 0);
            waited = waited_now;
            wall_now = now_ns(CLOCK_MONOTONIC); // what this look took is no gap
            own_now = now_ns(CLOCK_THREAD_CPUTIME_ID);
        }
        wall = wall_now;
        own = own_now;
    }
    bench_drain(blocks, SLOTS);
    close(schedule);
    return NULL;
}

static void answer_window(void)
{
    uint64_t longest[KINDS] = {0}, above[KINDS] = {0}, loops = 0;
    for (uint64_t i = 0; i < thread_count; i++) {
        for (int kind = 0; kind < KINDS; kind++) {
            uint64_t found = atomic_exchange(&workers[i].longest[kind], 0);
            longest[kind] = found > longest[kind] ? found : longest[kind];
            above[kind] += atomic_exchange(&workers[i].above[kind], 0);
        }
        loops += atomic_exchange(&workers[i].loops, 0);
    }
    told_answer("%llu %llu %llu %llu %llu %llu %llu", (unsigned long long)longest[WALL],
                (unsigned long long)longest[OWN], (unsigned long long)longest[PAUSED],
                (unsigned long long)above[WALL], (unsigned long long)above[OWN],
                (unsigned long long)above[PAUSED], (unsigned long long)loops);
}

int main(int argc, char **argv)
{
    char line[16];
    bench_open(&program, argc, argv);
    for (uint64_t i = 0; i < thread_count; i++)
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            bench_fail("cannot start a thread");
    told_answer("ready");
    while (told_next(line, sizeof line, -1))
        answer_window();
    atomic_store(&is_over, true);
    for (uint64_t i = 0; i < thread_count; i++)
        pthread_join(workers[i].thread, NULL);
    return 0;
}
