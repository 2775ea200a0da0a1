// SPDX-License-Identifier: MIT OR Apache-2.0
// larson: each lane owns `chunks` live blocks, filled by the main thread. A
// thread frees a random one and allocates another of random size, and after
// rounds * chunks of these starts its successor on the same lane and exits. So
// blocks outlive the threads that made them. Runs for a fixed time.
#include "harness/common.h"

#include <pthread.h>
#include <stdatomic.h>

enum { LANES_MAX = 64 };

static uint64_t lane_count = 2;
static uint64_t chunk_count = 1024;
static uint64_t round_count = 100;
static uint64_t size_min = 8;
static uint64_t size_max = 1024;
static uint64_t run_ms = 1000;
static uint64_t seed = 1;

static const struct bench_option options[] = {
    {"threads", &lane_count, 1, LANES_MAX, "lanes, one running thread each"},
    {"chunks", &chunk_count, 1, 1000000, "live blocks of each lane"},
    {"rounds", &round_count, 1, 1000000, "a thread exits after rounds * chunks operations"},
    {"min", &size_min, 2, 1 << 30, "smallest block in bytes"},
    {"max", &size_max, 2, 1 << 30, "largest block in bytes"},
    {"run-ms", &run_ms, 1, 3600000, "time to run in milliseconds"},
    {"seed", &seed, 0, UINT32_MAX, "seed of the first lane"},
};

static const struct bench_program program = {
    "larson", "threads replace random blocks, then hand them to a successor", options,
    sizeof options / sizeof options[0]};

struct lane {
    unsigned char **blocks;
    uint32_t number;
    uint32_t state;
    uint64_t ops;
    uint64_t generations;
    uint64_t spoiled;
};

static atomic_bool stop_asked;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t lane_ended = PTHREAD_COND_INITIALIZER;
static uint64_t lanes_running;

// Known again at the end of the run, by which block of which lane it is.
static unsigned char mark_of(const struct lane *lane, uint32_t index)
{
    return (unsigned char)(index + lane->number);
}

static unsigned char *new_block(uint32_t r, unsigned char mark)
{
    uint32_t low = (uint32_t)size_min;
    uint32_t size_bytes = low + (r >> 4) % (uint32_t)(size_max - size_min + 1);
    unsigned char *block = bench_alloc(size_bytes);
    bench_touch(block, size_bytes, mark);
    return block;
}

static void replace_blocks(struct lane *lane)
{
    uint32_t r = lane->state;
    uint32_t count = (uint32_t)chunk_count;
    unsigned char **blocks = lane->blocks;
    for (uint32_t i = 0; i < count; i++) {
        r = bench_lcg(r);
        uint32_t index = r % count;
        free(blocks[index]);
        blocks[index] = new_block(r, mark_of(lane, index));
    }
    lane->state = r;
    lane->ops += count;
}

static void end_lane(void)
{
    pthread_mutex_lock(&lock);
    lanes_running--;
    pthread_cond_signal(&lane_ended);
    pthread_mutex_unlock(&lock);
}

static void *run_generation(void *argument);

static void start_generation(struct lane *lane)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_generation, lane) != 0)
        bench_fail("cannot start a successor thread");
    pthread_detach(thread);
}

// Relaxed: the flag orders nothing, it only ends the run soon.
static void *run_generation(void *argument)
{
    struct lane *lane = argument;
    lane->generations++;
    for (uint64_t round = 0; round < round_count; round++) {
        if (atomic_load_explicit(&stop_asked, memory_order_relaxed)) {
            end_lane();
            return NULL;
        }
        replace_blocks(lane);
    }
    start_generation(lane);
    return NULL;
}

static void fill_lane(struct lane *lane, uint32_t index)
{
    lane->blocks = bench_map(chunk_count * sizeof *lane->blocks);
    lane->number = index;
    lane->state = (uint32_t)seed + index * 7919U;
    for (uint32_t k = 0; k < chunk_count; k++) {
        lane->state = bench_lcg(lane->state);
        lane->blocks[k] = new_block(lane->state, mark_of(lane, k));
    }
}

// Untimed: every block is still the one that its lane wrote to.
static void empty_lane(struct lane *lane)
{
    for (uint32_t k = 0; k < chunk_count; k++) {
        lane->spoiled += lane->blocks[k][0] != mark_of(lane, k);
        free(lane->blocks[k]);
    }
}

// Every generation but the last has done its rounds.
static bool has_generations(const struct lane *lane)
{
    return lane->generations == lane->ops / (round_count * chunk_count) + 1;
}

static void run_lanes(struct lane *lanes)
{
    lanes_running = lane_count;
    for (uint64_t i = 0; i < lane_count; i++)
        start_generation(&lanes[i]);
    bench_sleep_ms(run_ms);
    atomic_store_explicit(&stop_asked, true, memory_order_relaxed);
    pthread_mutex_lock(&lock);
    while (lanes_running > 0)
        pthread_cond_wait(&lane_ended, &lock);
    pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv)
{
    static struct lane lanes[LANES_MAX];
    bench_open(&program, argc, argv);
    if (size_min > size_max)
        bench_fail("--min is above --max");
    for (uint32_t i = 0; i < lane_count; i++)
        fill_lane(&lanes[i], i);

    struct bench_clock clock;
    struct bench_result result = {0};
    bench_clock_start(&clock);
    run_lanes(lanes);
    bench_clock_stop(&clock);

    uint64_t ops = 0, generations = 0, spoiled = 0, worked = 0, succeeded = 0;
    for (uint64_t i = 0; i < lane_count; i++) {
        empty_lane(&lanes[i]);
        spoiled += lanes[i].spoiled;
        worked += lanes[i].ops > 0;
        succeeded += has_generations(&lanes[i]);
        ops += lanes[i].ops;
        generations += lanes[i].generations;
    }
    bench_figures_of(&result, &clock, ops);
    bench_figure(&result, "generations", (double)generations);
    bench_verify(&result, "contents_intact", spoiled == 0);
    bench_verify(&result, "every_lane_worked", worked == lane_count);
    bench_verify(&result, "successors_after_their_rounds", succeeded == lane_count);
    return bench_report(&program, &result);
}
