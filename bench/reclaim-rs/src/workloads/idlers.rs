// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that are registered and idle: see bench/reclaim/idlers.h.

use super::keep_apart;
use crate::options::{Choice, Options};
use crate::scheme::Scheme;
use std::sync::Barrier;
use std::thread::Scope;

pub struct Idlers {
    count: usize,
    pinned: Barrier,
    released: Barrier,
}

impl Idlers {
    pub const fn option() -> Choice {
        Choice::number("idle", 0, 0, 63)
    }

    pub fn new(options: &Options) -> Self {
        let count = options.get("idle") as usize;
        Idlers {
            count,
            pinned: Barrier::new(count + 1),
            released: Barrier::new(count + 1),
        }
    }

    /// Returns when all of them have pinned.
    pub fn start<'s, S: Scheme>(&'s self, scope: &'s Scope<'s, '_>) {
        for _ in 0..self.count {
            scope.spawn(|| self.idle::<S>());
        }
        self.pinned.wait();
    }

    /// They end; the scope waits for that.
    pub fn stop(&self) {
        self.released.wait();
    }

    fn idle<S: Scheme>(&self) {
        let me = S::enter();
        let guard = S::pin(&me);
        keep_apart();
        drop(guard);
        self.pinned.wait();
        self.released.wait();
        S::leave(me);
    }
}
