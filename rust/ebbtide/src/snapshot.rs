// SPDX-License-Identifier: MIT OR Apache-2.0
//! The accounts of the heap, class by class.

use std::mem::MaybeUninit;

use crate::sys;

/// The accounts of one block size. Retired blocks are in use until their grace period is over.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeClass {
    /// Bytes of a block; 0: blocks without bytes.
    pub block_bytes: usize,
    /// The number of slabs that hold such blocks.
    pub slabs: usize,
    /// The number of blocks in use.
    pub live_blocks: usize,
    /// The number of free blocks in the threads' caches.
    pub cached_blocks: usize,
    /// The number of free blocks in slabs.
    pub free_blocks: usize,
    /// Bytes in free blocks that have not been returned to the system yet.
    pub dirty_bytes: usize,
    /// Bytes in free blocks on pages that blocks in use keep.
    pub pinned_bytes: usize,
}

/// What the allocator has handed out, whether the program has touched it or not. Sizes are bytes.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Blocks of size classes in use, by their full size.
    pub live_bytes: usize,
    /// Blocks in the threads' caches, and freed large objects that a thread keeps.
    pub cached_bytes: usize,
    /// Free blocks of slabs.
    pub free_bytes: usize,
    /// Of them, those that have not been returned to the system yet.
    pub dirty_bytes: usize,
    /// Of them, those on pages that blocks in use keep.
    pub pinned_bytes: usize,
    /// Large objects, regions, and the allocator's own tables.
    pub span_bytes: usize,
    /// Free areas that have not been returned to the system yet.
    pub dirty_span_bytes: usize,
    /// Objects with a mapping of their own.
    pub huge_bytes: usize,
    /// Returned to the system since the process started.
    pub purged_bytes: usize,
    /// The size classes that have slabs, the smallest first.
    pub classes: Vec<SizeClass>,
}

/// What a thread that has allocated keeps, in bytes.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadHeap {
    /// The kernel's number of the thread.
    pub thread: u64,
    /// In its caches, and in freed large objects that it keeps.
    pub cached_bytes: usize,
    /// Retired by it, and waiting for the grace period.
    pub retired_bytes: usize,
    /// That have come into its caches since the heap that it has began; for differences.
    pub taken_bytes: u64,
}

/// The threads that have allocated and have not ended, in no order.
///
/// ```
/// let kept: usize = ebbtide::threads().iter().map(|each| each.cached_bytes).sum();
/// println!("{kept} bytes in the caches of threads");
/// ```
pub fn threads() -> Vec<ThreadHeap> {
    let mut rows: Vec<sys::ebb_thread_stats> = Vec::new();
    loop {
        // SAFETY: the library writes at most as many rows as there are.
        let count = unsafe { sys::ebb_threads_get(rows.as_mut_ptr(), rows.len()) };
        if count <= rows.len() {
            rows.truncate(count);
            break;
        }
        rows.resize(count + 8, sys::ebb_thread_stats::default()); // some may begin meanwhile
    }
    rows.iter()
        .map(|row| ThreadHeap {
            thread: row.thread,
            cached_bytes: row.cached_bytes,
            retired_bytes: row.retired_bytes,
            taken_bytes: row.taken_bytes,
        })
        .collect()
}

/// The accounts of the heap. No thread waits for it for longer than it takes to add up one heap, some microseconds;
/// what threads do meanwhile may be counted twice or not at all.
///
/// ```
/// for class in ebbtide::snapshot().classes {
///     println!("{} bytes: {} in use, {} free", class.block_bytes, class.live_blocks, class.free_blocks);
/// }
/// ```
pub fn snapshot() -> Snapshot {
    let mut raw = MaybeUninit::uninit();
    // SAFETY: the library writes the whole of a struct that is the caller's.
    let raw: sys::ebb_snapshot = unsafe {
        sys::ebb_snapshot_get(raw.as_mut_ptr());
        raw.assume_init()
    };
    Snapshot::of(&raw)
}

impl Snapshot {
    fn of(raw: &sys::ebb_snapshot) -> Self {
        Snapshot {
            live_bytes: raw.live_bytes,
            cached_bytes: raw.cached_bytes,
            free_bytes: raw.free_bytes,
            dirty_bytes: raw.dirty_bytes,
            pinned_bytes: raw.pinned_bytes,
            span_bytes: raw.span_bytes,
            dirty_span_bytes: raw.dirty_span_bytes,
            huge_bytes: raw.huge_bytes,
            purged_bytes: raw.purged_bytes,
            classes: raw.classes[..raw.class_count]
                .iter()
                .filter(|row| row.slabs > 0)
                .map(|row| SizeClass {
                    block_bytes: row.block_bytes,
                    slabs: row.slabs,
                    live_blocks: row.live_blocks,
                    cached_blocks: row.cached_blocks,
                    free_blocks: row.free_blocks,
                    dirty_bytes: row.dirty_bytes,
                    pinned_bytes: row.pinned_bytes,
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(found: &Snapshot, block_bytes: usize) -> usize {
        let mut rows = found.classes.iter();
        rows.find(|row| row.block_bytes == block_bytes)
            .map_or(0, |row| row.live_blocks)
    }

    #[test]
    fn blocks_are_counted_in_their_class() {
        // SAFETY: plain allocations, each freed once; no other test asks for blocks as large.
        let blocks: Vec<_> = (0..50)
            .map(|_| unsafe { sys::ebb_malloc(26_000) })
            .collect();
        // SAFETY: a block that is alive.
        let block_bytes = unsafe { sys::ebb_malloc_usable_size(blocks[0]) };
        assert_eq!(live(&snapshot(), block_bytes), 50);
        for block in blocks {
            // SAFETY: as above.
            unsafe { sys::ebb_free(block) };
        }
        let after = snapshot();
        assert_eq!(live(&after, block_bytes), 0);
        assert!(after
            .classes
            .windows(2)
            .all(|two| two[0].block_bytes < two[1].block_bytes));
    }
}
