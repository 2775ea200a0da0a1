// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer base: the most of something lately: in this window of time, or in the one before. A low point of a
// program that swings is forgotten by neither. Written under the lock of what it belongs to, read as a hint.
#ifndef EBB_BASE_PEAK_H
#define EBB_BASE_PEAK_H

#include "base/base.h"
#include "ebbtide/detail/atomic.h"

struct ebbi_peak {
    size_t now, before;
};

EBBI_INLINE void ebbi_peak_see(struct ebbi_peak *peak, size_t bytes)
{
    if (bytes > peak->now) {
        ebbi_store_relaxed(&peak->now, bytes); // relaxed: a hint
    }
}

// A window begins, with so much.
EBBI_INLINE void ebbi_peak_turn(struct ebbi_peak *peak, size_t bytes)
{
    ebbi_store_relaxed(&peak->before, peak->now); // relaxed: a hint
    ebbi_store_relaxed(&peak->now, bytes);        // relaxed: a hint
}

EBBI_INLINE size_t ebbi_peak_bytes(const struct ebbi_peak *peak)
{
    // relaxed: hints
    size_t now = ebbi_load_relaxed(&peak->now);
    return ebbi_max(now, ebbi_load_relaxed(&peak->before)); // relaxed: as above
}

#endif
