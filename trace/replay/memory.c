// SPDX-License-Identifier: MIT OR Apache-2.0
// How much anonymous memory the process has: /proc/self/statm's resident pages less those of files and shared memory.
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "trace/replay/replay.h"

static int statm = -1;
static uint64_t page_bytes;

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

uint64_t now_us(void) { return now_ns(CLOCK_MONOTONIC) / 1000; }

void memory_open(void)
{
    page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (statm < 0) {
        fail("cannot read /proc/self/statm");
    }
}

uint64_t anonymous_bytes(void)
{
    char text[128] = "";
    if (pread(statm, text, sizeof text - 1, 0) <= 0) {
        return 0;
    }
    char *at = text;
    (void)strtoull(at, &at, 10);
    uint64_t resident = strtoull(at, &at, 10);
    uint64_t shared = strtoull(at, &at, 10);
    return resident > shared ? (resident - shared) * page_bytes : 0;
}

void take_sample(uint64_t events, uint64_t live_bytes)
{
    if (!replay.has_samples) {
        return;
    }
    uint64_t start = now_ns(CLOCK_THREAD_CPUTIME_ID);
    uint64_t place =
        __atomic_fetch_add(&replay.sample_count, 1, __ATOMIC_RELAXED); // relaxed: a number
    if (place < replay.head.samples) {
        replay.samples[place] =
            (struct sample){events, live_bytes, anonymous_bytes(), now_us() - replay.start_us};
    }
    atomic_fetch_add(&replay.sampling_ns, now_ns(CLOCK_THREAD_CPUTIME_ID) - start);
}
