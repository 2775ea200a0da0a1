// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raw bindings to Ebbtide's C interface: `<ebbtide.h>`, `<ebbtide/reclaim.h>`,
//! `<ebbtide/region.h>` and `<ebbtide/profile.h>`.
//!
//! The headers, which come with this crate's sources under `c/include`, say what each function asks
//! for and gives; the lines here are a reminder. Names are those of C. The inline functions of C
//! (`ebb_pin` and the like) are also symbols of the library and are bound here as calls; the crate
//! `ebbtide` has them inline.
//!
//! ```
//! // SAFETY: the block is freed once, and not used after.
//! unsafe {
//!     let p = ebbtide_sys::ebb_malloc(32);
//!     assert!(!p.is_null() && ebbtide_sys::ebb_malloc_usable_size(p) >= 32);
//!     ebbtide_sys::ebb_free(p);
//! }
//! ```
#![no_std]
#![deny(missing_docs, clippy::undocumented_unsafe_blocks)]
#![allow(non_camel_case_types)]

mod malloc;
mod profile;
mod reclaim;
mod region;

pub use malloc::*;
pub use profile::*;
pub use reclaim::*;
pub use region::*;

// The numbers of layout.c.
#[cfg(target_pointer_width = "64")]
const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<ebb_stats>() == 20 * size_of::<usize>());
    assert!(size_of::<ebb_class_stats>() == 7 * size_of::<usize>());
    assert!(size_of::<ebb_snapshot>() == (19 + 7 * EBB_SNAPSHOT_CLASSES) * size_of::<usize>());
    assert!(offset_of!(ebb_snapshot, class_count) == 18 * size_of::<usize>());
    assert!(size_of::<ebb_thread_stats>() == 32);
    assert!(size_of::<ebb_reclaim_stats>() == 80);
    assert!(offset_of!(ebb_reclaim_stats, epoch) == 24);
    assert!(offset_of!(ebb_reclaim_stats, oldest_pin_ms) == 48);
    assert!(offset_of!(ebb_reclaim_stats, hazards) == 64);
    assert!(offset_of!(ebb_reclaim_stats, fenced) == 72);
    assert!(size_of::<ebb_participant>() == 64);
    assert!(offset_of!(ebb_participant, state) == 0);
    assert!(offset_of!(ebb_participant, now) == 8);
    assert!(offset_of!(ebb_participant, thread) == 20);
    assert!(size_of::<ebb_hazard>() == 64);
    assert!(size_of::<ebb_hook>() == 3 * size_of::<usize>());
    assert!(EBB_SELF_PIN == 4096 && EBB_PIN_SHIFT == 16 && EBB_COLLECTOR_FENCED == 1);
    assert!(size_of::<ebb_region_options>() == 40);
    assert!(offset_of!(ebb_region_options, parent) == 8);
    assert!(offset_of!(ebb_region_options, soft_limit) == 16);
    assert!(offset_of!(ebb_region_options, hard_limit) == 24);
    assert!(offset_of!(ebb_region_options, closes) == 32);
    assert!(size_of::<ebb_scope>() == size_of::<usize>());
    assert!(EBB_DOMAIN_NEVER == 0 && EBB_DOMAIN_SCOPES == 1 && EBB_DOMAIN_BYTES == 2);
    assert!(EBB_DOMAIN_MS == 3 && EBB_DOMAIN_MANUAL == 4);
    assert!(size_of::<ebb_domain_policy>() == size_of::<core::ffi::c_uint>());
    assert!(size_of::<ebb_region_stats>() == 88);
    assert!(offset_of!(ebb_region_stats, live_blocks) == 8);
    assert!(offset_of!(ebb_region_stats, slabs) == 40);
    assert!(offset_of!(ebb_region_stats, refused) == 64);
    assert!(offset_of!(ebb_region_stats, open_ms) == 80);
    assert!(EBB_LABEL_BYTES == 32 && size_of::<ebb_lifetime_stats>() == 168);
    assert!(offset_of!(ebb_lifetime_stats, is_domain) == 32);
    assert!(offset_of!(ebb_lifetime_stats, live_bytes) == 40);
    assert!(offset_of!(ebb_lifetime_stats, pinned_bytes) == 80);
    assert!(offset_of!(ebb_lifetime_stats, open) == 104);
    assert!(offset_of!(ebb_lifetime_stats, opened) == 112);
    assert!(offset_of!(ebb_lifetime_stats, released) == 136);
    assert!(offset_of!(ebb_lifetime_stats, oldest_ms) == 160);
};
