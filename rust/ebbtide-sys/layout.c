// SPDX-License-Identifier: MIT OR Apache-2.0
// What src/reclaim.rs, src/malloc.rs and src/region.rs say of the library's binary interface, checked as the crate
// is built. The same numbers are checked against the Rust types there.
#define EBB_RECLAIM_NO_INLINE
#include <ebbtide/reclaim.h>
#include <ebbtide/region.h>

#define SAME(a, b) _Static_assert((a) == (b), "the bindings do not fit the header: " #a)

SAME(sizeof(struct ebb_stats), 20 * sizeof(size_t));
SAME(sizeof(struct ebb_class_stats), 7 * sizeof(size_t));
SAME(EBB_SNAPSHOT_CLASSES, 96);
SAME(sizeof(struct ebb_snapshot), (19 + 7 * EBB_SNAPSHOT_CLASSES) * sizeof(size_t));
SAME(offsetof(struct ebb_snapshot, class_count), 18 * sizeof(size_t));
SAME(sizeof(struct ebb_thread_stats), 32);
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
SAME(sizeof(struct ebb_hook), 3 * sizeof(size_t));
SAME(offsetof(struct ebb_hook, p), 2 * sizeof(size_t));
SAME(EBB_SELF_PIN, 4096);
SAME(EBB_PIN_SHIFT, 16);
SAME(EBB_PIN_DEPTH, 0xFFFF);
SAME(EBB_PIN_ATTENTION, 0x8000);
SAME(EBB_PIN_DEEPEST, 0x7FFF);
SAME(EBB_PIN_NONE, 0xFFFF);
SAME(EBB_COLLECTOR_FENCED, 1);
SAME(sizeof(struct ebb_region_options), 40);
SAME(offsetof(struct ebb_region_options, parent), 8);
SAME(offsetof(struct ebb_region_options, soft_limit), 16);
SAME(offsetof(struct ebb_region_options, hard_limit), 24);
SAME(offsetof(struct ebb_region_options, closes), 32);
SAME(sizeof(struct ebb_scope), sizeof(size_t));
SAME(sizeof(enum ebb_domain_policy), sizeof(unsigned));
SAME(EBB_DOMAIN_NEVER, 0);
SAME(EBB_DOMAIN_SCOPES, 1);
SAME(EBB_DOMAIN_BYTES, 2);
SAME(EBB_DOMAIN_MS, 3);
SAME(EBB_DOMAIN_MANUAL, 4);
SAME(sizeof(struct ebb_region_stats), 88);
SAME(offsetof(struct ebb_region_stats, live_blocks), 8);
SAME(offsetof(struct ebb_region_stats, slabs), 40);
SAME(offsetof(struct ebb_region_stats, refused), 64);
SAME(offsetof(struct ebb_region_stats, open_ms), 80);
SAME(EBB_LABEL_BYTES, 32);
SAME(sizeof(struct ebb_lifetime_stats), 168);
SAME(offsetof(struct ebb_lifetime_stats, is_domain), 32);
SAME(offsetof(struct ebb_lifetime_stats, live_bytes), 40);
SAME(offsetof(struct ebb_lifetime_stats, pinned_bytes), 80);
SAME(offsetof(struct ebb_lifetime_stats, open), 104);
SAME(offsetof(struct ebb_lifetime_stats, opened), 112);
SAME(offsetof(struct ebb_lifetime_stats, released), 136);
SAME(offsetof(struct ebb_lifetime_stats, oldest_ms), 160);
