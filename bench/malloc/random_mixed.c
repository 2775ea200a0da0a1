// SPDX-License-Identifier: MIT OR Apache-2.0
// random-mixed: one thread toggles random slots. A full slot is freed, an empty
// one gets a block of 16 + (r & 1023) bytes, clamped, whose first byte is
// written. One op is one malloc or one free; the final drain is timed.
#include "harness/block.h"

static uint64_t slot_count = 400;
static uint64_t op_count = 20000000;
static uint64_t seed = 1;
static uint64_t size_min = 16;
static uint64_t size_max = 1040;

static const struct bench_option options[] = {
    {"slots", &slot_count, 1, 100000000, "slots, half of them full on average"},
    {"iters", &op_count, 10, UINT64_MAX / 2, "timed operations"},
    {"seed", &seed, 1, UINT32_MAX, "seed of the generator"},
    {"min", &size_min, 1, 1 << 20, "smallest block in bytes"},
    {"max", &size_max, 1, 1 << 20, "largest block in bytes"},
};

static const struct bench_program program = {"random-mixed",
                                             "one thread allocates and frees in random slots",
                                             options, sizeof options / sizeof options[0]};

static uint32_t clamp(uint32_t size_bytes, uint32_t low, uint32_t high)
{
    if (size_bytes < low)
        return low;
    return size_bytes > high ? high : size_bytes;
}

// `r % count` divides by a variable, as the definition has it: the floor arm
// shows what that costs.
static void toggle_slots(unsigned char **slots, uint64_t iterations, uint32_t r)
{
    uint32_t count = (uint32_t)slot_count;
    uint32_t low = (uint32_t)size_min;
    uint32_t high = (uint32_t)size_max;
    for (uint64_t i = 0; i < iterations; i++) {
        r = bench_xs32(r);
        unsigned char **slot = &slots[r % count];
        if (*slot != NULL) {
            free(*slot);
            *slot = NULL;
        } else {
            *slot = bench_alloc(clamp(16 + (r & 1023), low, high));
            **slot = (unsigned char)r;
        }
    }
}

// A zero state would stay zero for ever.
static uint32_t warm_up_seed(void)
{
    uint32_t state = (uint32_t)seed + 0xDEADBEEFU;
    return state == 0 ? 1 : state;
}

int main(int argc, char **argv)
{
    bench_open(&program, argc, argv);
    if (size_min > size_max)
        bench_fail("--min is above --max");
    unsigned char **slots = bench_map(slot_count * sizeof *slots);
    toggle_slots(slots, op_count / 10, warm_up_seed());

    struct bench_clock clock;
    struct bench_result result = {0};
    bench_clock_start(&clock);
    toggle_slots(slots, op_count, (uint32_t)seed);
    uint64_t freed = bench_drain(slots, slot_count);
    bench_clock_stop(&clock);

    bench_figures_of(&result, &clock, op_count + freed);
    bench_figure(&result, "warm_up_ops", (double)(op_count / 10)); // not timed, but counted
    // Each free undoes one malloc, so what was left has the parity of all toggles.
    bench_verify(&result, "drained_what_was_left", (op_count / 10 + op_count - freed) % 2 == 0);
    block_verify_probe(&result, size_min, size_max);
    return bench_report(&program, &result);
}
