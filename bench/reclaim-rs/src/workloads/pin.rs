// SPDX-License-Identifier: MIT OR Apache-2.0
//! pin: see bench/reclaim/pin.c.

use super::idlers::Idlers;
use super::timed::Timed;
use super::{Team, keep_apart};
use crate::clock::Clock;
use crate::not_run;
use crate::options::{Choice, Options};
use crate::report::Report;
use crate::scheme::Scheme;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const MODES: &[&str] = &["tight", "load", "nested"];
const LOAD: u64 = 1;
const NESTED: u64 = 2;

pub fn options() -> Vec<Choice> {
    vec![
        Choice::number("threads", 1, 1, 64),
        Choice::number("iters", 20_000_000, 10, u64::MAX / 128),
        Idlers::option(),
        Choice::word("mode", MODES),
        Timed::option(),
    ]
}

#[inline(always)]
fn pin_once<S: Scheme>(me: &S::Thread) {
    let guard = S::pin(me);
    keep_apart();
    drop(guard);
}

fn pin_tight<S: Scheme>(me: &S::Thread, iterations: u64) {
    for _ in 0..iterations {
        pin_once::<S>(me);
        keep_apart();
    }
}

fn pin_and_load<S: Scheme>(me: &S::Thread, cell: &S::Cell, iterations: u64) -> u64 {
    let mut wrong = 0;
    for _ in 0..iterations {
        let guard = S::pin(me);
        wrong += u64::from(!S::read(cell, &guard).is_intact());
        keep_apart();
        drop(guard);
        keep_apart();
    }
    wrong
}

fn pin_often<S: Scheme>(me: &S::Thread, cell: &S::Cell, mode: u64, iterations: u64) -> u64 {
    if mode == LOAD {
        return pin_and_load::<S>(me, cell, iterations);
    }
    let outer = (mode == NESTED).then(|| S::pin(me));
    pin_tight::<S>(me, iterations);
    drop(outer);
    0
}

/// The clock, and the loads that showed another node than the one there.
fn run_threads<S: Scheme>(options: &Options, timed: &Timed) -> (Clock, u64) {
    let threads = options.get("threads");
    let (mode, iterations) = (options.get("mode"), options.get("iters"));
    let cell = S::cell(1);
    let wrong = AtomicU64::new(0);
    let team = Team::new(threads);
    let idlers = Idlers::new(options);
    let work = || {
        let me = S::enter();
        let mut bad = pin_often::<S>(&me, &cell, mode, iterations / 10);
        team.ready();
        bad += pin_often::<S>(&me, &cell, mode, iterations);
        team.finished();
        timed.run(|_| pin_once::<S>(&me));
        S::leave(me);
        wrong.fetch_add(bad, Relaxed); // a sum, read after the join
    };
    let clock = std::thread::scope(|scope| {
        idlers.start::<S>(scope);
        for _ in 0..threads {
            scope.spawn(work);
        }
        let clock = team.stop(team.start(), options.get("plant-percent"));
        idlers.stop();
        clock
    });
    S::take(cell);
    (clock, wrong.into_inner())
}

pub fn run<S: Scheme>(options: &Options) -> Report {
    let pins = options.get("mode") != LOAD || options.get("timed") > 0;
    if let (Some(reason), true) = (S::NO_PINS, pins) {
        not_run(reason);
    }
    let timed = Timed::new(options);
    let (clock, wrong) = run_threads::<S>(options, &timed);
    let mut report = Report::default();
    let iterations = options.get("iters");
    report.figures_of(&clock, iterations * options.get("threads"));
    report.figure("ns_per_op", clock.wall_s * 1e9 / iterations as f64);
    report.verify("loads_right", wrong == 0);
    timed.report("pin", "every_pin_timed", &mut report);
    report
}
