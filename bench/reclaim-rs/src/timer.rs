// SPDX-License-Identifier: MIT OR Apache-2.0
//! The timer of bench/timer.h: the processor's counter, fenced on both sides, less what
//! an empty section costs.

use crate::clock::{clock_ns, sleep_ms};
use crate::fail;
use crate::histogram::Histogram;

const CALIBRATION_MS: u64 = 20;
const MOMENT_TRIES: u32 = 64;
const EMPTY_SECTIONS: u32 = 10001;
const DRIFT_PERCENT: f64 = 1.0;

#[cfg(target_arch = "x86_64")]
mod counter {
    use std::arch::asm;

    /// The first fence waits for the work before, the second holds the section back.
    #[inline(always)]
    pub fn start() -> u64 {
        let (low, high): (u64, u64);
        // SAFETY: reads a counter.
        unsafe {
            asm!("lfence", "rdtsc", "lfence", out("rax") low, out("rdx") high, options(nostack))
        };
        high << 32 | low
    }

    /// rdtscp waits for the section by itself.
    #[inline(always)]
    pub fn stop() -> u64 {
        let (low, high): (u64, u64);
        // SAFETY: reads a counter.
        unsafe {
            asm!("rdtscp", "lfence", out("rax") low, out("rdx") high, out("rcx") _,
                 options(nostack))
        };
        high << 32 | low
    }
}

#[cfg(target_arch = "aarch64")]
mod counter {
    use std::arch::asm;

    #[inline(always)]
    pub fn start() -> u64 {
        let ticks: u64;
        // SAFETY: reads a counter.
        unsafe { asm!("isb", "mrs {}, cntvct_el0", "isb", out(reg) ticks, options(nostack)) };
        ticks
    }

    #[inline(always)]
    pub fn stop() -> u64 {
        start()
    }
}

pub use counter::{start, stop};

struct Moment {
    ticks: u64,
    raw_ns: u64,
}

/// The try that took least is the one that nothing interrupted.
fn moment() -> Moment {
    let mut best = Moment {
        ticks: 0,
        raw_ns: 0,
    };
    let mut least = u64::MAX;
    for _ in 0..MOMENT_TRIES {
        let before = start();
        let raw_ns = clock_ns(libc::CLOCK_MONOTONIC_RAW);
        let width = stop() - before;
        if width < least {
            least = width;
            best = Moment {
                ticks: before + width / 2,
                raw_ns,
            };
        }
    }
    best
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

pub struct Timer {
    opened: Moment,
    ns_per_tick: f64,
    overhead_ticks: u64,
    resolution_ticks: u64,
}

impl Timer {
    pub fn open() -> Self {
        let opened = moment();
        sleep_ms(CALIBRATION_MS);
        let later = moment();
        if later.ticks <= opened.ticks {
            fail("the processor's counter does not run");
        }
        let ns_per_tick =
            (later.raw_ns - opened.raw_ns) as f64 / (later.ticks - opened.ticks) as f64;
        let mut empty = Histogram::new();
        let mut resolution_ticks = 0;
        for _ in 0..EMPTY_SECTIONS {
            let before = start();
            let ticks = stop() - before;
            empty.record(ticks);
            resolution_ticks = greatest_common_divisor(resolution_ticks, ticks);
        }
        Timer {
            opened,
            ns_per_tick,
            overhead_ticks: empty.percentile(50.0),
            resolution_ticks,
        }
    }

    /// Time of the section alone.
    #[inline(always)]
    pub fn ns(&self, start: u64, stop: u64) -> u64 {
        let ticks = stop.saturating_sub(start + self.overhead_ticks);
        (ticks as f64 * self.ns_per_tick + 0.5) as u64
    }

    pub fn overhead_ns(&self) -> f64 {
        self.overhead_ticks as f64 * self.ns_per_tick
    }

    pub fn resolution_ns(&self) -> f64 {
        self.resolution_ticks as f64 * self.ns_per_tick
    }

    /// Whether the counter has kept step with the clock since the timer was opened.
    pub fn keeps_time(&self) -> bool {
        let now = moment();
        let counted_ns = (now.ticks - self.opened.ticks) as f64 * self.ns_per_tick;
        let passed_ns = (now.raw_ns - self.opened.raw_ns) as f64;
        (100.0 * (counted_ns - passed_ns) / passed_ns).abs() < DRIFT_PERCENT
    }
}
