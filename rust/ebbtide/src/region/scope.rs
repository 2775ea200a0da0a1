// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scopes: what is current in a thread, and the order in which it ends.
//!
//! The library asks that scopes end in the reverse of their order. Each guard knows how deep it is, and
//! a guard that is not the innermost leaves nothing: its scope is then current for as long as the
//! thread runs, which is a loss and no danger. So it is for a guard that is forgotten.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::thread;

use crate::sys;

thread_local! {
    /// Scopes that this thread has entered and not left.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Until it is dropped, plain allocation of this thread comes from what was entered: a
/// [`Domain`](super::Domain), a [`Phase`](super::Phase), the [`heap`].
///
/// Guards nest, and stay in their thread; across an `await` use `polled` of the domain or phase.
/// Forgetting one makes its scope last until the thread ends, and those around it with it: of the outermost 32 in a thread
/// alone. What is entered by others that are forgotten is never left, so that a phase stays open for ever.
///
/// ```compile_fail,E0277
/// let scope = ebbtide::region::heap();
/// std::thread::spawn(move || drop(scope));
/// ```
///
/// # Panics
/// Dropping it panics when a scope that was entered later has not been left; the scope then lasts
/// until the thread ends. It does not panic while the thread is panicking.
#[must_use = "the scope ends when the guard is dropped"]
pub struct Scope<'a> {
    before: sys::ebb_scope,
    depth: usize,
    entered: PhantomData<(&'a (), *mut ())>, // of this thread alone
}

impl Scope<'_> {
    /// # Safety
    /// `before` is the result of the thread's last enter, and what was entered outlives the guard, or
    /// may end while it is current.
    #[inline]
    pub(super) unsafe fn new(before: sys::ebb_scope) -> Self {
        let depth = DEPTH.get() + 1;
        DEPTH.set(depth);
        Scope {
            before,
            depth,
            entered: PhantomData,
        }
    }
}

impl Drop for Scope<'_> {
    #[inline]
    fn drop(&mut self) {
        if DEPTH.get() != self.depth {
            return refuse();
        }
        DEPTH.set(self.depth - 1);
        // SAFETY: the thread's innermost enter.
        unsafe { sys::ebb_leave(self.before) }
    }
}

#[cold]
fn refuse() {
    if !thread::panicking() {
        panic!("a scope is left before one that was entered later");
    }
}

impl fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("depth", &self.depth).finish()
    }
}

/// Until the guard is dropped, plain allocation of this thread comes from the heap: for what is to
/// outlive the scopes around it, such as an entry of a cache.
#[inline]
pub fn heap() -> Scope<'static> {
    // SAFETY: the heap lasts.
    unsafe { Scope::new(sys::ebb_heap_enter()) }
}

/// Calls the function with [`heap`] around it.
///
/// ```
/// use ebbtide::region::{on_heap, Phase};
///
/// let request = Phase::open();
/// let cached = request.run(|| on_heap(|| vec![0_u8; 100]));
/// # drop(cached);
/// ```
pub fn on_heap<R>(f: impl FnOnce() -> R) -> R {
    let _scope = heap();
    f()
}
