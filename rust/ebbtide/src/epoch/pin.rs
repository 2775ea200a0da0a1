// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a thread says that it reads: the state machine of `<ebbtide/detail/pin.h>`, inline. States and
//! orders are explained there.

use std::sync::atomic::{compiler_fence, AtomicU64, Ordering};

use super::leaked;
use crate::sys;
use crate::sys::ebb_participant as Participant;
use crate::sys::{EBB_PIN_ATTENTION, EBB_PIN_DEEPEST, EBB_PIN_DEPTH};

/// What `ebb_self` points to, a thread-local variable of the library with initial-exec storage.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn this_heap() -> *mut u8 {
    let heap;
    // SAFETY: loads the variable.
    unsafe {
        std::arch::asm!(
            "mov {heap}, qword ptr [rip + ebb_self@GOTTPOFF]",
            "mov {heap}, qword ptr fs:[{heap}]",
            heap = out(reg) heap,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    heap
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline(always)]
fn this_heap() -> *mut u8 {
    let heap;
    // SAFETY: loads the variable.
    unsafe {
        std::arch::asm!(
            "mrs {base}, tpidr_el0",
            "adrp {heap}, :gottprel:ebb_self",
            "ldr {heap}, [{heap}, #:gottprel_lo12:ebb_self]",
            "ldr {heap}, [{base}, {heap}]",
            base = out(reg) _,
            heap = out(reg) heap,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    heap
}

/// The calling thread's record in the default collector; before its first pin one that leads to the
/// slow functions, so it is looked up anew for each use.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
#[inline(always)]
fn current() -> *mut Participant {
    this_heap().wrapping_add(sys::EBB_SELF_PIN).cast()
}

#[cfg(miri)]
use sys::current;

/// A store with a full fence behind it. On x86-64 an exchange is one; the fence itself, an mfence,
/// costs many times as much.
#[inline(always)]
fn store_full(state: &AtomicU64, value: u64) {
    if cfg!(all(target_arch = "x86_64", not(miri))) {
        state.swap(value, Ordering::SeqCst);
        compiler_fence(Ordering::SeqCst);
    } else {
        state.store(value, Ordering::Release);
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// Depth 1, in the epoch that the clock shows. `attention` is kept of the state before.
///
/// # Safety
/// As [`enter`].
#[inline(always)]
unsafe fn announce(me: *mut Participant, attention: u64) {
    // SAFETY: the record is alive, and so is the clock that it leads to.
    unsafe {
        let now = (*(*me).now).load(Ordering::Relaxed);
        store_full(&(*me).state, now | attention | 1);
    }
}

/// Every first pin of a record comes here.
///
/// # Safety
/// As [`enter`].
#[cold]
unsafe fn enter_slow(me: *mut Participant) {
    // SAFETY: the caller's word.
    unsafe { sys::ebb_pin_slow(me) };
    leaked::watch();
}

/// # Safety
/// As [`enter`].
#[inline(always)]
unsafe fn enter_deeper(me: *mut Participant) {
    // SAFETY: the caller's word.
    unsafe {
        let state = (*me).state.load(Ordering::Relaxed);
        if state & EBB_PIN_DEPTH < EBB_PIN_DEEPEST - 1 {
            (*me).state.store(state + 1, Ordering::Relaxed);
        } else {
            enter_slow(me);
        }
    }
}

/// The clock moved on between the two looks at it. (In a fenced clock this was a nested pin.)
///
/// # Safety
/// As [`enter`].
#[cold]
unsafe fn enter_anew(me: *mut Participant) {
    // SAFETY: the caller's word.
    unsafe {
        if (*me).state.load(Ordering::Relaxed) & EBB_PIN_DEPTH == 1 {
            announce(me, 0);
        }
    }
}

/// Begins a pin. While the clock stands where this thread announced it last, without a fence: the
/// depth is stored, and then the clock looked at again.
///
/// # Safety
/// `me` is the calling thread's record in a collector that lives.
#[inline(always)]
pub(super) unsafe fn enter(me: *mut Participant) {
    // SAFETY: the caller's word. The state is stored by this thread alone.
    unsafe {
        let clock = &*(*me).now;
        let state = (*me).state.load(Ordering::Relaxed);
        let now = clock.load(Ordering::Relaxed);
        if state == now {
            (*me).state.store(now + 1, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            if clock.load(Ordering::Relaxed) != now {
                enter_anew(me);
            }
        } else if state & EBB_PIN_DEPTH == 0 {
            announce(me, 0);
        } else {
            enter_deeper(me);
        }
    }
}

/// Ends the innermost pin.
///
/// # Safety
/// As [`enter`], which was called before.
#[inline(always)]
pub(super) unsafe fn leave(me: *mut Participant) {
    // SAFETY: the caller's word.
    unsafe {
        let state = (*me).state.load(Ordering::Relaxed).wrapping_sub(1);
        if state & EBB_PIN_DEPTH >= EBB_PIN_DEEPEST {
            sys::ebb_unpin_slow(me);
        } else {
            (*me).state.store(state, Ordering::Release);
        }
    }
}

/// Begins the pin anew if it is the only one and the clock has gone on; runs what waits for its end.
///
/// # Safety
/// As [`leave`].
#[inline(always)]
pub(super) unsafe fn renew(me: *mut Participant) {
    // SAFETY: the caller's word.
    unsafe {
        let state = (*me).state.load(Ordering::Relaxed);
        let depth = state & EBB_PIN_DEPTH;
        if depth == 1 && state != (*(*me).now).load(Ordering::Relaxed) | 1 {
            announce(me, 0);
        } else if depth == EBB_PIN_ATTENTION | 1 {
            sys::ebb_unpin_slow(me);
            enter(me);
        }
    }
}

/// Whether the record's thread is inside a pin.
///
/// # Safety
/// As [`enter`], and the record is the thread's own.
#[inline(always)]
pub(super) unsafe fn is_inside(me: *mut Participant) -> bool {
    // SAFETY: the caller's word.
    let state = unsafe { (*me).state.load(Ordering::Relaxed) };
    state & EBB_PIN_DEPTH & !EBB_PIN_ATTENTION != 0
}

/// The same for the default collector.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", miri))]
pub(super) mod default {
    use std::sync::atomic::Ordering;

    use super::{current, Participant};
    use crate::sys::{self, EBB_PIN_DEPTH, EBB_PIN_NONE};

    #[inline(always)]
    pub(in crate::epoch) fn enter() {
        // SAFETY: the thread's own record, in the collector that always lives.
        unsafe { super::enter(current()) }
    }

    /// # Safety
    /// After [`enter`].
    #[inline(always)]
    pub(in crate::epoch) unsafe fn leave() {
        // SAFETY: the caller's word.
        unsafe { super::leave(current()) }
    }

    /// # Safety
    /// After [`enter`].
    #[inline(always)]
    pub(in crate::epoch) unsafe fn renew() {
        // SAFETY: the caller's word.
        unsafe { super::renew(current()) }
    }

    /// Whether the thread has no record of its own: it has not pinned, or never will have one.
    ///
    /// # Safety
    /// `me` is [`current`].
    #[inline(always)]
    unsafe fn is_none(me: *mut Participant) -> bool {
        // SAFETY: the caller's word.
        let state = unsafe { (*me).state.load(Ordering::Relaxed) };
        state & EBB_PIN_DEPTH == EBB_PIN_NONE
    }

    #[inline(always)]
    pub(in crate::epoch) fn is_inside() -> bool {
        let me = current();
        // SAFETY: the thread's own record, or one of those that have none, which the library knows.
        unsafe {
            if is_none(me) {
                sys::ebb_is_pinned() != 0
            } else {
                super::is_inside(me)
            }
        }
    }

    /// Whether a pin would end with the thread. Those of threads without a record of their own do not.
    pub(in crate::epoch) fn would_end() -> bool {
        let me = current();
        // SAFETY: as above.
        unsafe { !is_none(me) && super::is_inside(me) }
    }
}

/// Where there is no assembly for the thread's record, by calls.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", miri)))]
pub(super) mod default {
    use crate::epoch::leaked;
    use crate::sys;

    pub(in crate::epoch) fn enter() {
        // SAFETY: no conditions.
        unsafe { sys::ebb_pin() }
        leaked::watch();
    }

    /// # Safety
    /// After [`enter`].
    pub(in crate::epoch) unsafe fn leave() {
        // SAFETY: the caller's word.
        unsafe { sys::ebb_unpin() }
    }

    /// # Safety
    /// After [`enter`].
    pub(in crate::epoch) unsafe fn renew() {
        // SAFETY: the caller's word.
        unsafe { sys::ebb_repin() }
    }

    pub(in crate::epoch) fn is_inside() -> bool {
        // SAFETY: no conditions.
        unsafe { sys::ebb_is_pinned() != 0 }
    }

    pub(in crate::epoch) fn would_end() -> bool {
        is_inside()
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::ptr;

    fn library_says_pinned() -> bool {
        // SAFETY: no conditions.
        unsafe { sys::ebb_is_pinned() != 0 }
    }

    #[test]
    fn the_library_sees_these_pins() {
        // A thread's first pin is a case of its own.
        default::enter();
        // SAFETY: pinned above.
        unsafe { default::leave() };
        assert!(!library_says_pinned());
        default::enter();
        assert!(library_says_pinned());
        default::enter();
        // SAFETY: pinned above, as often as left.
        unsafe {
            default::leave();
            assert!(library_says_pinned() && default::is_inside());
            default::renew();
            assert!(library_says_pinned());
            default::leave();
        }
        assert!(!library_says_pinned() && !default::is_inside());
    }

    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn the_record_is_the_one_that_the_library_gives() {
        // SAFETY: null is the default collector.
        let attached = unsafe { sys::ebb_collector_attach(ptr::null_mut()) };
        assert!(!attached.is_null() && current() == attached);
    }

    #[test]
    fn pins_nest_deep() {
        for _ in 0..30_000 {
            default::enter();
        }
        for _ in 0..30_000 {
            assert!(library_says_pinned());
            // SAFETY: pinned above, as often as left.
            unsafe { default::leave() };
        }
        assert!(!library_says_pinned());
    }
}
