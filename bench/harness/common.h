// SPDX-License-Identifier: MIT OR Apache-2.0
// What every workload program shares: arguments, clocks, the load check and the
// JSON report. Nothing here calls malloc, so a workload owns every allocation
// that it measures.
#ifndef EBB_BENCH_COMMON_H
#define EBB_BENCH_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum {
    BENCH_SCHEMA = 2,
    BENCH_FIELDS_MAX = 48,
    BENCH_SERIES_MAX = 256,
    BENCH_MORE_SERIES_MAX = 8,
    BENCH_HISTOGRAMS_MAX = 4,
    BENCH_LINE_BYTES = 64,
};

// One whole-number argument, given as `--name VALUE`.
struct bench_option {
    const char *name;
    uint64_t *value;
    uint64_t min;
    uint64_t max;
    const char *help;
};

struct bench_program {
    const char *name;
    const char *purpose;
    const struct bench_option *options;
    size_t option_count;
};

struct bench_clock {
    double wall_s;
    double cpu_s;
    double system_s; // of it, the kernel's own, as it tells
    uint64_t minor_faults;
    uint64_t major_faults;
};

struct bench_field {
    const char *name;
    double value;
};

struct bench_check {
    const char *name;
    bool holds;
};

struct histogram;

struct bench_named_histogram {
    const char *name;
    const struct histogram *histogram;
};

// Beside resident memory, at the same moments: as many values as that has.
struct bench_named_series {
    const char *name;
    double values[BENCH_SERIES_MAX];
};

// Filled by the workload, printed once by bench_report.
struct bench_result {
    struct bench_field figures[BENCH_FIELDS_MAX];
    size_t figure_count;
    struct bench_check checks[BENCH_FIELDS_MAX];
    size_t check_count;
    double series[BENCH_SERIES_MAX]; // resident memory over time, in MB
    size_t series_count;
    double series_step_s;
    struct bench_named_series more_series[BENCH_MORE_SERIES_MAX];
    size_t more_series_count;
    struct bench_named_histogram histograms[BENCH_HISTOGRAMS_MAX];
    size_t histogram_count;
};

// Every program also takes --plant-percent N, which bench_clock_stop obeys.
// Parses the arguments, then proves that malloc is the allocator that the
// environment variable LAB_EXPECT names. Exits with status 2 if either fails.
// (EBB_... names are the allocator's own options; it complains of others.)
void bench_open(const struct bench_program *program, int argc, char **argv);

// Prints the report; the exit status of the program: 1 if a check does not hold.
int bench_report(const struct bench_program *program, const struct bench_result *result);

void bench_figure(struct bench_result *result, const char *name, double value);
void bench_verify(struct bench_result *result, const char *name, bool holds);

// The no-op floor, whose blocks overlap by design: no check of contents can hold.
bool bench_is_floor(void);
void bench_histogram(struct bench_result *result, const char *name,
                     const struct histogram *histogram);

// Clocks are differences: start, work, stop. With --plant-percent N the stop first
// burns CPU on the calling thread until the process's CPU time, which the lab
// judges by, has grown by N %: a slow-down of known size. Wall time grows by as many
// seconds, so by N % too where one thread worked, by more where several did.
// Nothing but these two clocks is slowed: percentiles and memory are not.
void bench_clock_start(struct bench_clock *clock);
void bench_clock_stop(struct bench_clock *clock);

// Adds time, rates per second of `ops`, faults, and peak resident memory. Comes before
// the harness adds up its own data, whose pages would count.
void bench_figures_of(struct bench_result *result, const struct bench_clock *clock, uint64_t ops);

uint64_t bench_peak_rss_kb(void);
uint64_t bench_rss_kb(void);
void bench_sleep_ms(uint64_t delay_ms);

// Memory of the harness comes from the kernel, not from the allocator under test.
void *bench_map(size_t size_bytes);
void bench_unmap(void *memory, size_t size_bytes);

_Noreturn void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

// The generators keep their state in the caller's local, hence in a register: a
// state in memory would be slowed by the allocator's stores just before it.
static inline uint32_t bench_xs32(uint32_t x)
{
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return x;
}

static inline uint32_t bench_lcg(uint32_t s) { return s * 1664525U + 1013904223U; }

static inline unsigned char *bench_alloc(size_t size_bytes)
{
    unsigned char *block = malloc(size_bytes);
    if (block == NULL)
        bench_fail("malloc(%zu) gave NULL", size_bytes);
    return block;
}

// Frees what is in the slots; how many blocks that was.
static inline uint64_t bench_drain(unsigned char **slots, uint64_t count)
{
    uint64_t freed = 0;
    for (uint64_t k = 0; k < count; k++) {
        if (slots[k] == NULL)
            continue;
        free(slots[k]);
        freed++;
    }
    return freed;
}

// Both ends, so that a block that spans pages has all its ends resident.
static inline void bench_touch(unsigned char *block, size_t size_bytes, unsigned char mark)
{
    block[size_bytes - 1] = mark;
    block[0] = mark;
}

#endif
