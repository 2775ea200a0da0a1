// SPDX-License-Identifier: MIT OR Apache-2.0
//! The global allocator.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr;

use crate::sys;

/// Every block of Ebbtide's has at least this alignment.
const ALIGN: usize = 16;

/// The allocator. Its methods may be called by any thread at any time, and after `fork`.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: ebbtide::Ebbtide = ebbtide::Ebbtide;
/// # fn main() {
/// assert_eq!(*Box::new(7), 7);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ebbtide;

/// A block for the layout, or null.
pub(crate) fn allocate(layout: Layout) -> *mut u8 {
    // SAFETY: any size, and an alignment that is a power of two, may be asked for.
    let block = unsafe {
        if layout.align() <= ALIGN {
            sys::ebb_malloc(layout.size())
        } else {
            sys::ebb_aligned_alloc(layout.align(), layout.size())
        }
    };
    block.cast()
}

/// Moves a block that `ebb_realloc` would not keep aligned.
///
/// # Safety
/// As `GlobalAlloc::realloc`.
unsafe fn move_aligned(block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
    let Ok(wanted) = Layout::from_size_align(size, layout.align()) else {
        return ptr::null_mut();
    };
    let moved = allocate(wanted);
    if !moved.is_null() {
        // SAFETY: both blocks hold that many bytes, and the old one is the caller's to give up.
        unsafe {
            ptr::copy_nonoverlapping(block, moved, size.min(layout.size()));
            sys::ebb_free(block.cast());
        }
    }
    moved
}

// SAFETY: the library gives each live block to one owner, of the size and alignment asked for, and
// does not unwind.
unsafe impl GlobalAlloc for Ebbtide {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocate(layout)
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGN {
            // SAFETY: any size may be asked for.
            return unsafe { sys::ebb_calloc(1, layout.size()) }.cast();
        }
        let block = allocate(layout);
        if !block.is_null() {
            // SAFETY: the block holds that many bytes.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller passes a live block of this allocator.
        unsafe { sys::ebb_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller passes a live block of this allocator, its layout and a size above 0.
        unsafe {
            if layout.align() <= ALIGN {
                sys::ebb_realloc(block.cast(), size).cast()
            } else {
                move_aligned(block, layout, size)
            }
        }
    }
}

/// Returns everything to the operating system that is free now, without waiting for the delay.
/// Gives the number of bytes returned.
pub fn trim() -> usize {
    // SAFETY: no conditions.
    unsafe { sys::ebb_trim() }
}
