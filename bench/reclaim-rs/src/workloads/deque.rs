// SPDX-License-Identifier: MIT OR Apache-2.0
//! deque: see bench/reclaim/deque.c. crossbeam-deque, last in first out for its owner.

use super::{Team, keep_apart};
use crate::options::{Choice, Options};
use crate::report::Report;
use crossbeam_deque::{Steal, Stealer, Worker};
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

const MODES: &[&str] = &["pair", "steal"];
const STEAL: u64 = 1;

pub fn options() -> Vec<Choice> {
    vec![
        Choice::number("thieves", 1, 1, 64),
        Choice::number("iters", 10_000_000, 10, 1 << 40),
        Choice::word("mode", MODES),
    ]
}

/// Three sums that only one set of items gives, each item once.
#[derive(Clone, Copy, Default, PartialEq)]
struct Tally {
    count: u64,
    sum: u64,
    squares: u64,
}

impl Tally {
    #[inline(always)]
    fn add(&mut self, item: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(item);
        self.squares = self.squares.wrapping_add(item.wrapping_mul(item));
    }

    fn merge(&mut self, other: Tally) {
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
        self.squares = self.squares.wrapping_add(other.squares);
    }

    /// Of the items 1 to `items`.
    fn of(items: u64) -> Tally {
        let mut tally = Tally::default();
        (1..=items).for_each(|item| tally.add(item));
        tally
    }
}

fn push_and_pop(deque: &Worker<u64>, items: u64) -> Tally {
    let mut tally = Tally::default();
    for item in 1..=items {
        deque.push(item);
        keep_apart();
        if let Some(popped) = deque.pop() {
            tally.add(popped);
        }
        keep_apart();
    }
    tally
}

/// Until the deque is empty for good.
fn steal_all(stealer: &Stealer<u64>, pushed_all: &AtomicBool) -> Tally {
    let mut tally = Tally::default();
    loop {
        // Acquire: pairs with the owner's store, so that an empty deque stays empty.
        let last_round = pushed_all.load(Acquire);
        match stealer.steal() {
            Steal::Success(item) => tally.add(item),
            Steal::Retry => (),
            Steal::Empty if last_round => return tally,
            Steal::Empty => std::thread::yield_now(),
        }
    }
}

fn run_pairs(report: &mut Report, options: &Options) -> Tally {
    let items = options.get("iters");
    let deque = Worker::new_lifo();
    let team = Team::new(1);
    std::thread::scope(|scope| {
        let team = &team;
        let owner = scope.spawn(move || {
            push_and_pop(&deque, items / 10);
            team.ready();
            let tally = push_and_pop(&deque, items);
            team.finished();
            tally
        });
        let clock = team.stop(team.start(), options.get("plant-percent"));
        report.figures_of(&clock, items);
        report.figure("ns_per_op", clock.wall_s * 1e9 / items as f64);
        owner.join().expect("panics abort")
    })
}

fn run_thieves(report: &mut Report, options: &Options) -> Tally {
    let (items, thieves) = (options.get("iters"), options.get("thieves"));
    let deque = Worker::new_lifo();
    let pushed_all = AtomicBool::new(false);
    let team = Team::new(thieves + 1);
    std::thread::scope(|scope| {
        let (team, pushed_all) = (&team, &pushed_all);
        let rob = |_| {
            let stealer = deque.stealer();
            scope.spawn(move || {
                team.ready();
                let tally = steal_all(&stealer, pushed_all);
                team.finished();
                tally
            })
        };
        let robbing: Vec<_> = (0..thieves).map(rob).collect();
        scope.spawn(move || {
            push_and_pop(&deque, items / 10);
            team.ready();
            (1..=items).for_each(|item| deque.push(item));
            pushed_all.store(true, Release); // the last push comes before
            team.finished();
        });
        let clock = team.stop(team.start(), options.get("plant-percent"));
        report.figures_of(&clock, items);
        report.figure("items_per_s", items as f64 / clock.wall_s);
        let mut total = Tally::default();
        for thief in robbing {
            total.merge(thief.join().expect("panics abort"));
        }
        total
    })
}

pub fn run(options: &Options) -> Report {
    let mut report = Report::default();
    let seen = match options.get("mode") {
        STEAL => run_thieves(&mut report, options),
        _ => run_pairs(&mut report, options),
    };
    let wanted = Tally::of(options.get("iters"));
    report.figure("items_lost", wanted.count as f64 - seen.count as f64);
    report.verify("every_item_once", seen == wanted);
    report
}
