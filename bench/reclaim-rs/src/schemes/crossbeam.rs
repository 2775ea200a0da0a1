// SPDX-License-Identifier: MIT OR Apache-2.0
//! crossbeam-epoch: the default collector, pins by `epoch::pin()`.

use crate::ledger::{self, Body, Node};
use crate::scheme::Scheme;
use crossbeam_epoch::{self as epoch, Atomic, Guard, Owned, Shared};
use std::sync::atomic::Ordering::{AcqRel, Acquire};

pub struct Crossbeam;

#[repr(align(64))]
pub struct Cell(Atomic<Node>);

#[inline(always)]
fn create(word: u64) -> Owned<Node> {
    // SAFETY: made by Box.
    unsafe { Owned::from_raw(Node::create(word)) }
}

#[inline(always)]
fn defer(node: Shared<'_, Node>, guard: &Guard) {
    ledger::page().retire();
    // SAFETY: nobody can reach the node any more.
    unsafe { guard.defer_destroy(node) };
}

impl Scheme for Crossbeam {
    type Thread = ();
    type Guard<'t> = Guard;
    type Cell = Cell;

    fn enter() {}

    fn leave(_thread: ()) {
        epoch::pin().flush();
    }

    #[inline(always)]
    fn pin(_thread: &()) -> Guard {
        epoch::pin()
    }

    fn cell(word: u64) -> Cell {
        Cell(Atomic::from(create(word)))
    }

    #[inline(always)]
    fn read<'g>(cell: &Cell, guard: &'g Guard) -> &'g Body {
        // SAFETY: never null, and protected by the guard.
        unsafe { &cell.0.load(Acquire, guard).deref().body }
    }

    #[inline(always)]
    fn replace(cell: &Cell, word: u64, guard: &Guard) -> u64 {
        let old = cell.0.swap(create(word), AcqRel, guard);
        // SAFETY: as in `read`.
        let old_word = unsafe { old.deref().body.word };
        defer(old, guard);
        old_word
    }

    fn take(cell: Cell) -> u64 {
        ledger::page().retire();
        // SAFETY: nobody else can reach it.
        unsafe { cell.0.into_owned().body.word }
    }

    #[inline(always)]
    fn retire(word: u64, guard: &Guard) {
        defer(create(word).into_shared(guard), guard);
    }

    fn flush() {
        epoch::pin().flush();
    }
}
