// SPDX-License-Identifier: MIT OR Apache-2.0
//! sdd: nodes are `Owned`, which retire when dropped. With sdd's link beside it the
//! body alone makes a block of 32 bytes.

use crate::ledger::{self, Body};
use crate::scheme::Scheme;
use sdd::{AtomicOwned, Guard, Owned, Tag};
use std::sync::atomic::Ordering::{AcqRel, Acquire};

pub struct Sdd;

#[repr(align(64))]
pub struct Cell(AtomicOwned<Body>);

impl Scheme for Sdd {
    type Thread = ();
    type Guard<'t> = Guard;
    type Cell = Cell;

    fn enter() {}

    fn leave(_thread: ()) {
        Self::flush();
    }

    #[inline(always)]
    fn pin(_thread: &()) -> Guard {
        Guard::new()
    }

    fn cell(word: u64) -> Cell {
        Cell(AtomicOwned::new(Body::new(word)))
    }

    #[inline(always)]
    fn read<'g>(cell: &Cell, guard: &'g Guard) -> &'g Body {
        cell.0.load(Acquire, guard).as_ref().expect("never null")
    }

    #[inline(always)]
    fn replace(cell: &Cell, word: u64, _guard: &Guard) -> u64 {
        let fresh = Owned::new_with(|| Body::new(word));
        let old = cell
            .0
            .swap((Some(fresh), Tag::None), AcqRel)
            .0
            .expect("never null");
        let old_word = old.word;
        ledger::page().retire();
        drop(old);
        old_word
    }

    fn take(cell: Cell) -> u64 {
        let last = cell.0.into_owned(Acquire).expect("never null");
        let word = last.word;
        ledger::page().retire();
        drop(last);
        word
    }

    #[inline(always)]
    fn retire(word: u64, _guard: &Guard) {
        let node = Owned::new_with(|| Body::new(word));
        ledger::page().retire();
        drop(node);
    }

    fn flush() {
        Guard::new().accelerate();
    }
}
