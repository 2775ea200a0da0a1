// SPDX-License-Identifier: MIT OR Apache-2.0
// What the reclamation programs share: options that are words, and threads that start
// and stop together while the main thread holds the clock.
#ifndef EBB_BENCH_RECLAIM_HARNESS_H
#define EBB_BENCH_RECLAIM_HARNESS_H

#include "harness/common.h"

#include <pthread.h>

// Replaces the word behind `option` by its place in `words`, so that bench_open reads
// a number. A number stays as it is.
void harness_number_words(int argc, char **argv, const char *option, const char *const *words,
                          size_t word_count);

// A thread: team_ready when warm, work, team_finished, then what the clock shall not see.
struct team {
    pthread_barrier_t warm;
    pthread_barrier_t clock_runs;
    pthread_barrier_t finished;
    pthread_barrier_t clock_read;
};

void team_open(struct team *team, unsigned threads);
void team_ready(struct team *team);
void team_finished(struct team *team);

// The main thread's side; it may do something between the two.
void team_start(struct team *team, struct bench_clock *clock);
void team_stop(struct team *team, struct bench_clock *clock);

void team_run(pthread_t *thread, void *(*body)(void *argument), void *argument);

#endif
