// SPDX-License-Identifier: MIT OR Apache-2.0
//! `<ebbtide/region.h>`.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::marker::{PhantomData, PhantomPinned};

/// Of a label that are kept, with the NUL.
pub const EBB_LABEL_BYTES: usize = 32;

/// A region. Used by any thread.
#[repr(C)]
#[derive(Debug)]
pub struct ebb_region {
    opaque: [u8; 0],
    marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A domain. Used by any thread.
#[repr(C)]
#[derive(Debug)]
pub struct ebb_domain {
    opaque: [u8; 0],
    marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// How to open a region; all zero is allowed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ebb_region_options {
    /// Null: "region".
    pub label: *const c_char,
    /// Null: none.
    pub parent: *mut ebb_region,
    /// Bytes held from which on drained memory is looked for before growth; 0: none.
    pub soft_limit: usize,
    /// Bytes held that are never exceeded; 0: none.
    pub hard_limit: usize,
    /// Not 0: the region ends by close alone, and may give way to class slabs.
    pub closes: c_int,
}

/// When a domain's epochs end: one of the `EBB_DOMAIN_*`.
pub type ebb_domain_policy = c_uint;
/// One epoch for ever.
pub const EBB_DOMAIN_NEVER: ebb_domain_policy = 0;
/// Every n scopes of a thread.
pub const EBB_DOMAIN_SCOPES: ebb_domain_policy = 1;
/// When a thread's epoch has taken n bytes.
pub const EBB_DOMAIN_BYTES: ebb_domain_policy = 2;
/// When a thread's epoch is n milliseconds old.
pub const EBB_DOMAIN_MS: ebb_domain_policy = 3;
/// By [`ebb_domain_advance`].
pub const EBB_DOMAIN_MANUAL: ebb_domain_policy = 4;

/// What was current before an enter.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ebb_scope {
    #[doc(hidden)]
    pub before: usize,
}

/// What one region holds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ebb_region_stats {
    /// Of this region alone, from 1, never used again.
    pub id: u64,
    /// Allocated and not freed.
    pub live_blocks: usize,
    /// Address space of its slabs and large blocks.
    pub held_bytes: usize,
    /// Held at most.
    pub peak_bytes: usize,
    /// Of it in memory.
    pub resident_bytes: usize,
    /// Number of slabs.
    pub slabs: usize,
    /// Blocks with memory of their own.
    pub large_blocks: usize,
    /// Allocations after the close.
    pub late: usize,
    /// Allocations that the hard limit refused.
    pub refused: usize,
    /// Times that it grew beyond the soft limit.
    pub pressed: usize,
    /// Since it was opened.
    pub open_ms: u64,
}

/// What all regions of one label hold, or a domain.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ebb_lifetime_stats {
    /// Ends with a NUL.
    pub label: [u8; EBB_LABEL_BYTES],
    /// Not 0: a domain.
    pub is_domain: c_int,
    /// In blocks in use.
    pub live_bytes: usize,
    /// Their number.
    pub live_blocks: usize,
    /// Address space of slabs and large blocks.
    pub held_bytes: usize,
    /// Held at most.
    pub peak_bytes: usize,
    /// Of it in memory.
    pub resident_bytes: usize,
    /// Resident, not under blocks in use.
    pub pinned_bytes: usize,
    /// Number of slabs.
    pub slabs: usize,
    /// Slabs of closed regions, pinned by survivors.
    pub demoted: usize,
    /// Regions open, or threads that have an epoch.
    pub open: usize,
    /// Regions, or scopes, since the start.
    pub opened: u64,
    /// Regions, or epochs.
    pub closed: u64,
    /// Of them, gave back everything by their close.
    pub drained: u64,
    /// Regions, resets included.
    pub released: u64,
    /// Allocations after a close.
    pub late: u64,
    /// Allocations that hard limits refused.
    pub refused: u64,
    /// Age of the oldest slab that is still in use.
    pub oldest_ms: u64,
}

extern "C" {
    /// A region without memory, or null. Null as options: all zero.
    pub fn ebb_region_open(options: *const ebb_region_options) -> *mut ebb_region;
    /// Runs the cleanups, frees all that is left, ends the handle. Null is allowed.
    pub fn ebb_region_release(region: *mut ebb_region);
    /// As [`ebb_region_release`], but the region stays open.
    pub fn ebb_region_reset(region: *mut ebb_region);
    /// Runs the cleanups, ends the handle; blocks live on until they are freed. Null is allowed.
    pub fn ebb_region_close(region: *mut ebb_region);
    /// Calls `call(argument)` at the region's end, newest first. 0, or -1 when memory is refused.
    pub fn ebb_region_cleanup(
        region: *mut ebb_region,
        call: Option<unsafe extern "C" fn(argument: *mut c_void)>,
        argument: *mut c_void,
    ) -> c_int;

    /// A block of at least `bytes` bytes, aligned to 16, or null.
    pub fn ebb_region_alloc(region: *mut ebb_region, bytes: usize) -> *mut c_void;
    /// A cleared block of `count * size` bytes, or null.
    pub fn ebb_region_calloc(region: *mut ebb_region, count: usize, size: usize) -> *mut c_void;
    /// A block aligned to `align`, any power of two, or null.
    pub fn ebb_region_aligned_alloc(
        region: *mut ebb_region,
        align: usize,
        bytes: usize,
    ) -> *mut c_void;
    /// The block resized in the region, moved if need be, or null. A size of 0 frees.
    pub fn ebb_region_realloc(region: *mut ebb_region, p: *mut c_void, bytes: usize)
        -> *mut c_void;
    /// A copy of the block in another region, or in the heap for null. Null when memory is refused.
    pub fn ebb_region_promote(p: *const c_void, to: *mut ebb_region) -> *mut c_void;
    /// The open region that holds the block, or null.
    pub fn ebb_region_of(p: *const c_void) -> *mut ebb_region;

    /// The domain of that name, made at the first call, or null.
    pub fn ebb_domain_open(label: *const c_char) -> *mut ebb_domain;
    /// For the epochs that begin from now on. 0, or -1 for a policy that cannot be.
    pub fn ebb_domain_set_policy(
        domain: *mut ebb_domain,
        policy: ebb_domain_policy,
        n: usize,
    ) -> c_int;
    /// Ends the current epochs of all threads.
    pub fn ebb_domain_advance(domain: *mut ebb_domain);
    /// The calling thread has ended a unit of work and is about to wait.
    pub fn ebb_thread_idle();

    /// Makes the region current in the calling thread.
    pub fn ebb_region_enter(region: *mut ebb_region) -> ebb_scope;
    /// Makes the calling thread's epoch of the domain current.
    pub fn ebb_domain_enter(domain: *mut ebb_domain) -> ebb_scope;
    /// Makes the heap current in the calling thread.
    pub fn ebb_heap_enter() -> ebb_scope;
    /// Ends the innermost enter of the calling thread.
    pub fn ebb_leave(before: ebb_scope);
    /// The calling thread is not the region's owner any more.
    pub fn ebb_region_detach(region: *mut ebb_region);

    /// A snapshot of a region.
    pub fn ebb_region_stats_get(region: *mut ebb_region, stats: *mut ebb_region_stats);
    /// A snapshot of a domain.
    pub fn ebb_domain_stats_get(domain: *mut ebb_domain, stats: *mut ebb_lifetime_stats);
    /// Up to `count` lines; how many there are.
    pub fn ebb_lifetimes_get(lines: *mut ebb_lifetime_stats, count: usize) -> usize;
    /// The region's label.
    pub fn ebb_region_label(region: *const ebb_region) -> *const c_char;
}
