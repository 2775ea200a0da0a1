// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names that crossbeam-epoch 0.9 has kept from 0.8, for crates that still use them.
#![allow(deprecated)]

use std::sync::atomic::Ordering;

use super::{Atomic, CompareExchangeError, Guard, Pointable, Pointer, Shared};

/// What a failed [`compare_and_set`](Atomic::compare_and_set) gives back.
#[deprecated(note = "use `CompareExchangeError`")]
pub type CompareAndSetError<'g, T, P> = CompareExchangeError<'g, T, P>;

/// The orders of a [`compare_and_set`](Atomic::compare_and_set): one, or those of success and failure.
#[deprecated(note = "`compare_exchange` takes both orders")]
pub trait CompareAndSetOrdering {
    /// The order when the pointer is stored.
    fn success(&self) -> Ordering;
    /// The order when another pointer is found.
    fn failure(&self) -> Ordering;
}

impl CompareAndSetOrdering for Ordering {
    fn success(&self) -> Ordering {
        *self
    }

    /// The same without its release.
    fn failure(&self) -> Ordering {
        match self {
            Ordering::Relaxed | Ordering::Release => Ordering::Relaxed,
            Ordering::Acquire | Ordering::AcqRel => Ordering::Acquire,
            _ => Ordering::SeqCst,
        }
    }
}

impl CompareAndSetOrdering for (Ordering, Ordering) {
    fn success(&self) -> Ordering {
        self.0
    }

    fn failure(&self) -> Ordering {
        self.1
    }
}

impl<T: ?Sized + Pointable> Atomic<T> {
    /// As [`compare_exchange`](Self::compare_exchange).
    #[deprecated(note = "use `compare_exchange`")]
    #[inline]
    pub fn compare_and_set<'g, O, P>(
        &self,
        current: Shared<'_, T>,
        new: P,
        ord: O,
        guard: &'g Guard,
    ) -> Result<Shared<'g, T>, CompareAndSetError<'g, T, P>>
    where
        O: CompareAndSetOrdering,
        P: Pointer<T>,
    {
        self.compare_exchange(current, new, ord.success(), ord.failure(), guard)
    }

    /// As [`compare_exchange_weak`](Self::compare_exchange_weak).
    #[deprecated(note = "use `compare_exchange_weak`")]
    #[inline]
    pub fn compare_and_set_weak<'g, O, P>(
        &self,
        current: Shared<'_, T>,
        new: P,
        ord: O,
        guard: &'g Guard,
    ) -> Result<Shared<'g, T>, CompareAndSetError<'g, T, P>>
    where
        O: CompareAndSetOrdering,
        P: Pointer<T>,
    {
        self.compare_exchange_weak(current, new, ord.success(), ord.failure(), guard)
    }
}
