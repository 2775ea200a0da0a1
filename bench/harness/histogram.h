// SPDX-License-Identifier: MIT OR Apache-2.0
// A log-linear histogram of nanoseconds in HdrHistogram's bucket layout: from 1 ns
// to 60 s with 3 significant figures, so that the lab reads and merges the counts
// with the `hdrhistogram` package. One thread records; threads are merged after.
//
// Values up to 2047 have a count each; every further power of two is cut into
// 1024 equal parts. All figures are computed from the counts alone.
#ifndef EBB_BENCH_HISTOGRAM_H
#define EBB_BENCH_HISTOGRAM_H

#include "common.h"

#define HISTOGRAM_HIGHEST_NS UINT64_C(60000000000)

enum {
    HISTOGRAM_LOWEST_NS = 1,
    HISTOGRAM_FIGURES = 3,
    HISTOGRAM_HALF_BITS = 10, // 2 * 10^3 values of single-unit resolution, rounded up to 2^11
    HISTOGRAM_HALF = 1 << HISTOGRAM_HALF_BITS,
    HISTOGRAM_BUCKETS = 26, // the least with 2048 << (buckets - 1) above the highest value
    HISTOGRAM_COUNTS = (HISTOGRAM_BUCKETS + 1) * HISTOGRAM_HALF,
};

struct histogram {
    uint64_t counts[HISTOGRAM_COUNTS];
};

// The power of two at the top of the value selects the bucket, the next 10 bits the part.
static inline size_t histogram_index(uint64_t value_ns)
{
    unsigned top = 63U - (unsigned)__builtin_clzll(value_ns | (2 * HISTOGRAM_HALF - 1));
    unsigned bucket = top - HISTOGRAM_HALF_BITS;
    return ((size_t)bucket << HISTOGRAM_HALF_BITS) + (size_t)(value_ns >> bucket);
}

// A value above the highest is counted as the highest.
static inline void histogram_record(struct histogram *histogram, uint64_t value_ns)
{
    uint64_t known_ns = value_ns < HISTOGRAM_HIGHEST_NS ? value_ns : HISTOGRAM_HIGHEST_NS;
    histogram->counts[histogram_index(known_ns)]++;
}

// Zeroed memory of the harness, resident page by page as values come.
struct histogram *histogram_create(void);
void histogram_destroy(struct histogram *histogram);

// Makes every page resident now, where later ones would be taken for the allocator's.
void histogram_make_resident(struct histogram *histogram);

// Moves the counts of `from`, which is empty after, into `into`.
void histogram_merge(struct histogram *into, struct histogram *from);

// The range of values that share one count.
uint64_t histogram_lowest_at(size_t index);
uint64_t histogram_highest_at(size_t index);

// 0 for an empty histogram. A percentile is the highest value that shares its count.
uint64_t histogram_total(const struct histogram *histogram);
uint64_t histogram_percentile(const struct histogram *histogram, double percent);
double histogram_mean(const struct histogram *histogram);

// Adds the figures PREFIX_mean_ns, _p50_ns, _p99_ns, _p999_ns, _p9999_ns and _max_ns,
// and the counts themselves as PREFIX_ns.
void histogram_report(struct bench_result *result, const char *prefix,
                      const struct histogram *histogram);

#endif
