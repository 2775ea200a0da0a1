// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of crossbeam-epoch 0.9 over [Ebbtide](ebbtide), to take the original's place below crates
//! that are written for it:
//!
//! ```toml
//! [patch.crates-io]
//! crossbeam-epoch = { path = "../ebbtide/rust/crossbeam-epoch-shim" }
//! ```
//!
//! All is [`ebbtide::epoch`]'s, which says what differs. Such crates may take a raw pointer from a `Box`
//! to an [`Owned`] and back, as the original allows. So this crate also makes Ebbtide the program's global
//! allocator, where both are the same block; a program that sets another one does not compile:
//!
//! ```
//! use crossbeam_epoch::Owned;
//!
//! // SAFETY: from a box, once.
//! let owned = unsafe { Owned::from_raw(Box::into_raw(Box::new(7))) };
//! assert_eq!(*owned, 7);
//! ```
//!
//! ```compile_fail
//! # use crossbeam_epoch as _;
//! #[global_allocator]
//! static ALLOCATOR: std::alloc::System = std::alloc::System;
//! ```

#![deny(missing_docs)]

#[cfg(crossbeam_loom)]
compile_error!("Ebbtide has no form for loom: test with the original crossbeam-epoch");

pub use ebbtide::epoch::{
    default_collector, is_pinned, pin, unprotected, Atomic, Collector, CompareExchangeError, Guard,
    LocalHandle, Owned, Pointable, Pointer, Shared,
};
#[allow(deprecated)]
pub use ebbtide::epoch::{CompareAndSetError, CompareAndSetOrdering};

#[global_allocator]
static ALLOCATOR: ebbtide::Ebbtide = ebbtide::Ebbtide;
