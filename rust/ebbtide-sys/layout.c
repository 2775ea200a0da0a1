// SPDX-License-Identifier: MIT OR Apache-2.0
// What src/reclaim.rs and src/malloc.rs say of the library's binary interface, checked as the crate
// is built. The same numbers are checked against the Rust types there.
#define EBB_RECLAIM_NO_INLINE
#include <ebbtide/reclaim.h>

#define SAME(a, b) _Static_assert((a) == (b), "the bindings do not fit the header: " #a)

SAME(sizeof(struct ebb_stats), 19 * sizeof(size_t));
SAME(sizeof(struct ebb_reclaim_stats), 80);
SAME(offsetof(struct ebb_reclaim_stats, epoch), 24);
SAME(offsetof(struct ebb_reclaim_stats, oldest_pin_ms), 48);
SAME(offsetof(struct ebb_reclaim_stats, hazards), 64);
SAME(offsetof(struct ebb_reclaim_stats, fenced), 72);
SAME(sizeof(struct ebb_participant), 64);
SAME(offsetof(struct ebb_participant, state), 0);
SAME(offsetof(struct ebb_participant, now), 8);
SAME(offsetof(struct ebb_participant, thread), 20);
SAME(sizeof(struct ebb_hazard), 64);
SAME(EBB_SELF_PIN, 4096);
SAME(EBB_PIN_SHIFT, 16);
SAME(EBB_PIN_DEPTH, 0xFFFF);
SAME(EBB_PIN_ATTENTION, 0x8000);
SAME(EBB_PIN_DEEPEST, 0x7FFF);
SAME(EBB_PIN_NONE, 0xFFFF);
SAME(EBB_COLLECTOR_FENCED, 1);
