// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pins, and what waits for their end.

use std::alloc::{handle_alloc_error, Layout};
use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;
use std::mem;
use std::ptr::{self, NonNull};

use super::block::{self, Pointable};
use super::collector::{default_collector, Collector, Local};
use super::pin::default as default_pin;
use super::Shared;
use crate::sys;

/// Where a guard's pin is.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Default,
    Registered(NonNull<Local>),
    Nowhere,
}

/// Keeps the thread pinned. Guards nest; the thread is pinned until the last one is dropped. A guard
/// stays in its thread.
///
/// ```
/// use ebbtide::epoch;
///
/// let outer = epoch::pin();
/// let inner = epoch::pin();
/// drop(outer);
/// assert!(epoch::is_pinned());
/// drop(inner);
/// assert!(!epoch::is_pinned());
/// ```
///
/// ```compile_fail,E0277
/// let guard = ebbtide::epoch::pin();
/// std::thread::spawn(move || drop(guard));
/// ```
///
/// ```compile_fail,E0277
/// let guard = &ebbtide::epoch::pin();
/// std::thread::scope(|scope| {
///     scope.spawn(move || guard.flush());
/// });
/// ```
///
/// What is loaded under it does not outlive it:
///
/// ```compile_fail,E0505
/// let a = ebbtide::epoch::Atomic::new(1);
/// let guard = ebbtide::epoch::pin();
/// let loaded = a.load(std::sync::atomic::Ordering::Acquire, &guard);
/// drop(guard);
/// assert!(!loaded.is_null());
/// ```
///
/// A guard that is leaked ([`mem::forget`](std::mem::forget) and the like) keeps the thread pinned. A
/// thread that ends so ends the process: what the guard protects may be lent to others for ever.
pub struct Guard {
    place: Place,
    flush: Cell<bool>,
}

/// Pins the calling thread in the default collector.
///
/// A handful of instructions, and one full fence at the first pin after the clock has moved on; no call
/// and no allocation, but for a thread's first pin. 32,766 pins may nest.
#[inline]
pub fn pin() -> Guard {
    default_pin::enter();
    Guard::of(Place::Default)
}

/// Whether the calling thread is pinned in the default collector.
#[inline]
pub fn is_pinned() -> bool {
    default_pin::is_inside()
}

/// A guard that protects nothing, for structures that nobody else can reach: what is deferred under
/// it runs at once.
///
/// ```
/// use ebbtide::epoch::{self, Atomic};
/// use std::sync::atomic::Ordering::Relaxed;
///
/// let a = Atomic::new(9);
/// // SAFETY: `a` is this thread's alone.
/// unsafe {
///     let guard = epoch::unprotected();
///     guard.defer_destroy(a.load(Relaxed, guard)); // freed here
/// }
/// ```
///
/// # Safety
/// What is loaded under it must not be retired by other threads meanwhile, and what is deferred under
/// it must not be in use.
#[inline]
pub unsafe fn unprotected() -> &'static Guard {
    struct Unprotected(Guard);
    // SAFETY: the guard of no place is never changed.
    unsafe impl Sync for Unprotected {}
    static UNPROTECTED: Unprotected = Unprotected(Guard::of(Place::Nowhere));
    &UNPROTECTED.0
}

impl Guard {
    #[inline]
    pub(super) const fn of(place: Place) -> Guard {
        Guard {
            place,
            flush: Cell::new(false),
        }
    }

    /// Calls `f` when every pin that is there now has ended, in this thread or another.
    ///
    /// ```
    /// use ebbtide::epoch;
    /// use std::sync::mpsc::channel;
    ///
    /// let (sender, receiver) = channel();
    /// epoch::pin().defer(move || sender.send("later"));
    /// epoch::default_collector().barrier();
    /// assert_eq!(receiver.recv(), Ok("later"));
    /// ```
    ///
    /// ```compile_fail,E0373
    /// let short = String::from("short");
    /// ebbtide::epoch::pin().defer(|| short.len());
    /// ```
    ///
    /// ```compile_fail,E0277
    /// let counted = std::rc::Rc::new(1);
    /// ebbtide::epoch::pin().defer(move || drop(counted)); // its other owners may be in another thread
    /// ```
    pub fn defer<F, R>(&self, f: F)
    where
        F: FnOnce() -> R,
        F: Send + 'static,
    {
        // SAFETY: sent to whichever thread, and borrows nothing that ends.
        unsafe { self.defer_unchecked(f) }
    }

    /// As [`defer`](Self::defer) without the bounds.
    ///
    /// # Safety
    /// `f` may be called in another thread and after everything in scope here has ended.
    pub unsafe fn defer_unchecked<F, R>(&self, f: F)
    where
        F: FnOnce() -> R,
    {
        if let Place::Nowhere = self.place {
            drop(f());
            return;
        }
        // SAFETY: room for an F: in the call itself, or a fresh block.
        unsafe {
            if fits_in_call::<F>() {
                let mut words = [sys::ebb_word::uninit(); 2];
                words.as_mut_ptr().cast::<F>().write(f);
                self.call_with(words, call_within::<F, R>);
            } else {
                let at = block::room::<F>();
                at.write(f);
                self.retire_with(at.cast(), call::<F, R>);
            }
        }
    }

    /// Drops the object and frees its block when every pin that is there now has ended.
    ///
    /// For a type without a destructor this is one call that cannot fail and does not allocate.
    ///
    /// # Safety
    /// The object is not null, no later load can find it, and it is retired once. It may be dropped
    /// in another thread, and as late as that may be: what it borrows has to live on.
    pub unsafe fn defer_destroy<T: ?Sized + Pointable>(&self, ptr: Shared<'_, T>) {
        let at = ptr.address() as *mut c_void;
        // SAFETY: the caller's word.
        unsafe {
            if let Place::Nowhere = self.place {
                drop(ptr.into_owned());
            } else if T::IS_PLAIN_BLOCK {
                self.retire(at);
            } else {
                self.retire_with(at, destroy::<T>);
            }
        }
    }

    /// # Safety
    /// As [`Self::defer_destroy`], for a block.
    unsafe fn retire(&self, at: *mut c_void) {
        // SAFETY: the caller's word.
        unsafe {
            match self.place {
                Place::Registered(local) => {
                    demand(sys::ebb_participant_retire(
                        local.as_ref().participant(),
                        at,
                    ));
                }
                _ => sys::ebb_retire(at),
            }
        }
    }

    /// # Safety
    /// `run(at, null)` may be called in another thread after the grace period.
    unsafe fn retire_with(&self, at: *mut c_void, run: Destructor) {
        // SAFETY: the caller's word.
        unsafe {
            demand(match self.place {
                Place::Registered(local) => sys::ebb_participant_retire_with(
                    local.as_ref().participant(),
                    at,
                    Some(run),
                    ptr::null_mut(),
                ),
                _ => sys::ebb_retire_with(at, Some(run), ptr::null_mut()),
            });
        }
    }

    /// # Safety
    /// `run(words[0], words[1])` may be called in another thread after the grace period.
    unsafe fn call_with(&self, words: Words, run: sys::ebb_words_destructor) {
        let [first, second] = words;
        // SAFETY: the caller's word.
        unsafe {
            demand(match self.place {
                Place::Registered(local) => {
                    let me = local.as_ref().participant();
                    sys::ebb_participant_retire_words(me, first, run, second)
                }
                _ => sys::ebb_retire_words(first, run, second),
            });
        }
    }

    /// Asks for what waits to be freed and run soon: this thread looks for it when the guard is
    /// dropped, unless it is pinned by another guard then.
    pub fn flush(&self) {
        if !matches!(self.place, Place::Nowhere) {
            self.flush.set(true);
        }
    }

    /// Ends the pin and begins it anew, if this is the thread's only guard: what was retired before
    /// can go. Everything that was loaded under the guard must have been let go, which the borrow
    /// checker sees to.
    ///
    /// ```
    /// use ebbtide::epoch::{self, Atomic};
    /// use std::sync::atomic::Ordering::Acquire;
    ///
    /// let a = Atomic::new(1);
    /// let mut guard = epoch::pin();
    /// for _ in 0..3 {
    ///     a.load(Acquire, &guard);
    ///     guard.repin();
    /// }
    /// # // SAFETY: this thread alone has the pointer.
    /// # unsafe { drop(a.into_owned()) };
    /// ```
    ///
    /// ```compile_fail,E0502
    /// let a = ebbtide::epoch::Atomic::new(1);
    /// let mut guard = ebbtide::epoch::pin();
    /// let loaded = a.load(std::sync::atomic::Ordering::Acquire, &guard);
    /// guard.repin();
    /// assert!(!loaded.is_null());
    /// ```
    pub fn repin(&mut self) {
        // SAFETY: this guard is a pin.
        unsafe {
            match self.place {
                Place::Default => default_pin::renew(),
                Place::Registered(local) => local.as_ref().renew(),
                Place::Nowhere => {}
            }
        }
    }

    /// Calls `f` while this guard does not pin, and pins again, also if it panics.
    ///
    /// ```
    /// let mut guard = ebbtide::epoch::pin();
    /// assert!(!guard.repin_after(ebbtide::epoch::is_pinned));
    /// assert!(ebbtide::epoch::is_pinned());
    /// ```
    pub fn repin_after<F, R>(&mut self, f: F) -> R
    where
        F: FnOnce() -> R,
    {
        struct Again(Place);
        impl Drop for Again {
            fn drop(&mut self) {
                self.0.enter();
            }
        }
        // SAFETY: this guard is a pin, and is one again before anybody can use it.
        unsafe { self.place.leave() };
        let _again = Again(self.place);
        f()
    }

    /// The collector in which this guard pins; `None` for that of [`unprotected`].
    pub fn collector(&self) -> Option<&Collector> {
        match self.place {
            Place::Default => Some(default_collector()),
            // SAFETY: a guard keeps its record.
            Place::Registered(local) => Some(unsafe { local.as_ref() }.collector()),
            Place::Nowhere => None,
        }
    }
}

impl Place {
    #[inline]
    fn enter(self) {
        match self {
            Place::Default => default_pin::enter(),
            // SAFETY: a guard keeps its record.
            Place::Registered(local) => unsafe { local.as_ref().enter() },
            Place::Nowhere => {}
        }
    }

    /// # Safety
    /// After [`Self::enter`].
    #[inline]
    unsafe fn leave(self) {
        // SAFETY: the caller's word.
        unsafe {
            match self {
                Place::Default => default_pin::leave(),
                Place::Registered(local) => local.as_ref().leave(),
                Place::Nowhere => {}
            }
        }
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this guard is a pin and keeps its record until the last line.
        unsafe {
            self.place.leave();
            if self.flush.get() {
                flush(self);
            }
            if let Place::Registered(local) = self.place {
                Local::drop_owner(local);
            }
        }
    }
}

/// Reclaims in the guard's collector, if the thread is pinned no more: destructors that run here may
/// do anything but find themselves in a pin.
#[cold]
fn flush(guard: &Guard) {
    let inside = match guard.place {
        // SAFETY: a guard keeps its record.
        Place::Registered(local) => unsafe { local.as_ref().is_inside() },
        _ => false,
    };
    if let (false, false, Some(collector)) = (inside, is_pinned(), guard.collector()) {
        collector.reclaim();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Guard { .. }")
    }
}

/// What a call is made with.
type Words = [sys::ebb_word; 2];

/// Whether a call has room for the function, which needs no block then.
const fn fits_in_call<F>() -> bool {
    mem::size_of::<F>() <= mem::size_of::<Words>()
        && mem::align_of::<F>() <= mem::align_of::<Words>()
}

type Destructor = unsafe extern "C" fn(*mut c_void, *mut c_void);

/// The outcome of a call that fails when memory for its record is refused.
fn demand(outcome: std::ffi::c_int) {
    if outcome != 0 {
        handle_alloc_error(Layout::new::<[usize; 3]>()); // function, pointer, context
    }
}

/// # Safety
/// `at` is an object of a Pointable that is used by nobody any more.
unsafe extern "C" fn destroy<T: ?Sized + Pointable>(at: *mut c_void, _: *mut c_void) {
    // SAFETY: the caller's word.
    unsafe { T::drop(at as usize) }
}

/// # Safety
/// `at` is a function that `defer_unchecked` kept.
unsafe extern "C" fn call<F: FnOnce() -> R, R>(at: *mut c_void, _: *mut c_void) {
    let at = at.cast::<F>();
    // SAFETY: the function moves out of the block, which goes first so that it may serve again.
    unsafe {
        let f = at.read();
        block::leave_room(at);
        drop(f());
    }
}

/// # Safety
/// The words are a function that `defer_unchecked` kept in them.
unsafe extern "C" fn call_within<F: FnOnce() -> R, R>(first: sys::ebb_word, second: sys::ebb_word) {
    let words: Words = [first, second];
    // SAFETY: the function moves out of the words.
    let f = unsafe { words.as_ptr().cast::<F>().read() };
    drop(f());
}
