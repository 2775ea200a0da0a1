// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads that are registered with the scheme and idle: each pins once, then sleeps
// until the end. What they cost the others is what --idle asks.
#ifndef EBB_BENCH_RECLAIM_IDLERS_H
#define EBB_BENCH_RECLAIM_IDLERS_H

#include "harness.h"
#include "scheme.h"

enum { IDLERS_MAX = 63 };

struct idler {
    pthread_t thread;
    struct scheme_thread scheme;
} __attribute__((aligned(LINE_BYTES)));

static struct idler idlers[IDLERS_MAX];
static pthread_barrier_t idlers_pinned;
static pthread_barrier_t idlers_released;

static void *run_idler(void *argument)
{
    struct idler *idler = argument;
    scheme_enter(&idler->scheme);
    scheme_pin(&idler->scheme);
    ebbi_compiler_fence();
    scheme_unpin(&idler->scheme);
    pthread_barrier_wait(&idlers_pinned);
    pthread_barrier_wait(&idlers_released);
    scheme_leave(&idler->scheme);
    return NULL;
}

// Returns when all of them have pinned.
static void idlers_start(uint64_t count)
{
    pthread_barrier_init(&idlers_pinned, NULL, (unsigned)count + 1);
    pthread_barrier_init(&idlers_released, NULL, (unsigned)count + 1);
    for (uint64_t i = 0; i < count; i++)
        team_run(&idlers[i].thread, run_idler, &idlers[i]);
    pthread_barrier_wait(&idlers_pinned);
}

static void idlers_stop(uint64_t count)
{
    pthread_barrier_wait(&idlers_released);
    for (uint64_t i = 0; i < count; i++)
        pthread_join(idlers[i].thread, NULL);
}

#endif
