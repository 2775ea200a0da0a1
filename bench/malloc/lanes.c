// SPDX-License-Identifier: MIT OR Apache-2.0
// random-mixed-lanes: one thread toggles random slots with a linear generator;
// a new block has min + r % (max - min + 1) bytes and both its ends are
// written. Lanes: small 16..2048, medium 4096..32768, mixed 16..32768.
#include "harness/block.h"

static uint64_t slot_count = 400;
static uint64_t op_count = 10000000;
static uint64_t seed = 1;
static uint64_t size_min = 16;
static uint64_t size_max = 2048;

static const struct bench_option options[] = {
    {"slots", &slot_count, 1, 100000000, "slots, half of them full on average"},
    {"iters", &op_count, 10, UINT64_MAX / 2, "timed operations"},
    {"seed", &seed, 0, UINT32_MAX, "seed of the generator"},
    {"min", &size_min, 1, 1 << 30, "smallest block in bytes"},
    {"max", &size_max, 1, 1 << 30, "largest block in bytes"},
};

static const struct bench_program program = {
    "lanes", "one thread allocates and frees in random slots of one size lane", options,
    sizeof options / sizeof options[0]};

static uint32_t toggle_slots(unsigned char **slots, uint64_t iterations, uint32_t r)
{
    uint32_t count = (uint32_t)slot_count;
    uint32_t low = (uint32_t)size_min;
    uint32_t range = (uint32_t)(size_max - size_min + 1);
    for (uint64_t i = 0; i < iterations; i++) {
        r = bench_lcg(r);
        unsigned char **slot = &slots[r % count];
        if (*slot != NULL) {
            free(*slot);
            *slot = NULL;
        } else {
            uint32_t size_bytes = low + r % range;
            *slot = bench_alloc(size_bytes);
            bench_touch(*slot, size_bytes, (unsigned char)r);
        }
    }
    return r;
}

int main(int argc, char **argv)
{
    bench_open(&program, argc, argv);
    if (size_min > size_max)
        bench_fail("--min is above --max");
    unsigned char **slots = bench_map(slot_count * sizeof *slots);
    uint32_t state = toggle_slots(slots, op_count / 10, (uint32_t)seed);

    struct bench_clock clock;
    struct bench_result result = {0};
    bench_clock_start(&clock);
    toggle_slots(slots, op_count, state);
    uint64_t freed = bench_drain(slots, slot_count);
    bench_clock_stop(&clock);

    bench_figures_of(&result, &clock, op_count + freed);
    bench_figure(&result, "warm_up_ops", (double)(op_count / 10)); // not timed, but counted
    // Each free undoes one malloc, so what was left has the parity of all toggles.
    bench_verify(&result, "drained_what_was_left", (op_count / 10 + op_count - freed) % 2 == 0);
    block_verify_probe(&result, size_min, size_max);
    return bench_report(&program, &result);
}
