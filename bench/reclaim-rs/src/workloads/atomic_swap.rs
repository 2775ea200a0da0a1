// SPDX-License-Identifier: MIT OR Apache-2.0
//! atomic-swap: see bench/reclaim/atomic_swap.c.

use super::timed::Timed;
use super::{Team, settle};
use crate::clock::peak_rss_kb;
use crate::ledger;
use crate::options::{Choice, Options};
use crate::report::Report;
use crate::scheme::Scheme;

const SAMPLE_PERIOD: u64 = 1024;

pub fn options() -> Vec<Choice> {
    vec![
        Choice::number("threads", 2, 1, 64),
        Choice::number("iters", 1_000_000, 10, u64::MAX / 128),
        Timed::option(),
    ]
}

#[derive(Default)]
struct Sums {
    written: u64,
    read: u64,
    peak_unreclaimed: u64,
}

impl Sums {
    #[inline(always)]
    fn swap_one<S: Scheme>(&mut self, me: &S::Thread, cell: &S::Cell, word: u64) {
        let guard = S::pin(me);
        let old = S::replace(cell, word, &guard);
        drop(guard);
        self.read = self.read.wrapping_add(old);
        self.written = self.written.wrapping_add(word);
    }

    fn swap_often<S: Scheme>(
        &mut self,
        me: &S::Thread,
        cell: &S::Cell,
        words: std::ops::Range<u64>,
        samples: bool,
    ) {
        for (i, word) in words.enumerate() {
            self.swap_one::<S>(me, cell, word);
            if samples && (i as u64).is_multiple_of(SAMPLE_PERIOD) {
                self.peak_unreclaimed = self.peak_unreclaimed.max(ledger::unreclaimed());
            }
        }
    }
}

fn run_thread<S: Scheme>(
    team: &Team,
    timed: &Timed,
    cell: &S::Cell,
    index: u64,
    iterations: u64,
) -> Sums {
    let mut sums = Sums::default();
    let me = S::enter();
    let (warm, first) = (index << 40, index << 48);
    sums.swap_often::<S>(&me, cell, warm..warm + iterations / 10, index == 0);
    team.ready();
    sums.swap_often::<S>(&me, cell, first..first + iterations, index == 0);
    team.finished();
    timed.run(|i| sums.swap_one::<S>(&me, cell, (index << 32) + i));
    S::leave(me);
    sums
}

pub fn run<S: Scheme>(options: &Options) -> Report {
    let (threads, iterations) = (options.get("threads"), options.get("iters"));
    let mut report = Report::default();
    let cell = S::cell(0);
    let team = Team::new(threads);
    let timed = Timed::new(options);
    let start_kb = peak_rss_kb();
    let mut total = Sums::default();
    std::thread::scope(|scope| {
        let (team, timed, cell) = (&team, &timed, &cell);
        let start =
            |index| scope.spawn(move || run_thread::<S>(team, timed, cell, index, iterations));
        let running: Vec<_> = (0..threads).map(start).collect();
        let clock = team.stop(team.start(), options.get("plant-percent"));
        let ops = iterations * threads;
        report.figures_of(&clock, ops);
        report.figure("ops_per_s", ops as f64 / clock.wall_s);
        report.figure("peak_growth_kb", (peak_rss_kb() - start_kb) as f64);
        for thread in running {
            let sums = thread.join().expect("panics abort");
            total.written = total.written.wrapping_add(sums.written);
            total.read = total.read.wrapping_add(sums.read);
            total.peak_unreclaimed = total.peak_unreclaimed.max(sums.peak_unreclaimed);
        }
    });
    report.figure("peak_unreclaimed", total.peak_unreclaimed as f64);
    let last = S::take(cell);
    report.verify(
        "every_node_swapped_out_once",
        total.read.wrapping_add(last) == total.written,
    );
    timed.report("swap", "every_swap_timed", &mut report);
    settle::<S>(&mut report);
    report
}
