// SPDX-License-Identifier: MIT OR Apache-2.0
// pinning: three functions allocate many small blocks, free nearly all of them and leave some that keep the others'
// pages. What each leaves lies as far apart as an option says, and all have allocated before any frees. Answers
// "ready"; "0", "1" or "2" frees what the first, second or third has left, and the answer is how many bytes that were.
#include "told.h"

#include <pthread.h>
#include <string.h>

enum { PLACES = 3, PAGE = 4096 };

struct place {
    unsigned char **blocks;
    uint64_t allocated, count; // of blocks, at first and when some are left
    uint64_t mb, bytes, apart; // of what it allocates; bytes of a block; between two that stay
};

static struct place places[PLACES] = {
    {.mb = 256, .bytes = 16, .apart = PAGE / 2},
    {.mb = 384, .bytes = 16, .apart = PAGE},
    {.mb = 768, .bytes = 16, .apart = 2 * PAGE},
};
static uint64_t is_random, seed = 1;

static const struct bench_option options[] = {
    {"dense-mb", &places[0].mb, 1, 100000, "that dense allocates"},
    {"dense-bytes", &places[0].bytes, 1, PAGE, "of each block of dense"},
    {"dense-apart", &places[0].apart, 16, 1 << 30, "bytes between two that it leaves"},
    {"even-mb", &places[1].mb, 1, 100000, "that even allocates"},
    {"even-bytes", &places[1].bytes, 1, PAGE, "of each block of even"},
    {"even-apart", &places[1].apart, 16, 1 << 30, "bytes between two that it leaves"},
    {"thin-mb", &places[2].mb, 1, 100000, "that thin allocates"},
    {"thin-bytes", &places[2].bytes, 1, PAGE, "of each block of thin"},
    {"thin-apart", &places[2].apart, 16, 1 << 30, "bytes between two that it leaves"},
    {"random", &is_random, 0, 1, "1: at random, so far apart on the average"},
    {"seed", &seed, 1, UINT32_MAX, "seed of the generator"},
};
static const struct bench_program program = {"pinning", "few blocks that keep many pages", options,
                                             sizeof options / sizeof options[0]};

static bool stays(uint64_t number, uint64_t every)
{
    static uint32_t random;
    random = bench_xs32(random == 0 ? (uint32_t)seed : random);
    return is_random ? random % every == 0 : number % every == every / 2;
}

// Inlined into its three callers, whose calls of malloc tell them apart.
static inline __attribute__((always_inline)) void allocate(struct place *place)
{
    place->allocated = (place->mb << 20) / place->bytes;
    place->blocks = bench_map(place->allocated * sizeof *place->blocks);
    for (uint64_t i = 0; i < place->allocated; i++) {
        if ((place->blocks[i] = malloc(place->bytes)) == NULL)
            bench_fail("malloc gave NULL");
        *place->blocks[i] = 1;
    }
}

static __attribute__((noinline)) void allocate_dense(void) { allocate(&places[0]); }
static __attribute__((noinline)) void allocate_even(void) { allocate(&places[1]); }
static __attribute__((noinline)) void allocate_thin(void) { allocate(&places[2]); }

static void leave_some(struct place *place)
{
    uint64_t every = place->apart / place->bytes;
    for (uint64_t i = 0; i < place->allocated; i++) {
        if (stays(i, every > 0 ? every : 1))
            place->blocks[place->count++] = place->blocks[i];
        else
            free(place->blocks[i]);
    }
}

static void *sleep_on(void *mutex)
{
    pthread_mutex_lock(mutex);
    return NULL;
}

// With a second thread there is a helper, which gives back what is free without a call.
static void start_another(void)
{
    static pthread_mutex_t over = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;
    pthread_mutex_lock(&over);
    if (pthread_create(&thread, NULL, sleep_on, &over) != 0)
        bench_fail("cannot start a thread");
}

static void free_place(struct place *place)
{
    told_answer("%llu",
                (unsigned long long)(bench_drain(place->blocks, place->count) * place->bytes));
    place->count = 0;
}

int main(int argc, char **argv)
{
    char line[16];
    bench_open(&program, argc, argv);
    start_another();
    told_answer("waiting");
    while (told_next(line, sizeof line, -1)) {
        if (strcmp(line, "leave") == 0) {
            allocate_dense();
            allocate_even();
            allocate_thin();
            for (int at = 0; at < PLACES; at++)
                leave_some(&places[at]);
            told_answer("ready");
        } else if (line[0] >= '0' && line[0] < '0' + PLACES) {
            free_place(&places[line[0] - '0']);
        }
    }
    return 0;
}
