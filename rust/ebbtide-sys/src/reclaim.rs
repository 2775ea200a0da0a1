// SPDX-License-Identifier: MIT OR Apache-2.0
//! `<ebbtide/reclaim.h>` and its inline halves' types.

use core::ffi::{c_int, c_uint, c_void};
use core::marker::{PhantomData, PhantomPinned};
use core::mem::{self, MaybeUninit};
use core::sync::atomic::{AtomicPtr, AtomicU64};

/// What runs after a grace period.
pub type ebb_destructor = unsafe extern "C" fn(p: *mut c_void, context: *mut c_void);
/// What is passed through unread: as large as a pointer, and perhaps not initialised.
pub type ebb_word = MaybeUninit<*mut c_void>;
/// An [`ebb_destructor`] of two such words.
pub type ebb_words_destructor = unsafe extern "C" fn(p: ebb_word, context: ebb_word);
/// The same for an object with a hook.
pub type ebb_hooked_destructor = unsafe extern "C" fn(p: *mut c_void, hook: *mut ebb_hook);
/// What is called when more waits than the limit says.
pub type ebb_notify = unsafe extern "C" fn(bytes: usize, context: *mut c_void);

/// The epoch's place in a participant's state.
pub const EBB_PIN_SHIFT: u32 = 16;
/// The bits of a state that count nested pins.
pub const EBB_PIN_DEPTH: u64 = 0xFFFF;
/// Added to the depth when the outermost unpin, or the next pin, has more to do.
pub const EBB_PIN_ATTENTION: u64 = 0x8000;
/// A depth from here on is a matter of the slow functions.
pub const EBB_PIN_DEEPEST: u64 = 0x7FFF;
/// The depth in the record of threads that have none.
pub const EBB_PIN_NONE: u64 = EBB_PIN_DEPTH;
/// Where a thread's record in the default collector lies, in bytes from what `ebb_self` points to.
pub const EBB_SELF_PIN: usize = 4096;
/// For [`ebb_collector_create`]: every outermost pin makes a full fence, and no advance of the clock
/// interrupts a thread.
pub const EBB_COLLECTOR_FENCED: c_uint = 1;

/// A thread's record in a collector. Its state is stored by that thread alone.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct ebb_participant {
    /// Epoch of the pin `<< EBB_PIN_SHIFT | depth`.
    pub state: AtomicU64,
    /// The clock's word: epoch `<< EBB_PIN_SHIFT`, in a fenced clock `| 1`.
    pub now: *const AtomicU64,
    #[doc(hidden)]
    pub busy: u32,
    /// The kernel's number of the thread.
    pub thread: u32,
    #[doc(hidden)]
    pub next: *mut ebb_participant,
    #[doc(hidden)]
    pub previous: *mut ebb_participant,
    #[doc(hidden)]
    pub released: u64,
}

/// A collector: a clock of its own.
#[repr(C)]
#[derive(Debug)]
pub struct ebb_collector {
    opaque: [u8; 0],
    marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A hazard pointer.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct ebb_hazard {
    /// What it protects, set by the thread that opened it; null: nothing.
    pub held: AtomicPtr<c_void>,
    #[doc(hidden)]
    pub next: *mut ebb_hazard,
    #[doc(hidden)]
    pub next_free: *mut ebb_hazard,
}

/// A place to wait in, part of an object that [`ebb_retire_hooked`] takes. All zeros at first.
#[repr(C)]
#[derive(Debug)]
pub struct ebb_hook {
    #[doc(hidden)]
    pub next: *mut ebb_hook,
    #[doc(hidden)]
    pub mark: usize,
    #[doc(hidden)]
    pub p: *mut c_void,
}

/// What waits in a collector, and for whom.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ebb_reclaim_stats {
    /// Bytes of blocks that wait, as of each thread's last slow call.
    pub retired_bytes: usize,
    /// Their number.
    pub retired_blocks: usize,
    /// Destructors that wait.
    pub destructors: usize,
    /// Of the clock.
    pub epoch: u64,
    /// Threads registered.
    pub participants: usize,
    /// Of them, inside a pin now.
    pub pinned: usize,
    /// For how long at least the oldest pin has lasted, in milliseconds.
    pub oldest_pin_ms: u64,
    /// Its thread by the kernel's number; 0: nobody.
    pub oldest_pin_thread: u32,
    /// Open hazard pointers.
    pub hazards: usize,
    /// Not 0: every outermost pin makes a fence.
    pub fenced: c_int,
}

// `ebb_self`, which leads to the calling thread's record, is thread-local: Rust has no stable way to
// declare it.
extern "C" {
    /// Begins a pin, or goes one deeper.
    pub fn ebb_pin();
    /// Ends the innermost pin.
    pub fn ebb_unpin();
    /// Ends the pin and begins it anew, if it is the only one and there is need.
    pub fn ebb_repin();
    /// Whether the calling thread is inside a pin.
    pub fn ebb_is_pinned() -> c_int;
    /// What `ebb_pin` does when one comparison is not enough.
    pub fn ebb_pin_slow(me: *mut ebb_participant);
    /// What `ebb_unpin` does when one comparison is not enough.
    pub fn ebb_unpin_slow(me: *mut ebb_participant);

    /// Frees the block after the grace period. Null is allowed.
    pub fn ebb_retire(p: *mut c_void);
    /// Calls `destroy(p, context)` after the grace period. 0, or -1 when memory is refused.
    pub fn ebb_retire_with(
        p: *mut c_void,
        destroy: Option<ebb_destructor>,
        context: *mut c_void,
    ) -> c_int;

    /// Calls `destroy(p, hook)` after the grace period, without memory of its own: never refused.
    pub fn ebb_retire_hooked(
        hook: *mut ebb_hook,
        p: *mut c_void,
        destroy: Option<ebb_hooked_destructor>,
    );

    /// Waits until every pin that is there now has ended.
    pub fn ebb_synchronize();
    /// Waits until every destructor passed before has run.
    pub fn ebb_barrier();
    /// Frees and destroys what can go now. Bytes of blocks freed.
    pub fn ebb_reclaim() -> usize;
    /// A point in time.
    pub fn ebb_epoch_cookie() -> u64;
    /// Whether every pin that was there at that point has ended.
    pub fn ebb_epoch_passed(cookie: u64) -> c_int;

    /// A collector, or null.
    pub fn ebb_collector_create(flags: c_uint) -> *mut ebb_collector;
    /// Frees and destroys all that was retired into it, then the collector.
    pub fn ebb_collector_destroy(collector: *mut ebb_collector);
    /// Whether every outermost pin makes a fence.
    pub fn ebb_collector_is_fenced(collector: *const ebb_collector) -> c_int;
    /// The calling thread's record in it, or null.
    pub fn ebb_collector_attach(collector: *mut ebb_collector) -> *mut ebb_participant;
    /// As [`ebb_retire`], into the record's collector. 0, or -1 when memory is refused.
    pub fn ebb_participant_retire(me: *mut ebb_participant, p: *mut c_void) -> c_int;
    /// As [`ebb_retire_with`], into the record's collector.
    pub fn ebb_participant_retire_with(
        me: *mut ebb_participant,
        p: *mut c_void,
        destroy: Option<ebb_destructor>,
        context: *mut c_void,
    ) -> c_int;
    /// As [`ebb_synchronize`], of one collector; null is the default one, here and below.
    pub fn ebb_collector_synchronize(collector: *mut ebb_collector);
    /// As [`ebb_barrier`].
    pub fn ebb_collector_barrier(collector: *mut ebb_collector);
    /// As [`ebb_reclaim`].
    pub fn ebb_collector_reclaim(collector: *mut ebb_collector) -> usize;

    /// A hazard pointer, or null.
    pub fn ebb_hazard_open() -> *mut ebb_hazard;
    /// Gives it back. Null is allowed.
    pub fn ebb_hazard_close(hazard: *mut ebb_hazard);

    /// A snapshot.
    pub fn ebb_reclaim_stats_get(collector: *mut ebb_collector, stats: *mut ebb_reclaim_stats);
    /// Calls `notify` each time that more than `limit` bytes wait in the default collector.
    pub fn ebb_reclaim_set_limit(limit: usize, notify: Option<ebb_notify>, context: *mut c_void);
}

/// [`ebb_retire_with`] for two words that need not be pointers, nor initialised.
///
/// # Safety
/// `run(p, context)` may be called in another thread after the grace period.
#[inline]
pub unsafe fn ebb_retire_words(p: ebb_word, run: ebb_words_destructor, context: ebb_word) -> c_int {
    type Pointers = unsafe extern "C" fn(*mut c_void, Option<ebb_destructor>, *mut c_void) -> c_int;
    type Words = unsafe extern "C" fn(ebb_word, ebb_words_destructor, ebb_word) -> c_int;
    // SAFETY: a word is passed as its pointer is, which the library hands on unread; then the caller's word.
    unsafe { mem::transmute::<Pointers, Words>(ebb_retire_with)(p, run, context) }
}

/// As [`ebb_retire_words`], into the record's collector.
///
/// # Safety
/// As there; `me` is the calling thread's.
#[inline]
pub unsafe fn ebb_participant_retire_words(
    me: *mut ebb_participant,
    p: ebb_word,
    run: ebb_words_destructor,
    context: ebb_word,
) -> c_int {
    type Me = *mut ebb_participant;
    type Pointers =
        unsafe extern "C" fn(Me, *mut c_void, Option<ebb_destructor>, *mut c_void) -> c_int;
    type Words = unsafe extern "C" fn(Me, ebb_word, ebb_words_destructor, ebb_word) -> c_int;
    // SAFETY: as above.
    unsafe { mem::transmute::<Pointers, Words>(ebb_participant_retire_with)(me, p, run, context) }
}
