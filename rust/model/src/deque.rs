// SPDX-License-Identifier: MIT OR Apache-2.0
//! The work-stealing deque: `include/ebbtide/deque.h` and `lockfree/deque.c` (D. Chase, Y. Lev, 2005;
//! orders after N. Le and others, 2013), whose old buffer is retired when it has grown. Items are
//! numbers above 0, and there are two buffers.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{fence, AtomicUsize, Ordering};

use crate::clock::Clock;

/// What the deque prescribes; a mutant changes one of them.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A full fence stands between the store of the bottom and the load of the top in pop.
    pub pop_fence: bool,
    /// A full fence stands between the loads of the top and the bottom in steal.
    pub steal_fence: bool,
    /// Pop takes the last item by compare-and-exchange.
    pub last_by_exchange: bool,
    /// The old buffer is retired, not freed at once.
    pub retires: bool,
}

/// The deque as it is.
pub const SOUND: Rules = Rules {
    pop_fence: true,
    steal_fence: true,
    last_by_exchange: true,
    retires: true,
};

#[derive(Debug)]
struct Buffer {
    memory: UnsafeCell<()>, // loom finds a use that races with the reuse
    slots: Vec<AtomicUsize>,
}

impl Buffer {
    fn new(capacity: usize) -> Buffer {
        Buffer {
            memory: UnsafeCell::new(()),
            slots: (0..capacity).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    fn slot(&self, index: usize) -> &AtomicUsize {
        self.memory.with(|_| ());
        &self.slots[index % self.slots.len()]
    }

    fn reuse(&self) {
        self.memory.with_mut(|_| ());
    }
}

/// A deque of at most four items.
#[derive(Debug)]
pub struct Deque {
    rules: Rules,
    top: AtomicUsize,
    bottom: AtomicUsize,
    room: AtomicUsize, // a value seen of the top plus the capacity; the owner's alone
    current: AtomicUsize, // the number of the buffer
    buffers: [Buffer; 2],
}

impl Deque {
    /// An empty one, whose first buffer has room for `capacity` items.
    pub fn new(rules: Rules, capacity: usize) -> Deque {
        Deque {
            rules,
            top: AtomicUsize::new(1), // so that the bottom never goes below 0
            bottom: AtomicUsize::new(1),
            room: AtomicUsize::new(1 + capacity),
            current: AtomicUsize::new(0),
            buffers: [Buffer::new(capacity), Buffer::new(4)],
        }
    }

    /// The owner puts an item in. A tag if it had to grow: of the old buffer.
    pub fn push(&self, clock: &Clock, item: usize) -> Option<usize> {
        let bottom = self.bottom.load(Ordering::Relaxed);
        let mut retired = None;
        if bottom >= self.room.load(Ordering::Relaxed) {
            retired = self.make_room(clock, bottom);
        }
        let buffer = &self.buffers[self.current.load(Ordering::Relaxed)];
        buffer.slot(bottom).store(item, Ordering::Relaxed);
        self.bottom.store(bottom + 1, Ordering::Release);
        retired
    }

    fn make_room(&self, clock: &Clock, bottom: usize) -> Option<usize> {
        let top = self.top.load(Ordering::Acquire);
        let capacity = self.buffers[self.current.load(Ordering::Relaxed)]
            .slots
            .len();
        if bottom - top < capacity {
            self.room.store(top + capacity, Ordering::Relaxed);
            return None;
        }
        let capacity = self.buffers[1].slots.len();
        self.room.store(top + capacity, Ordering::Relaxed);
        self.grow(clock, top, bottom)
    }

    fn grow(&self, clock: &Clock, top: usize, bottom: usize) -> Option<usize> {
        let (old, new) = (&self.buffers[0], &self.buffers[1]);
        for i in top..bottom {
            let item = old.slot(i).load(Ordering::Relaxed);
            new.slot(i).store(item, Ordering::Relaxed);
        }
        self.current.store(1, Ordering::Release);
        if self.rules.retires {
            return Some(clock.tag());
        }
        old.reuse();
        None
    }

    /// Uses the memory of the old buffer anew, if its time has come.
    pub fn reclaim(&self, clock: &Clock, tag: usize) {
        if clock.passed(tag) {
            self.buffers[0].reuse();
        }
    }

    /// The owner takes the youngest item.
    pub fn pop(&self) -> Option<usize> {
        let bottom = self.bottom.load(Ordering::Relaxed) - 1;
        if self.top.load(Ordering::Relaxed) > bottom {
            return None;
        }
        let buffer = &self.buffers[self.current.load(Ordering::Relaxed)];
        self.bottom.store(bottom, Ordering::Release);
        if self.rules.pop_fence {
            fence(Ordering::SeqCst);
        }
        let top = self.top.load(Ordering::Relaxed);
        if top >= bottom && !self.pop_last(bottom, top) {
            return None;
        }
        Some(buffer.slot(bottom).load(Ordering::Relaxed))
    }

    fn pop_last(&self, bottom: usize, top: usize) -> bool {
        let mut mine = top == bottom;
        if mine && self.rules.last_by_exchange {
            mine = self.take(top);
        } else if mine {
            self.top.store(top + 1, Ordering::Release);
        }
        self.bottom.store(bottom + 1, Ordering::Release);
        mine
    }

    fn take(&self, top: usize) -> bool {
        self.top
            .compare_exchange(top, top + 1, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// Participant `me`, no owner, takes the oldest item. `None` too if somebody was faster.
    pub fn steal(&self, clock: &Clock, me: usize) -> Option<usize> {
        let top = self.top.load(Ordering::Acquire);
        if self.rules.steal_fence {
            fence(Ordering::SeqCst);
        }
        if self.bottom.load(Ordering::Acquire) <= top {
            return None;
        }
        clock.pin(me);
        let buffer = &self.buffers[self.current.load(Ordering::Acquire)];
        let item = buffer.slot(top).load(Ordering::Relaxed);
        let mine = self.take(top);
        clock.unpin(me);
        mine.then_some(item)
    }
}
