// SPDX-License-Identifier: MIT OR Apache-2.0
//! haphazard: hazard pointers in the global domain, one per thread. There is no pin: a
//! read protects one node. Whoever swapped a node out owns it and needs no protection.

use crate::ledger::{self, Body, Node, Shared};
use crate::scheme::Scheme;
use haphazard::{Domain, HazardPointer};
use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::AcqRel;

pub struct Haphazard;

pub struct Protection<'t>(&'t UnsafeCell<HazardPointer<'static>>);

impl Drop for Protection<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: no node is read under this protection any more.
        unsafe { (*self.0.get()).reset_protection() };
    }
}

#[inline(always)]
fn defer(node: *mut Node) {
    ledger::page().retire();
    // SAFETY: nobody can reach the node any more, and it is a Box.
    unsafe { Domain::global().retire_ptr::<Node, Box<Node>>(node) };
}

impl Scheme for Haphazard {
    const NO_PINS: Option<&'static str> = Some("hazard pointers protect a load, they have no pin");

    type Thread = UnsafeCell<HazardPointer<'static>>;
    type Guard<'t> = Protection<'t>;
    type Cell = Shared;

    fn enter() -> Self::Thread {
        UnsafeCell::new(HazardPointer::new())
    }

    fn leave(_thread: Self::Thread) {}

    #[inline(always)]
    fn pin(thread: &Self::Thread) -> Protection<'_> {
        Protection(thread)
    }

    fn cell(word: u64) -> Shared {
        Shared::new(word)
    }

    #[inline(always)]
    fn read<'g>(cell: &Shared, guard: &'g Protection<'_>) -> &'g Body {
        // SAFETY: the hazard pointer is this thread's, and one read at a time uses it.
        let (node, _) = unsafe { (*guard.0.get()).protect_ptr(&cell.0) }.expect("never null");
        // SAFETY: protected until the guard goes.
        unsafe { &(*node.as_ptr()).body }
    }

    #[inline(always)]
    fn replace(cell: &Shared, word: u64, _guard: &Protection<'_>) -> u64 {
        let old = cell.0.swap(Node::create(word), AcqRel);
        // SAFETY: it is this thread's until it is retired.
        let old_word = unsafe { (*old).body.word };
        defer(old);
        old_word
    }

    fn take(cell: Shared) -> u64 {
        cell.take()
    }

    #[inline(always)]
    fn retire(word: u64, _guard: &Protection<'_>) {
        defer(Node::create(word));
    }

    fn flush() {
        Domain::global().eager_reclaim();
    }
}
