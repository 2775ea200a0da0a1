// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: which of several is next, with EBB_CHECK.
#include "debug/check.h"
#include "os/os.h"

static uint64_t drawn; // random numbers; atomic
static uint64_t order; // of what is drawn: another one in the child of a fork

static uint64_t stir(uint64_t word, uint64_t more)
{
    word = (word ^ more) * 0x9E3779B97F4A7C15u;
    return word ^ word >> 32;
}

// Siblings of a forking server are not to know each other's next blocks.
void ebbi_check_draw_anew(void)
{
    order = stir(ebbi_os_entropy() + ebbi_os_now_ns(), ebbi_os_thread_number());
}

size_t ebbi_check_random(size_t limit)
{
    uint64_t number = ebbi_fetch_add_relaxed(&drawn, 1u); // relaxed: a number
    return (size_t)(stir(stir(order, number), ~order) >> 20) % limit;
}
