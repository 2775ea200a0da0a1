// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: what is chosen with EBB_CHECK: which of several is next, and which blocks lie between guard pages.
#include "base/mix.h"
#include "debug/check.h"
#include "os/os.h"
#include "slab/classes.h"

#define GUARD_STRETCH_MS 64u
#define GUARD_STRETCH_COUNT 128u // one less are guarded in it

static uint64_t drawn; // random numbers; atomic
static uint64_t order; // of what is drawn: another one in the child of a fork

// Siblings of a forking server are not to know each other's next blocks.
void ebbi_check_draw_anew(void)
{
    order = ebbi_mix(ebbi_os_entropy() + ebbi_os_now_ns(), ebbi_os_thread_number());
}

size_t ebbi_check_random(size_t limit)
{
    uint64_t number = ebbi_load_relaxed(&drawn); // relaxed: two threads may draw the same
    ebbi_store_relaxed(&drawn, number + 1);      // relaxed: as above
    uint64_t random = ebbi_mix(ebbi_mix(order, number), ~order);
    EBBI_ASSERT(limit > 0 && limit <= UINT32_MAX);
    return (size_t)((random >> 32) * limit >> 32);
}

// Each takes tens of microseconds, and a class has a canary for it. A race is one more in its time.
bool ebbi_check_guards(size_t align, size_t bytes)
{
    if (bytes == 0 || ebbi_check_room(align, bytes) > EBBI_CLASS_MAX) {
        return true;
    }
    if (bytes <= EBBI_CHECKED_MOST) {
        return false;
    }
    static uint64_t guarded; // the number of a stretch of time, and how many in it; atomic
    uint64_t now = ebbi_os_now_ms() / GUARD_STRETCH_MS * GUARD_STRETCH_COUNT;
    uint64_t next = ebbi_load_relaxed(&guarded); // relaxed: a count
    next = ebbi_max(next, now);
    if (next - now == GUARD_STRETCH_COUNT - 1) {
        return false;
    }
    ebbi_store_relaxed(&guarded, next + 1); // relaxed: as above
    return true;
}
