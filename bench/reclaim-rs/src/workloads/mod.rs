// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workloads: the same operations in the same order as the programs of bench/reclaim.

pub mod atomic_swap;
pub mod deque;
pub mod idlers;
pub mod pin;
pub mod reader_mostly;
pub mod retire;
pub mod timed;

use crate::clock::{Clock, sleep_ms};
use crate::ledger;
use crate::report::Report;
use crate::scheme::Scheme;
use std::arch::asm;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// The compiler may not melt neighbouring operations into one.
#[inline(always)]
pub fn keep_apart() {
    // SAFETY: no instruction.
    unsafe { asm!("", options(nostack, preserves_flags)) };
}

/// Threads that start and stop together while the main thread holds the clock.
pub struct Team {
    warm: Barrier,
    clock_runs: Barrier,
    finished: Barrier,
    clock_read: Barrier,
}

impl Team {
    pub fn new(threads: u64) -> Self {
        let barrier = || Barrier::new(threads as usize + 1);
        Team {
            warm: barrier(),
            clock_runs: barrier(),
            finished: barrier(),
            clock_read: barrier(),
        }
    }

    pub fn ready(&self) {
        self.warm.wait();
        self.clock_runs.wait();
    }

    pub fn finished(&self) {
        self.finished.wait();
        self.clock_read.wait();
    }

    /// The main thread's side; it may do something between the two.
    pub fn start(&self) -> Clock {
        self.warm.wait();
        let clock = Clock::start();
        self.clock_runs.wait();
        clock
    }

    pub fn stop(&self, clock: Clock, plant_percent: u64) -> Clock {
        self.finished.wait();
        let clock = clock.stop(plant_percent);
        self.clock_read.wait();
        clock
    }
}

/// Flushes as long as that helps; whatever is left then was not reclaimed.
pub fn settle<S: Scheme>(report: &mut Report) {
    const PATIENCE: Duration = Duration::from_secs(2);
    let mut least = ledger::unreclaimed();
    let mut since = Instant::now();
    while least > 0 && since.elapsed() < PATIENCE {
        S::flush();
        let left = ledger::unreclaimed();
        if left < least {
            least = left;
            since = Instant::now();
        } else {
            sleep_ms(1);
        }
    }
    report.figure("unreclaimed", least as f64);
    report.verify("all_reclaimed", least == 0);
}
