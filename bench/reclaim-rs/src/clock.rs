// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wall and CPU time, page faults and resident memory: as bench/common.c takes them.

use crate::fail;
use std::time::Duration;

#[derive(Clone, Copy)]
pub struct Clock {
    pub wall_s: f64,
    pub cpu_s: f64,
    pub minor_faults: u64,
    pub major_faults: u64,
}

pub fn clock_ns(id: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is writable.
    if unsafe { libc::clock_gettime(id, &mut now) } != 0 {
        fail("cannot read a clock");
    }
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn cpu_s() -> f64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID) as f64 * 1e-9
}

impl Clock {
    pub fn start() -> Self {
        // SAFETY: all zeros is a valid rusage, which the call fills.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        };
        Clock {
            wall_s: clock_ns(libc::CLOCK_MONOTONIC) as f64 * 1e-9,
            cpu_s: cpu_s(),
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
        }
    }

    /// What passed since the start, after burning `plant_percent` more CPU time.
    pub fn stop(self, plant_percent: u64) -> Self {
        let used_s = cpu_s() - self.cpu_s;
        let end_s = self.cpu_s + used_s * (1.0 + plant_percent as f64 / 100.0);
        while plant_percent > 0 && cpu_s() < end_s {}
        let now = Clock::start();
        Clock {
            wall_s: now.wall_s - self.wall_s,
            cpu_s: now.cpu_s - self.cpu_s,
            minor_faults: now.minor_faults - self.minor_faults,
            major_faults: now.major_faults - self.major_faults,
        }
    }
}

fn status_kb(key: &str) -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/status") else {
        fail("cannot read /proc/self/status")
    };
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.unwrap_or_else(|| fail(&format!("/proc/self/status has no {key}")))
}

pub fn peak_rss_kb() -> u64 {
    status_kb("VmHWM:")
}

pub fn rss_kb() -> u64 {
    status_kb("VmRSS:")
}

pub fn sleep_ms(delay_ms: u64) {
    std::thread::sleep(Duration::from_millis(delay_ms));
}
