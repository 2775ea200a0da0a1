// SPDX-License-Identifier: MIT OR Apache-2.0
// Every public name, used as its signature says, and what it does.

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use self::crossbeam_epoch::{
    default_collector, is_pinned, pin, unprotected, Atomic, Collector, CompareExchangeError, Guard,
    LocalHandle, Owned, Pointable, Pointer, Shared,
};

#[test]
fn pins_nest() {
    assert!(!is_pinned());
    let a = pin();
    let b = pin();
    drop(a);
    assert!(is_pinned());
    drop(b);
    assert!(!is_pinned());
}

#[test]
fn guards_know_their_collector() {
    let collector: Collector = Collector::new();
    let handle: LocalHandle = collector.register();
    assert_eq!(handle.collector(), &collector);
    assert!(!handle.is_pinned());
    let mut guard: Guard = handle.pin();
    assert!(handle.is_pinned() && !is_pinned());
    assert_eq!(guard.collector(), Some(&collector));
    guard.repin();
    assert!(!guard.repin_after(|| handle.is_pinned()));
    assert!(handle.is_pinned());
    drop(guard);
    assert!(!handle.is_pinned());
    assert!(collector != Collector::default() && collector == collector.clone());
    assert_eq!(pin().collector(), Some(default_collector()));
    assert_eq!(default_collector().register().collector(), default_collector());
    // SAFETY: nothing is loaded under it.
    assert!(unsafe { unprotected() }.collector().is_none());
}

#[test]
fn a_guard_outlives_its_handle_and_collector() {
    let ran = Arc::new(AtomicUsize::new(0));
    let guard = Collector::new().register().pin();
    let (counted, counter) = (ran.clone(), ran.clone());
    guard.defer(move || counted.fetch_add(1, Relaxed));
    let second = guard.collector().unwrap().register();
    drop(guard);
    drop(second.pin());
    drop(second);
    assert_eq!(counter.load(Relaxed), 1);
}

#[test]
fn unprotected_runs_at_once() {
    let count = AtomicUsize::new(0);
    // SAFETY: what is deferred is this thread's alone.
    unsafe {
        let guard = unprotected();
        guard.defer_unchecked(|| count.fetch_add(1, Relaxed));
        assert_eq!(count.load(Relaxed), 1);
        guard.defer(|| ());
        guard.flush();
        guard.defer_destroy(Owned::new(String::from("gone")).into_shared(guard));
    }
}

#[test]
fn atomics_load_and_store() {
    let guard = &pin();
    let a: Atomic<u64> = Atomic::from(Owned::new(1));
    assert_eq!(unsafe { *a.load_consume(guard).deref() }, 1);
    let one = a.swap(Owned::<u64>::from(Box::new(2)).with_tag(3), AcqRel, guard);
    assert_eq!(a.load(Acquire, guard).tag(), 3);
    let two = a.swap(one, SeqCst, guard);
    assert_eq!(*unsafe { two.into_owned() }, 2);
    let refused = a.compare_exchange_weak(one.with_tag(1), Shared::null(), AcqRel, Acquire, guard);
    let refused: CompareExchangeError<'_, _, _> = refused.unwrap_err();
    assert_eq!((refused.current, refused.new), (one, Shared::null()));
    assert_eq!(unsafe { one.into_owned().into_box() }, Box::new(1));
    a.store(Shared::null(), Relaxed);
    assert!(unsafe { a.try_into_owned() }.is_none());
    let b = Atomic::from(7_u64);
    assert_eq!(*unsafe { b.clone().into_owned() }, 7);
}

#[test]
fn tags_change_by_bits() {
    let guard = &pin();
    let a = Atomic::<u32>::default();
    assert_eq!(a.fetch_or(7, SeqCst, guard).tag(), 0);
    assert_eq!(a.fetch_and(!1, SeqCst, guard).tag(), 3);
    assert_eq!(a.fetch_xor(3, SeqCst, guard).tag(), 2);
    let p = a.load(SeqCst, guard);
    assert_eq!((p.tag(), p.is_null(), p.as_raw().is_null()), (1, true, true));
    assert!(a.fetch_update(SeqCst, SeqCst, guard, |_| None).is_err());
    let before = a.fetch_update(SeqCst, SeqCst, guard, |p| Some(p.with_tag(0)));
    assert_eq!(before, Ok(p));
}

#[test]
fn arrays_have_their_length() {
    let mut array = Owned::<[MaybeUninit<u16>]>::init(5);
    for (i, cell) in array.iter_mut().enumerate() {
        cell.write(i as u16);
    }
    let guard = &pin();
    let a = Atomic::<[MaybeUninit<u16>]>::from(array);
    let p = a.load(Acquire, guard);
    let sum: u16 = unsafe { p.deref() }
        .iter()
        .map(|cell| unsafe { cell.assume_init_read() })
        .sum();
    assert_eq!((sum, unsafe { p.deref() }.len()), (10, 5));
    unsafe { guard.defer_destroy(p) };
    assert_eq!(Owned::<[MaybeUninit<Box<u8>>]>::init(0).len(), 0);
}

#[test]
fn owners_act_as_boxes() {
    let mut a = Owned::new(vec![1]).with_tag(1);
    a.push(2);
    let b = a.clone();
    let borrowed: &Vec<i32> = b.as_ref();
    assert_eq!((borrowed, b.tag()), (&vec![1, 2], 1));
    let guard = &pin();
    let raw = b.into_shared(guard).as_raw() as *mut Vec<i32>;
    assert_eq!(*unsafe { Owned::from_raw(raw) }, [1, 2]);
    assert_eq!(Shared::from(raw.cast_const()).as_raw(), raw.cast_const());
    assert!(format!("{:p}", Atomic::<u8>::null()).starts_with("0x"));
    assert_eq!(format!("{guard:?}"), "Guard { .. }");
}

#[test]
#[allow(deprecated)]
fn the_old_names_of_compare_exchange() {
    use self::crossbeam_epoch::{CompareAndSetError, CompareAndSetOrdering};
    fn orders(ord: impl CompareAndSetOrdering) -> (Ordering, Ordering) {
        (ord.success(), ord.failure())
    }
    let one = [Relaxed, Acquire, Ordering::Release, AcqRel, SeqCst].map(orders);
    let failures = one.map(|(_, failure)| failure);
    assert_eq!(failures, [Relaxed, Acquire, Relaxed, Acquire, SeqCst]);
    assert_eq!(orders((AcqRel, Relaxed)), (AcqRel, Relaxed));
    let guard = &pin();
    let a = Atomic::<u64>::null();
    let first = a.compare_and_set(Shared::null(), Owned::new(1), AcqRel, guard).unwrap();
    let refused = a.compare_and_set(Shared::null(), Owned::new(2), (SeqCst, Relaxed), guard);
    let refused: CompareAndSetError<'_, u64, Owned<u64>> = refused.unwrap_err();
    assert_eq!((refused.current, *refused.new), (first, 2));
    while a.compare_and_set_weak(first, Shared::null(), SeqCst, guard).is_err() {}
    assert_eq!(*unsafe { first.into_owned() }, 1);
}

// What may go to another thread, and over a caught panic: not more than with the original.
#[test]
fn marker_traits() {
    use std::panic::{RefUnwindSafe, UnwindSafe};
    fn both<T: Send + Sync>() {}
    fn moves<T: Send>() {}
    fn unwinds<T: UnwindSafe + RefUnwindSafe + Unpin>() {}
    both::<Collector>();
    both::<Atomic<u8>>();
    both::<Owned<u8>>();
    moves::<Owned<std::cell::Cell<u8>>>();
    unwinds::<Atomic<*mut u8>>();
    unwinds::<Owned<std::marker::PhantomPinned>>();
    unwinds::<Shared<'static, u8>>();
    unwinds::<CompareExchangeError<'static, u8, Owned<u8>>>();
}

struct Empty;

impl Drop for Empty {
    fn drop(&mut self) {
        EMPTIED.fetch_add(1, Ordering::Relaxed);
    }
}

static EMPTIED: AtomicUsize = AtomicUsize::new(0);

#[test]
fn objects_without_size() {
    let owned: Owned<Empty> = Owned::from(Owned::<Empty>::from(Box::new(Empty)).into_box());
    let collector = Collector::new();
    {
        let guard = collector.register().pin();
        unsafe { guard.defer_destroy(owned.into_shared(&guard)) };
        unsafe { guard.defer_destroy(Owned::new(()).into_shared(&guard)) };
        assert_eq!(EMPTIED.load(Ordering::Relaxed), 0);
    }
    drop(collector);
    assert_eq!(EMPTIED.load(Ordering::Relaxed), 1);
    drop(unsafe { Owned::<()>::from_raw(Box::into_raw(Box::new(()))) });
}

// A type of the program's own behind the pointers.
struct Text([u8]);

impl Pointable for Text {
    const ALIGN: usize = std::mem::align_of::<String>();
    type Init = &'static str;

    unsafe fn init(init: &'static str) -> usize {
        Box::into_raw(Box::new(String::from(init))) as usize
    }
    unsafe fn deref<'a>(ptr: usize) -> &'a Text {
        let bytes: *const [u8] = unsafe { &*(ptr as *const String) }.as_bytes();
        unsafe { &*(bytes as *const Text) }
    }
    unsafe fn deref_mut<'a>(ptr: usize) -> &'a mut Text {
        let bytes: *mut [u8] = unsafe { (*(ptr as *mut String)).as_bytes_mut() };
        unsafe { &mut *(bytes as *mut Text) }
    }
    unsafe fn drop(ptr: usize) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
        drop(unsafe { Box::from_raw(ptr as *mut String) });
    }
}

static DROPPED: AtomicUsize = AtomicUsize::new(0);

#[test]
fn a_pointable_of_the_program() {
    let collector = Collector::new();
    let guard = collector.register().pin();
    let text = Owned::<Text>::init("abc").into_shared(&guard);
    assert_eq!(unsafe { text.deref() }.0, *b"abc");
    let data = text.into_usize();
    unsafe { guard.defer_destroy(Shared::<Text>::from_usize(data)) };
    drop(guard);
    drop(collector);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
}

#[test]
fn a_pointer_has_its_tag_below_its_alignment() {
    let guard = pin();
    let tagged = Atomic::<u64>::from(std::ptr::null::<u64>().cast::<u8>().wrapping_add(5).cast());
    let shared = tagged.load(Relaxed, &guard);
    assert_eq!((shared.tag(), shared.as_raw()), (5, std::ptr::null()));
}
