// SPDX-License-Identifier: MIT OR Apache-2.0
//! Domains.

use std::ffi::CString;
use std::fmt;
use std::future::Future;
use std::io;
use std::ptr::NonNull;

use super::polled::Polled;
use super::scope::Scope;
use super::stats::LifetimeStats;
use crate::sys;

/// When an epoch of a [`Domain`] ends. Each thread that enters the domain has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// One epoch for ever.
    Never,
    /// Every so many scopes of a thread (outermost enter to leave).
    Scopes(usize),
    /// When it has taken so many bytes from its slabs, looked at on leaving. Blocks that are freed and
    /// used again meanwhile count once.
    Bytes(usize),
    /// When it is so many milliseconds old, looked at on leaving.
    Millis(usize),
    /// By [`Domain::advance`].
    Manual,
}

impl Policy {
    fn parts(self) -> (sys::ebb_domain_policy, usize) {
        match self {
            Policy::Never => (sys::EBB_DOMAIN_NEVER, 0),
            Policy::Scopes(n) => (sys::EBB_DOMAIN_SCOPES, n),
            Policy::Bytes(n) => (sys::EBB_DOMAIN_BYTES, n),
            Policy::Millis(n) => (sys::EBB_DOMAIN_MS, n),
            Policy::Manual => (sys::EBB_DOMAIN_MANUAL, 0),
        }
    }
}

/// A named stream of epochs for what plain allocation hands out. It lasts as long as the process;
/// copies are the same domain.
///
/// A thread that is inside has its blocks in slabs that hold nothing else, at the speed of `malloc`.
/// When an epoch ends, nothing is freed that the program has not freed: what it has freed goes home,
/// and what is left is counted as pinned under the domain's name.
///
/// ```
/// use ebbtide::region::{Domain, Policy};
///
/// let requests = Domain::open("requests")?;
/// requests.set_policy(Policy::Scopes(1))?;
/// {
///     let _scope = requests.enter();
///     // serve a request
/// }
/// assert!(requests.stats().closed >= 1);
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Domain {
    raw: NonNull<sys::ebb_domain>,
}

// SAFETY: the library's functions for domains may be called by any thread, and domains do not end.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    /// The domain of that name, made at the first call with [`Policy::Never`]. Of the name, 31 bytes
    /// are kept.
    ///
    /// # Errors
    /// An empty name or one that contains a NUL is invalid input; memory may be refused.
    pub fn open(label: &str) -> io::Result<Domain> {
        let label = CString::new(label)?;
        // SAFETY: ends with a NUL.
        NonNull::new(unsafe { sys::ebb_domain_open(label.as_ptr()) })
            .map(|raw| Domain { raw })
            .ok_or_else(io::Error::last_os_error)
    }

    /// Sets when the epochs end that begin from now on.
    ///
    /// # Errors
    /// A policy of every 0 is invalid input.
    pub fn set_policy(self, policy: Policy) -> io::Result<()> {
        let (policy, n) = policy.parts();
        // SAFETY: domains do not end.
        match unsafe { sys::ebb_domain_set_policy(self.raw.as_ptr(), policy, n) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Ends the current epochs of all threads: this thread's now, the others' when they next leave or
    /// enter the domain.
    pub fn advance(self) {
        // SAFETY: domains do not end.
        unsafe { sys::ebb_domain_advance(self.raw.as_ptr()) }
    }

    /// Until the guard is dropped, plain allocation of this thread comes from its epoch of the domain.
    /// When memory for one is refused, nothing changes.
    #[inline]
    pub fn enter(self) -> Scope<'static> {
        // SAFETY: domains do not end.
        unsafe { Scope::new(sys::ebb_domain_enter(self.raw.as_ptr())) }
    }

    /// Calls the function inside the domain.
    #[inline]
    pub fn run<R>(self, f: impl FnOnce() -> R) -> R {
        let _scope = self.enter();
        f()
    }

    /// The future, each poll of which is inside the domain. For [`Policy::Scopes`] each is a scope.
    pub fn polled<F: Future>(self, future: F) -> Polled<impl Fn() -> Scope<'static>, F> {
        Polled::new(move || self.enter(), future)
    }

    /// What the domain holds.
    pub fn stats(self) -> LifetimeStats {
        let mut raw = sys::ebb_lifetime_stats::default();
        // SAFETY: domains do not end, and the library writes the whole of a struct that is the caller's.
        unsafe { sys::ebb_domain_stats_get(self.raw.as_ptr(), &mut raw) };
        LifetimeStats::of(raw)
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain")
            .field("stats", &self.stats())
            .finish()
    }
}

/// This thread has ended a unit of work and is about to wait: its epoch in the domain `thread` ends. The
/// first call puts it there for good; a thread inside of a scope of its own is left alone.
pub fn thread_idle() {
    // SAFETY: any thread may call it.
    unsafe { sys::ebb_thread_idle() }
}
