// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collectors, and threads' registrations in them.

use std::alloc::{handle_alloc_error, Layout};
use std::cell::Cell;
use std::fmt;
use std::iter;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use super::guard::{self, Guard, Place};
use super::pin;
use crate::stats::{statistics, Bytes, Count, Flag, Millis};
use crate::sys;

/// A clock of its own: its pins hold back nothing of other collectors. Clones are the same collector.
///
/// When the last clone, handle and guard is gone, everything that was retired into it is destroyed
/// and freed there and then; inside a deferred function when the thread's outermost run of them has
/// ended, inside a pin of the default collector as if it had been deferred there.
///
/// ```
/// use ebbtide::epoch::Collector;
///
/// let collector = Collector::new();
/// let handle = collector.register();
/// handle.pin().defer(|| println!("printed at the latest when the collector is dropped"));
/// ```
#[derive(Clone)]
pub struct Collector {
    own: Option<Arc<Own>>, // None: the default collector
}

statistics! {
    /// What waits in a collector, and for whom.
    ReclaimStats of sys::ebb_reclaim_stats {
        /// Blocks that wait, in bytes, as of each thread's last slow call.
        retired_bytes: usize = Bytes: retired_bytes,
        /// The number of blocks that wait, likewise.
        retired_blocks: usize = Count<usize>: retired_blocks,
        /// The number of deferred functions and destructors that wait.
        destructors: usize = Count<usize>: destructors,
        /// The epoch of the collector's clock.
        epoch: u64 = Count<u64>: epoch,
        /// The number of threads registered.
        participants: usize = Count<usize>: participants,
        /// The number of threads that are pinned now.
        pinned: usize = Count<usize>: pinned,
        /// For how long at least the oldest pin has lasted.
        oldest_pin_age: Duration = Millis: oldest_pin_ms,
        /// The thread of the oldest pin, by the kernel's number; 0 if nobody is pinned.
        oldest_pin_thread: u32 = Count<u32>: oldest_pin_thread,
        /// The number of open hazard pointers.
        hazards: usize = Count<usize>: hazards,
        /// Whether every outermost pin makes a fence.
        fenced: bool = Flag: fenced,
    }
}

static DEFAULT: Collector = Collector { own: None };

/// The collector of [`pin`](super::pin), which lives as long as the process.
pub fn default_collector() -> &'static Collector {
    &DEFAULT
}

struct Own {
    raw: NonNull<sys::ebb_collector>,
}

// SAFETY: the library's functions for collectors may be called by any thread.
unsafe impl Send for Own {}
// SAFETY: as above.
unsafe impl Sync for Own {}

impl Drop for Own {
    fn drop(&mut self) {
        let raw = self.raw.as_ptr();
        if guard::is_pinned() {
            // SAFETY: as below, once. Where memory for the call is refused the collector stays.
            unsafe { sys::ebb_retire_with(raw.cast(), Some(destroy), ptr::null_mut()) };
        } else {
            // SAFETY: the last owner, so no handle and no guard of it is left.
            unsafe { sys::ebb_collector_destroy(raw) }
        }
    }
}

/// # Safety
/// `raw` is a collector that nobody uses any more.
unsafe extern "C" fn destroy(raw: *mut std::ffi::c_void, _: *mut std::ffi::c_void) {
    // SAFETY: the caller's word.
    unsafe { sys::ebb_collector_destroy(raw.cast()) }
}

impl Collector {
    /// A new collector.
    pub fn new() -> Self {
        Self::create(0)
    }

    /// A new collector whose outermost pins each make a full fence, and whose clock never interrupts
    /// a thread. In others a pin needs a fence only after the clock has moved on, and threads that
    /// have not pinned for a while are found out by a system call (membarrier, about 1 to 10 us) when
    /// much waits for them.
    ///
    /// ```
    /// let collector = ebbtide::epoch::Collector::fenced();
    /// assert!(collector.stats().fenced);
    /// ```
    pub fn fenced() -> Self {
        Self::create(sys::EBB_COLLECTOR_FENCED)
    }

    fn create(flags: std::ffi::c_uint) -> Self {
        // SAFETY: any flags may be asked for.
        let raw = NonNull::new(unsafe { sys::ebb_collector_create(flags) });
        let raw = raw.unwrap_or_else(|| handle_alloc_error(Layout::new::<Own>()));
        Collector {
            own: Some(Arc::new(Own { raw })),
        }
    }

    fn raw(&self) -> *mut sys::ebb_collector {
        self.own
            .as_ref()
            .map_or(ptr::null_mut(), |own| own.raw.as_ptr())
    }

    /// Registers the calling thread.
    ///
    /// # Panics
    /// When memory is refused, and in a collector of one's own while the thread's last destructors
    /// run.
    pub fn register(&self) -> LocalHandle {
        LocalHandle {
            local: self.own.is_some().then(|| Local::create(self)),
        }
    }

    /// Waits until every pin that is there now has ended. Inside a pin of this collector, this and
    /// the next two end the process: they would wait for their own thread.
    pub fn synchronize(&self) {
        // SAFETY: alive, and not pinned by this thread.
        unsafe { sys::ebb_collector_synchronize(self.raw()) }
    }

    /// Waits until everything that was deferred before, by any thread, has run. Not inside a
    /// deferred function, nor inside a pin of the default collector: no deferred function runs there.
    pub fn barrier(&self) {
        // SAFETY: alive, and not pinned by this thread.
        unsafe { sys::ebb_collector_barrier(self.raw()) }
    }

    /// Frees and runs what can go now, without waiting; nothing of another collector inside a pin of the
    /// default one. Bytes of blocks freed.
    pub fn reclaim(&self) -> usize {
        // SAFETY: alive, and not pinned by this thread.
        unsafe { sys::ebb_collector_reclaim(self.raw()) }
    }

    /// A snapshot. Looks at every thread's heap: not for hot paths.
    ///
    /// ```
    /// let guard = ebbtide::epoch::pin();
    /// assert!(ebbtide::epoch::default_collector().stats().pinned >= 1);
    /// # drop(guard);
    /// ```
    pub fn stats(&self) -> ReclaimStats {
        let mut raw = sys::ebb_reclaim_stats::default();
        // SAFETY: alive; the library writes the whole of a struct that is the caller's.
        unsafe { sys::ebb_reclaim_stats_get(self.raw(), &mut raw) };
        ReclaimStats::of(raw)
    }
}

impl Default for Collector {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Collector { .. }")
    }
}

impl PartialEq for Collector {
    fn eq(&self, other: &Collector) -> bool {
        self.raw() == other.raw()
    }
}

impl Eq for Collector {}

/// What handles and guards of one registration share. It goes with the last of them.
pub(super) struct Local {
    me: *mut sys::ebb_participant,
    collector: Collector,
    owners: Cell<usize>, // handles and guards
    pins: Cell<usize>,
    next: Cell<*const Local>,
}

thread_local! {
    /// This thread's.
    static LOCALS: Cell<*const Local> = const { Cell::new(ptr::null()) };
}

impl Local {
    fn create(collector: &Collector) -> NonNull<Local> {
        // SAFETY: the collector is alive.
        let me = unsafe { sys::ebb_collector_attach(collector.raw()) };
        assert!(!me.is_null(), "no record for this thread in the collector");
        let local = NonNull::from(Box::leak(Box::new(Local {
            me,
            collector: collector.clone(),
            owners: Cell::new(1),
            pins: Cell::new(0),
            next: Cell::new(LOCALS.get()),
        })));
        LOCALS.set(local.as_ptr());
        local
    }

    /// Takes it out of the thread's list, in which it is.
    fn unlink(&self) {
        LOCALS.with(|first| {
            let mut link = first;
            while !ptr::eq(link.get(), self) {
                // SAFETY: what is in the list is alive.
                link = unsafe { &(*link.get()).next };
            }
            link.set(self.next.get());
        });
    }

    /// Whether the calling thread is pinned by a guard of a handle, leaked or not.
    pub(super) fn any_is_pinned() -> bool {
        // SAFETY: what is in the list is alive.
        let mut locals = iter::successors(unsafe { LOCALS.get().as_ref() }, |local| unsafe {
            local.next.get().as_ref()
        });
        locals.any(|local| local.pins.get() > 0)
    }

    pub(super) fn participant(&self) -> *mut sys::ebb_participant {
        self.me
    }

    pub(super) fn collector(&self) -> &Collector {
        &self.collector
    }

    pub(super) fn enter(&self) {
        self.pins.set(self.pins.get() + 1);
        // SAFETY: the record lives as long as its thread and its collector.
        unsafe { pin::enter(self.me) }
    }

    /// # Safety
    /// After [`Self::enter`].
    pub(super) unsafe fn leave(&self) {
        self.pins.set(self.pins.get() - 1);
        // SAFETY: the caller's word.
        unsafe { pin::leave(self.me) }
    }

    /// # Safety
    /// After [`Self::enter`].
    pub(super) unsafe fn renew(&self) {
        // SAFETY: the caller's word.
        unsafe { pin::renew(self.me) }
    }

    pub(super) fn is_inside(&self) -> bool {
        // SAFETY: as in `enter`.
        unsafe { pin::is_inside(self.me) }
    }

    fn add_owner(&self) {
        self.owners.set(self.owners.get() + 1);
    }

    /// # Safety
    /// Once for each owner, whose pin has ended.
    pub(super) unsafe fn drop_owner(this: NonNull<Local>) {
        // SAFETY: came from a box, which the owner kept until here.
        unsafe {
            let owners = &this.as_ref().owners;
            owners.set(owners.get() - 1);
            if owners.get() == 0 {
                this.as_ref().unlink();
                drop(Box::from_raw(this.as_ptr()));
            }
        }
    }
}

/// The calling thread's registration in a collector. It stays in its thread.
///
/// ```compile_fail,E0277
/// let handle = ebbtide::epoch::Collector::new().register();
/// std::thread::spawn(move || drop(handle));
/// ```
pub struct LocalHandle {
    local: Option<NonNull<Local>>, // None: in the default collector
}

impl LocalHandle {
    /// Pins the thread in the collector.
    #[inline]
    pub fn pin(&self) -> Guard {
        let Some(local) = self.local else {
            return guard::pin();
        };
        // SAFETY: the handle keeps it.
        unsafe {
            local.as_ref().add_owner();
            local.as_ref().enter();
        }
        Guard::of(Place::Registered(local))
    }

    /// Whether a guard of this handle is alive; in the default collector, any guard of the thread.
    #[inline]
    pub fn is_pinned(&self) -> bool {
        // SAFETY: the handle keeps it.
        self.local.map_or_else(guard::is_pinned, |local| unsafe {
            local.as_ref().pins.get() > 0
        })
    }

    /// The collector.
    #[inline]
    pub fn collector(&self) -> &Collector {
        // SAFETY: the handle keeps it.
        self.local
            .as_ref()
            .map_or(default_collector(), |local| unsafe {
                local.as_ref().collector()
            })
    }
}

impl Drop for LocalHandle {
    fn drop(&mut self) {
        if let Some(local) = self.local {
            // SAFETY: this handle goes.
            unsafe { Local::drop_owner(local) }
        }
    }
}

impl fmt::Debug for LocalHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("LocalHandle { .. }")
    }
}
