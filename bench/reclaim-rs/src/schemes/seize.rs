// SPDX-License-Identifier: MIT OR Apache-2.0
//! seize: one collector with the default batch size.

use crate::ledger::{self, Body, Node, Shared};
use crate::scheme::Scheme;
use seize::{Collector, Guard, LocalGuard, reclaim};
use std::sync::LazyLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

pub struct Seize;

static COLLECTOR: LazyLock<Collector> = LazyLock::new(Collector::new);

#[inline(always)]
fn defer(node: *mut Node, guard: &LocalGuard<'_>) {
    ledger::page().retire();
    // SAFETY: nobody can reach the node any more, and it is a Box.
    unsafe { guard.defer_retire(node, reclaim::boxed) };
}

impl Scheme for Seize {
    type Thread = &'static Collector;
    type Guard<'t> = LocalGuard<'t>;
    type Cell = Shared;

    fn enter() -> &'static Collector {
        &COLLECTOR
    }

    fn leave(thread: &'static Collector) {
        thread.enter().flush();
    }

    #[inline(always)]
    fn pin<'t>(thread: &'t &'static Collector) -> LocalGuard<'t> {
        thread.enter()
    }

    fn cell(word: u64) -> Shared {
        Shared::new(word)
    }

    #[inline(always)]
    fn read<'g>(cell: &Shared, guard: &'g LocalGuard<'_>) -> &'g Body {
        // SAFETY: never null, and protected by the guard.
        unsafe { &(*guard.protect(&cell.0, Acquire)).body }
    }

    #[inline(always)]
    fn replace(cell: &Shared, word: u64, guard: &LocalGuard<'_>) -> u64 {
        let old = guard.swap(&cell.0, Node::create(word), AcqRel);
        // SAFETY: as in `read`.
        let old_word = unsafe { (*old).body.word };
        defer(old, guard);
        old_word
    }

    fn take(cell: Shared) -> u64 {
        cell.take()
    }

    #[inline(always)]
    fn retire(word: u64, guard: &LocalGuard<'_>) {
        defer(Node::create(word), guard);
    }

    fn flush() {
        // SAFETY: no other thread uses the collector any more.
        unsafe { COLLECTOR.reclaim_all() };
    }
}
