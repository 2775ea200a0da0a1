// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pointers that threads share.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::block::{self, Pointable, Pointer};
use super::{Guard, Owned, Shared};

/// A pointer that any thread may load and store under a [`Guard`], with a tag in its low bits. May be
/// null. It owns nothing: dropping it leaves its object alone.
///
/// ```
/// use ebbtide::epoch::{self, Atomic, Owned};
/// use std::sync::atomic::Ordering;
///
/// let a = Atomic::null();
/// let guard = &epoch::pin();
/// a.store(Owned::new(7), Ordering::Release);
/// // SAFETY: stored above, and never retired.
/// assert_eq!(unsafe { a.load(Ordering::Acquire, guard).as_ref() }, Some(&7));
/// # // SAFETY: this thread alone has the pointer.
/// # unsafe { drop(a.into_owned()) };
/// ```
///
/// ```compile_fail,E0277
/// let a = ebbtide::epoch::Atomic::new(std::cell::Cell::new(1));
/// std::thread::spawn(move || drop(a)); // a copy of the pointer may have stayed
/// ```
pub struct Atomic<T: ?Sized + Pointable> {
    data: AtomicUsize,
    marker: PhantomData<*mut T>,
}

// SAFETY: gives out references to T in any thread, and lets any thread take a T out.
unsafe impl<T: ?Sized + Pointable + Send + Sync> Send for Atomic<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Pointable + Send + Sync> Sync for Atomic<T> {}

/// What a failed compare-and-exchange gives back.
pub struct CompareExchangeError<'g, T: ?Sized + Pointable, P: Pointer<T>> {
    /// The pointer that was there instead.
    pub current: Shared<'g, T>,
    /// The pointer that was to be stored.
    pub new: P,
}

impl<T, P: Pointer<T> + fmt::Debug> fmt::Debug for CompareExchangeError<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompareExchangeError")
            .field("current", &self.current)
            .field("new", &self.new)
            .finish()
    }
}

impl<T> Atomic<T> {
    /// A pointer to a new object.
    pub fn new(init: T) -> Atomic<T> {
        Self::init(init)
    }
}

impl<T: ?Sized + Pointable> Atomic<T> {
    /// A pointer to a new object, from what its type asks for: the value, or the length of a slice.
    pub fn init(init: T::Init) -> Atomic<T> {
        Self::from(Owned::init(init))
    }

    /// The null pointer, with tag 0.
    pub const fn null() -> Atomic<T> {
        Self::from_word(0)
    }

    const fn from_word(data: usize) -> Self {
        Atomic {
            data: AtomicUsize::new(data),
            marker: PhantomData,
        }
    }

    /// Loads the pointer.
    #[inline]
    pub fn load<'g>(&self, ord: Ordering, _: &'g Guard) -> Shared<'g, T> {
        // SAFETY: the word of a pointer, which the guard protects.
        unsafe { Shared::from_usize(self.data.load(ord)) }
    }

    /// Loads the pointer so that what was written to its object before is visible: an acquire load
    /// here, which is at least what the name asks for.
    #[inline]
    pub fn load_consume<'g>(&self, guard: &'g Guard) -> Shared<'g, T> {
        self.load(Ordering::Acquire, guard)
    }

    /// Stores a pointer. What was there is not dropped.
    #[inline]
    pub fn store<P: Pointer<T>>(&self, new: P, ord: Ordering) {
        self.data.store(new.into_usize(), ord);
    }

    /// Stores a pointer and gives what was there.
    #[inline]
    pub fn swap<'g, P: Pointer<T>>(&self, new: P, ord: Ordering, _: &'g Guard) -> Shared<'g, T> {
        // SAFETY: the word of a pointer, which the guard protects.
        unsafe { Shared::from_usize(self.data.swap(new.into_usize(), ord)) }
    }

    /// Stores `new` if `current`, address and tag, is there. Gives the pointer stored, or what was
    /// there together with `new`.
    ///
    /// ```
    /// use ebbtide::epoch::{self, Atomic, Owned, Shared};
    /// use std::sync::atomic::Ordering::{AcqRel, Acquire};
    ///
    /// let a = Atomic::null();
    /// let guard = &epoch::pin();
    /// let first = a
    ///     .compare_exchange(Shared::null(), Owned::new(1), AcqRel, Acquire, guard)
    ///     .unwrap();
    /// let refused = a
    ///     .compare_exchange(Shared::null(), Owned::new(2), AcqRel, Acquire, guard)
    ///     .unwrap_err();
    /// assert_eq!((refused.current, *refused.new), (first, 2));
    /// # // SAFETY: this thread alone has the pointer.
    /// # unsafe { drop(a.into_owned()) };
    /// ```
    #[inline]
    pub fn compare_exchange<'g, P>(
        &self,
        current: Shared<'_, T>,
        new: P,
        success: Ordering,
        failure: Ordering,
        _: &'g Guard,
    ) -> Result<Shared<'g, T>, CompareExchangeError<'g, T, P>>
    where
        P: Pointer<T>,
    {
        let new = new.into_usize();
        let seen = self
            .data
            .compare_exchange(current.into_usize(), new, success, failure);
        // SAFETY: `new` went into its word above and comes out once.
        unsafe { outcome(seen, new) }
    }

    /// As [`compare_exchange`](Self::compare_exchange), but may fail without a reason, which saves a
    /// loop on some processors.
    #[inline]
    pub fn compare_exchange_weak<'g, P>(
        &self,
        current: Shared<'_, T>,
        new: P,
        success: Ordering,
        failure: Ordering,
        _: &'g Guard,
    ) -> Result<Shared<'g, T>, CompareExchangeError<'g, T, P>>
    where
        P: Pointer<T>,
    {
        let new = new.into_usize();
        let seen = self
            .data
            .compare_exchange_weak(current.into_usize(), new, success, failure);
        // SAFETY: `new` went into its word above and comes out once.
        unsafe { outcome(seen, new) }
    }

    /// Replaces the pointer by what `func` makes of it, which is called again when another thread
    /// was faster. Gives the pointer before, as an error if `func` gave `None`.
    ///
    /// ```
    /// use ebbtide::epoch::{self, Atomic};
    /// use std::sync::atomic::Ordering::SeqCst;
    ///
    /// let a = Atomic::new(1_u64);
    /// let guard = &epoch::pin();
    /// let before = a.fetch_update(SeqCst, SeqCst, guard, |p| Some(p.with_tag(1)));
    /// assert_eq!(before.unwrap().tag(), 0);
    /// assert!(a.fetch_update(SeqCst, SeqCst, guard, |_| None).is_err());
    /// # // SAFETY: this thread alone has the pointer.
    /// # unsafe { drop(a.into_owned()) };
    /// ```
    pub fn fetch_update<'g, F>(
        &self,
        set_order: Ordering,
        fail_order: Ordering,
        guard: &'g Guard,
        mut func: F,
    ) -> Result<Shared<'g, T>, Shared<'g, T>>
    where
        F: FnMut(Shared<'g, T>) -> Option<Shared<'g, T>>,
    {
        let mut seen = self.load(fail_order, guard);
        loop {
            let next = func(seen).ok_or(seen)?;
            match self.compare_exchange_weak(seen, next, set_order, fail_order, guard) {
                Ok(_) => return Ok(seen),
                Err(refused) => seen = refused.current,
            }
        }
    }

    /// Keeps those bits of the tag that are set in `val`. Gives the pointer before.
    pub fn fetch_and<'g>(&self, val: usize, ord: Ordering, _: &'g Guard) -> Shared<'g, T> {
        let keep = val | !block::tag_mask::<T>();
        // SAFETY: the word of a pointer, which the guard protects.
        unsafe { Shared::from_usize(self.data.fetch_and(keep, ord)) }
    }

    /// Sets those bits of the tag that are set in `val`. Gives the pointer before.
    ///
    /// ```
    /// use ebbtide::epoch::{self, Atomic, Shared};
    /// use std::sync::atomic::Ordering::SeqCst;
    ///
    /// let a = Atomic::<i32>::from(Shared::null().with_tag(1));
    /// let guard = &epoch::pin();
    /// assert_eq!(a.fetch_or(2, SeqCst, guard).tag(), 1);
    /// assert_eq!(a.load(SeqCst, guard).tag(), 3);
    /// ```
    pub fn fetch_or<'g>(&self, val: usize, ord: Ordering, _: &'g Guard) -> Shared<'g, T> {
        let set = val & block::tag_mask::<T>();
        // SAFETY: the word of a pointer, which the guard protects.
        unsafe { Shared::from_usize(self.data.fetch_or(set, ord)) }
    }

    /// Flips those bits of the tag that are set in `val`. Gives the pointer before.
    pub fn fetch_xor<'g>(&self, val: usize, ord: Ordering, _: &'g Guard) -> Shared<'g, T> {
        let flip = val & block::tag_mask::<T>();
        // SAFETY: the word of a pointer, which the guard protects.
        unsafe { Shared::from_usize(self.data.fetch_xor(flip, ord)) }
    }

    /// The object with its ownership.
    ///
    /// # Safety
    /// The pointer is not null and nobody else uses the object.
    pub unsafe fn into_owned(self) -> Owned<T> {
        // SAFETY: the caller's word.
        unsafe { Owned::from_usize(self.data.into_inner()) }
    }

    /// The object with its ownership, or `None` for null.
    ///
    /// # Safety
    /// As [`into_owned`](Self::into_owned), but for null.
    pub unsafe fn try_into_owned(self) -> Option<Owned<T>> {
        let data = self.data.into_inner();
        if block::address_of::<T>(data) == 0 {
            return None;
        }
        // SAFETY: the caller's word.
        Some(unsafe { Owned::from_usize(data) })
    }
}

/// The outcome of a compare-and-exchange that saw a word.
///
/// # Safety
/// `new` is the word of a P that nothing else holds, unless it was stored.
#[inline]
unsafe fn outcome<'g, T, P>(
    seen: Result<usize, usize>,
    new: usize,
) -> Result<Shared<'g, T>, CompareExchangeError<'g, T, P>>
where
    T: ?Sized + Pointable,
    P: Pointer<T>,
{
    // SAFETY: the caller's word; a guard of lifetime 'g protects the Shared.
    unsafe {
        match seen {
            Ok(_) => Ok(Shared::from_usize(new)),
            Err(current) => Err(CompareExchangeError {
                current: Shared::from_usize(current),
                new: P::from_usize(new),
            }),
        }
    }
}

impl<T: ?Sized + Pointable> fmt::Debug for Atomic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let data = self.data.load(Ordering::SeqCst);
        f.debug_struct("Atomic")
            .field("raw", &block::address_of::<T>(data))
            .field("tag", &block::tag_of::<T>(data))
            .finish()
    }
}

impl<T: ?Sized + Pointable> fmt::Pointer for Atomic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = block::address_of::<T>(self.data.load(Ordering::SeqCst));
        fmt::Pointer::fmt(&(at as *const ()), f)
    }
}

impl<T: ?Sized + Pointable> Clone for Atomic<T> {
    /// A copy of the pointer, by a relaxed load.
    fn clone(&self) -> Self {
        Self::from_word(self.data.load(Ordering::Relaxed))
    }
}

impl<T: ?Sized + Pointable> Default for Atomic<T> {
    fn default() -> Self {
        Self::null()
    }
}

impl<T: ?Sized + Pointable> From<Owned<T>> for Atomic<T> {
    fn from(owned: Owned<T>) -> Self {
        Self::from_word(owned.into_usize())
    }
}

impl<T> From<Box<T>> for Atomic<T> {
    /// The object, moved to a block of its own.
    fn from(b: Box<T>) -> Self {
        Self::from(Owned::from(b))
    }
}

impl<T> From<T> for Atomic<T> {
    fn from(t: T) -> Self {
        Self::new(t)
    }
}

impl<'g, T: ?Sized + Pointable> From<Shared<'g, T>> for Atomic<T> {
    fn from(ptr: Shared<'g, T>) -> Self {
        Self::from_word(ptr.into_usize())
    }
}

impl<T> From<*const T> for Atomic<T> {
    /// What lies below the alignment is the tag.
    fn from(raw: *const T) -> Self {
        Self::from_word(raw as usize)
    }
}
