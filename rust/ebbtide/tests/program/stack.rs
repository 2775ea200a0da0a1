// SPDX-License-Identifier: MIT OR Apache-2.0
// Treiber's stack.

use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;

use self::crossbeam_epoch::{self as epoch, Atomic, Guard, Owned};

struct Node<T> {
    value: ManuallyDrop<T>,
    next: Atomic<Node<T>>,
}

struct Stack<T> {
    head: Atomic<Node<T>>,
}

impl<T> Stack<T> {
    fn new() -> Stack<T> {
        Stack {
            head: Atomic::null(),
        }
    }

    fn push(&self, value: T, guard: &Guard) {
        let mut node = Owned::new(Node {
            value: ManuallyDrop::new(value),
            next: Atomic::null(),
        });
        loop {
            let head = self.head.load(Relaxed, guard);
            node.next.store(head, Relaxed);
            match self
                .head
                .compare_exchange_weak(head, node, Release, Relaxed, guard)
            {
                Ok(_) => return,
                Err(refused) => node = refused.new,
            }
        }
    }

    fn pop(&self, guard: &Guard) -> Option<T> {
        loop {
            let head = self.head.load(Acquire, guard);
            // SAFETY: the guard protects what was loaded under it.
            let node = unsafe { head.as_ref() }?;
            let next = node.next.load(Relaxed, guard);
            if self
                .head
                .compare_exchange(head, next, Relaxed, Relaxed, guard)
                .is_ok()
            {
                // SAFETY: this thread alone has unlinked the node; others read its link at most.
                return Some(unsafe {
                    let value = ptr::read(&node.value);
                    guard.defer_destroy(head);
                    ManuallyDrop::into_inner(value)
                });
            }
        }
    }
}

impl<T> Drop for Stack<T> {
    fn drop(&mut self) {
        // SAFETY: nobody else has the stack.
        let guard = unsafe { epoch::unprotected() };
        while self.pop(guard).is_some() {}
    }
}

const EACH: usize = if cfg!(miri) { 20 } else { 20_000 };

#[test]
fn two_threads_pop_all_that_two_pushed() {
    let stack = Stack::new();
    let sum = AtomicUsize::new(0);
    let popped = AtomicUsize::new(0);
    thread::scope(|scope| {
        for t in 0..2 {
            let (stack, sum, popped) = (&stack, &sum, &popped);
            scope.spawn(move || {
                for i in 0..EACH {
                    let guard = &epoch::pin();
                    stack.push(Box::new(t * EACH + i), guard);
                    if let Some(value) = stack.pop(guard) {
                        sum.fetch_add(*value, Relaxed);
                        popped.fetch_add(1, Relaxed);
                    }
                }
            });
        }
    });
    while let Some(value) = stack.pop(&epoch::pin()) {
        sum.fetch_add(*value, Relaxed);
        popped.fetch_add(1, Relaxed);
    }
    assert_eq!(popped.into_inner(), 2 * EACH);
    assert_eq!(sum.into_inner(), (0..2 * EACH).sum::<usize>());
}

#[test]
fn drops_what_is_left() {
    let stack = Stack::new();
    let left = std::sync::Arc::new(());
    for _ in 0..3 {
        stack.push(left.clone(), &epoch::pin());
    }
    assert_eq!(std::sync::Arc::strong_count(&left), 4);
    drop(stack);
    assert_eq!(std::sync::Arc::strong_count(&left), 1);
}
