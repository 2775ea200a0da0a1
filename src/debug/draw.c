// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: which of several is next, with EBB_CHECK.
#include "base/mix.h"
#include "debug/check.h"
#include "os/os.h"

static uint64_t drawn; // random numbers; atomic
static uint64_t order; // of what is drawn: another one in the child of a fork

// Siblings of a forking server are not to know each other's next blocks.
void ebbi_check_draw_anew(void)
{
    order = ebbi_mix(ebbi_os_entropy() + ebbi_os_now_ns(), ebbi_os_thread_number());
}

size_t ebbi_check_random(size_t limit)
{
    uint64_t number = ebbi_fetch_add_relaxed(&drawn, 1u); // relaxed: a number
    return (size_t)(ebbi_mix(ebbi_mix(order, number), ~order) >> 20) % limit;
}
