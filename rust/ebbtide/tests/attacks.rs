// SPDX-License-Identifier: MIT OR Apache-2.0
//! What safe code may do to break the promise of a guard, or of an owner: it does not succeed. What does not
//! compile at all stands in the documentation.

use std::cell::RefCell;
use std::mem;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use ebbtide::epoch::{self, Atomic, Collector, Guard, Owned, Shared};

/// A guard of one test holds back what another waits for.
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

/// Takes the object out and retires it.
fn retire(cell: &Atomic<Counted>, guard: &Guard) {
    let old = cell.swap(Shared::null(), AcqRel, guard);
    // SAFETY: unlinked by this swap, which found an object.
    unsafe { guard.defer_destroy(old) };
}

/// A guard that waits in a thread's storage pins until that storage goes, behind the thread's function.
#[test]
fn a_guard_in_thread_local_storage_lasts() {
    thread_local!(static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) });
    struct Last(RefCell<Option<std::sync::mpsc::Receiver<()>>>);
    impl Drop for Last {
        fn drop(&mut self) {
            let _ = self.0.take().expect("set by the thread").recv();
        }
    }
    // Destroyed before the guard's place: the newest goes first.
    thread_local!(static LAST: Last = const { Last(RefCell::new(None)) });
    let _alone = alone();
    for collector in [None, Some(Collector::new())] {
        let dropped = Arc::new(AtomicUsize::new(0));
        let cell = Arc::new(Atomic::new(Counted(dropped.clone())));
        let (pinned, wait_pinned) = channel();
        let (release, wait_release) = channel();
        let own = collector.clone();
        let reader = thread::spawn(move || {
            KEPT.with(|kept| {
                *kept.borrow_mut() = Some(match own {
                    None => epoch::pin(),
                    Some(own) => own.register().pin(),
                })
            });
            LAST.with(|last| *last.0.borrow_mut() = Some(wait_release));
            pinned.send(()).unwrap();
        });
        wait_pinned.recv().unwrap();
        let waits_for = collector.as_ref().unwrap_or(epoch::default_collector());
        retire(&cell, &waits_for.register().pin());
        for _ in 0..100 {
            waits_for.reclaim();
        }
        assert_eq!(dropped.load(SeqCst), 0);
        release.send(()).unwrap();
        reader.join().unwrap();
        waits_for.barrier();
        assert_eq!(dropped.load(SeqCst), 1);
    }
}

/// Each guard ends the pin that it is, wherever it has been moved to.
#[test]
fn swapped_guards_end_their_own_pins() {
    let _alone = alone();
    let handle = Collector::new().register();
    let (mut a, mut b) = (epoch::pin(), handle.pin());
    mem::swap(&mut a, &mut b);
    drop(a);
    assert!(epoch::is_pinned() && !handle.is_pinned());
    drop(b);
    assert!(!epoch::is_pinned());
}

#[test]
fn a_panic_unpins() {
    let _alone = alone();
    let outcome = std::panic::catch_unwind(|| {
        let _guard = epoch::pin();
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(outcome.is_err() && !epoch::is_pinned());
}

/// The one guard of no place is shared by all threads, so it must not change.
#[test]
fn threads_share_the_unprotected_guard() {
    let dropped = Arc::new(AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..100 {
                    // SAFETY: the object is this thread's alone.
                    unsafe {
                        let guard = epoch::unprotected();
                        guard.flush();
                        guard
                            .defer_destroy(Owned::new(Counted(dropped.clone())).into_shared(guard));
                    }
                }
            });
        }
    });
    assert_eq!(dropped.load(SeqCst), 200);
    assert!(!epoch::is_pinned());
}

/// What ends the process, each in a process of its own.
#[cfg(not(miri))]
mod ends {
    use std::env;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    const SIGABRT: i32 = 6;
    const CHILD: &str = "EBBTIDE_TEST_CHILD";

    /// Runs `child` in a process where the test `name` is the only one. Its signal and what it printed.
    fn outcome_of(name: &str, child: fn()) -> (Option<i32>, String) {
        if env::var_os(CHILD).is_some_and(|wanted| wanted == name) {
            child();
            std::process::exit(0);
        }
        let output = Command::new(env::current_exe().unwrap())
            .args([&format!("ends::{name}"), "--exact", "--nocapture"])
            .env(CHILD, name)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.signal(), text)
    }

    fn in_a_thread(f: fn()) {
        thread::spawn(f).join().unwrap();
    }

    /// What was loaded under a leaked guard may be anywhere, and a thread's pins end with it.
    #[test]
    fn a_thread_that_leaves_a_guard_behind() {
        let (signal, text) = outcome_of("a_thread_that_leaves_a_guard_behind", || {
            in_a_thread(|| mem::forget(epoch::pin()));
        });
        assert!(
            signal == Some(SIGABRT) && text.contains("has leaked a guard"),
            "{text}"
        );
    }

    #[test]
    fn a_thread_that_leaves_a_guard_behind_in_a_collector() {
        let (signal, text) =
            outcome_of("a_thread_that_leaves_a_guard_behind_in_a_collector", || {
                in_a_thread(|| {
                    Box::leak(Box::new(Collector::new().register().pin()));
                });
            });
        assert!(
            signal == Some(SIGABRT) && text.contains("has leaked a guard"),
            "{text}"
        );
    }

    #[test]
    fn a_thread_that_leaves_none() {
        let (signal, text) = outcome_of("a_thread_that_leaves_none", || {
            in_a_thread(|| {
                drop((epoch::pin(), Collector::new().register().pin()));
                epoch::pin().repin_after(|| ());
            });
        });
        assert_eq!(signal, None, "{text}");
    }

    #[test]
    fn a_deferred_function_that_panics() {
        let (signal, text) = outcome_of("a_deferred_function_that_panics", || {
            let guard = Collector::new().register().pin();
            guard.defer(|| panic!("within a deferred function"));
            drop(guard);
        });
        let expected = signal == Some(SIGABRT) && text.contains("within a deferred function");
        assert!(expected, "{text}");
    }
}
