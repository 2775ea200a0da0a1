// SPDX-License-Identifier: MIT OR Apache-2.0
// burst-idle: threads fill memory with small blocks, free all of them or all but
// a few survivors, then sleep. Resident memory is read while nobody allocates:
// the threads stay alive, as those of a pool would.
#include "harness/common.h"

#include <pthread.h>

enum { THREADS_MAX = 64, SAMPLE_MS = 1000 };

static uint64_t thread_count = 8;
static uint64_t total_mb = 1024;
static uint64_t size_min = 16;
static uint64_t size_max = 585;
static uint64_t survivors_per_mille = 0;
static uint64_t idle_s = 10;
static uint64_t seed = 1;

static const struct bench_option options[] = {
    {"threads", &thread_count, 1, THREADS_MAX, "threads that fill and free"},
    {"mb", &total_mb, 1, 1 << 20, "requested bytes at the peak, in 10^6"},
    {"min", &size_min, 1, 1 << 20, "smallest block in bytes"},
    {"max", &size_max, 1, 1 << 20, "largest block in bytes"},
    {"survivors-per-mille", &survivors_per_mille, 0, 1000, "blocks kept, of each thousand"},
    {"idle-s", &idle_s, 1, BENCH_SERIES_MAX, "seconds asleep, one sample each"},
    {"seed", &seed, 0, UINT32_MAX, "seed of the first thread"},
};

static const struct bench_program program = {"burst-idle",
                                             "memory that an idle process gives back after a burst",
                                             options, sizeof options / sizeof options[0]};

struct worker {
    pthread_t thread;
    uint32_t state;
    uint64_t live_bytes;
    uint64_t spoiled;
};

static pthread_barrier_t ready;
static pthread_barrier_t filled;
static pthread_barrier_t freed;
static pthread_barrier_t idle_over;

// A surviving block is threaded onto a list through its own bytes: the harness
// keeps no array, whose pages would count as resident.
struct survivor {
    struct survivor *next;
};

static uint64_t blocks_per_thread(void)
{
    uint64_t mean_bytes = (size_min + size_max) / 2;
    return total_mb * 1000000 / thread_count / mean_bytes + 1;
}

static uint32_t next_size(uint32_t r)
{
    return (uint32_t)size_min + (r >> 4) % (uint32_t)(size_max - size_min + 1);
}

static void fill(struct worker *worker, unsigned char **blocks, uint64_t count)
{
    uint32_t r = worker->state;
    for (uint64_t i = 0; i < count; i++) {
        r = bench_lcg(r);
        uint32_t size_bytes = next_size(r);
        blocks[i] = bench_alloc(size_bytes);
        bench_touch(blocks[i], size_bytes, (unsigned char)(r >> 24));
    }
}

// Replays the generator of `fill` to know each block's size and mark.
static struct survivor *free_but_survivors(struct worker *worker, unsigned char **blocks,
                                           uint64_t count)
{
    struct survivor *kept = NULL;
    uint32_t r = worker->state;
    uint32_t choice = worker->state ^ 0x9E3779B9U;
    for (uint64_t i = 0; i < count; i++) {
        r = bench_lcg(r);
        choice = bench_lcg(choice);
        worker->spoiled += blocks[i][0] != (unsigned char)(r >> 24);
        if ((choice >> 8) % 1000 >= survivors_per_mille) {
            free(blocks[i]);
            continue;
        }
        worker->live_bytes += next_size(r);
        struct survivor *survivor = (struct survivor *)(void *)blocks[i];
        survivor->next = kept;
        kept = survivor;
    }
    return kept;
}

static void free_survivors(struct survivor *kept)
{
    while (kept != NULL) {
        struct survivor *next = kept->next;
        free(kept);
        kept = next;
    }
}

static void *run_worker(void *argument)
{
    struct worker *worker = argument;
    uint64_t count = blocks_per_thread();
    unsigned char **blocks = bench_map(count * sizeof *blocks);
    pthread_barrier_wait(&ready);
    fill(worker, blocks, count);
    pthread_barrier_wait(&filled);
    struct survivor *kept = free_but_survivors(worker, blocks, count);
    bench_unmap(blocks, count * sizeof *blocks);
    pthread_barrier_wait(&freed);
    pthread_barrier_wait(&idle_over);
    free_survivors(kept);
    return NULL;
}

static void start_workers(struct worker *workers)
{
    unsigned parties = (unsigned)thread_count + 1;
    pthread_barrier_init(&ready, NULL, parties);
    pthread_barrier_init(&filled, NULL, parties);
    pthread_barrier_init(&freed, NULL, parties);
    pthread_barrier_init(&idle_over, NULL, parties);
    for (uint32_t i = 0; i < thread_count; i++) {
        workers[i].state = (uint32_t)seed + i * 7919U;
        if (pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]) != 0)
            bench_fail("cannot start thread %u", i);
    }
}

static double rss_mb(void) { return (double)bench_rss_kb() * 1024e-6; }

static void watch_idle(struct bench_result *result)
{
    result->series_step_s = SAMPLE_MS * 1e-3;
    for (uint64_t second = 0; second < idle_s; second++) {
        bench_sleep_ms(SAMPLE_MS);
        result->series[result->series_count++] = rss_mb();
    }
}

static void report_memory(struct bench_result *result, double peak_mb, double after_free_mb,
                          uint64_t live_bytes)
{
    double idle_mb = result->series[result->series_count - 1];
    bench_figure(result, "rss_at_peak_mb", peak_mb);
    bench_figure(result, "rss_after_free_mb", after_free_mb);
    bench_figure(result, "rss_after_idle_mb", idle_mb);
    bench_figure(result, "idle_percent_of_peak", 100.0 * idle_mb / peak_mb);
    bench_figure(result, "live_mb", (double)live_bytes * 1e-6);
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS_MAX];
    static struct bench_result result;
    bench_open(&program, argc, argv);
    if (size_min > size_max || (survivors_per_mille > 0 && size_min < sizeof(struct survivor)))
        bench_fail("--min is above --max, or too small for a survivor's link");
    start_workers(workers);

    struct bench_clock clock;
    pthread_barrier_wait(&ready);
    bench_clock_start(&clock);
    pthread_barrier_wait(&filled);
    double peak_mb = rss_mb();
    pthread_barrier_wait(&freed);
    bench_clock_stop(&clock);
    double after_free_mb = rss_mb();
    watch_idle(&result);
    pthread_barrier_wait(&idle_over);

    uint64_t live_bytes = 0, spoiled = 0;
    for (uint64_t i = 0; i < thread_count; i++) {
        pthread_join(workers[i].thread, NULL);
        live_bytes += workers[i].live_bytes;
        spoiled += workers[i].spoiled;
    }
    bench_figures_of(&result, &clock, 2 * blocks_per_thread() * thread_count);
    report_memory(&result, peak_mb, after_free_mb, live_bytes);
    bench_verify(&result, "contents_intact", spoiled == 0);
    bench_verify(&result, "peak_holds_the_burst", peak_mb * 1e6 >= 0.8 * (double)total_mb * 1e6);
    return bench_report(&program, &result);
}
