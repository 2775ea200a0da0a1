// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer epoch: whether a clock and its participants agree. For debug builds and tests.
#include "epoch/clock.h"

#if EBBI_HAVE_ASSERT || defined(EBB_NO_OVERRIDE) // not in the library that is installed

#define CLOCK_AUDIT_EVERY 64u // movements, joinings and leavings, of all clocks

static uint32_t clock_operations; // atomic

static EBBI_COLD EBBI_NORETURN void clock_broken(int property, const char *what, uint64_t value)
{
    ebbi_fatal("clock C%d: %s: %#llx", property, what, (unsigned long long)value);
}

static void clock_audit_participant(const struct ebb_participant *p, uint64_t now)
{
    // relaxed: what it announces meanwhile is no later epoch, for the clock stands
    uint64_t state = ebbi_load_relaxed(&p->state);
    uint64_t left = p->released;
    if ((left & EBB_PIN_DEPTH & ~EBB_PIN_ATTENTION) != 0) {
        clock_broken(4, "a participant was released while it was pinned", left);
    }
    if (left >> EBB_PIN_SHIFT >= now >> EBB_PIN_SHIFT) {
        clock_broken(4, "a participant was released in the present epoch", left);
    }
    if (state >> EBB_PIN_SHIFT > now >> EBB_PIN_SHIFT) {
        clock_broken(5, "a participant announces an epoch that is to come", state);
    }
    if ((state & EBB_PIN_DEPTH) == EBB_PIN_NONE) {
        clock_broken(5, "a participant is as deep as the one of threads that have none", state);
    }
}

static void clock_audit_participants(const struct ebbi_clock *clock, uint64_t now)
{
    const struct ebb_participant *before = NULL;
    size_t count = 0;
    for (const struct ebb_participant *p = clock->participants; p != NULL; p = p->next) {
        if (++count > clock->count) {
            clock_broken(2, "more participants than are counted", clock->count);
        }
        if (p->previous != before) {
            clock_broken(2, "a participant's link leads elsewhere", count);
        }
        if (p->now != &clock->now) {
            clock_broken(2, "a participant looks at another clock", count);
        }
        clock_audit_participant(p, now);
        before = p;
    }
    if (count != clock->count) {
        clock_broken(2, "fewer participants than are counted", clock->count);
    }
}

void ebbi_clock_audit(const struct ebbi_clock *clock)
{
    uint64_t now = ebbi_load_relaxed(&clock->now); // relaxed: C1
    if ((now & EBB_PIN_DEPTH) > 1 || now < EBB_EPOCH_ONE * 2) {
        clock_broken(1, "the word is no epoch with its flag", now);
    }
    // relaxed: set under the lock
    if (!ebbi_load_relaxed(&clock->decided) && (now & 1) == 0) {
        clock_broken(3, "biased before that is decided", now);
    }
    if (clock->turned_ms != 0 && (now & 1) == 0) {
        clock_broken(3, "it became fenced, and is biased", clock->turned_ms);
    }
    clock_audit_participants(clock, now);
}

void ebbi_clock_audit_sometimes(const struct ebbi_clock *clock)
{
    // relaxed: a count
    if (ebbi_fetch_add_relaxed(&clock_operations, 1u) % CLOCK_AUDIT_EVERY == 0) {
        ebbi_clock_audit(clock);
    }
}

#endif
