// SPDX-License-Identifier: MIT OR Apache-2.0
// buffers: a few large buffers are live, and one at a time is checked, freed and replaced by one of
// another size. Each is written through a page at a time, every fourth only in part, so that the
// rest of it stays as the allocator gave it.
#include "harness/common.h"

enum { LIVE_MAX = 256, PAGE_BYTES = 4096 };

static uint64_t live_count = 8;
static uint64_t replacement_count = 1000;
static uint64_t size_min_kb = 5 << 10;
static uint64_t size_max_kb = 25 << 10;
static uint64_t scale = 100;
static uint64_t seed = 1;

static const struct bench_option options[] = {
    {"live", &live_count, 1, LIVE_MAX, "buffers at a time"},
    {"replacements", &replacement_count, 1, 100000000, "buffers that take another's place"},
    {"min-kb", &size_min_kb, 4, 1 << 20, "smallest buffer, in KiB"},
    {"max-kb", &size_max_kb, 4, 1 << 20, "largest buffer, in KiB"},
    {"scale", &scale, 1, 10000, "percent of the replacements"},
    {"seed", &seed, 1, UINT32_MAX, "seed of the generator"},
};

static const struct bench_program program = {"buffers", "large buffers, replaced one at a time",
                                             options, sizeof options / sizeof options[0]};

struct buffer {
    unsigned char *start; // NULL: none
    uint64_t pages;       // that were written
    uint64_t number;
};

static uint64_t made;
static uint64_t freed;
static uint64_t written_pages;
static uint64_t damaged;

// Another one for each page of each buffer.
static uint64_t stamp_of(const struct buffer *buffer, uint64_t page)
{
    return buffer->number << 32 | page;
}

static uint64_t *word_of(const struct buffer *buffer, uint64_t page)
{
    return (uint64_t *)(void *)(buffer->start + page * PAGE_BYTES);
}

static uint32_t make_buffer(struct buffer *buffer, uint32_t r)
{
    r = bench_xs32(r);
    uint64_t size_kb = size_min_kb + (r >> 4) % (size_max_kb - size_min_kb + 1);
    uint64_t pages = (size_kb << 10) / PAGE_BYTES;
    r = bench_xs32(r);
    if (r >> 30 == 0)
        pages = 1 + (r >> 4) % pages;
    *buffer = (struct buffer){bench_alloc(size_kb << 10), pages, ++made};
    for (uint64_t page = 0; page < pages; page++)
        *word_of(buffer, page) = stamp_of(buffer, page);
    written_pages += pages;
    return r;
}

static void free_buffer(struct buffer *buffer)
{
    for (uint64_t page = 0; page < buffer->pages; page++)
        damaged += *word_of(buffer, page) != stamp_of(buffer, page);
    free(buffer->start);
    buffer->start = NULL;
    freed++;
}

static void replace_buffers(struct buffer *buffers, uint64_t count, uint32_t r)
{
    for (uint64_t i = 0; i < count; i++) {
        r = bench_xs32(r);
        struct buffer *buffer = &buffers[(r >> 4) % live_count];
        if (buffer->start != NULL)
            free_buffer(buffer);
        r = make_buffer(buffer, r);
    }
}

int main(int argc, char **argv)
{
    static struct buffer buffers[LIVE_MAX];
    bench_open(&program, argc, argv);
    if (size_min_kb > size_max_kb)
        bench_fail("--min-kb is above --max-kb");

    struct bench_clock clock;
    struct bench_result result = {0};
    bench_clock_start(&clock);
    replace_buffers(buffers, replacement_count * scale / 100 + 1, (uint32_t)seed);
    for (uint64_t k = 0; k < live_count; k++)
        if (buffers[k].start != NULL)
            free_buffer(&buffers[k]);
    bench_clock_stop(&clock);

    bench_figures_of(&result, &clock, made);
    bench_figure(&result, "written_pages", (double)written_pages);
    bench_verify(&result, "contents_intact", damaged == 0);
    bench_verify(&result, "every_buffer_freed", made == freed);
    return bench_report(&program, &result);
}
