// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that leaves together: regions, phases and domains.
//!
//! | | what goes there | how it ends |
//! |---|---|---|
//! | [`Region`] | what is allocated in it by name | released: everything at once |
//! | [`Phase`] | what plain allocation (`Box`, `Vec`, ...) hands out inside a scope | closed: blocks leave one by one |
//! | [`Domain`] | the same, for a stream of like units of work | epoch after epoch, by a policy |
//!
//! A [`Region`] is bump memory: an allocation moves a pointer, and the release takes time by the slab,
//! not by the block. References into it borrow it, so one that escapes is an error of compilation.
//!
//! ```
//! use ebbtide::region::Region;
//!
//! struct Node<'r> {
//!     word: &'r str,
//!     next: Option<&'r Node<'r>>,
//! }
//!
//! let region = Region::open();
//! let mut list = None;
//! for word in "ebb and tide".split(' ') {
//!     list = Some(&*region.alloc(Node { word: region.alloc_str(word), next: list }));
//! }
//! let last = list.unwrap();
//! assert_eq!((last.word, last.next.unwrap().word), ("tide", "and"));
//! drop(region); // all nodes and words
//! ```
//!
//! ```compile_fail,E0505
//! use ebbtide::region::Region;
//!
//! let region = Region::open();
//! let escaped = region.alloc(7);
//! drop(region);
//! *escaped += 1;
//! ```
//!
//! [`Phase`] and [`Domain`] are for code that is not written for regions: they say from where the
//! global allocator [`Ebbtide`](crate::Ebbtide) takes memory for a while, and free nothing by
//! themselves. Where another allocator is the global one, they have no effect on it.
//!
//! ```
//! use ebbtide::region::{Domain, Policy};
//!
//! #[global_allocator]
//! static ALLOCATOR: ebbtide::Ebbtide = ebbtide::Ebbtide;
//!
//! # fn main() -> std::io::Result<()> {
//! let requests = Domain::open("requests")?;
//! requests.set_policy(Policy::Scopes(100))?;
//! let answer = requests.run(|| format!("{}!", "hello")); // in the domain's slabs, at malloc's speed
//! assert_eq!(answer, "hello!"); // and valid for as long as any String
//! # Ok(()) }
//! ```
//!
//! # Collections in a region
//!
//! With the feature `allocator-api2`, `&Region` is an allocator for the `Vec` and `Box` of the crate
//! allocator-api2, the maps of hashbrown, and others that take one. They drop what they hold.
//!
//! # Drop
//!
//! What [`Region::alloc`] and its like hold is freed, not dropped. [`Region::alloc_dropped`] has the
//! value dropped at the region's end; a `Box` in the region drops its value when it goes.

mod alloc;
mod domain;
mod own;
mod phase;
mod polled;
mod promote;
mod scope;
mod slot;
mod stats;

#[cfg(feature = "allocator-api2")]
mod collections;

pub use alloc::AllocError;
pub use domain::{thread_idle, Domain, Policy};
pub use own::{Options, Region};
pub use phase::Phase;
pub use polled::Polled;
pub use promote::{promote_to_heap, Promote};
pub use scope::{heap, on_heap, Scope};
pub use stats::{lifetimes, LifetimeStats, RegionStats};
