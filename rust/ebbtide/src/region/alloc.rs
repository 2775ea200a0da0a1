// SPDX-License-Identifier: MIT OR Apache-2.0
//! Regions: allocating in them. O(1) but for calls that need more memory.

use std::alloc::{handle_alloc_error, Layout};
use std::error::Error;
use std::ffi::c_void;
use std::fmt;
use std::mem;
use std::ptr::{self, NonNull};

use super::own::Region;
use super::slot::Slot;
use crate::sys;

/// Every block has at least this alignment.
pub(super) const ALIGN: usize = 16;

/// Memory was refused, by the system or by the region's hard limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError;

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("memory was refused, by the system or by the region's limit")
    }
}

impl Error for AllocError {}

fn expect_allocated<T>(outcome: Result<T, AllocError>, layout: Layout) -> T {
    outcome.unwrap_or_else(|AllocError| handle_alloc_error(layout))
}

/// Methods without `try_` call [`handle_alloc_error`] when memory is refused.
///
/// None of the values is dropped, but those of [`alloc_dropped`](Self::alloc_dropped).
impl Region<'_> {
    /// Room for the layout; for one of size 0 an address that is no block.
    #[inline]
    pub(super) fn allocate_raw(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if layout.size() == 0 {
            let aligned = ptr::null_mut::<u8>().wrapping_add(layout.align());
            return NonNull::new(aligned).ok_or(AllocError);
        }
        // SAFETY: any size, and an alignment that is a power of two, may be asked for.
        let block = unsafe {
            if layout.align() <= ALIGN {
                sys::ebb_region_alloc(self.raw(), layout.size())
            } else {
                sys::ebb_region_aligned_alloc(self.raw(), layout.align(), layout.size())
            }
        };
        NonNull::new(block.cast()).ok_or(AllocError)
    }

    #[inline]
    fn room<T>(&self, count: usize) -> Result<Slot<'_, T>, AllocError> {
        let layout = Layout::array::<T>(count).map_err(|_| AllocError)?;
        let block = self.allocate_raw(layout)?;
        // SAFETY: as large and as aligned as asked for, and the region ends only when it is no
        // longer borrowed.
        Ok(unsafe { Slot::new(block.cast(), count) })
    }

    /// Uninitialized memory, aligned as asked for, for as long as the region. It may be freed before
    /// with `ebb_free`, but for a layout of size 0.
    ///
    /// # Errors
    /// When memory is refused.
    #[inline]
    pub fn alloc_layout(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        self.allocate_raw(layout)
    }

    /// Moves the value into the region. It is not dropped.
    ///
    /// ```compile_fail,E0597
    /// let kept;
    /// {
    ///     let region = ebbtide::region::Region::open();
    ///     kept = region.alloc(7);
    /// }
    /// assert_eq!(*kept, 7);
    /// ```
    #[inline]
    pub fn alloc<T>(&self, value: T) -> &mut T {
        expect_allocated(self.room(1), Layout::new::<T>()).fill(value)
    }

    /// As [`alloc`](Self::alloc).
    ///
    /// # Errors
    /// When memory is refused: the value is dropped.
    #[inline]
    pub fn try_alloc<T>(&self, value: T) -> Result<&mut T, AllocError> {
        Ok(self.room(1)?.fill(value))
    }

    /// What the function gives, made when there is room for it, so that a large value need not be
    /// moved.
    #[inline]
    pub fn alloc_with<T>(&self, value: impl FnOnce() -> T) -> &mut T {
        expect_allocated(self.room(1), Layout::new::<T>()).fill(value())
    }

    /// A copy of the slice.
    #[inline]
    pub fn alloc_slice_copy<T: Copy>(&self, values: &[T]) -> &mut [T] {
        expect_allocated(self.room(values.len()), Layout::for_value(values)).fill_copy(values)
    }

    /// As [`alloc_slice_copy`](Self::alloc_slice_copy).
    ///
    /// # Errors
    /// When memory is refused.
    #[inline]
    pub fn try_alloc_slice_copy<T: Copy>(&self, values: &[T]) -> Result<&mut [T], AllocError> {
        Ok(self.room(values.len())?.fill_copy(values))
    }

    /// A slice of what the function gives for 0, 1, ... `count - 1`.
    ///
    /// ```
    /// let region = ebbtide::region::Region::open();
    /// assert_eq!(region.alloc_slice_with(4, |i| i * i), [0, 1, 4, 9]);
    /// ```
    ///
    /// # Panics
    /// When no slice can be as long.
    #[inline]
    pub fn alloc_slice_with<T>(&self, count: usize, value: impl FnMut(usize) -> T) -> &mut [T] {
        let layout = Layout::array::<T>(count).expect("a slice has at most isize::MAX bytes");
        expect_allocated(self.room(count), layout).fill_with(value)
    }

    /// A copy of the string.
    #[inline]
    pub fn alloc_str(&self, text: &str) -> &mut str {
        as_text(self.alloc_slice_copy(text.as_bytes()))
    }

    /// As [`alloc_str`](Self::alloc_str).
    ///
    /// # Errors
    /// When memory is refused.
    #[inline]
    pub fn try_alloc_str(&self, text: &str) -> Result<&mut str, AllocError> {
        self.try_alloc_slice_copy(text.as_bytes()).map(as_text)
    }

    /// As [`alloc`](Self::alloc), and the value is dropped when the region is released, reset or
    /// closed: the newest first, in the thread that does it. So it must be `Send`, and borrow nothing:
    /// a forgotten region may end later than it seems. A drop that panics ends the process.
    ///
    /// ```compile_fail,E0597
    /// let region = ebbtide::region::Region::open();
    /// let short = String::from("short");
    /// region.alloc_dropped(&short);
    /// drop(short);
    /// ```
    ///
    /// ```compile_fail,E0277
    /// let region = ebbtide::region::Region::open();
    /// region.alloc_dropped(std::rc::Rc::new(1)); // its other owners may be in another thread
    /// ```
    pub fn alloc_dropped<T: Send + 'static>(&self, value: T) -> &mut T {
        expect_allocated(self.try_alloc_dropped(value), Layout::new::<T>())
    }

    /// As [`alloc_dropped`](Self::alloc_dropped).
    ///
    /// # Errors
    /// When memory is refused: the value is dropped.
    pub fn try_alloc_dropped<T: Send + 'static>(&self, value: T) -> Result<&mut T, AllocError> {
        let slot = self.room::<T>(1)?;
        if mem::needs_drop::<T>() {
            // Nobody ends the region before the value is there: it is borrowed.
            self.cleanup(drop_value::<T>, slot.start().as_ptr().cast())?;
        }
        Ok(slot.fill(value))
    }

    /// Calls the function at the region's end, in the order and under the conditions of
    /// [`alloc_dropped`](Self::alloc_dropped).
    ///
    /// # Errors
    /// When memory is refused: the function is dropped.
    pub fn defer<F: FnOnce() + Send + 'static>(&self, f: F) -> Result<(), AllocError> {
        let slot = self.room::<F>(1)?;
        self.cleanup(call::<F>, slot.start().as_ptr().cast())?;
        slot.fill(f);
        Ok(())
    }

    fn cleanup(
        &self,
        function: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    ) -> Result<(), AllocError> {
        // SAFETY: open; both callers pass what the function asks for.
        match unsafe { sys::ebb_region_cleanup(self.raw(), Some(function), argument) } {
            0 => Ok(()),
            _ => Err(AllocError),
        }
    }
}

#[inline]
fn as_text(bytes: &mut [u8]) -> &mut str {
    // SAFETY: the callers pass copies of text.
    unsafe { std::str::from_utf8_unchecked_mut(bytes) }
}

/// # Safety
/// `at` is a value that nobody uses any more.
unsafe extern "C" fn drop_value<T>(at: *mut c_void) {
    // SAFETY: the caller's word.
    unsafe { at.cast::<T>().drop_in_place() }
}

/// # Safety
/// `at` is a function that is called once.
unsafe extern "C" fn call<F: FnOnce()>(at: *mut c_void) {
    // SAFETY: the caller's word.
    unsafe { at.cast::<F>().read()() }
}
