// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ebbtide: a memory allocator for Linux with memory reclamation for lock-free structures built in.
//!
//! [`Ebbtide`] serves a program's allocations:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: ebbtide::Ebbtide = ebbtide::Ebbtide;
//!
//! fn main() {
//!     let words = vec!["ebb", "tide"];
//!     assert_eq!(words.concat(), "ebbtide");
//! }
//! ```
//!
//! [`epoch`] frees what other threads may still be reading, once they have done with it. It needs no
//! global allocator: its blocks come from Ebbtide's heap either way.
//!
//! [`region`] is memory that leaves together: bump memory whose references cannot escape, and scopes
//! that keep the allocations of a phase apart from all others.
//!
//! [`Profile`] says which call stacks allocated what is in use, [`snapshot`](fn@snapshot) how much of it there is in each size class.
//!
//! The feature `override` makes C's `malloc` in the same program Ebbtide's too.

#![deny(missing_docs, clippy::undocumented_unsafe_blocks)]

mod alloc;
pub mod epoch;
#[cfg(not(miri))] // the stand-in has no profile
mod profile;
#[cfg(not(miri))] // nor regions
pub mod region;
#[cfg(not(miri))] // nor accounts
mod snapshot;
mod stats;

#[cfg(not(miri))]
use ebbtide_sys as sys;
#[cfg(miri)]
mod sys;

pub use alloc::{trim, Ebbtide};
#[cfg(not(miri))]
pub use profile::Profile;
#[cfg(not(miri))]
pub use snapshot::{snapshot, threads, SizeClass, Snapshot, ThreadHeap};
pub use stats::{stats, Stats};
