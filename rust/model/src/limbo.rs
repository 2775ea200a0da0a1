// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limbo: `src/reclaim/retire.c` and `src/reclaim/bags.c`. Blocks are numbers.

use std::collections::VecDeque;
use std::mem;

use loom::sync::Mutex;

use crate::clock::Clock;

const BAG_BLOCKS: usize = 2;

/// When a bag gets its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tagged {
    /// The protocol: behind the unlinking of the last block in it.
    WhenSealed,
    /// The mutant: as the first block goes in.
    WhenOpened,
}

#[derive(Debug, Default)]
struct Bag {
    tag: usize,
    blocks: Vec<usize>,
}

/// The bags of one thread; whoever asks may empty those that are sealed.
#[derive(Debug)]
pub struct Limbo {
    tagged: Tagged,
    filling: Mutex<Bag>, // the owner's alone; a lock in place of unsafe code
    sealed: Mutex<VecDeque<Bag>>,
}

impl Limbo {
    /// No bags yet.
    pub fn new(tagged: Tagged) -> Limbo {
        Limbo {
            tagged,
            filling: Mutex::new(Bag::default()),
            sealed: Mutex::new(VecDeque::new()),
        }
    }

    /// A block that has been unlinked waits from here on.
    pub fn retire(&self, clock: &Clock, block: usize) {
        let mut bag = self.filling.lock().unwrap();
        if bag.blocks.is_empty() && self.tagged == Tagged::WhenOpened {
            bag.tag = clock.tag();
        }
        bag.blocks.push(block);
        if bag.blocks.len() == BAG_BLOCKS {
            if self.tagged == Tagged::WhenSealed {
                bag.tag = clock.tag();
            }
            self.sealed.lock().unwrap().push_back(mem::take(&mut bag));
        }
    }

    /// The blocks of the oldest sealed bag, if they may be reused.
    pub fn refill(&self, clock: &Clock) -> Vec<usize> {
        let mut sealed = self.sealed.lock().unwrap();
        match sealed.front() {
            Some(bag) if clock.passed(bag.tag) => {
                sealed.pop_front().map(|b| b.blocks).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }
}
