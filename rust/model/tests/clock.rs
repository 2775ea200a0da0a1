// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader under a pin against a writer that reuses what it has unlinked.
#![cfg(loom)]

use ebbtide_model::clock::{Clock, Rules, BIASED, FENCED};
use ebbtide_model::explore;
use ebbtide_model::limbo::{Limbo, Tagged};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::Arc;
use loom::thread;

/// Blocks that a reader finds while they are linked. loom finds a read that races with the reuse.
struct Shared {
    clock: Clock,
    limbo: Limbo,
    linked: [AtomicBool; 2],
    blocks: [UnsafeCell<()>; 2],
}

impl Shared {
    fn new(rules: Rules, tagged: Tagged) -> Arc<Shared> {
        Arc::new(Shared {
            clock: Clock::new(rules, 1),
            limbo: Limbo::new(tagged),
            linked: [AtomicBool::new(true), AtomicBool::new(true)],
            blocks: [UnsafeCell::new(()), UnsafeCell::new(())],
        })
    }

    fn read(&self, block: usize) {
        self.clock.pin(0);
        if self.linked[block].load(Ordering::Acquire) {
            self.blocks[block].with(|_| ());
        }
        self.clock.unpin(0);
    }

    fn unlink(&self, block: usize) {
        self.linked[block].store(false, Ordering::Release);
    }

    fn reuse(&self, block: usize) {
        self.blocks[block].with_mut(|_| ());
    }
}

/// One block; the reader pins twice; the writer advances, and so does a third thread.
fn reader_and_writer(rules: Rules) {
    explore(4, move || {
        let shared = Shared::new(rules, Tagged::WhenSealed);
        let (of_reader, of_advancer) = (shared.clone(), shared.clone());
        let reader = thread::spawn(move || of_reader.read(0));
        let advancer = thread::spawn(move || {
            of_advancer.clock.advance();
            of_advancer.clock.advance();
        });
        shared.unlink(0);
        let tag = shared.clock.tag();
        shared.clock.advance();
        shared.clock.advance();
        if shared.clock.passed(tag) {
            shared.reuse(0);
        }
        reader.join().unwrap();
        advancer.join().unwrap();
    });
}

#[test]
fn a_grace_period_is_two_epochs_behind_a_fenced_tag() {
    reader_and_writer(FENCED);
}

/// The reader pins twice, so that its second pin may go without a fence. The clock moves up to so
/// many times before the writer unlinks the block.
fn reader_comes_back(rules: Rules, moves: usize) {
    explore(4, move || {
        let shared = Shared::new(rules, Tagged::WhenSealed);
        let of_reader = shared.clone();
        let reader = thread::spawn(move || {
            of_reader.clock.pin(0);
            of_reader.clock.unpin(0);
            of_reader.read(0);
            of_reader.clock.end(0);
        });
        for _ in 0..moves {
            shared.clock.advance();
        }
        shared.unlink(0);
        let tag = shared.clock.tag();
        shared.clock.advance();
        shared.clock.advance();
        if shared.clock.passed(tag) {
            shared.reuse(0);
        }
        reader.join().unwrap();
    });
}

#[test]
fn a_pin_without_a_fence_is_found_by_a_membarrier() {
    reader_comes_back(BIASED, 0);
    reader_comes_back(BIASED, 2);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_no_membarrier() {
    let rules = Rules {
        membarrier: false,
        ..BIASED
    };
    reader_comes_back(rules, 0);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_no_second_look() {
    let rules = Rules {
        second_look: false,
        ..BIASED
    };
    reader_comes_back(rules, 2);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_announcement_without_fence() {
    let rules = Rules {
        pin_fence: false,
        ..BIASED
    };
    reader_comes_back(rules, 0);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_no_pin_fence() {
    reader_and_writer(Rules {
        pin_fence: false,
        ..FENCED
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_grace_of_one_epoch() {
    reader_and_writer(Rules { grace: 1, ..FENCED });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_tag_without_fence() {
    reader_and_writer(Rules {
        tag_fence: false,
        ..FENCED
    });
}

/// A bag of two blocks, of which the second is read; another thread empties the bag.
fn bag_and_helper(tagged: Tagged) {
    explore(4, move || {
        let shared = Shared::new(FENCED, tagged);
        let (of_reader, of_helper) = (shared.clone(), shared.clone());
        let reader = thread::spawn(move || of_reader.read(1));
        let helper = thread::spawn(move || {
            of_helper.clock.advance();
            of_helper.clock.advance();
            for block in of_helper.limbo.refill(&of_helper.clock) {
                of_helper.reuse(block);
            }
        });
        for block in 0..2 {
            shared.unlink(block);
            shared.limbo.retire(&shared.clock, block);
        }
        reader.join().unwrap();
        helper.join().unwrap();
    });
}

#[test]
fn a_bag_is_reused_when_its_tag_has_passed() {
    bag_and_helper(Tagged::WhenSealed);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_bag_tagged_when_opened() {
    bag_and_helper(Tagged::WhenOpened);
}
