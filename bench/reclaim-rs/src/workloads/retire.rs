// SPDX-License-Identifier: MIT OR Apache-2.0
//! retire: see bench/reclaim/retire.c.

use super::idlers::Idlers;
use super::{keep_apart, settle};
use crate::clock::{Clock, peak_rss_kb};
use crate::histogram::Histogram;
use crate::not_run;
use crate::options::{Choice, Options};
use crate::report::Report;
use crate::scheme::Scheme;
use crate::timer::{self, Timer};

const PERIOD: u64 = 16;
const NODE_BYTES: u64 = 32;

pub fn options() -> Vec<Choice> {
    vec![
        Choice::number("iters", 1_000_000, 10, u64::MAX / 128),
        Choice::number("size", NODE_BYTES, NODE_BYTES, 1 << 20),
        Choice::number("batch", 1, 1, 1_000_000),
        Idlers::option(),
    ]
}

#[inline(always)]
fn retire_batch<S: Scheme>(me: &S::Thread, nodes: u64) {
    let guard = S::pin(me);
    for i in 0..nodes {
        S::retire(i, &guard);
    }
    drop(guard);
    keep_apart();
}

/// Whole batches, `ops` nodes or a little more. The number of nodes.
fn retire_many<S: Scheme>(me: &S::Thread, ops: u64, batch: u64) -> u64 {
    let mut done = 0;
    while done < ops {
        retire_batch::<S>(me, batch);
        done += batch;
    }
    done
}

fn retire_one_timed<S: Scheme>(me: &S::Thread, timer: &Timer, op_ns: &mut Histogram) {
    let start = timer::start();
    retire_batch::<S>(me, 1);
    let stop = timer::stop();
    op_ns.record(timer.ns(start, stop));
}

/// Which one of the 16 is timed changes at random: schemes work in batches of powers of two.
fn retire_timed<S: Scheme>(me: &S::Thread, ops: u64, timer: &Timer, op_ns: &mut Histogram) {
    let mut r = 1u32;
    for _ in 0..ops / PERIOD {
        r ^= r << 13;
        r ^= r >> 17;
        r ^= r << 5;
        for i in 0..PERIOD {
            if i == u64::from(r) % PERIOD {
                retire_one_timed::<S>(me, timer, op_ns);
            } else {
                retire_batch::<S>(me, 1);
            }
        }
    }
}

/// What is measured, while the idle threads sleep.
fn measure<S: Scheme>(me: &S::Thread, options: &Options, report: &mut Report) {
    let (op_count, batch) = (options.get("iters"), options.get("batch"));
    let mut op_ns = Histogram::new();
    let start_kb = peak_rss_kb();
    retire_many::<S>(me, op_count / 10, batch);

    let clock = Clock::start();
    let ops = retire_many::<S>(me, op_count, batch);
    let clock = clock.stop(options.get("plant-percent"));
    report.figures_of(&clock, ops);
    report.figure("ns_per_op", clock.wall_s * 1e9 / ops as f64);
    report.figure("peak_growth_kb", (peak_rss_kb() - start_kb) as f64);
    if batch == 1 {
        let timer = Timer::open();
        retire_timed::<S>(me, op_count, &timer, &mut op_ns);
        report.timer(&timer);
        report.verify("one_op_in_16_timed", op_ns.total() == op_count / PERIOD);
        report.histogram("op", op_ns);
    }
}

pub fn run<S: Scheme>(options: &Options) -> Report {
    if options.get("size") != NODE_BYTES {
        not_run("a node's size is part of its type here: --size 32 alone");
    }
    let mut report = Report::default();
    let idlers = Idlers::new(options);
    let me = S::enter();
    std::thread::scope(|scope| {
        idlers.start::<S>(scope);
        measure::<S>(&me, options, &mut report);
        idlers.stop();
    });
    S::leave(me);
    settle::<S>(&mut report);
    report
}
