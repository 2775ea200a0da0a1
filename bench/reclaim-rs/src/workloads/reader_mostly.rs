// SPDX-License-Identifier: MIT OR Apache-2.0
//! reader-mostly: see bench/reclaim/reader_mostly.c.

use super::{Team, keep_apart, settle};
use crate::clock::{rss_kb, sleep_ms};
use crate::ledger;
use crate::options::{Choice, Options};
use crate::report::Report;
use crate::scheme::Scheme;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

const READS_AT_ONCE: u64 = 64;
const SAMPLES: u64 = 100;
const SAMPLE_MS_MIN: u64 = 10;

pub fn options() -> Vec<Choice> {
    vec![
        Choice::number("readers", 3, 1, 64),
        Choice::number("run-ms", 1000, SAMPLE_MS_MIN, 600_000),
        Choice::number("write-us", 100, 0, 1_000_000),
        Choice::number("stalled", 0, 0, 1),
        Choice::number("limit-mb", 4096, 64, 1 << 20),
    ]
}

#[derive(Default)]
struct Done {
    done: u64,
    wrong: u64,
}

#[repr(align(64))]
struct Stop(AtomicBool);

impl Stop {
    #[inline(always)]
    fn asked(&self) -> bool {
        self.0.load(Relaxed) // whoever misses it sees it in the next round
    }
}

/// An object says of itself that it is whole, and it is the same at the end of the pin.
#[inline(always)]
fn read_one<S: Scheme>(me: &S::Thread, cell: &S::Cell) -> bool {
    let guard = S::pin(me);
    let body = S::read(cell, &guard);
    let word = body.word;
    let whole = body.is_intact();
    keep_apart();
    // SAFETY: a plain read of what the guard protects; volatile, lest it is left out.
    whole && unsafe { (&raw const body.word).read_volatile() } == word
}

fn read<S: Scheme>(team: &Team, cell: &S::Cell, stop: &Stop) -> Done {
    let me = S::enter();
    let read_some = || {
        (0..READS_AT_ONCE)
            .map(|_| u64::from(read_one::<S>(&me, cell)))
            .sum::<u64>()
    };
    let wrong = READS_AT_ONCE - read_some();
    team.ready();
    let (mut done, mut right) = (0, 0);
    while !stop.asked() {
        right += read_some();
        done += READS_AT_ONCE;
    }
    team.finished();
    S::leave(me);
    Done {
        done,
        wrong: wrong + done - right,
    }
}

fn write<S: Scheme>(team: &Team, cell: &S::Cell, stop: &Stop, write_us: u64) -> Done {
    let me = S::enter();
    let mut done = 0;
    team.ready();
    while !stop.asked() {
        done += 1;
        let guard = S::pin(&me);
        S::replace(cell, done, &guard);
        drop(guard);
        if write_us > 0 {
            std::thread::sleep(Duration::from_micros(write_us));
        }
    }
    team.finished();
    S::leave(me);
    Done { done, wrong: 0 }
}

/// Sleeps inside its pin while the others work; its object may not have changed.
fn stall<S: Scheme>(team: &Team, cell: &S::Cell) -> Done {
    let me = S::enter();
    let guard = S::pin(&me);
    let body = S::read(cell, &guard);
    let word = body.word;
    team.ready();
    team.finished();
    // SAFETY: as in `read_one`.
    let same = unsafe { (&raw const body.word).read_volatile() } == word && body.is_intact();
    drop(guard);
    S::leave(me);
    Done {
        done: 0,
        wrong: u64::from(!same),
    }
}

/// Resident memory, step by step, until the time is over or memory is.
fn watch_memory(report: &mut Report, run_ms: u64, limit_mb: u64) -> bool {
    let step_ms = (run_ms / SAMPLES).max(SAMPLE_MS_MIN);
    report.series_step_s = step_ms as f64 * 1e-3;
    report.rss_mb.push(rss_kb() as f64 / 1024.0);
    for _ in 0..run_ms / step_ms {
        sleep_ms(step_ms);
        let rss_mb = rss_kb() as f64 / 1024.0;
        report.rss_mb.push(rss_mb);
        if rss_mb > limit_mb as f64 {
            return false;
        }
    }
    true
}

fn report_stall(report: &mut Report) {
    let grown_mb = report.rss_mb[report.rss_mb.len() - 1] - report.rss_mb[0];
    report.figure("stalled_retained_kb", grown_mb * 1024.0);
    report.figure("stalled_retained_nodes", ledger::unreclaimed() as f64);
}

pub fn run<S: Scheme>(options: &Options) -> Report {
    let (readers, write_us) = (options.get("readers"), options.get("write-us"));
    let stalled = options.get("stalled");
    let mut report = Report::default();
    let cell = S::cell(0);
    let stop = Stop(AtomicBool::new(false));
    let team = Team::new(readers + 1 + stalled);
    let wrong = std::thread::scope(|scope| {
        let (team, cell, stop) = (&team, &cell, &stop);
        let reading: Vec<_> = (0..readers)
            .map(|_| scope.spawn(move || read::<S>(team, cell, stop)))
            .collect();
        let writing = scope.spawn(move || write::<S>(team, cell, stop, write_us));
        let stalling = (stalled > 0).then(|| scope.spawn(move || stall::<S>(team, cell)));

        let clock = team.start();
        let in_limit = watch_memory(&mut report, options.get("run-ms"), options.get("limit-mb"));
        if stalled > 0 {
            report_stall(&mut report);
        }
        stop.0.store(true, Relaxed); // as in Stop::asked
        let clock = team.stop(clock, options.get("plant-percent"));
        let mut sum = Done::default();
        for thread in reading {
            let reader = thread.join().expect("panics abort");
            sum.done += reader.done;
            sum.wrong += reader.wrong;
        }
        let writer = writing.join().expect("panics abort");
        let held = stalling.map_or(0, |thread| thread.join().expect("panics abort").wrong);
        report.figures_of(&clock, sum.done);
        report.figure("reads_per_s", sum.done as f64 / clock.wall_s);
        report.figure("writes_per_s", writer.done as f64 / clock.wall_s);
        report.figure("stopped_by_limit", f64::from(u8::from(!in_limit)));
        sum.wrong + held
    });
    S::take(cell);
    report.verify("reads_right", wrong == 0);
    settle::<S>(&mut report);
    report
}
