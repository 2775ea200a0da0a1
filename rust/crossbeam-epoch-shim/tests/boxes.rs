// SPDX-License-Identifier: MIT OR Apache-2.0
//! A raw pointer of an owner is one of a `Box`, and the other way: unlike in the crate ebbtide alone.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, SeqCst};
use std::sync::Arc;

use crossbeam_epoch::{default_collector, pin, Atomic, Collector, Owned, Shared};

#[derive(Clone)]
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[repr(align(256))]
struct Aligned(u8);

#[test]
fn a_box_becomes_an_owner() {
    // SAFETY: each pointer is from a box, once.
    unsafe {
        assert_eq!(*Owned::from_raw(Box::into_raw(Box::new(7_u64))), 7);
        assert_eq!(Owned::from_raw(Box::into_raw(Box::new(Aligned(7)))).0, 7);
        assert_eq!(Owned::from_raw(Box::into_raw(Box::new([7; 100_000])))[9], 7);
        drop(Owned::from_raw(Box::into_raw(Box::new(()))));
    }
}

#[test]
fn an_owner_becomes_a_box() {
    let guard = &pin();
    // SAFETY: each pointer is an owner's, once.
    unsafe {
        for object in [Owned::new(7), Owned::from(Box::new(7))] {
            let raw = object.into_shared(guard).as_raw() as *mut i32;
            assert_eq!(*Box::from_raw(raw), 7);
        }
        let raw = Owned::new(Aligned(7)).into_shared(guard).as_raw();
        assert_eq!(Box::from_raw(raw as *mut Aligned).0, 7);
        let raw = Owned::new(()).into_shared(guard).as_raw();
        drop(Box::from_raw(raw as *mut ()));
    }
}

#[test]
fn a_box_is_retired() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let collector = Collector::new();
    for collector in [&collector, default_collector()] {
        let guard = &collector.register().pin();
        let counted = Shared::from(Box::into_raw(Box::new(Counted(dropped.clone()))).cast_const());
        let plain = Shared::from(Box::into_raw(Box::new([0_u64; 4])).cast_const());
        let cell = Atomic::<[u64; 4]>::from(plain);
        // SAFETY: unlinked, or never shared.
        unsafe {
            guard.defer_destroy(counted);
            guard.defer_destroy(cell.swap(Shared::null(), AcqRel, guard));
        }
    }
    drop(collector);
    default_collector().barrier();
    assert_eq!(dropped.load(SeqCst), 2);
}

/// Boxes that a deferred function drops, as crates do that keep no `Owned`.
#[test]
fn a_deferred_function_drops_a_box() {
    let collector = Collector::new();
    let dropped = Arc::new(AtomicUsize::new(0));
    let raw = Box::into_raw(Box::new(Counted(dropped.clone()))) as usize;
    // SAFETY: from a box, once.
    let free = move || unsafe { drop(Box::from_raw(raw as *mut Counted)) };
    // SAFETY: the function has all that it needs.
    unsafe { collector.register().pin().defer_unchecked(free) };
    drop(collector);
    assert_eq!(dropped.load(SeqCst), 1);
}
