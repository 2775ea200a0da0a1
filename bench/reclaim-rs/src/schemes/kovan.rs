// SPDX-License-Identifier: MIT OR Apache-2.0
//! kovan: nodes begin with its link of 40 bytes, so they have 56 in all.

use crate::ledger::{self, Body};
use crate::scheme::Scheme;
use kovan::{Atomic, Guard, RetiredNode, Shared};
use std::sync::atomic::Ordering::{AcqRel, Acquire};

pub struct Kovan;

#[repr(C)]
pub struct Node {
    link: RetiredNode,
    body: Body,
}

#[repr(align(64))]
pub struct Cell(Atomic<Node>);

#[inline(always)]
fn create(word: u64) -> *mut Node {
    Box::into_raw(Box::new(Node {
        link: RetiredNode::new(),
        body: Body::new(word),
    }))
}

#[inline(always)]
fn defer(node: *mut Node) {
    ledger::page().retire();
    // SAFETY: nobody can reach the node any more, and it is a Box that begins with the link.
    unsafe { kovan::retire(node) };
}

impl Scheme for Kovan {
    type Thread = ();
    type Guard<'t> = Guard;
    type Cell = Cell;

    fn enter() {}

    fn leave(_thread: ()) {
        kovan::flush();
    }

    #[inline(always)]
    fn pin(_thread: &()) -> Guard {
        kovan::pin()
    }

    fn cell(word: u64) -> Cell {
        Cell(Atomic::new(create(word)))
    }

    #[inline(always)]
    fn read<'g>(cell: &Cell, guard: &'g Guard) -> &'g Body {
        // SAFETY: never null, and protected by the guard.
        unsafe { &cell.0.load(Acquire, guard).deref().body }
    }

    #[inline(always)]
    fn replace(cell: &Cell, word: u64, guard: &Guard) -> u64 {
        // SAFETY: made by Box.
        let fresh = unsafe { Shared::from_raw(create(word)) };
        let old = cell.0.swap(fresh, AcqRel, guard);
        // SAFETY: as in `read`.
        let old_word = unsafe { old.deref().body.word };
        defer(old.as_raw());
        old_word
    }

    fn take(cell: Cell) -> u64 {
        let guard = kovan::pin();
        let last = cell.0.load(Acquire, &guard);
        // SAFETY: as in `read`; nobody else can reach it.
        let word = unsafe { last.deref().body.word };
        defer(last.as_raw());
        word
    }

    #[inline(always)]
    fn retire(word: u64, _guard: &Guard) {
        defer(create(word));
    }

    fn flush() {
        drop(kovan::pin());
        kovan::flush();
    }
}
