// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations that are timed one by one, after those that the clock saw together.

use crate::histogram::Histogram;
use crate::options::{Choice, Options};
use crate::report::Report;
use crate::timer::{self, Timer};
use std::sync::Mutex;

pub struct Timed {
    timer: Option<Timer>,
    count: u64,
    threads: u64,
    /// One for each thread, made before memory is looked at.
    blank: Mutex<Vec<Histogram>>,
    full: Mutex<Vec<Histogram>>,
}

impl Timed {
    pub const fn option() -> Choice {
        Choice::number("timed", 0, 0, u64::MAX / 128)
    }

    pub fn new(options: &Options) -> Self {
        let (count, threads) = (options.get("timed"), options.get("threads"));
        let blank = if count > 0 { threads } else { 0 };
        Timed {
            timer: (count > 0).then(Timer::open),
            count,
            threads,
            blank: Mutex::new((0..blank).map(|_| Histogram::new()).collect()),
            full: Mutex::default(),
        }
    }

    /// One thread's; `operation` is told its number.
    pub fn run(&self, mut operation: impl FnMut(u64)) {
        let Some(timer) = &self.timer else { return };
        let blank = self.blank.lock().expect("panics abort").pop();
        let mut own = blank.expect("one for each thread");
        for i in 0..self.count {
            let start = timer::start();
            operation(i);
            let stop = timer::stop();
            own.record(timer.ns(start, stop));
        }
        self.full.lock().expect("panics abort").push(own);
    }

    pub fn report(self, prefix: &str, check: &'static str, report: &mut Report) {
        let Some(timer) = &self.timer else { return };
        let full = self.full.into_inner().expect("panics abort");
        let mut all = Histogram::new();
        full.iter().for_each(|each| all.add(each));
        report.timer(timer);
        report.verify(check, all.total() == self.count * self.threads);
        report.histogram(prefix, all);
    }
}
