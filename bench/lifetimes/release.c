// SPDX-License-Identifier: MIT OR Apache-2.0
// release: fills a gigabyte in one scope and ends it: how long that call takes, and how
// soon the memory is the system's again, while one thread sleeps and another has never
// done anything. Without a scope, or with --free 1, each block is freed.
#include "scope.h"

#include <pthread.h>

enum { SAMPLE_MS = 100, SAMPLES_OF_A_SECOND = 10, BACK_PERCENT = 5 };

static uint64_t total_mb = 1000;
static uint64_t block_bytes = 256;
static uint64_t watch_ms = 2000;

static const struct bench_option options[] = {
    {"mb", &total_mb, 1, 1 << 20, "bytes of all blocks, in 10^6"},
    {"bytes", &block_bytes, 16, 1 << 20, "size of a block"},
    {"watch-ms", &watch_ms, 1000, SAMPLE_MS *BENCH_SERIES_MAX, "how long memory is watched after"},
    SCOPE_OPTIONS,
};

static const struct bench_program program = {"release", "ends a scope that holds a gigabyte",
                                             options, sizeof options / sizeof options[0]};

// At the start of each block. The last byte has the number's lowest.
struct link {
    struct link *next;
    uint64_t number;
};

static struct scope scope;
static struct link *newest;
static pthread_barrier_t is_over;

static uint64_t count_blocks(void) { return total_mb * 1000000 / block_bytes; }

static void fill(void)
{
    for (uint64_t number = 0; number < count_blocks(); number++) {
        struct link *link = scope_alloc(&scope, block_bytes);
        if (link == NULL)
            bench_fail("block %d of %d was refused", (int)number, (int)count_blocks());
        unsigned char *block = (unsigned char *)link;
        block[block_bytes - 1] = (unsigned char)number;
        link->next = newest;
        link->number = number;
        newest = link;
    }
}

static bool is_intact(const struct link *link, uint64_t number)
{
    const unsigned char *block = (const unsigned char *)link;
    bool ends_are_its_own =
        block_bytes == sizeof *link || block[block_bytes - 1] == (unsigned char)number;
    return link->number == number && ends_are_its_own;
}

static bool blocks_are_intact(void)
{
    uint64_t number = count_blocks();
    for (const struct link *link = newest; link != NULL; link = link->next)
        if (!is_intact(link, --number))
            return false;
    return number == 0;
}

static void free_all(void)
{
    while (newest != NULL) {
        struct link *next = newest->next;
        scope_free(&scope, newest);
        newest = next;
    }
}

static double rss_mb(void) { return (double)bench_rss_kb() * 1024e-6; }

static void *sleep_through(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&is_over);
    return NULL;
}

static void watch(struct bench_result *result)
{
    result->series_step_s = SAMPLE_MS * 1e-3;
    for (uint64_t ms = 0; ms < watch_ms; ms += SAMPLE_MS) {
        bench_sleep_ms(SAMPLE_MS);
        result->series[result->series_count++] = rss_mb();
    }
}

// When memory was back, to a sample's step; the time that was watched if it never was.
static double back_after_ms(const struct bench_result *result, double peak_mb, double released_mb)
{
    double enough_mb = peak_mb * BACK_PERCENT / 100;
    size_t sample = 0;
    if (released_mb <= enough_mb)
        return 0;
    while (sample < result->series_count && result->series[sample] > enough_mb)
        sample++;
    return (double)(sample + 1) * SAMPLE_MS;
}

static void report_memory(struct bench_result *result, double peak_mb, double released_mb)
{
    double second_mb = result->series[SAMPLES_OF_A_SECOND - 1];
    bench_figure(result, "rss_at_peak_mb", peak_mb);
    bench_figure(result, "rss_after_release_mb", released_mb);
    bench_figure(result, "rss_after_1s_mb", second_mb);
    bench_figure(result, "rss_after_1s_percent", 100 * second_mb / peak_mb);
    bench_figure(result, "rss_back_ms", back_after_ms(result, peak_mb, released_mb));
}

int main(int argc, char **argv)
{
    static struct bench_result result;
    pthread_t sleeper;
    bench_open(&program, argc, argv);
    scope_prepare("release", false);
    pthread_barrier_init(&is_over, NULL, 2);
    if (pthread_create(&sleeper, NULL, sleep_through, NULL) != 0)
        bench_fail("cannot start a thread");
    scope_enter(&scope);
    scope_probe(&scope, block_bytes);
    fill();
    bool intact = blocks_are_intact();
    double peak_mb = rss_mb();

    struct bench_clock clock;
    bench_clock_start(&clock);
    if (scope_frees_objects())
        free_all();
    scope_leave(&scope);
    scope_finish(&scope);
    bench_clock_stop(&clock);
    double released_mb = rss_mb();
    watch(&result);
    pthread_barrier_wait(&is_over);
    pthread_join(sleeper, NULL);

    bench_figures_of(&result, &clock, count_blocks());
    bench_figure(&result, "release_ms", clock.wall_s * 1e3);
    report_memory(&result, peak_mb, released_mb);
    bench_verify(&result, "blocks_intact", intact);
    bench_verify(&result, "objects_in_scope", scope.astray == 0);
    bench_verify(&result, "peak_holds_the_fill", peak_mb >= 0.8 * (double)total_mb);
    return bench_report(&program, &result);
}
