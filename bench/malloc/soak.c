// SPDX-License-Identifier: MIT OR Apache-2.0
// soak: the loop of random-mixed in epochs of one second for as long as is asked.
// Does resident memory creep, does throughput sag, does one epoch have worse
// latencies than the others? Every block carries the mark of its slot, which is
// checked when it is freed.
#include "harness/common.h"
#include "harness/histogram.h"
#include "harness/timer.h"

#include <math.h>

enum { PERIOD = 64, STRETCH = 64 * PERIOD, EPOCHS_MAX = 36000, FIFTHS = 5 };

static uint64_t total_s = 30;
static uint64_t epoch_ms = 1000;
static uint64_t slot_count = 400;
static uint64_t size_min = 16;
static uint64_t size_max = 1040;
static uint64_t seed = 1;

static const struct bench_option options[] = {
    {"seconds", &total_s, 1, 3600, "time to run after one epoch of warm-up"},
    {"epoch-ms", &epoch_ms, 10, 60000, "length of an epoch in milliseconds"},
    {"slots", &slot_count, 1, 100000000, "slots, half of them full on average"},
    {"min", &size_min, 1, 1 << 20, "smallest block in bytes"},
    {"max", &size_max, 1, 1 << 20, "largest block in bytes"},
    {"seed", &seed, 1, UINT32_MAX, "seed of the generator"},
};

static const struct bench_program program = {
    "soak", "drift of memory and throughput over many epochs of random slots", options,
    sizeof options / sizeof options[0]};

struct epoch {
    double mops_per_cpu_s;
    double rss_mb;
};

struct soak {
    unsigned char **slots;
    uint32_t state;
    uint64_t ops;
    uint64_t timed_ops;
    uint64_t spoiled;
    uint64_t live; // blocks in the slots
    uint64_t drained;
    uint64_t worst_p99_ns;
    struct bench_timer timer;
    struct bench_clock clock; // the sum of all epochs
    struct histogram *epoch_ns;
    struct histogram *all_ns;
    struct epoch *epochs;
    uint64_t epoch_count;
};

static uint32_t clamp(uint32_t size_bytes)
{
    if (size_bytes < size_min)
        return (uint32_t)size_min;
    return size_bytes > size_max ? (uint32_t)size_max : size_bytes;
}

static unsigned char mark_of(size_t slot) { return (unsigned char)(slot * 167 + 1); }

static inline void toggle(struct soak *soak, size_t slot, uint32_t size_bytes)
{
    unsigned char **block = &soak->slots[slot];
    if (*block != NULL) {
        free(*block);
        *block = NULL;
    } else {
        *block = bench_alloc(size_bytes);
    }
}

// The section holds the test of the slot too, which is the same for every allocator.
static void toggle_timed(struct soak *soak, size_t slot, uint32_t size_bytes)
{
    uint64_t start = bench_timer_start();
    toggle(soak, slot, size_bytes);
    uint64_t stop = bench_timer_stop();
    histogram_record(soak->epoch_ns, bench_timer_ns(&soak->timer, start, stop));
}

static void run_stretch(struct soak *soak)
{
    uint32_t r = soak->state;
    uint32_t count = (uint32_t)slot_count;
    uint64_t spoiled = 0, mallocs = 0;
    for (int i = 0; i < STRETCH; i++) {
        r = bench_xs32(r);
        size_t slot = r % count;
        unsigned char *old = soak->slots[slot];
        spoiled += old != NULL && *old != mark_of(slot);
        if (i % PERIOD == 0)
            toggle_timed(soak, slot, clamp(16 + (r & 1023)));
        else
            toggle(soak, slot, clamp(16 + (r & 1023)));
        if (old != NULL)
            continue;
        *soak->slots[slot] = mark_of(slot);
        mallocs++;
    }
    soak->state = r;
    soak->spoiled += spoiled;
    soak->live += 2 * mallocs - STRETCH; // what was not a malloc was a free
}

static uint64_t run_epoch(struct soak *soak, struct bench_clock *clock)
{
    uint64_t ops = 0;
    uint64_t start = bench_timer_start();
    bench_clock_start(clock);
    while (bench_timer_since(&soak->timer, start) < epoch_ms * 1000000) {
        run_stretch(soak);
        ops += STRETCH;
    }
    bench_clock_stop(clock);
    return ops;
}

static void add_clock(struct bench_clock *sum, const struct bench_clock *clock)
{
    sum->wall_s += clock->wall_s;
    sum->cpu_s += clock->cpu_s;
    sum->system_s += clock->system_s;
    sum->minor_faults += clock->minor_faults;
    sum->major_faults += clock->major_faults;
}

static void record_epoch(struct soak *soak, struct epoch *epoch)
{
    struct bench_clock clock;
    uint64_t ops = run_epoch(soak, &clock);
    epoch->mops_per_cpu_s = (double)ops * 1e-6 / clock.cpu_s;
    epoch->rss_mb = (double)bench_rss_kb() * 1024e-6;
    add_clock(&soak->clock, &clock);
    soak->ops += ops;
    soak->timed_ops += histogram_total(soak->epoch_ns);
    uint64_t p99_ns = histogram_percentile(soak->epoch_ns, 99);
    if (p99_ns > soak->worst_p99_ns)
        soak->worst_p99_ns = p99_ns;
    histogram_merge(soak->all_ns, soak->epoch_ns);
}

static void drain_slots(struct soak *soak)
{
    for (size_t slot = 0; slot < slot_count; slot++) {
        if (soak->slots[slot] == NULL)
            continue;
        soak->spoiled += *soak->slots[slot] != mark_of(slot);
        free(soak->slots[slot]);
        soak->drained++;
    }
}

// All memory of the harness is resident before the first epoch, so that what grows
// later is the allocator's. The warm-up fills the slots and its samples are dropped.
static void prepare(struct soak *soak)
{
    struct bench_clock unused;
    soak->epoch_count = total_s * 1000 / epoch_ms;
    if (soak->epoch_count < FIFTHS || soak->epoch_count > EPOCHS_MAX)
        bench_fail("%zu epochs: want from %d to %d", (size_t)soak->epoch_count, FIFTHS, EPOCHS_MAX);
    soak->epochs = bench_map(soak->epoch_count * sizeof *soak->epochs);
    for (uint64_t i = 0; i < soak->epoch_count; i++)
        soak->epochs[i] = (struct epoch){-1, -1};
    soak->slots = bench_map(slot_count * sizeof *soak->slots);
    soak->state = (uint32_t)seed;
    soak->timer = bench_timer_open();
    soak->epoch_ns = histogram_create();
    soak->all_ns = histogram_create();
    run_epoch(soak, &unused);
    histogram_make_resident(soak->epoch_ns);
    histogram_make_resident(soak->all_ns);
}

// --- figures -----------------------------------------------------------------

static double cpu_rate(const struct epoch *epoch) { return epoch->mops_per_cpu_s; }

static double memory(const struct epoch *epoch) { return epoch->rss_mb; }

static int compare_numbers(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

// The median of the epochs of one fifth, counted from 0. After the measured time, so
// qsort may allocate.
static double median_of_fifth(const struct soak *soak, uint64_t fifth,
                              double (*figure)(const struct epoch *))
{
    uint64_t first = fifth * soak->epoch_count / FIFTHS;
    uint64_t count = (fifth + 1) * soak->epoch_count / FIFTHS - first;
    double *values = bench_map(count * sizeof *values);
    for (uint64_t i = 0; i < count; i++)
        values[i] = figure(&soak->epochs[first + i]);
    qsort(values, count, sizeof *values, compare_numbers);
    double median = (values[(count - 1) / 2] + values[count / 2]) / 2;
    bench_unmap(values, count * sizeof *values);
    return median;
}

// The first fifth is the time to settle.
static double drift_percent(const struct soak *soak, double (*figure)(const struct epoch *))
{
    double settled = median_of_fifth(soak, 1, figure);
    return 100 * (median_of_fifth(soak, FIFTHS - 1, figure) - settled) / settled;
}

static double rate_cv_percent(const struct soak *soak)
{
    double count = (double)soak->epoch_count, mean = 0, squares = 0;
    for (uint64_t i = 0; i < soak->epoch_count; i++)
        mean += soak->epochs[i].mops_per_cpu_s / count;
    for (uint64_t i = 0; i < soak->epoch_count; i++) {
        double off = soak->epochs[i].mops_per_cpu_s - mean;
        squares += off * off / (count - 1);
    }
    return 100 * sqrt(squares) / mean;
}

// Every n-th epoch, with the least n that lets the series fit.
static void report_series(struct bench_result *result, const struct soak *soak)
{
    uint64_t step = (soak->epoch_count + BENCH_SERIES_MAX - 1) / BENCH_SERIES_MAX;
    result->series_step_s = (double)step * (double)epoch_ms * 1e-3;
    for (uint64_t i = step - 1; i < soak->epoch_count; i += step)
        result->series[result->series_count++] = soak->epochs[i].rss_mb;
}

static void report_epochs(struct bench_result *result, const struct soak *soak)
{
    bench_figure(result, "epochs", (double)soak->epoch_count);
    bench_figure(result, "rss_drift_percent", drift_percent(soak, memory));
    bench_figure(result, "throughput_drift_percent", drift_percent(soak, cpu_rate));
    bench_figure(result, "epoch_cv_percent", rate_cv_percent(soak));
    bench_figure(result, "worst_epoch_p99_ns", (double)soak->worst_p99_ns);
}

int main(int argc, char **argv)
{
    static struct soak soak;
    static struct bench_result result;
    bench_open(&program, argc, argv);
    if (size_min > size_max)
        bench_fail("--min is above --max");
    prepare(&soak);
    for (uint64_t i = 0; i < soak.epoch_count; i++)
        record_epoch(&soak, &soak.epochs[i]);
    drain_slots(&soak);

    bench_figures_of(&result, &soak.clock, soak.ops);
    report_epochs(&result, &soak);
    report_series(&result, &soak);
    histogram_report(&result, "op", soak.all_ns);
    bench_timer_report(&result, &soak.timer);
    bench_verify(&result, "contents_intact", soak.spoiled == 0);
    bench_verify(&result, "every_block_freed", soak.drained == soak.live);
    bench_verify(&result, "every_64th_op_timed", soak.timed_ops == soak.ops / PERIOD);
    return bench_report(&program, &result);
}
