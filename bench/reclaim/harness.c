// SPDX-License-Identifier: MIT OR Apache-2.0
// See harness.h.
#include "harness.h"

#include <string.h>

enum { LAST_DIGIT = 10 };

static char *number_of(const char *word, const char *const *words, size_t word_count)
{
    static char digits[LAST_DIGIT][2];
    for (size_t i = 0; i < word_count && i < LAST_DIGIT; i++) {
        if (strcmp(word, words[i]) != 0)
            continue;
        digits[i][0] = (char)('0' + i);
        return digits[i];
    }
    return NULL;
}

void harness_number_words(int argc, char **argv, const char *option, const char *const *words,
                          size_t word_count)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], option) != 0)
            continue;
        char *number = number_of(argv[i + 1], words, word_count);
        if (number != NULL)
            argv[i + 1] = number;
    }
}

void team_open(struct team *team, unsigned threads)
{
    pthread_barrier_t *barriers[] = {&team->warm, &team->clock_runs, &team->finished,
                                     &team->clock_read};
    for (size_t i = 0; i < sizeof barriers / sizeof barriers[0]; i++)
        if (pthread_barrier_init(barriers[i], NULL, threads + 1) != 0)
            bench_fail("cannot make a barrier for %u threads", threads);
}

void team_ready(struct team *team)
{
    pthread_barrier_wait(&team->warm);
    pthread_barrier_wait(&team->clock_runs);
}

void team_finished(struct team *team)
{
    pthread_barrier_wait(&team->finished);
    pthread_barrier_wait(&team->clock_read);
}

void team_start(struct team *team, struct bench_clock *clock)
{
    pthread_barrier_wait(&team->warm);
    bench_clock_start(clock);
    pthread_barrier_wait(&team->clock_runs);
}

void team_stop(struct team *team, struct bench_clock *clock)
{
    pthread_barrier_wait(&team->finished);
    bench_clock_stop(clock);
    pthread_barrier_wait(&team->clock_read);
}

void team_run(pthread_t *thread, void *(*body)(void *argument), void *argument)
{
    if (pthread_create(thread, NULL, body, argument) != 0)
        bench_fail("cannot start a thread");
}
