// SPDX-License-Identifier: MIT OR Apache-2.0
//! Phases: regions for plain allocation, which end by close.

use std::borrow::Cow;
use std::ffi::CStr;
use std::fmt;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::own::{expect_open, Options};
use super::polled::Polled;
use super::scope::Scope;
use super::stats::RegionStats;
use crate::sys;

/// A region for what plain allocation hands out inside its scopes. Dropping it ends the phase and frees
/// nothing: blocks live until they are freed, as all others, by any thread.
///
/// Unlike a [`Domain`](super::Domain) it is one group of blocks, whichever threads enter it: a session,
/// a request that is served by tasks. Inside, an allocation is bump memory, and a free costs more than
/// a plain one.
///
/// There is no way to enter a [`Region`](super::Region): its release would take blocks from owners that
/// the compiler does not know of. For the same reason the parent of a phase is a phase.
///
/// ```
/// use ebbtide::region::Phase;
///
/// #[global_allocator]
/// static ALLOCATOR: ebbtide::Ebbtide = ebbtide::Ebbtide;
///
/// # fn main() {
/// let session = Phase::open();
/// let words = session.run(|| vec!["ebb".to_string(), "tide".to_string()]);
/// assert_eq!(session.stats().live_blocks, 3);
/// drop(session);
/// assert_eq!(words.concat(), "ebbtide");
/// # }
/// ```
///
/// ```compile_fail,E0505
/// let session = ebbtide::region::Phase::open();
/// let scope = session.enter();
/// drop(session);
/// drop(scope);
/// ```
pub struct Phase<'p> {
    raw: NonNull<sys::ebb_region>,
    parent: PhantomData<&'p ()>,
}

// SAFETY: the library's functions for regions may be called by any thread.
unsafe impl Send for Phase<'_> {}
// SAFETY: as above.
unsafe impl Sync for Phase<'_> {}

impl Options {
    /// Opens a phase. Beyond its hard limit plain allocation inside it fails, which ends most programs.
    ///
    /// # Errors
    /// When memory is refused.
    pub fn open_phase(&self) -> io::Result<Phase<'static>> {
        self.open_raw(ptr::null_mut(), true).map(Phase::of)
    }

    /// Opens a phase that ends before its parent.
    ///
    /// ```compile_fail,E0505
    /// use ebbtide::region::{Options, Phase};
    ///
    /// let session = Phase::open();
    /// let request = Options::new().open_phase_in(&session).unwrap();
    /// drop(session);
    /// request.run(|| ());
    /// ```
    ///
    /// # Errors
    /// When memory is refused.
    pub fn open_phase_in<'p>(&self, parent: &'p Phase<'_>) -> io::Result<Phase<'p>> {
        self.open_raw(parent.raw.as_ptr(), true).map(Phase::of)
    }
}

impl Phase<'static> {
    /// Opens a phase without parent, label and limits.
    ///
    /// When memory is refused, calls [`handle_alloc_error`](std::alloc::handle_alloc_error).
    pub fn open() -> Self {
        expect_open(Options::new().open_phase())
    }
}

impl Phase<'_> {
    fn of(raw: NonNull<sys::ebb_region>) -> Self {
        Phase {
            raw,
            parent: PhantomData,
        }
    }

    /// Until the guard is dropped, plain allocation of this thread is of the phase.
    #[inline]
    pub fn enter(&self) -> Scope<'_> {
        // SAFETY: open. The guard borrows it; if it is forgotten, the phase may be closed while it is
        // current, which the library allows.
        unsafe { Scope::new(sys::ebb_region_enter(self.raw.as_ptr())) }
    }

    /// Calls the function inside the phase.
    #[inline]
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let _scope = self.enter();
        f()
    }

    /// The future, each poll of which is inside the phase, in whichever thread.
    ///
    /// ```
    /// use ebbtide::region::Phase;
    ///
    /// async fn serve(session: &Phase<'_>) -> usize {
    ///     session.polled(async { "one request".split(' ').count() }).await
    /// }
    /// ```
    pub fn polled<'a, F: Future>(&'a self, future: F) -> Polled<impl Fn() -> Scope<'a>, F> {
        Polled::new(move || self.enter(), future)
    }

    /// What the phase holds.
    pub fn stats(&self) -> RegionStats {
        let mut raw = sys::ebb_region_stats::default();
        // SAFETY: open, and the library writes the whole of a struct that is the caller's.
        unsafe { sys::ebb_region_stats_get(self.raw.as_ptr(), &mut raw) };
        RegionStats::of(raw)
    }

    /// The label that it was opened with, or "region".
    pub fn label(&self) -> Cow<'_, str> {
        // SAFETY: open; the label ends with a NUL and lasts as long as the phase.
        unsafe { CStr::from_ptr(sys::ebb_region_label(self.raw.as_ptr())) }.to_string_lossy()
    }
}

impl Drop for Phase<'_> {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { sys::ebb_region_close(self.raw.as_ptr()) }
    }
}

impl fmt::Debug for Phase<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Phase")
            .field("label", &self.label())
            .field("stats", &self.stats())
            .finish()
    }
}
