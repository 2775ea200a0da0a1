// SPDX-License-Identifier: MIT OR Apache-2.0
// See histogram.h. Percentiles are found as the `hdrhistogram` package finds them.
#include "histogram.h"

#include <stdio.h>

enum { NAME_BYTES = 40, NAMES_MAX = 7 * BENCH_HISTOGRAMS_MAX };

_Static_assert((UINT64_C(2) * HISTOGRAM_HALF << (HISTOGRAM_BUCKETS - 1)) > HISTOGRAM_HIGHEST_NS,
               "the last bucket holds the highest value");
_Static_assert((UINT64_C(2) * HISTOGRAM_HALF << (HISTOGRAM_BUCKETS - 2)) <= HISTOGRAM_HIGHEST_NS,
               "no bucket is without a use");

struct histogram *histogram_create(void) { return bench_map(sizeof(struct histogram)); }

void histogram_destroy(struct histogram *histogram) { bench_unmap(histogram, sizeof *histogram); }

// Volatile: the compiler knows that new memory is zero, the kernel must see the store.
void histogram_make_resident(struct histogram *histogram)
{
    volatile uint64_t *counts = histogram->counts;
    for (size_t i = 0; i < HISTOGRAM_COUNTS; i++)
        counts[i] = 0;
}

// Zeros are not stored: that would make pages resident for nothing.
void histogram_merge(struct histogram *into, struct histogram *from)
{
    for (size_t i = 0; i < HISTOGRAM_COUNTS; i++) {
        if (from->counts[i] == 0)
            continue;
        into->counts[i] += from->counts[i];
        from->counts[i] = 0;
    }
}

// The first two halves share the bucket of single units.
static unsigned bucket_of(size_t index)
{
    size_t half = index >> HISTOGRAM_HALF_BITS;
    return half == 0 ? 0 : (unsigned)half - 1;
}

uint64_t histogram_lowest_at(size_t index)
{
    unsigned bucket = bucket_of(index);
    return (uint64_t)(index - ((size_t)bucket << HISTOGRAM_HALF_BITS)) << bucket;
}

uint64_t histogram_highest_at(size_t index)
{
    return histogram_lowest_at(index) + (UINT64_C(1) << bucket_of(index)) - 1;
}

uint64_t histogram_total(const struct histogram *histogram)
{
    uint64_t total = 0;
    for (size_t i = 0; i < HISTOGRAM_COUNTS; i++)
        total += histogram->counts[i];
    return total;
}

uint64_t histogram_percentile(const struct histogram *histogram, double percent)
{
    uint64_t wanted = (uint64_t)(percent * (double)histogram_total(histogram) / 100 + 0.5);
    uint64_t seen = 0;
    for (size_t i = 0; i < HISTOGRAM_COUNTS; i++) {
        seen += histogram->counts[i];
        if (seen > 0 && seen >= wanted)
            return histogram_highest_at(i);
    }
    return 0;
}

// Each value counts as the middle of the range that shares its count.
double histogram_mean(const struct histogram *histogram)
{
    double sum = 0;
    for (size_t i = 0; i < HISTOGRAM_COUNTS; i++) {
        uint64_t middle = histogram_lowest_at(i) + ((UINT64_C(1) << bucket_of(i)) >> 1);
        sum += (double)histogram->counts[i] * (double)middle;
    }
    uint64_t total = histogram_total(histogram);
    return total == 0 ? 0 : sum / (double)total;
}

// --- report ------------------------------------------------------------------

// A result keeps pointers, so the names that are put together here must stay.
static const char *keep_name(const char *prefix, const char *suffix)
{
    static char names[NAMES_MAX][NAME_BYTES];
    static size_t used;
    if (used == NAMES_MAX)
        bench_fail("no room for the name %s_%s", prefix, suffix);
    int length = snprintf(names[used], NAME_BYTES, "%s_%s", prefix, suffix);
    if (length < 0 || length >= NAME_BYTES)
        bench_fail("the name %s_%s is too long", prefix, suffix);
    return names[used++];
}

void histogram_report(struct bench_result *result, const char *prefix,
                      const struct histogram *histogram)
{
    static const struct bench_field percentiles[] = {
        {"p50_ns", 50}, {"p99_ns", 99}, {"p999_ns", 99.9}, {"p9999_ns", 99.99}, {"max_ns", 100},
    };
    bench_figure(result, keep_name(prefix, "mean_ns"), histogram_mean(histogram));
    for (size_t i = 0; i < sizeof percentiles / sizeof percentiles[0]; i++) {
        uint64_t value_ns = histogram_percentile(histogram, percentiles[i].value);
        bench_figure(result, keep_name(prefix, percentiles[i].name), (double)value_ns);
    }
    bench_histogram(result, keep_name(prefix, "ns"), histogram);
}
