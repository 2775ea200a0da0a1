// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: the debug mode (EBB_REGION_DEBUG). What a release or reset leaves is not given back: its
// pages lose their memory and let no access through, first in, first out, until newer releases need
// the room. An access ends in a report with the region's label and the stacks of allocation and release.
// So that every allocation is seen, no region has an owner in this mode.
//
//     release --> waits (pins) --> guarded --oldest, budget full--> free span
//
// P1  a record is written under the lock of the layer above (`remains`, of rank owner), which all
//     functions that say so want held; the signal handler reads those that are guarded.
// P2  guarded: no page of it is accessible, its tags are 0, its label does not count it. The bits of a
//     sheet stay as they were at the release, which sealed it: they say where blocks lie.
#ifndef EBB_DEBUG_QUARANTINE_H
#define EBB_DEBUG_QUARANTINE_H

#include "debug/callstack.h"
#include "region/region.h"

// At each opening of a region; no lock held.
void ebbi_quarantine_set_up(void);
EBBI_INLINE void ebbi_quarantine_begin(void)
{
    // relaxed: set_up tells by itself
    if (EBBI_UNLIKELY(ebbi_load_relaxed(&ebbi_quarantine_mode) == EBBI_QUARANTINE_UNKNOWN)) {
        ebbi_quarantine_set_up();
    }
}
// In the child of a fork: what another thread had begun begins anew.
void ebbi_quarantine_forget(void);

struct ebbi_release {
    uint64_t number; // of the region
    uint32_t stack;
    uint64_t stamp; // of the clock, when readers may still be in it; 0: nobody
};

// Takes in what ebbi_region_empty has left; returns what there is no room for. Under the lock.
struct ebbi_remains ebbi_quarantine_put(struct ebbi_remains remains,
                                        const struct ebbi_release *release);
// Guards what no reader may be in any more, by may_go(start, bytes, stamp); *waiting: some is left. Under the
// lock. O(releases that wait).
void ebbi_quarantine_settle(bool (*may_go)(uintptr_t start, size_t bytes, uint64_t stamp),
                            bool *waiting);

// What lies at an address, if that is in quarantine. Any thread, signal handlers too. O(records).
struct ebbi_escape {
    uintptr_t block; // 0: none
    size_t bytes;
    bool freed; // before the release
    const char *label;
    uint64_t number;
    uint32_t released_by; // stack
};
bool ebbi_quarantine_find(uintptr_t address, struct ebbi_escape *escape);

// escape.c: a misuse (ebbi_misuse) if the address is in quarantine; false otherwise.
bool ebbi_escape_report(uintptr_t address, const char *what);
void ebbi_escape_look(uintptr_t address, uintptr_t pc); // an access; in a signal handler

#endif
