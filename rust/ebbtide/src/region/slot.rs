// SPDX-License-Identifier: MIT OR Apache-2.0
//! Room in a region that has not been filled yet.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;

/// Room for `count` values of `T` which is the holder's alone, for as long as `'r`.
pub(super) struct Slot<'r, T> {
    start: NonNull<T>,
    count: usize,
    region: PhantomData<&'r mut T>,
}

impl<'r, T> Slot<'r, T> {
    /// # Safety
    /// At `start` there are `count` values' bytes, aligned, that nobody else uses for `'r`.
    #[inline]
    pub(super) unsafe fn new(start: NonNull<T>, count: usize) -> Self {
        Slot {
            start,
            count,
            region: PhantomData,
        }
    }

    #[inline]
    pub(super) fn start(&self) -> NonNull<T> {
        self.start
    }

    #[inline]
    pub(super) fn fill(mut self, value: T) -> &'r mut T {
        debug_assert_eq!(self.count, 1);
        // SAFETY: room for one value, which is the caller's from now on.
        unsafe {
            self.start.as_ptr().write(value);
            self.start.as_mut()
        }
    }

    #[inline]
    pub(super) fn fill_copy(self, values: &[T]) -> &'r mut [T]
    where
        T: Copy,
    {
        assert_eq!(self.count, values.len());
        // SAFETY: room for as many, apart from where they are; they are the caller's from now on.
        unsafe {
            ptr::copy_nonoverlapping(values.as_ptr(), self.start.as_ptr(), self.count);
            slice::from_raw_parts_mut(self.start.as_ptr(), self.count)
        }
    }

    #[inline]
    pub(super) fn fill_with(self, mut value: impl FnMut(usize) -> T) -> &'r mut [T] {
        for at in 0..self.count {
            // SAFETY: within the room.
            unsafe { self.start.as_ptr().add(at).write(value(at)) };
        }
        // SAFETY: all filled, and the caller's from now on.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.count) }
    }
}
