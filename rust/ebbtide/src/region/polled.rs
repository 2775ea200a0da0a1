// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scopes for asynchronous tasks, which change threads and interleave between polls.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::scope::Scope;

/// A future that is inside a scope while it is polled: what `Domain::polled` and `Phase::polled` give.
/// It is dropped outside.
#[must_use = "futures do nothing unless polled"]
pub struct Polled<E, F> {
    enter: E,
    future: F,
}

impl<'a, E: Fn() -> Scope<'a>, F: Future> Polled<E, F> {
    pub(super) fn new(enter: E, future: F) -> Self {
        Polled { enter, future }
    }
}

impl<'a, E: Fn() -> Scope<'a>, F: Future> Future for Polled<E, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is not moved out of its place; `enter` is not pinned.
        let (enter, future) = unsafe {
            let this = self.get_unchecked_mut();
            (&this.enter, Pin::new_unchecked(&mut this.future))
        };
        let _scope = enter();
        future.poll(context)
    }
}

impl<E, F> fmt::Debug for Polled<E, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Polled { .. }")
    }
}
