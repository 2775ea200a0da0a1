// SPDX-License-Identifier: MIT OR Apache-2.0
//! `<ebbtide.h>`.

use core::ffi::{c_char, c_int, c_uint, c_void};

/// What the process holds, in bytes unless named otherwise.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ebb_stats {
    /// Resident memory of the process; the `resident_*` fields add up to it.
    pub resident: usize,
    /// Of it, under what the program asked for.
    pub resident_live: usize,
    /// Of it, added by rounding up to block sizes (an estimate).
    pub resident_rounding: usize,
    /// Of it, under blocks in magazines (an estimate).
    pub resident_cached: usize,
    /// Of it, under free blocks of part-full slabs.
    pub resident_pinned: usize,
    /// Of it, free spans that have not been returned yet.
    pub resident_free: usize,
    /// Of it, headers, bitmaps and heaps.
    pub resident_metadata: usize,
    /// Of it, not Ebbtide's: code, stacks, files, other mappings.
    pub resident_other: usize,
    /// Blocks and large objects in use, by their full size.
    pub live_bytes: usize,
    /// Their number.
    pub live_blocks: usize,
    /// In magazines.
    pub cached_bytes: usize,
    /// Address space of slabs.
    pub slab_bytes: usize,
    /// Spans of large objects.
    pub large_bytes: usize,
    /// Mappings of huge objects.
    pub huge_bytes: usize,
    /// Arena made usable so far.
    pub committed_bytes: usize,
    /// Arena address space.
    pub reserved_bytes: usize,
    /// Returned to the operating system since the start.
    pub purged_bytes: usize,
    /// Number of heaps, abandoned ones included.
    pub heaps: usize,
    /// Number of slabs.
    pub slabs: usize,
    /// Of the arena, asked for as huge pages and not split since (`EBB_THP=auto`).
    pub asked_huge_bytes: usize,
}

/// Of one size class.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ebb_class_stats {
    /// Size of its blocks; 0: those of `ebb_malloc(0)`.
    pub block_bytes: usize,
    /// Number of slabs.
    pub slabs: usize,
    /// Blocks in use.
    pub live_blocks: usize,
    /// Free blocks in magazines.
    pub cached_blocks: usize,
    /// Free blocks in slabs.
    pub free_blocks: usize,
    /// Bytes in free blocks that have not been returned yet.
    pub dirty_bytes: usize,
    /// Bytes in free blocks on pages that blocks in use keep.
    pub pinned_bytes: usize,
}

/// Of a thread that has allocated.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ebb_thread_stats {
    /// The kernel's number of it.
    pub thread: u64,
    /// In its magazines, and in freed large objects that it keeps.
    pub cached_bytes: usize,
    /// In full batches of blocks that it has retired.
    pub retired_bytes: usize,
    /// That have come into its magazines since its heap began.
    pub taken_bytes: u64,
}

/// Rows of an `ebb_snapshot`, used or not.
pub const EBB_SNAPSHOT_CLASSES: usize = 96;

/// The accounts of the heap, in bytes unless named otherwise.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ebb_snapshot {
    /// `CLOCK_MONOTONIC`, in ms.
    pub taken_ms: u64,
    /// Blocks of classes in use, by their full size.
    pub live_bytes: usize,
    /// Blocks in magazines, and freed large objects that a thread keeps.
    pub cached_bytes: usize,
    /// Free blocks of slabs.
    pub free_bytes: usize,
    /// Of them, freed since their pages were looked at: not yet returned.
    pub dirty_bytes: usize,
    /// Of them, left there then: blocks in use lie on the same pages.
    pub pinned_bytes: usize,
    /// Address space of slabs.
    pub slab_bytes: usize,
    /// Other spans: large objects, regions, the allocator's own.
    pub span_bytes: usize,
    /// Free spans and kept mappings, not yet returned.
    pub dirty_span_bytes: usize,
    /// Mappings of huge objects.
    pub huge_bytes: usize,
    /// Their number.
    pub huge_count: usize,
    /// Arena made usable so far.
    pub committed_bytes: usize,
    /// Arena address space.
    pub reserved_bytes: usize,
    /// Of the arena, asked for as huge pages and not split since.
    pub asked_huge_bytes: usize,
    /// Returned to the operating system since the start.
    pub purged_bytes: usize,
    /// Number of calls for that, but for slabs'.
    pub purges: usize,
    /// Number of slabs.
    pub slabs: usize,
    /// Number of heaps, abandoned ones included.
    pub heaps: usize,
    /// Rows in use, the smallest class first.
    pub class_count: usize,
    /// By class.
    pub classes: [ebb_class_stats; EBB_SNAPSHOT_CLASSES],
}

extern "C" {
    /// A block of at least `bytes` bytes, aligned to 16, or null.
    pub fn ebb_malloc(bytes: usize) -> *mut c_void;
    /// A cleared block of `count * size` bytes, or null.
    pub fn ebb_calloc(count: usize, size: usize) -> *mut c_void;
    /// The block resized, moved if need be, or null and `p` as it was. A size of 0 frees.
    pub fn ebb_realloc(p: *mut c_void, bytes: usize) -> *mut c_void;
    /// Frees a block; null is allowed.
    pub fn ebb_free(p: *mut c_void);
    /// As `ebb_free`; the size is not read.
    pub fn ebb_free_sized(p: *mut c_void, bytes: usize);
    /// As `ebb_free`; the alignment and the size are not read.
    pub fn ebb_free_aligned_sized(p: *mut c_void, align: usize, bytes: usize);
    /// A block aligned to `align`, any power of two, or null.
    pub fn ebb_aligned_alloc(align: usize, bytes: usize) -> *mut c_void;
    /// As `ebb_aligned_alloc`.
    pub fn ebb_memalign(align: usize, bytes: usize) -> *mut c_void;
    /// 0 and a block in `*out`, or the number of an error.
    pub fn ebb_posix_memalign(out: *mut *mut c_void, align: usize, bytes: usize) -> c_int;
    /// Bytes that may be used at `p`; 0 for null.
    pub fn ebb_malloc_usable_size(p: *const c_void) -> usize;
    /// Returns all that is free to the operating system now. Bytes returned.
    pub fn ebb_trim() -> usize;
    /// Whether the block keeps a slab that is mostly free.
    pub fn ebb_is_sparse(p: *const c_void) -> c_int;
    /// Such a block's new place in another slab, or `p`, where it stays.
    pub fn ebb_compact(p: *mut c_void) -> *mut c_void;
    /// The accounts, class by class, without a pause.
    pub fn ebb_snapshot_get(snapshot: *mut ebb_snapshot);
    /// Up to `count` threads; how many there are.
    pub fn ebb_threads_get(lines: *mut ebb_thread_stats, count: usize) -> usize;
    /// A snapshot.
    pub fn ebb_stats_get(stats: *mut ebb_stats);
    /// The snapshot as text, cut to `size`; the length that the whole would have.
    pub fn ebb_stats_text(out: *mut c_char, size: usize) -> usize;
    /// The snapshot as JSON, cut to `size`; the length that the whole would have.
    pub fn ebb_stats_json(out: *mut c_char, size: usize) -> usize;
    /// Name, value and origin of option `index`; null past the last.
    pub fn ebb_option_value(index: c_uint, value: *mut usize, is_set: *mut c_int) -> *const c_char;
    /// "major.minor.patch".
    pub fn ebb_version() -> *const c_char;
}
