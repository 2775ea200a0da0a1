// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: what another process asks for, once.
#include "os/control.h"

#define MAGIC 0x4542424354524C31

struct ebbi_control ebb_control = {.magic = MAGIC, .version = 1};
static uint32_t control_taken; // atomic: the last that somebody does or has done

bool ebbi_control_take(uint32_t *asked)
{
    *asked = ebbi_load_relaxed(&ebb_control.asked); // relaxed: the fence orders it
    ebbi_fence_full(); // full[control <-> control]: the other process writes `what` and `with` before
    uint32_t before = ebbi_load_relaxed(&control_taken); // relaxed: a number
    return before != *asked &&
           ebbi_cas_relaxed(&control_taken, &before, *asked); // relaxed: a number
}

void ebbi_control_answer(uint32_t asked, int result)
{
    ebbi_store_relaxed(&ebb_control.result, result); // relaxed: the fence orders it
    ebbi_fence_full(); // full[control <-> control]: the other process reads the result, and what was done, behind it
    ebbi_store_relaxed(&ebb_control.answered, asked); // relaxed: behind the fence
}

void ebbi_control_forget(void)
{
    uint32_t asked = ebbi_load_relaxed(&ebb_control.asked); // relaxed: the only thread
    ebbi_store_relaxed(&control_taken, asked);              // relaxed: as above
    ebbi_store_relaxed(&ebb_control.answered, asked);       // relaxed: as above
}
