// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pointers that are valid while a guard lives.

use std::cmp;
use std::fmt;
use std::marker::PhantomData;

use super::block::{self, Pointable, Pointer};
use super::Owned;

/// A pointer to an object that a guard protects, with a tag in its low bits. May be null.
///
/// ```
/// use ebbtide::epoch::{self, Atomic};
/// use std::sync::atomic::Ordering;
///
/// let a = Atomic::new(1234);
/// let guard = &epoch::pin();
/// let p = a.load(Ordering::Acquire, guard).with_tag(2);
/// assert_eq!(p.tag(), 2);
/// // SAFETY: set above, and never retired.
/// assert_eq!(unsafe { *p.deref() }, 1234);
/// # // SAFETY: this thread alone has the pointer.
/// # unsafe { drop(a.into_owned()) };
/// ```
///
/// ```compile_fail,E0277
/// use ebbtide::epoch::{Atomic, Shared};
/// let shared = Shared::<u8>::null();
/// std::thread::spawn(move || Atomic::from(shared));
/// ```
pub struct Shared<'g, T: 'g + ?Sized + Pointable> {
    data: usize,
    marker: PhantomData<(&'g (), *const T)>,
}

impl<T: ?Sized + Pointable> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized + Pointable> Copy for Shared<'_, T> {}

impl<T: ?Sized + Pointable> Pointer<T> for Shared<'_, T> {
    #[inline]
    fn into_usize(self) -> usize {
        self.data
    }

    #[inline]
    unsafe fn from_usize(data: usize) -> Self {
        Shared {
            data,
            marker: PhantomData,
        }
    }
}

impl<T> Shared<'_, T> {
    /// The address, without the tag.
    ///
    /// ```
    /// use ebbtide::epoch::Shared;
    /// assert!(Shared::<u8>::null().as_raw().is_null());
    /// ```
    pub fn as_raw(&self) -> *const T {
        self.address() as *const T
    }
}

impl<'g, T: ?Sized + Pointable> Shared<'g, T> {
    /// The null pointer, with tag 0.
    pub const fn null() -> Shared<'g, T> {
        Shared {
            data: 0,
            marker: PhantomData,
        }
    }

    pub(super) fn address(&self) -> usize {
        block::address_of::<T>(self.data)
    }

    /// Whether the pointer is null, whatever its tag.
    pub fn is_null(&self) -> bool {
        self.address() == 0
    }

    /// The object.
    ///
    /// # Safety
    /// The pointer is not null, the guard protects the object, it was published by a release and
    /// loaded by an acquire (or otherwise ordered), and nobody writes to it meanwhile but by atomics.
    pub unsafe fn deref(&self) -> &'g T {
        // SAFETY: the caller's word.
        unsafe { T::deref(self.address()) }
    }

    /// The object, to be changed.
    ///
    /// # Safety
    /// As [`deref`](Self::deref), and nobody else uses the object while the reference lives.
    pub unsafe fn deref_mut(&mut self) -> &'g mut T {
        // SAFETY: the caller's word.
        unsafe { T::deref_mut(self.address()) }
    }

    /// The object, or `None` for null.
    ///
    /// ```
    /// use ebbtide::epoch::{self, Atomic, Shared};
    /// use std::sync::atomic::Ordering;
    ///
    /// let a = Atomic::<i32>::null();
    /// let guard = &epoch::pin();
    /// // SAFETY: null.
    /// assert_eq!(unsafe { a.load(Ordering::Acquire, guard).as_ref() }, None);
    /// ```
    ///
    /// # Safety
    /// As [`deref`](Self::deref), but for null.
    pub unsafe fn as_ref(&self) -> Option<&'g T> {
        if self.is_null() {
            return None;
        }
        // SAFETY: the caller's word.
        Some(unsafe { self.deref() })
    }

    /// The object with its ownership; the tag stays.
    ///
    /// # Safety
    /// The pointer is not null and nobody else uses the object any more.
    pub unsafe fn into_owned(self) -> Owned<T> {
        debug_assert!(!self.is_null(), "into_owned of a null pointer");
        // SAFETY: the caller's word.
        unsafe { Owned::from_usize(self.data) }
    }

    /// The object with its ownership, or `None` for null.
    ///
    /// # Safety
    /// As [`into_owned`](Self::into_owned), but for null.
    pub unsafe fn try_into_owned(self) -> Option<Owned<T>> {
        if self.is_null() {
            return None;
        }
        // SAFETY: the caller's word.
        Some(unsafe { self.into_owned() })
    }

    /// The tag.
    pub fn tag(&self) -> usize {
        block::tag_of::<T>(self.data)
    }

    /// The same address with another tag, cut to the bits that the alignment leaves.
    pub fn with_tag(&self, tag: usize) -> Shared<'g, T> {
        Shared {
            data: block::with_tag::<T>(self.data, tag),
            marker: PhantomData,
        }
    }
}

impl<T> From<*const T> for Shared<'_, T> {
    /// A pointer with tag 0.
    ///
    /// # Panics
    /// If the pointer is not aligned.
    fn from(raw: *const T) -> Self {
        Shared {
            data: block::from_raw(raw),
            marker: PhantomData,
        }
    }
}

impl<'g, T: ?Sized + Pointable> PartialEq<Shared<'g, T>> for Shared<'g, T> {
    fn eq(&self, other: &Self) -> bool {
        self.data == other.data
    }
}

impl<T: ?Sized + Pointable> Eq for Shared<'_, T> {}

impl<'g, T: ?Sized + Pointable> PartialOrd<Shared<'g, T>> for Shared<'g, T> {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: ?Sized + Pointable> Ord for Shared<'_, T> {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        self.data.cmp(&other.data)
    }
}

impl<T: ?Sized + Pointable> fmt::Debug for Shared<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("raw", &self.address())
            .field("tag", &self.tag())
            .finish()
    }
}

impl<T: ?Sized + Pointable> fmt::Pointer for Shared<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&(self.address() as *const ()), f)
    }
}

impl<T: ?Sized + Pointable> Default for Shared<'_, T> {
    fn default() -> Self {
        Shared::null()
    }
}
