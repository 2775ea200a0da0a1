// SPDX-License-Identifier: MIT OR Apache-2.0
// expiry: a cache of keyed entries of mixed sizes. An operation is a tick; it gets a key (one that is
// absent or has expired is put), or refreshes it, which moves it to another size by realloc. A hand
// goes round the keys and frees what has expired, and, where the entries have too many bytes, what
// it meets. At times a burst puts many keys that all expire at one moment.
#include "harness/block.h"

enum { REFRESH_OF_16 = 3, SIZE_MIN = 24, SIZE_DOUBLINGS = 9, LIFE_TICKS = 200000 };

static uint64_t key_count = 60000;
static uint64_t op_count = 12000000;
static uint64_t limit_mb = 8;
static uint64_t burst_every = 500000;
static uint64_t burst_keys = 40000;
static uint64_t scale = 100;
static uint64_t seed = 1;

static const struct bench_option options[] = {
    {"keys", &key_count, 1, 100000000, "keys"},
    {"iters", &op_count, 10, UINT64_MAX / 10000, "gets and refreshes"},
    {"limit-mb", &limit_mb, 1, 1 << 14, "most bytes of all entries, in 10^6"},
    {"burst-every", &burst_every, 1, UINT32_MAX, "operations between bursts"},
    {"burst", &burst_keys, 0, 100000000, "keys that a burst puts"},
    {"scale", &scale, 1, 10000, "percent of the operations"},
    {"seed", &seed, 1, UINT32_MAX, "seed of the generator"},
};

static const struct bench_program program = {
    "expiry", "a bounded cache whose entries expire, at times many together", options,
    sizeof options / sizeof options[0]};

struct entry {
    struct block value;
    uint64_t expires;
};

static struct entry *entries;
static uint64_t now, hand, live_bytes;
static uint64_t put_count, freed_count, evicted_count, damaged;

// 24 to 12,287 bytes: each doubling of the size is half as likely as the one before.
static uint32_t entry_size(uint32_t r)
{
    uint32_t doublings = (uint32_t)__builtin_ctz(r >> 20 | 1U << (SIZE_DOUBLINGS - 1));
    uint32_t low = (uint32_t)SIZE_MIN << doublings;
    return block_size(r, low, 2 * low - 1);
}

static void drop(struct entry *entry)
{
    damaged += !block_is_intact(&entry->value);
    live_bytes -= entry->value.size_bytes;
    free(entry->value.start);
    entry->value.start = NULL;
    freed_count++;
}

static bool is_above_limit(void) { return live_bytes > limit_mb * 1000000; }

static void turn_hand(void)
{
    struct entry *entry = &entries[hand++ % key_count];
    if (entry->value.start == NULL || (entry->expires > now && !is_above_limit()))
        return;
    evicted_count += entry->expires > now;
    drop(entry);
}

static void put(struct entry *entry, uint32_t r, uint64_t expires)
{
    if (entry->value.start != NULL)
        drop(entry);
    *entry = (struct entry){block_make(entry_size(r), (unsigned char)(r >> 24)), expires};
    live_bytes += entry->value.size_bytes;
    put_count++;
    while (is_above_limit())
        turn_hand();
}

// What was below both sizes must have moved along.
static void refresh(struct entry *entry, uint32_t r, uint64_t expires)
{
    struct block *value = &entry->value;
    uint32_t size_bytes = entry_size(r);
    uint32_t last = size_bytes >= value->size_bytes ? value->size_bytes - 1 : 0;
    live_bytes += size_bytes - (uint64_t)value->size_bytes;
    damaged += !block_is_intact(value);
    value->start = realloc(value->start, size_bytes);
    if (value->start == NULL)
        bench_fail("realloc to %u gave NULL", size_bytes);
    damaged += value->start[0] != value->mark || value->start[last] != value->mark;
    value->size_bytes = size_bytes;
    bench_touch(value->start, size_bytes, value->mark);
    entry->expires = expires;
}

static uint32_t operate(uint32_t r)
{
    r = bench_xs32(r);
    struct entry *entry = &entries[(r >> 4) % key_count];
    bool refreshes = r >> 28 < REFRESH_OF_16;
    r = bench_xs32(r);
    uint64_t expires = now + 1 + (r >> 2) % LIFE_TICKS;
    if (entry->value.start == NULL || entry->expires <= now)
        put(entry, r, expires);
    else if (refreshes)
        refresh(entry, r, expires);
    else
        damaged += !block_is_intact(&entry->value);
    turn_hand();
    now++;
    return r;
}

static uint32_t burst(uint32_t r)
{
    uint64_t expires = now + burst_every / 4;
    for (uint64_t i = 0; i < burst_keys; i++) {
        r = bench_xs32(r);
        uint64_t key = (r >> 4) % key_count;
        r = bench_xs32(r);
        put(&entries[key], r, expires);
    }
    return r;
}

int main(int argc, char **argv)
{
    bench_open(&program, argc, argv);
    entries = bench_map(key_count * sizeof *entries);
    uint64_t iterations = op_count * scale / 100 + 1;
    uint32_t r = (uint32_t)seed;

    struct bench_clock clock;
    struct bench_result result = {0};
    bench_clock_start(&clock);
    for (uint64_t i = 0; i < iterations; i++)
        r = operate(i % burst_every == 0 ? burst(r) : r);
    for (uint64_t k = 0; k < key_count; k++)
        if (entries[k].value.start != NULL)
            drop(&entries[k]);
    bench_clock_stop(&clock);

    bench_figures_of(&result, &clock, iterations);
    bench_figure(&result, "evictions", (double)evicted_count);
    bench_verify(&result, "contents_intact", damaged == 0);
    bench_verify(&result, "every_entry_freed", put_count == freed_count && live_bytes == 0);
    return bench_report(&program, &result);
}
