// SPDX-License-Identifier: MIT OR Apache-2.0
// The queue of Michael and Scott.

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::AtomicBool;
use std::thread;

use self::crossbeam_epoch::{pin, unprotected, Atomic, Guard, Owned, Shared};

struct Node<T> {
    value: MaybeUninit<T>,
    next: Atomic<Node<T>>,
}

struct Queue<T> {
    head: Atomic<Node<T>>, // the sentinel, whose value has been taken
    tail: Atomic<Node<T>>,
}

impl<T: Send> Queue<T> {
    fn new() -> Queue<T> {
        let queue = Queue {
            head: Atomic::null(),
            tail: Atomic::null(),
        };
        // SAFETY: nobody else has the queue.
        let guard = unsafe { unprotected() };
        let sentinel = Owned::new(Node {
            value: MaybeUninit::uninit(),
            next: Atomic::null(),
        })
        .into_shared(guard);
        queue.head.store(sentinel, Relaxed);
        queue.tail.store(sentinel, Relaxed);
        queue
    }

    fn push(&self, value: T, guard: &Guard) {
        let fresh = Owned::new(Node {
            value: MaybeUninit::new(value),
            next: Atomic::null(),
        })
        .into_shared(guard);
        loop {
            let tail = self.tail.load(Acquire, guard);
            // SAFETY: never null, and protected by the guard.
            let last = unsafe { tail.deref() };
            let next = last.next.load(Acquire, guard);
            if !next.is_null() {
                let _ = self
                    .tail
                    .compare_exchange(tail, next, Release, Relaxed, guard);
            } else if last
                .next
                .compare_exchange(Shared::null(), fresh, Release, Relaxed, guard)
                .is_ok()
            {
                let _ = self
                    .tail
                    .compare_exchange(tail, fresh, Release, Relaxed, guard);
                return;
            }
        }
    }

    fn try_pop(&self, guard: &Guard) -> Option<T> {
        loop {
            let head = self.head.load(Acquire, guard);
            // SAFETY: never null, and protected by the guard.
            let next = unsafe { head.deref() }.next.load(Acquire, guard);
            // SAFETY: protected by the guard.
            let first = unsafe { next.as_ref() }?;
            if self
                .head
                .compare_exchange(head, next, Release, Relaxed, guard)
                .is_ok()
            {
                let tail = self.tail.load(Relaxed, guard);
                if tail == head {
                    let _ = self
                        .tail
                        .compare_exchange(tail, next, Release, Relaxed, guard);
                }
                // SAFETY: who moves the head alone takes the value and the old sentinel.
                return Some(unsafe {
                    guard.defer_destroy(head);
                    first.value.assume_init_read()
                });
            }
        }
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        // SAFETY: nobody else has the queue.
        unsafe {
            let guard = unprotected();
            let mut sentinel = self.head.load(Relaxed, guard).into_owned();
            while let Some(mut node) = sentinel.next.load(Relaxed, guard).try_into_owned() {
                node.value.assume_init_drop();
                sentinel = node;
            }
        }
    }
}

const COUNT: usize = if cfg!(miri) { 50 } else { 40_000 };

#[test]
fn keeps_the_order_of_one_producer() {
    let queue = Queue::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..COUNT {
                queue.push(Box::new(i), &pin());
            }
            done.store(true, Release);
        });
        let mut expected = 0;
        loop {
            let ended = done.load(Acquire);
            match queue.try_pop(&pin()) {
                Some(value) => {
                    assert_eq!(*value, expected);
                    expected += 1;
                }
                None if ended => break,
                None => thread::yield_now(),
            }
        }
        assert_eq!(expected, COUNT);
    });
}

#[test]
fn drops_what_is_left() {
    let queue = Queue::new();
    for word in ["a", "b", "c"] {
        queue.push(String::from(word), &pin());
    }
    assert_eq!(queue.try_pop(&pin()).as_deref(), Some("a"));
}
