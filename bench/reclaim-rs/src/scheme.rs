// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a reclamation scheme must offer to run the workloads.

use crate::ledger::Body;

pub trait Scheme: 'static {
    /// Why pins alone cannot be measured, if so.
    const NO_PINS: Option<&'static str> = None;

    /// What one thread has to itself.
    type Thread;
    type Guard<'t>;
    /// A shared pointer to a node.
    type Cell: Sync;

    fn enter() -> Self::Thread;
    /// Gives back what the scheme lets a thread give back. No guard is left.
    fn leave(thread: Self::Thread);

    fn pin(thread: &Self::Thread) -> Self::Guard<'_>;

    fn cell(word: u64) -> Self::Cell;
    fn read<'g>(cell: &Self::Cell, guard: &'g Self::Guard<'_>) -> &'g Body;
    /// Swaps a new node in, reads and retires the old one.
    fn replace(cell: &Self::Cell, word: u64, guard: &Self::Guard<'_>) -> u64;
    /// The last node's word; the node goes.
    fn take(cell: Self::Cell) -> u64;

    /// Makes a node and retires it.
    fn retire(word: u64, guard: &Self::Guard<'_>);

    /// One step to reclaim what is left. No other thread uses the scheme any more.
    fn flush();
}
