// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collections in a region: the allocator trait of the crate allocator-api2.

use std::alloc::Layout;
use std::ptr::{self, NonNull};

use allocator_api2::alloc::{AllocError, Allocator};

use super::alloc::ALIGN;
use super::own::Region;
use crate::sys;

/// ```
/// use allocator_api2::vec::Vec;
/// use ebbtide::region::Region;
///
/// let region = Region::open();
/// let mut squares = Vec::new_in(&region);
/// squares.extend((0..1000).map(|i| i * i));
/// assert!(region.holds(squares.as_slice()));
/// ```
///
/// ```compile_fail,E0505
/// use allocator_api2::boxed::Box;
/// use ebbtide::region::Region;
///
/// let region = Region::open();
/// let escaped = Box::new_in(7, &region);
/// drop(region);
/// assert_eq!(*escaped, 7);
/// ```
// SAFETY: blocks last until they are freed or the region ends, which is not before the reference and
// its copies do; all copies are the same region.
unsafe impl Allocator for &Region<'_> {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let block = self.allocate_raw(layout).map_err(|_| AllocError)?;
        Ok(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    #[inline]
    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() != 0 {
            // SAFETY: the caller passes a live block of the region.
            unsafe { sys::ebb_free(block.as_ptr().cast()) }
        }
    }

    #[inline]
    unsafe fn grow(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller passes a live block of the region that `old` fits.
        unsafe { resize(self, block, old, new) }
    }

    #[inline]
    unsafe fn grow_zeroed(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: as in `grow`; the new block holds `new.size()` bytes, of which the first are the old's.
        unsafe {
            let grown = resize(self, block, old, new)?;
            let fresh = grown.as_ptr().cast::<u8>().add(old.size());
            fresh.write_bytes(0, new.size() - old.size());
            Ok(grown)
        }
    }

    #[inline]
    unsafe fn shrink(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller passes a live block of the region that `old` fits.
        let shrunk = unsafe { resize(self, block, old, new) };
        if shrunk.is_err() && block.as_ptr() as usize % new.align() == 0 {
            // No memory for a smaller block: the larger one does, as nobody looks at its size.
            return Ok(NonNull::slice_from_raw_parts(block, new.size()));
        }
        shrunk
    }
}

/// # Safety
/// `block` is a live block of the region that `old` fits, and is given up if this succeeds.
unsafe fn resize(
    region: &&Region<'_>,
    block: NonNull<u8>,
    old: Layout,
    new: Layout,
) -> Result<NonNull<[u8]>, AllocError> {
    if old.size() == 0 || new.size() == 0 || new.align() > ALIGN {
        // SAFETY: the caller's word.
        return unsafe { replace(region, block, old, new) };
    }
    // SAFETY: a live block, and a size above 0.
    let resized =
        unsafe { sys::ebb_region_realloc(region.raw(), block.as_ptr().cast(), new.size()) };
    let resized = NonNull::new(resized.cast()).ok_or(AllocError)?;
    Ok(NonNull::slice_from_raw_parts(resized, new.size()))
}

/// Moves what `ebb_region_realloc` would not keep aligned, or what is no block on one side.
///
/// # Safety
/// As [`resize`].
unsafe fn replace(
    region: &&Region<'_>,
    block: NonNull<u8>,
    old: Layout,
    new: Layout,
) -> Result<NonNull<[u8]>, AllocError> {
    let moved = region.allocate(new)?;
    // SAFETY: both hold that many bytes, and the old block is the caller's to give up.
    unsafe {
        let kept = old.size().min(new.size());
        ptr::copy_nonoverlapping(block.as_ptr(), moved.as_ptr().cast(), kept);
        region.deallocate(block, old);
    }
    Ok(moved)
}
