// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pointers that own.

use std::borrow::{Borrow, BorrowMut};
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::ops::{Deref, DerefMut};

use super::block::{self, Pointable, Pointer};
use super::{Guard, Shared};

/// A pointer that owns its object, as a `Box` does, in a block of Ebbtide's heap, with a tag in its
/// low bits.
///
/// ```
/// use ebbtide::epoch::Owned;
///
/// let mut node = Owned::new([1, 2]).with_tag(1);
/// node[0] = 3;
/// assert_eq!((*node, node.tag()), ([3, 2], 1));
/// ```
///
/// ```compile_fail,E0277
/// let owned = ebbtide::epoch::Owned::new(std::rc::Rc::new(1));
/// std::thread::spawn(move || drop(owned));
/// ```
pub struct Owned<T: ?Sized + Pointable> {
    data: usize,
    marker: PhantomData<Box<T>>,
}

impl<T: ?Sized + Pointable> Pointer<T> for Owned<T> {
    #[inline]
    fn into_usize(self) -> usize {
        let data = self.data;
        mem::forget(self);
        data
    }

    #[inline]
    unsafe fn from_usize(data: usize) -> Self {
        debug_assert!(block::address_of::<T>(data) != 0, "an Owned that is null");
        Owned {
            data,
            marker: PhantomData,
        }
    }
}

impl<T> Owned<T> {
    /// An object in a block of its own.
    pub fn new(init: T) -> Owned<T> {
        Self::init(init)
    }

    /// The owner of an object whose raw pointer came from an `Owned`, an [`Atomic`](super::Atomic) or
    /// a [`Shared`].
    ///
    /// ```
    /// use ebbtide::epoch::{self, Owned};
    ///
    /// let guard = &epoch::pin();
    /// let raw = Owned::new(5).into_shared(guard).as_raw() as *mut i32;
    /// // SAFETY: it came from an Owned, once.
    /// let owned = unsafe { Owned::from_raw(raw) };
    /// assert_eq!(*owned, 5);
    /// ```
    ///
    /// # Safety
    /// The pointer came from there, once for each time, and nobody else uses the object.
    ///
    /// # Panics
    /// If the pointer is not aligned.
    pub unsafe fn from_raw(raw: *mut T) -> Owned<T> {
        // SAFETY: the caller's word.
        unsafe { Self::from_usize(block::from_raw(raw)) }
    }

    /// The object, moved to a `Box`.
    pub fn into_box(self) -> Box<T> {
        let at = block::address_of::<T>(self.into_usize()) as *mut T;
        // SAFETY: this owned the object.
        unsafe { block::to_box(at) }
    }
}

impl<T: ?Sized + Pointable> Owned<T> {
    /// An object from what its type asks for: the value, or the length of a slice.
    ///
    /// ```
    /// use ebbtide::epoch::Owned;
    /// use std::mem::MaybeUninit;
    ///
    /// let mut buffer = Owned::<[MaybeUninit<u8>]>::init(3);
    /// buffer[2].write(7);
    /// assert_eq!(buffer.len(), 3);
    /// ```
    pub fn init(init: T::Init) -> Owned<T> {
        // SAFETY: the one owner of a new object.
        unsafe { Self::from_usize(T::init(init)) }
    }

    /// Gives up the ownership; the tag stays.
    #[allow(clippy::needless_lifetimes)]
    pub fn into_shared<'g>(self, _: &'g Guard) -> Shared<'g, T> {
        // SAFETY: the guard protects what is not retired yet.
        unsafe { Shared::from_usize(self.into_usize()) }
    }

    /// The tag.
    pub fn tag(&self) -> usize {
        block::tag_of::<T>(self.data)
    }

    /// The same object with another tag, cut to the bits that the alignment leaves.
    pub fn with_tag(self, tag: usize) -> Owned<T> {
        // SAFETY: the word comes from this owner, which is gone.
        unsafe { Self::from_usize(block::with_tag::<T>(self.into_usize(), tag)) }
    }

    fn address(&self) -> usize {
        block::address_of::<T>(self.data)
    }
}

impl<T: ?Sized + Pointable> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the one owner goes.
        unsafe { T::drop(self.address()) }
    }
}

impl<T: ?Sized + Pointable> fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owned")
            .field("raw", &self.address())
            .field("tag", &self.tag())
            .finish()
    }
}

impl<T: Clone> Clone for Owned<T> {
    /// A copy of the object in a block of its own, with the same tag.
    fn clone(&self) -> Self {
        Owned::new((**self).clone()).with_tag(self.tag())
    }
}

impl<T: ?Sized + Pointable> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this owns the object.
        unsafe { T::deref(self.address()) }
    }
}

impl<T: ?Sized + Pointable> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this owns the object.
        unsafe { T::deref_mut(self.address()) }
    }
}

impl<T> From<T> for Owned<T> {
    fn from(t: T) -> Self {
        Owned::new(t)
    }
}

impl<T> From<Box<T>> for Owned<T> {
    /// The object, moved to a block of its own.
    fn from(b: Box<T>) -> Self {
        // SAFETY: the one owner of what has moved.
        unsafe { Self::from_usize(block::from_box(b)) }
    }
}

impl<T: ?Sized + Pointable> Borrow<T> for Owned<T> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T: ?Sized + Pointable> BorrowMut<T> for Owned<T> {
    fn borrow_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: ?Sized + Pointable> AsRef<T> for Owned<T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T: ?Sized + Pointable> AsMut<T> for Owned<T> {
    fn as_mut(&mut self) -> &mut T {
        self
    }
}
