// SPDX-License-Identifier: MIT OR Apache-2.0
// leak-nth: each request allocates some small blocks and frees them at its end, but for every Nth
// block of the run, which stays until the run is over. So no page that held a request's blocks gets
// quite empty again, and what a request needs is found in part-full ones.
#include "harness/block.h"

enum { REQUEST_MAX = 60, REQUEST_MIN = 10 };

static uint64_t request_count = 1500000;
static uint64_t nth = 200;
static uint64_t size_min = 16;
static uint64_t size_max = 400;
static uint64_t scale = 100;
static uint64_t seed = 1;

static const struct bench_option options[] = {
    {"requests", &request_count, 1, 100000000, "requests"},
    {"nth", &nth, 1, 1000000, "which block stays"},
    {"min", &size_min, 1, 1 << 20, "smallest block in bytes"},
    {"max", &size_max, 1, 1 << 20, "largest block in bytes"},
    {"scale", &scale, 1, 10000, "percent of the requests"},
    {"seed", &seed, 1, UINT32_MAX, "seed of the generator"},
};

static const struct bench_program program = {
    "leak-nth", "requests of small blocks, every Nth of which is not freed before the end", options,
    sizeof options / sizeof options[0]};

static struct block *kept;
static uint64_t kept_count;
static uint64_t made;
static uint64_t freed;
static uint64_t damaged;

static void free_block(const struct block *block)
{
    damaged += !block_is_intact(block);
    free(block->start);
    freed++;
}

static uint32_t serve(uint32_t r)
{
    struct block blocks[REQUEST_MAX];
    r = bench_xs32(r);
    uint32_t count = REQUEST_MIN + (r >> 4) % (REQUEST_MAX - REQUEST_MIN + 1);
    for (uint32_t i = 0; i < count; i++) {
        r = bench_xs32(r);
        blocks[i] = block_make(block_size(r, size_min, size_max), (unsigned char)(r >> 24));
    }
    for (uint32_t i = 0; i < count; i++) {
        if (++made % nth == 0)
            kept[kept_count++] = blocks[i];
        else
            free_block(&blocks[i]);
    }
    return r;
}

int main(int argc, char **argv)
{
    bench_open(&program, argc, argv);
    if (size_min > size_max)
        bench_fail("--min is above --max");
    uint64_t requests = request_count * scale / 100 + 1;
    kept = bench_map((requests * REQUEST_MAX / nth + 1) * sizeof *kept);

    struct bench_clock clock;
    struct bench_result result = {0};
    uint32_t r = (uint32_t)seed;
    bench_clock_start(&clock);
    for (uint64_t i = 0; i < requests; i++)
        r = serve(r);
    uint64_t rss_kb = bench_rss_kb();
    for (uint64_t k = 0; k < kept_count; k++)
        free_block(&kept[k]);
    bench_clock_stop(&clock);

    bench_figures_of(&result, &clock, made);
    bench_figure(&result, "kept", (double)kept_count);
    bench_figure(&result, "rss_before_end_mb", (double)rss_kb * 1024e-6);
    bench_verify(&result, "contents_intact", damaged == 0);
    bench_verify(&result, "every_block_freed", made == freed);
    bench_verify(&result, "every_nth_kept", kept_count == made / nth);
    return bench_report(&program, &result);
}
