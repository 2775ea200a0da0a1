// SPDX-License-Identifier: MIT OR Apache-2.0
//! Phases and domains: where plain allocation comes from, and in which order scopes end.
#![cfg(not(miri))]

use std::cell::RefCell;
use std::future::Future;
use std::mem;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::{pin, Pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use ebbtide::region::{
    heap, on_heap, promote_to_heap, thread_idle, Domain, Options, Phase, Policy, Scope,
};

#[global_allocator]
static ALLOCATOR: ebbtide::Ebbtide = ebbtide::Ebbtide;

/// Whether what this thread allocates now is of the phase.
fn is_in(phase: &Phase) -> bool {
    let before = phase.stats().live_blocks;
    let block = Box::new([1_u8; 100]);
    let grown = phase.stats().live_blocks - before;
    drop(block);
    grown == 1
}

#[test]
fn plain_allocation_is_of_the_phase() {
    let phase = Phase::open();
    assert!(!is_in(&phase));
    let words = phase.run(|| {
        assert!(is_in(&phase));
        vec!["ebb".to_string(), "tide".to_string()]
    });
    assert_eq!(phase.stats().live_blocks, 3);
    assert!(!is_in(&phase));
    drop(phase);
    assert_eq!(words.concat(), "ebbtide");
}

#[test]
fn blocks_outlive_the_phase_and_die_anywhere() {
    let label = "outlived";
    let phase = Options::new().label(label).open_phase().unwrap();
    let mut texts: Vec<String> = on_heap(|| Vec::with_capacity(1_000));
    phase.run(|| texts.extend((0..1_000).map(|i| i.to_string())));
    drop(phase);
    texts[999].push_str(" and more");
    let checked = thread::spawn(move || {
        let numbers = texts[..999].iter().zip(0..);
        numbers.filter(|(text, i)| **text == i.to_string()).count() + texts[999].len()
    });
    assert_eq!(checked.join().unwrap(), 999 + "999 and more".len());
    let lines = ebbtide::region::lifetimes();
    let line = lines.iter().find(|line| line.label == label).unwrap();
    assert_eq!((line.open, line.closed, line.live_blocks), (0, 1, 0));
}

#[test]
fn scopes_nest() {
    let (outer, inner) = (Phase::open(), Phase::open());
    let first = outer.enter();
    {
        let _second = inner.enter();
        assert!(is_in(&inner));
        {
            let _third = heap();
            assert!(!is_in(&inner) && !is_in(&outer));
        }
        let again = outer.enter();
        assert!(is_in(&outer));
        drop(again);
        assert!(is_in(&inner));
    }
    assert!(is_in(&outer));
    drop(first);
    assert!(!is_in(&outer) && !is_in(&inner));
}

#[test]
fn panics_leave_the_scope() {
    let phase = Phase::open();
    let outcome = catch_unwind(AssertUnwindSafe(|| phase.run(|| panic!("inside"))));
    assert!(outcome.is_err() && !is_in(&phase));
}

#[test]
fn leaving_out_of_order_panics() {
    // In a thread of its own: the refused scope lasts as long as it.
    thread::spawn(|| {
        let (one, two) = (Phase::open(), Phase::open());
        let first = one.enter();
        let second = two.enter();
        let outcome = catch_unwind(AssertUnwindSafe(|| drop(first)));
        assert!(outcome.is_err() && is_in(&two), "the inner one goes on");
        drop(second);
        assert!(is_in(&one), "the refused one too");
        two.run(|| assert!(is_in(&two)));
        assert!(is_in(&one));
    })
    .join()
    .unwrap();
}

#[test]
fn no_second_panic_while_one_unwinds() {
    let outcome = thread::spawn(|| {
        let phase = Phase::open();
        let _outer = phase.enter();
        mem::forget(phase.enter());
        panic!("first");
    })
    .join();
    assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"first"));
}

#[test]
fn forgotten_scopes_are_harmless() {
    let kept = thread::spawn(|| {
        let phase = Phase::open();
        mem::forget(phase.enter());
        drop(phase); // closed while it is current
        let other = Phase::open();
        let inside = other.run(|| {
            assert!(is_in(&other));
            vec![1_u8; 100]
        });
        mem::forget(other.enter());
        mem::forget(heap());
        drop(other); // closed while it is not current, but entered
        (inside, vec![2_u8; 100])
    })
    .join() // the thread has ended inside
    .unwrap();
    assert_eq!(kept, (vec![1; 100], vec![2; 100]));
}

#[test]
fn scopes_and_phases_of_a_thread_end_with_it() {
    struct Worker {
        texts: Vec<String>,
        _scope: Scope<'static>,
    }
    thread_local! {
        static PHASE: Phase<'static> = Phase::open();
        static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
    }
    for round in 0..20 {
        let worker = thread::spawn(move || {
            let domain = Domain::open("of threads").unwrap();
            let _scope = domain.enter();
            let texts = PHASE.with(|phase| phase.run(|| (0..100).map(|i| i.to_string()).collect()));
            WORKER.set(Some(Worker { texts, _scope }));
            WORKER.with_borrow(|worker| worker.as_ref().unwrap().texts[round].clone())
        });
        assert_eq!(worker.join().unwrap(), round.to_string());
    }
}

#[test]
fn what_is_current_is_the_innermost() {
    let (domain, phase) = (Domain::open("mixed").unwrap(), Phase::open());
    let mut kept = domain.run(|| {
        let outer = vec!["domain".to_string()];
        let inner = phase.run(|| {
            assert!(is_in(&phase));
            assert!(!domain.run(|| is_in(&phase)) && is_in(&phase));
            vec!["phase".to_string(), on_heap(|| "heap".to_string())]
        });
        assert!(!is_in(&phase));
        [outer, inner]
    });
    assert_eq!(phase.stats().live_blocks, 2);
    kept[1].push("and more than there was room for".to_string());
    drop(phase);
    assert_eq!(kept.concat().len(), 4);
}

#[test]
fn phases_nest_and_are_shared() {
    let session = Phase::open();
    let request = Options::new().open_phase_in(&session).unwrap();
    let kept = thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|id| {
                let request = &request;
                scope.spawn(move || {
                    let texts = || (0..2_000).map(|i| format!("{id} {i}")).collect::<Vec<_>>();
                    request.run(texts)
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert!(request.stats().live_blocks >= 6_000);
    drop(request);
    for (id, texts) in kept.iter().enumerate() {
        let expected = (0..2_000).map(|i| format!("{id} {i}"));
        assert!(texts.iter().cloned().eq(expected));
    }
}

#[test]
fn promoted_values_are_of_no_phase() {
    let phase = Phase::open();
    phase.run(|| {
        let before = phase.stats().live_blocks;
        let kept = promote_to_heap("kept");
        assert_eq!(phase.stats().live_blocks, before);
        drop(kept);
    });
}

#[test]
fn domains_count_their_scopes() {
    let domain = Domain::open("counted").unwrap();
    assert_eq!(domain, Domain::open("counted").unwrap());
    domain.set_policy(Policy::Scopes(10)).unwrap();
    let before = domain.stats();
    let mut kept = on_heap(|| Vec::with_capacity(100));
    for i in 0..100 {
        let _scope = domain.enter();
        let _inner = domain.enter();
        kept.push(i.to_string());
        drop(vec![1_u8; 1_000]);
    }
    let stats = domain.stats();
    assert_eq!((stats.label.as_str(), stats.is_domain), ("counted", true));
    assert_eq!(stats.opened - before.opened, 100);
    assert!(
        (9..=11).contains(&(stats.closed - before.closed)),
        "{stats:?}"
    );
    assert!(kept.iter().zip(0..).all(|(text, i)| *text == i.to_string()));
    domain.advance();
    drop(kept);
}

#[test]
fn an_idle_thread_ends_its_epoch() {
    let domain = Domain::open("thread").unwrap();
    let before = domain.stats().closed;
    std::thread::spawn(thread_idle).join().unwrap();
    assert_eq!(domain.stats().closed, before + 1);
}

#[test]
fn domains_serve_many_threads() {
    let domain = Domain::open("threads").unwrap();
    domain.set_policy(Policy::Bytes(1 << 20)).unwrap();
    let workers: Vec<_> = (0..3)
        .map(|id: usize| {
            thread::spawn(move || {
                let serve = |i: usize| domain.run(|| vec![format!("{id} {i}"); 10]);
                (0..2_000).map(serve).collect::<Vec<_>>()
            })
        })
        .collect();
    for (id, worker) in workers.into_iter().enumerate() {
        for (i, texts) in worker.join().unwrap().into_iter().enumerate() {
            assert!(texts.iter().all(|text| *text == format!("{id} {i}")));
        }
    }
}

/// Pending once: an `await` between two halves.
struct Once(bool);

impl Future for Once {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        match mem::replace(&mut self.0, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn tasks_are_inside_while_they_are_polled() {
    let (one, two) = (Phase::open(), Phase::open());
    let seen = RefCell::new(Vec::with_capacity(4));
    let task = |phase| {
        let seen = &seen;
        async move {
            seen.borrow_mut().push(is_in(phase));
            Once(false).await;
            seen.borrow_mut().push(is_in(phase));
        }
    };
    let mut first = pin!(one.polled(task(&one)));
    let mut second = pin!(two.polled(task(&two)));
    let waker = Waker::from(Arc::new(Nobody));
    let context = &mut Context::from_waker(&waker);
    assert!(first.as_mut().poll(context).is_pending());
    assert!(!is_in(&one));
    assert!(second.as_mut().poll(context).is_pending());
    assert!(first.as_mut().poll(context).is_ready());
    assert!(second.as_mut().poll(context).is_ready());
    assert_eq!(*seen.borrow(), [true; 4]);
    assert!(!is_in(&one) && !is_in(&two));
}

#[test]
fn tasks_in_a_domain_move_between_threads() {
    let domain = Domain::open("tasks").unwrap();
    let before = domain.stats().opened;
    let mut task = Box::pin(domain.polled(async {
        let text = String::from("made before");
        Once(false).await;
        text + ", and after"
    }));
    let waker = Waker::from(Arc::new(Nobody));
    assert!(task
        .as_mut()
        .poll(&mut Context::from_waker(&waker))
        .is_pending());
    let moved = thread::spawn(move || {
        let waker = Waker::from(Arc::new(Nobody));
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(text) => text,
            Poll::Pending => String::new(),
        }
    });
    assert_eq!(moved.join().unwrap(), "made before, and after");
    assert_eq!(domain.stats().opened - before, 2);
}

#[test]
fn a_guard_of_its_own_lifetime_can_be_kept() {
    struct Request {
        _scope: Scope<'static>,
        domain: Domain,
    }
    let domain = Domain::open("kept").unwrap();
    let before = domain.stats().opened;
    let request = Request {
        _scope: domain.enter(),
        domain,
    };
    let Request { _scope, domain } = request;
    drop(_scope);
    assert_eq!(domain.stats().opened - before, 1);
}
