// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clock: `src/epoch/clock.c` and `include/ebbtide/detail/pin.h`. A word, of the clock or of a
//! participant's state, is `epoch << 1 | depth`.

use loom::sync::atomic::{fence, AtomicBool, AtomicUsize, Ordering};

use crate::membarrier::Membarrier;

/// What the protocol prescribes; a mutant changes one of them.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A full fence stands behind the store of an announcement.
    pub pin_fence: bool,
    /// A full fence stands between the unlinking and the tag.
    pub tag_fence: bool,
    /// Epochs after the tag until the memory may be reused.
    pub grace: usize,
    /// A pin in the epoch that was announced last makes no fence.
    pub biased: bool,
    /// Such a pin looks at the clock again behind its store.
    pub second_look: bool,
    /// A membarrier stands before those who are away are found to be in nobody's way.
    pub membarrier: bool,
}

/// The protocol with a fence in every pin.
pub const FENCED: Rules = Rules {
    pin_fence: true,
    tag_fence: true,
    grace: 2,
    biased: false,
    second_look: true,
    membarrier: true,
};

/// The protocol with a fence in the first pin of an epoch.
pub const BIASED: Rules = Rules {
    biased: true,
    ..FENCED
};

const EPOCH_ONE: usize = 2;
const PINNED: usize = 1;
const FIRST: usize = 2 * EPOCH_ONE;
const NEVER: usize = 0; // announced

/// A clock with a fixed number of participants, by their numbers.
#[derive(Debug)]
pub struct Clock {
    rules: Rules,
    now: AtomicUsize,
    busy: AtomicBool,
    states: Vec<AtomicUsize>,
    released: Vec<AtomicUsize>, // under `busy`
    membarrier: Membarrier,
}

impl Clock {
    /// A clock for so many participants.
    pub fn new(rules: Rules, participants: usize) -> Clock {
        let words = || (0..participants).map(|_| AtomicUsize::new(NEVER)).collect();
        Clock {
            rules,
            now: AtomicUsize::new(FIRST),
            busy: AtomicBool::new(false),
            states: words(),
            released: words(),
            membarrier: Membarrier::new(participants),
        }
    }

    /// Participant `me` begins a pin.
    pub fn pin(&self, me: usize) {
        let state = self.states[me].load(Ordering::Relaxed);
        let now = self.now.load(Ordering::Relaxed);
        self.interrupt(me);
        if !self.rules.biased || state != now {
            self.announce(me);
            return;
        }
        self.states[me].store(now | PINNED, Ordering::Relaxed);
        self.interrupt(me);
        if self.rules.second_look && self.now.load(Ordering::Relaxed) != now {
            self.announce(me);
        }
    }

    fn announce(&self, me: usize) {
        let now = self.now.load(Ordering::Relaxed);
        self.states[me].store(now | PINNED, Ordering::Release);
        if self.rules.pin_fence {
            fence(Ordering::SeqCst);
        }
    }

    /// And ends it.
    pub fn unpin(&self, me: usize) {
        let state = self.states[me].load(Ordering::Relaxed);
        self.states[me].store(state - PINNED, Ordering::Release);
        self.interrupt(me);
    }

    /// The thread of participant `me` does nothing any more.
    pub fn end(&self, me: usize) {
        self.membarrier.end(me);
    }

    /// Where a membarrier may reach the thread.
    fn interrupt(&self, me: usize) {
        if self.rules.biased {
            self.membarrier.interrupt(me);
        }
    }

    /// A tag for what has been unlinked before.
    pub fn tag(&self) -> usize {
        if self.rules.tag_fence {
            fence(Ordering::SeqCst);
        }
        self.now.load(Ordering::Relaxed)
    }

    /// Moves on by one epoch if nobody is pinned in an older one, or may be soon without a fence, and
    /// nobody else is at it.
    pub fn advance(&self) {
        if self.busy.swap(true, Ordering::Acquire) {
            return;
        }
        let now = self.now.load(Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.may_move(now) {
            self.now.store(now + EPOCH_ONE, Ordering::Release);
        }
        self.busy.store(false, Ordering::Release);
    }

    fn may_move(&self, now: usize) -> bool {
        let everybody = 0..self.states.len();
        let old = |&p: &usize| self.state(p) / EPOCH_ONE != now / EPOCH_ONE;
        let mut away = false;
        for p in everybody.clone().filter(old) {
            let state = self.state(p);
            if state & PINNED != 0 {
                return false;
            }
            away |= state != NEVER && state != self.released[p].load(Ordering::Relaxed);
        }
        if !self.rules.biased || !self.rules.membarrier || !away {
            return true;
        }
        self.membarrier.issue();
        everybody.into_iter().all(|p| self.release(p, now))
    }

    /// Behind a membarrier: who is not pinned in an old epoch will not be.
    fn release(&self, participant: usize, now: usize) -> bool {
        let state = self.state(participant);
        let old = state / EPOCH_ONE != now / EPOCH_ONE;
        if old && state & PINNED == 0 {
            self.released[participant].store(state, Ordering::Relaxed);
        }
        !old || state & PINNED == 0
    }

    fn state(&self, participant: usize) -> usize {
        self.states[participant].load(Ordering::Acquire)
    }

    /// Whether what has this tag may be reused.
    pub fn passed(&self, tag: usize) -> bool {
        self.now.load(Ordering::Acquire) - tag >= self.rules.grace * EPOCH_ONE
    }
}
