// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ebbtide's protocols once more in Rust, small enough for the model checker loom to go through all
//! their interleavings (up to a number of preemptions) and all values that a load may see: a second
//! opinion beside the checker that runs the C sources themselves.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p ebbtide-model
//! ```
//!
//! Each part takes rules that its mutants break one at a time; the tests demand that the checker
//! finds a fault in every mutant and none without.
#![cfg(loom)]

pub mod clock;
pub mod deque;
pub mod limbo;
pub mod membarrier;

/// Runs `program` in all its interleavings with at most this many preemptions.
pub fn explore<F>(preemptions: usize, program: F)
where
    F: Fn() + Sync + Send + 'static,
{
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(program);
}
