// SPDX-License-Identifier: MIT OR Apache-2.0
//! Epoch-based reclamation: frees what other threads may still be reading, once they have done.
//!
//! A reader pins its thread ([`pin`]) and may then follow [`Atomic`] pointers. A writer takes a node
//! out of the structure, so that no later load finds it, and passes it to [`Guard::defer_destroy`]:
//! the node is freed when every pin that was there has ended. The scheme is K. Fraser's ("Practical
//! lock-freedom", 2004), with the clock and the waiting blocks kept by the allocator itself, so that a
//! retired block goes straight from its grace period to the next allocation of its size.
//!
//! ```
//! use ebbtide::epoch::{self, Atomic, Owned};
//! use std::sync::atomic::Ordering;
//!
//! let config = Atomic::new(String::from("old"));
//!
//! let guard = &epoch::pin();
//! let before = config.swap(Owned::new(String::from("new")), Ordering::AcqRel, guard);
//! // Others may be reading it: not dropped before they have all unpinned.
//! // SAFETY: nobody can load it any more, and it is retired once.
//! unsafe { guard.defer_destroy(before) };
//! # // SAFETY: this thread alone has the pointer.
//! # unsafe { drop(config.into_owned()) };
//! ```
//!
//! # In place of crossbeam-epoch
//!
//! Names, signatures and meaning are those of crossbeam-epoch 0.9, so code that was written for it
//! compiles with `use ebbtide::epoch as crossbeam_epoch;`. What differs:
//!
//! - The blocks of [`Owned`], [`Atomic`] and [`Shared`] come from Ebbtide's heap, not from the global
//!   allocator. So a raw pointer of theirs is no `Box` (but where [`Ebbtide`](crate::Ebbtide) is the
//!   global allocator, both are the same), and conversions from and to `Box` move the value.
//! - Deferred functions and destructors run in the thread that deferred, as it ends an outermost
//!   pin, in any thread that flushes, reclaims or waits at a barrier, or in a thread of the library
//!   with a stack of 256 KiB. One that panics ends the process.
//! - A thread that ends with a leaked guard ends the process; there it would be pinned for ever.
//! - [`Guard::flush`] takes effect when the guard ends, if it was the thread's only pin.
//! - A thread has one participant in a collector, however often it registers: its pins there end
//!   together.
//! - Added: [`Collector::fenced`], [`Collector::synchronize`], [`Collector::barrier`],
//!   [`Collector::reclaim`] and [`Collector::stats`].
//!
//! While one thread stays pinned, nothing that is retired meanwhile is freed: keep pins short, or
//! [`repin`](Guard::repin) in between.

mod atomic;
mod block;
mod collector;
mod compare_and_set;
mod guard;
mod leaked;
mod owned;
mod pin;
mod shared;

pub use atomic::{Atomic, CompareExchangeError};
pub use block::{Pointable, Pointer};
pub use collector::{default_collector, Collector, LocalHandle, ReclaimStats};
#[allow(deprecated)]
pub use compare_and_set::{CompareAndSetError, CompareAndSetOrdering};
pub use guard::{is_pinned, pin, unprotected, Guard};
pub use owned::Owned;
pub use shared::Shared;
