// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: when the next sample is to be guarded.
#include "base/mix.h"
#include "debug/guard.h"

#define RESTS_PART                                                                                 \
    128u // of the rate: who asks more often than so many a second need not look each time
#define EARLY_US 62500u // of a thousand a second some 62 at once

uint32_t ebbi_guard_rate;
uint32_t ebbi_guard_rests;
static uint64_t due_at_us; // atomic

// The generic cell rate algorithm: one may come so much before it is due, and the next is due a gap later.
bool ebbi_guard_is_due(void)
{
    uint64_t now_us = ebbi_os_now_ms() * 1000;
    uint64_t due_us = ebbi_load_relaxed(&due_at_us);     // relaxed: a time, here and below
    uint32_t rate = ebbi_load_relaxed(&ebbi_guard_rate); // relaxed: a number
    if (now_us + EARLY_US < due_us) {
        ebbi_store_relaxed(&ebbi_guard_rests, rate / RESTS_PART); // relaxed: as above
        return false;
    }
    if (rate == 0) {
        return false; // since a moment
    }
    uint64_t gap_us = 1 + ebbi_scramble(due_us ^ (uintptr_t)&now_us) % (2000000 / rate);
    // relaxed: as above
    return ebbi_cas_relaxed(&due_at_us, &due_us, ebbi_max(due_us, now_us) + gap_us);
}
