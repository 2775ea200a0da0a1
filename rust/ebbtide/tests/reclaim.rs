// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is deferred runs, once, and not before it may.

use std::cell::RefCell;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use ebbtide::epoch::{self, Atomic, Collector, Guard, Owned, Shared};

/// The tests that look at the default collector run one by one: a pin of one holds back the others'.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Retires a Counted.
fn retire_one(count: &Arc<AtomicUsize>, guard: &Guard) {
    let object = Owned::new(Counted(count.clone())).into_shared(guard);
    // SAFETY: was never shared.
    unsafe { guard.defer_destroy(object) };
}

const MANY: usize = if cfg!(miri) { 50 } else { 20_000 };

#[test]
fn everything_deferred_runs_once() {
    let _alone = alone();
    let dropped = Arc::new(AtomicUsize::new(0));
    let called = Arc::new(AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for i in 0..MANY {
                    let guard = &epoch::pin();
                    retire_one(&dropped, guard);
                    let called = called.clone();
                    let large = [i; 9];
                    guard.defer(move || called.fetch_add(usize::from(large[8] == i), SeqCst));
                }
            });
        }
    });
    epoch::default_collector().barrier();
    assert_eq!(dropped.load(SeqCst), 2 * MANY);
    assert_eq!(called.load(SeqCst), 2 * MANY);
    assert_eq!(Arc::strong_count(&called), 1);
}

#[test]
fn plain_blocks_leave_limbo() {
    let _alone = alone();
    let cell = Atomic::new([0_usize; 4]);
    for i in 0..MANY {
        let guard = &epoch::pin();
        let old = cell.swap(Owned::new([i; 4]), AcqRel, guard);
        // SAFETY: unlinked by this swap.
        unsafe { guard.defer_destroy(old) };
    }
    epoch::default_collector().reclaim();
    assert_eq!(epoch::default_collector().stats().retired_blocks, 0);
    // SAFETY: nobody else has it.
    unsafe { drop(cell.into_owned()) };
}

#[test]
fn the_innermost_guard_does_not_end_the_pin() {
    let _alone = alone();
    let dropped = Arc::new(AtomicUsize::new(0));
    thread::scope(|scope| {
        let (pinned, wait_pinned) = channel();
        let (release, wait_release) = channel::<()>(); // or the sender is gone: this test has failed
        scope.spawn(move || {
            drop(epoch::pin()); // a thread's first pin is a case of its own
            let outer = epoch::pin();
            drop(epoch::pin());
            pinned.send(()).unwrap();
            let _ = wait_release.recv();
            drop(outer);
        });
        wait_pinned.recv().unwrap();
        retire_one(&dropped, &epoch::pin());
        for _ in 0..10 {
            epoch::default_collector().reclaim();
        }
        assert_eq!(dropped.load(SeqCst), 0);
        drop(release);
    });
    epoch::default_collector().barrier();
    assert_eq!(dropped.load(SeqCst), 1);
}

#[test]
fn a_stalled_reader_holds_back_and_lets_go() {
    let _alone = alone();
    let collector = Collector::new();
    let dropped = Arc::new(AtomicUsize::new(0));
    let shared = Atomic::new(Counted(dropped.clone()));
    thread::scope(|scope| {
        let (pinned, wait_pinned) = channel();
        let (release, wait_release) = channel::<()>();
        let (collector, shared) = (&collector, &shared);
        scope.spawn(move || {
            let handle = collector.register();
            drop(handle.pin()); // as above
            let guard = handle.pin();
            let seen = shared.load(Acquire, &guard);
            pinned.send(()).unwrap();
            let _ = wait_release.recv();
            // SAFETY: loaded under the guard.
            assert_eq!(unsafe { seen.deref() }.0.load(SeqCst), 0);
        });
        wait_pinned.recv().unwrap();
        let handle = collector.register();
        let guard = handle.pin();
        let old = shared.swap(Shared::null(), AcqRel, &guard);
        // SAFETY: unlinked above.
        unsafe { guard.defer_destroy(old) };
        drop(guard);
        for _ in 0..100 {
            retire_one(&dropped, &handle.pin());
            collector.reclaim();
        }
        let stats = collector.stats();
        assert_eq!(
            (dropped.load(SeqCst), stats.destructors, stats.pinned),
            (0, 101, 1)
        );
        drop(release);
    });
    collector.synchronize();
    collector.barrier();
    assert_eq!(dropped.load(SeqCst), 101);
}

#[test]
fn a_pin_elsewhere_holds_nothing_back() {
    let _alone = alone();
    let pinned = epoch::pin();
    let collector = Collector::fenced();
    let dropped = Arc::new(AtomicUsize::new(0));
    retire_one(&dropped, &collector.register().pin());
    collector.synchronize();
    collector.reclaim(); // runs nothing under a guard of the default collector
    assert_eq!(dropped.load(SeqCst), 0);
    drop(pinned);
    collector.barrier();
    assert_eq!(dropped.load(SeqCst), 1);
}

#[test]
fn the_last_collector_may_go_in_a_deferred_function() {
    let _alone = alone();
    let dropped = Arc::new(AtomicUsize::new(0));
    let outer = Collector::new();
    for guard in [&epoch::pin(), &outer.register().pin()] {
        let last = Collector::new();
        {
            let inner = &last.register().pin();
            (0..10).for_each(|_| retire_one(&dropped, inner));
        }
        guard.defer(move || drop(last));
    }
    assert_eq!(dropped.load(SeqCst), 0);
    outer.barrier();
    epoch::default_collector().barrier();
    while dropped.load(SeqCst) < 20 {
        thread::yield_now(); // another thread had run one of them
    }
}

#[test]
fn the_last_collector_may_go_under_a_guard() {
    let _alone = alone();
    let dropped = Arc::new(AtomicUsize::new(0));
    let last = Collector::new();
    retire_one(&dropped, &last.register().pin());
    let guard = epoch::pin();
    drop(last);
    assert_eq!(dropped.load(SeqCst), 0);
    drop(guard);
    epoch::default_collector().barrier();
    while dropped.load(SeqCst) < 1 {
        thread::yield_now();
    }
}

#[test]
fn a_collector_drains_when_it_is_dropped() {
    let _alone = alone();
    let dropped = Arc::new(AtomicUsize::new(0));
    let collector = Collector::new();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let handle = collector.register();
                for _ in 0..100 {
                    retire_one(&dropped, &handle.pin());
                    let guard = handle.pin();
                    let plain = Owned::new([1_u64; 8]).into_shared(&guard);
                    // SAFETY: was never shared.
                    unsafe { guard.defer_destroy(plain) };
                }
            });
        }
    });
    let handle = collector.register();
    drop(collector);
    retire_one(&dropped, &handle.pin());
    drop(handle);
    assert_eq!(dropped.load(SeqCst), 201);
}

#[test]
fn flush_runs_what_waits_as_the_guard_ends() {
    let _alone = alone();
    let dropped = Arc::new(AtomicUsize::new(0));
    let guard = epoch::pin();
    retire_one(&dropped, &guard);
    guard.flush();
    drop(epoch::pin());
    assert_eq!(dropped.load(SeqCst), 0);
    drop(guard);
    let collector = Collector::new();
    let (guard, nested) = (collector.register().pin(), epoch::pin());
    retire_one(&dropped, &guard);
    guard.flush();
    drop(guard);
    drop(nested);
    while dropped.load(SeqCst) < 2 {
        epoch::pin().flush();
        collector.register().pin().flush();
    }
}

/// Within its call and in a block of its own: none, one and two words, padding, more, an alignment of its own.
#[test]
fn a_deferred_function_may_have_any_size() {
    #[derive(Clone, Copy)]
    #[repr(align(64))]
    struct Aligned(u8);
    static NOTHING: AtomicUsize = AtomicUsize::new(0);

    let _alone = alone();
    let sum = Arc::new(AtomicUsize::new(0));
    let own = Collector::new();
    let local = own.register();
    for guard in [epoch::pin(), local.pin()] {
        guard.defer(|| NOTHING.fetch_add(1, SeqCst));
        let one = sum.clone();
        guard.defer(move || one.fetch_add(1, SeqCst));
        let (two, ten) = (sum.clone(), 10_usize);
        guard.defer(move || two.fetch_add(ten, SeqCst));
        let (padded, hundred) = (sum.clone(), 100_u8);
        guard.defer(move || padded.fetch_add(hundred.into(), SeqCst));
        let (three, more) = (sum.clone(), [400_usize, 600]);
        guard.defer(move || three.fetch_add(more[0] + more[1], SeqCst));
        let aligned = Aligned(50);
        let (byte, at) = (sum.clone(), aligned);
        guard.defer(move || {
            assert_eq!(std::ptr::from_ref(&at) as usize % 64, 0);
            byte.fetch_add(usize::from(at.0) * 200, SeqCst)
        });
        drop(guard);
    }
    epoch::default_collector().barrier();
    own.barrier();
    assert_eq!(NOTHING.load(SeqCst), 2);
    assert_eq!(sum.load(SeqCst), 2 * 11_111);
    assert_eq!(Arc::strong_count(&sum), 1);
}

#[test]
fn a_deferred_function_may_pin_and_defer() {
    let _alone = alone();
    let (sender, receiver) = channel();
    let again = sender.clone();
    epoch::pin().defer(move || {
        let guard = epoch::pin();
        guard.defer(move || again.send(2).unwrap());
        sender.send(1).unwrap();
    });
    epoch::default_collector().barrier();
    epoch::default_collector().barrier();
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [1, 2]);
}

/// Long work under one guard that repins must not keep what it retires.
#[test]
fn repin_lets_go() {
    let _alone = alone();
    let dropped = Arc::new(AtomicUsize::new(0));
    let mut guard = epoch::pin();
    for _ in 0..MANY {
        retire_one(&dropped, &guard);
        guard.repin();
        assert!(epoch::is_pinned());
    }
    let early = dropped.load(SeqCst);
    drop(guard);
    epoch::default_collector().barrier();
    assert_eq!(dropped.load(SeqCst), MANY);
    assert!(early > 0, "nothing was dropped before the guard was");
}

#[test]
fn repin_after_pins_again_when_the_function_panics() {
    let _alone = alone();
    let mut guard = epoch::pin();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        guard.repin_after(|| {
            assert!(!epoch::is_pinned());
            std::panic::resume_unwind(Box::new(()));
        });
    }));
    assert!(outcome.is_err() && epoch::is_pinned());
    drop(guard);
    assert!(!epoch::is_pinned());
}

const THREADS: usize = if cfg!(miri) { 8 } else { 2_000 };

#[test]
fn short_threads_leave_nothing() {
    let _alone = alone();
    let dropped = Arc::new(AtomicUsize::new(0));
    let collector = Collector::new();
    for _ in 0..THREADS / 2 {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    retire_one(&dropped, &epoch::pin());
                    retire_one(&dropped, &collector.register().pin());
                });
            }
        });
    }
    collector.barrier();
    epoch::default_collector().barrier();
    assert_eq!(dropped.load(SeqCst), 2 * THREADS);
    assert!(epoch::default_collector().stats().participants < 100);
}

/// Pins as the last thing that its thread does.
struct Late(RefCell<Option<Arc<AtomicUsize>>>);

impl Drop for Late {
    fn drop(&mut self) {
        let count = self.0.take().expect("set by the thread");
        retire_one(&count, &epoch::pin());
        assert!(!epoch::is_pinned());
    }
}

#[test]
fn a_thread_may_pin_while_it_ends() {
    thread_local!(static LATE: Late = const { Late(RefCell::new(None)) });
    let _alone = alone();
    let dropped = Arc::new(AtomicUsize::new(0));
    let (early, late) = (dropped.clone(), dropped.clone());
    let pinned_before = move || {
        LATE.with(|l| *l.0.borrow_mut() = Some(early));
        drop(epoch::pin());
    };
    thread::spawn(pinned_before).join().unwrap();
    thread::spawn(move || LATE.with(|l| *l.0.borrow_mut() = Some(late)))
        .join()
        .unwrap();
    epoch::default_collector().barrier();
    assert_eq!(dropped.load(SeqCst), 2);
}

/// An object whose number is no other's, and 0 when it is gone.
struct Numbered(AtomicUsize);

impl Drop for Numbered {
    fn drop(&mut self) {
        self.0.store(0, Relaxed);
    }
}

#[test]
fn readers_never_see_what_was_dropped() {
    let _alone = alone();
    let cell = Atomic::new(Numbered(AtomicUsize::new(1)));
    let readings = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 1;
            while readings.load(Relaxed) < MANY / 10 {
                number += 1;
                let guard = &epoch::pin();
                let next = Owned::new(Numbered(AtomicUsize::new(number)));
                let old = cell.swap(next, AcqRel, guard);
                // SAFETY: unlinked by this swap.
                unsafe { guard.defer_destroy(old) };
            }
        });
        while readings.fetch_add(1, Relaxed) < MANY / 10 {
            let guard = &epoch::pin();
            // SAFETY: never null, and protected by the guard.
            let numbered = unsafe { cell.load(Acquire, guard).deref() };
            let number = numbered.0.load(Relaxed);
            thread::yield_now();
            let again = numbered.0.load(Relaxed);
            if number == 0 || number != again {
                readings.store(MANY, Relaxed);
                panic!("read {number}, then {again}");
            }
        }
    });
    // SAFETY: nobody else has it.
    unsafe { drop(cell.into_owned()) };
}
