// SPDX-License-Identifier: MIT OR Apache-2.0
// phase-shift: a program whose sizes and number of threads change. Each phase has
// new threads that fill slots up to the target live set, then replace random ones
// until the phase ends. At its end they free their blocks but for one in eight:
// those are carried over, and threads of the next phase free them halfway through
// it. Judged by memory: how much is resident for each live byte.
#include "harness/block.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    THREADS_MAX = 8,
    PHASES_MAX = BENCH_SERIES_MAX,
    SAMPLE_MS = 100,
    CARRIED_OF = 8, // one block in so many
    BATCH = 16,     // replacements between two looks at the clock's flags
};

static uint64_t phase_count = 6;
static uint64_t phase_ms = 2000;
static uint64_t live_target_mb = 64;
static uint64_t seed = 1;

static const struct bench_option options[] = {
    {"phases", &phase_count, 2, PHASES_MAX, "phases; the table of six cycles"},
    {"phase-ms", &phase_ms, 10, 3600000, "length of a phase in milliseconds"},
    {"live-mb", &live_target_mb, 1, 1 << 14, "target of live bytes, in 10^6"},
    {"seed", &seed, 0, UINT32_MAX, "seed of the first thread"},
};

static const struct bench_program program = {"phase-shift",
                                             "sizes and threads change while memory stays live",
                                             options, sizeof options / sizeof options[0]};

struct phase {
    uint32_t size_min;
    uint32_t size_max;
    uint32_t threads;
};

static const struct phase phases[] = {
    {32, 480, 1},        {16, 2048, 8}, {4096, 32768, 2},
    {65536, 1 << 20, 1}, {32, 480, 4},  {512, 16384, 8},
};

enum { TABLE_COUNT = sizeof phases / sizeof phases[0] };

// A worker of one phase. The counters go on through all phases; live_bytes may be
// negative, because a block is counted by whoever makes and whoever frees it.
struct worker {
    _Alignas(BENCH_LINE_BYTES) pthread_t thread;
    const struct phase *phase;
    struct block *slots;
    uint64_t slot_count;
    struct block *carried; // from the phase before
    uint64_t carried_count;
    uint32_t state;
    uint64_t made;
    uint64_t freed;
    uint64_t spoiled;
    uint64_t carried_freed;
    _Atomic int64_t live_bytes;
};

struct samples {
    uint64_t per_phase;
    uint64_t step_ms;
    uint64_t harness_bytes;
    double live_sum;
    double live_peak;
    double rss_sum;
};

static struct worker workers[THREADS_MAX];
static struct block *slots;
static struct block *carried;
static uint64_t carried_count;
static uint64_t carried_total;
static atomic_bool half_over;
static atomic_bool phase_over;

// Relaxed, here and for the flags: figures and hints, which order nothing.
static void count_live(struct worker *worker, int64_t change_bytes)
{
    int64_t live = atomic_load_explicit(&worker->live_bytes, memory_order_relaxed);
    atomic_store_explicit(&worker->live_bytes, live + change_bytes, memory_order_relaxed);
}

static void free_block(struct worker *worker, struct block *block)
{
    worker->spoiled += !block_is_intact(block);
    free(block->start);
    worker->freed++;
    count_live(worker, -(int64_t)block->size_bytes);
    block->start = NULL;
}

static void make_block(struct worker *worker, struct block *slot, uint32_t r)
{
    uint32_t size_bytes = block_size(r, worker->phase->size_min, worker->phase->size_max);
    *slot = block_make(size_bytes, (unsigned char)(r >> 24));
    worker->made++;
    count_live(worker, size_bytes);
}

static void fill(struct worker *worker)
{
    for (uint64_t k = 0; k < worker->slot_count; k++) {
        worker->state = bench_lcg(worker->state);
        make_block(worker, &worker->slots[k], worker->state);
    }
}

static void replace_batch(struct worker *worker)
{
    for (int i = 0; i < BATCH; i++) {
        uint32_t r = bench_lcg(worker->state);
        struct block *slot = &worker->slots[(r >> 4) % worker->slot_count];
        worker->state = bench_lcg(r);
        free_block(worker, slot);
        make_block(worker, slot, worker->state);
    }
}

static void free_carried(struct worker *worker)
{
    for (uint64_t k = 0; k < worker->carried_count; k++)
        free_block(worker, &worker->carried[k]);
    worker->carried_freed += worker->carried_count;
    worker->carried_count = 0;
}

static void *run_worker(void *argument)
{
    struct worker *worker = argument;
    fill(worker);
    do {
        replace_batch(worker);
        if (atomic_load_explicit(&half_over, memory_order_relaxed))
            free_carried(worker);
    } while (!atomic_load_explicit(&phase_over, memory_order_relaxed));
    free_carried(worker);
    for (uint64_t k = 0; k < worker->slot_count; k++)
        if (k % CARRIED_OF != 0)
            free_block(worker, &worker->slots[k]);
    return NULL;
}

static int64_t live_bytes(void)
{
    int64_t sum = 0;
    for (int i = 0; i < THREADS_MAX; i++)
        sum += atomic_load_explicit(&workers[i].live_bytes, memory_order_relaxed);
    return sum;
}

static uint64_t mean_bytes(const struct phase *phase)
{
    return (phase->size_min + phase->size_max) / 2;
}

// What is carried over counts towards the target.
static uint64_t slots_per_worker(const struct phase *phase)
{
    int64_t wanted = (int64_t)(live_target_mb * 1000000) - live_bytes();
    uint64_t each = wanted > 0 ? (uint64_t)wanted / mean_bytes(phase) / phase->threads : 0;
    return each > 0 ? each : 1;
}

static void start_phase(uint64_t number)
{
    const struct phase *phase = &phases[number % TABLE_COUNT];
    uint64_t each = slots_per_worker(phase);
    atomic_store_explicit(&half_over, false, memory_order_relaxed);
    atomic_store_explicit(&phase_over, false, memory_order_relaxed);
    for (uint64_t i = 0; i < phase->threads; i++) {
        struct worker *worker = &workers[i];
        uint64_t from = carried_count * i / phase->threads;
        worker->phase = phase;
        worker->slots = slots + i * each;
        worker->slot_count = each;
        worker->carried = carried + from;
        worker->carried_count = carried_count * (i + 1) / phase->threads - from;
        worker->state = (uint32_t)(seed + number * 104729U + i * 7919U);
        if (pthread_create(&worker->thread, NULL, run_worker, worker) != 0)
            bench_fail("cannot start a thread of phase %u", (unsigned)number);
    }
}

// What the threads have left is gathered for the next phase.
static void end_phase(uint64_t number)
{
    uint64_t threads = phases[number % TABLE_COUNT].threads;
    atomic_store_explicit(&phase_over, true, memory_order_relaxed);
    for (uint64_t i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    carried_count = 0;
    for (uint64_t i = 0; i < threads; i++)
        for (uint64_t k = 0; k < workers[i].slot_count; k += CARRIED_OF)
            carried[carried_count++] = workers[i].slots[k];
    carried_total += carried_count;
}

// Every 100 ms, or more seldom if the series would not hold them.
static struct samples plan_samples(void)
{
    uint64_t wanted = phase_ms / SAMPLE_MS;
    uint64_t room = BENCH_SERIES_MAX / phase_count;
    uint64_t per_phase = wanted < room ? wanted : room;
    per_phase = per_phase > 0 ? per_phase : 1;
    return (struct samples){.per_phase = per_phase, .step_ms = phase_ms / per_phase};
}

static void take_sample(struct samples *samples, struct bench_result *result)
{
    double live = (double)live_bytes();
    double rss = (double)bench_rss_kb() * 1024;
    result->series[result->series_count++] = rss * 1e-6;
    samples->live_sum += live;
    samples->live_peak = live > samples->live_peak ? live : samples->live_peak;
    samples->rss_sum += rss - (double)samples->harness_bytes;
}

static void run_phases(struct samples *samples, struct bench_result *result)
{
    for (uint64_t number = 0; number < phase_count; number++) {
        start_phase(number);
        for (uint64_t i = 0; i < samples->per_phase; i++) {
            if (i == samples->per_phase / 2)
                atomic_store_explicit(&half_over, true, memory_order_relaxed);
            bench_sleep_ms(samples->step_ms);
            take_sample(samples, result);
        }
        end_phase(number);
    }
    workers[0].carried = carried;
    workers[0].carried_count = carried_count;
    free_carried(&workers[0]);
}

// Room for the smallest blocks, written at once: the harness's share of the
// resident memory is then known, and is taken off.
static uint64_t map_slots(void)
{
    uint64_t most = 0;
    for (int i = 0; i < TABLE_COUNT; i++) {
        uint64_t count = live_target_mb * 1000000 / mean_bytes(&phases[i]) + THREADS_MAX;
        most = count > most ? count : most;
    }
    uint64_t carried_most = most / CARRIED_OF + THREADS_MAX;
    slots = bench_map(most * sizeof *slots);
    carried = bench_map(carried_most * sizeof *carried);
    for (uint64_t k = 0; k < most; k++)
        slots[k].mark = 1;
    for (uint64_t k = 0; k < carried_most; k++)
        carried[k].mark = 1;
    return (most + carried_most) * sizeof *slots;
}

static void report_memory(struct bench_result *result, const struct samples *samples)
{
    double count = (double)result->series_count;
    double harness_kb = (double)samples->harness_bytes / 1024;
    double peak_bytes = ((double)bench_peak_rss_kb() - harness_kb) * 1024;
    bench_figure(result, "mean_rss_mb", samples->rss_sum / count * 1e-6);
    bench_figure(result, "mean_live_mb", samples->live_sum / count * 1e-6);
    bench_figure(result, "peak_live_mb", samples->live_peak * 1e-6);
    bench_figure(result, "harness_mb", (double)samples->harness_bytes * 1e-6);
    // Of sums: at a change of phase little is live, and a mean of ratios would
    // be the noise of when those few samples fell.
    bench_figure(result, "mean_rss_per_live", samples->rss_sum / samples->live_sum);
    bench_figure(result, "peak_rss_over_peak_live", peak_bytes / samples->live_peak);
}

static struct worker sum_workers(void)
{
    struct worker sum = {0};
    for (int i = 0; i < THREADS_MAX; i++) {
        sum.made += workers[i].made;
        sum.freed += workers[i].freed;
        sum.spoiled += workers[i].spoiled;
        sum.carried_freed += workers[i].carried_freed;
    }
    return sum;
}

int main(int argc, char **argv)
{
    static struct bench_result result;
    bench_open(&program, argc, argv);
    struct samples samples = plan_samples();
    samples.harness_bytes = map_slots();
    result.series_step_s = (double)samples.step_ms * 1e-3;

    struct bench_clock clock;
    bench_clock_start(&clock);
    run_phases(&samples, &result);
    bench_clock_stop(&clock);

    struct worker sum = sum_workers();
    bench_figures_of(&result, &clock, sum.made + sum.freed);
    report_memory(&result, &samples);
    bench_figure(&result, "carried_over", (double)carried_total);
    bench_verify(&result, "contents_intact", sum.spoiled == 0);
    bench_verify(&result, "every_block_freed", sum.made == sum.freed && live_bytes() == 0);
    bench_verify(&result, "carried_blocks_freed_by_others",
                 carried_total >= phase_count && sum.carried_freed == carried_total);
    return bench_report(&program, &result);
}
