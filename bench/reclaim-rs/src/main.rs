// SPDX-License-Identifier: MIT OR Apache-2.0
//! `reclaim SCHEME WORKLOAD [--option VALUE ...]`: the lab's reclamation workloads on the
//! schemes of the Rust world, in the same report as the C programs of bench/reclaim.
//! Status 1: a check did not hold; 2: wrong use; 3: the scheme cannot run the workload.

mod clock;
mod histogram;
mod ledger;
mod options;
mod report;
mod scheme;
mod schemes;
mod timer;
mod workloads;

use options::{Choice, Options};
use report::Report;
use scheme::Scheme;
use schemes::{crossbeam, haphazard, kovan, sdd, seize};
use workloads::{atomic_swap, deque, pin, reader_mostly, retire};

const USAGE: &str = "want: reclaim crossbeam|sdd|seize|haphazard|kovan \
                     pin|retire|atomic-swap|reader-mostly|deque [--option VALUE ...]";

pub fn fail(message: &str) -> ! {
    eprintln!("bench: {message}");
    std::process::exit(2);
}

pub fn not_run(reason: &str) -> ! {
    eprintln!("not run: {reason}");
    std::process::exit(3);
}

fn run<S: Scheme>(workload: &str, options: &Options) -> Report {
    match workload {
        "pin" => pin::run::<S>(options),
        "retire" => retire::run::<S>(options),
        "atomic-swap" => atomic_swap::run::<S>(options),
        "reader-mostly" => reader_mostly::run::<S>(options),
        _ => not_run("this scheme has no deque"),
    }
}

fn options_of(workload: &str) -> Vec<Choice> {
    match workload {
        "pin" => pin::options(),
        "retire" => retire::options(),
        "atomic-swap" => atomic_swap::options(),
        "reader-mostly" => reader_mostly::options(),
        "deque" => deque::options(),
        _ => fail(USAGE),
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [scheme, workload, rest @ ..] = arguments.as_slice() else {
        fail(USAGE)
    };
    let workload = workload.replace('_', "-");
    let options = Options::parse(options_of(&workload), rest);
    report::check_allocator();
    let report = match (scheme.as_str(), workload.as_str()) {
        ("crossbeam", "deque") => deque::run(&options),
        ("crossbeam", workload) => run::<crossbeam::Crossbeam>(workload, &options),
        ("sdd", workload) => run::<sdd::Sdd>(workload, &options),
        ("seize", workload) => run::<seize::Seize>(workload, &options),
        ("haphazard", workload) => run::<haphazard::Haphazard>(workload, &options),
        ("kovan", workload) => run::<kovan::Kovan>(workload, &options),
        _ => fail(USAGE),
    };
    std::process::exit(report.print(&workload, &options));
}
