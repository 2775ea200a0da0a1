// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo bench`: each workload by each arena that can do it.
#![allow(missing_docs)] // criterion's macros

use std::time::Duration;

use bumpalo::Bump;
use cpu_time::ProcessTime;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion};
use ebbtide::region::Region;
use ebbtide_bench::{dropped_region, dropped_typed, fill, objects, texts, vector, Node};
use typed_arena::Arena;

#[cfg(feature = "global")]
#[global_allocator]
static ALLOCATOR: ebbtide::Ebbtide = ebbtide::Ebbtide;

const REGION: &str = "ebbtide";
const BUMP: &str = "bumpalo";
const TYPED: &str = "typed-arena";

/// The processor's time for all threads, Ebbtide's own included, so that other programs matter less.
struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = ProcessTime;
    type Value = Duration;

    fn start(&self) -> ProcessTime {
        ProcessTime::now()
    }
    fn end(&self, start: ProcessTime) -> Duration {
        start.elapsed()
    }
    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }
    fn zero(&self) -> Duration {
        Duration::ZERO
    }
    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }
    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

fn open_fill_drop(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("objects");
    for count in [10, 1_000, 100_000] {
        group.bench_function(BenchmarkId::new(REGION, count), |b| {
            b.iter(|| objects::<Region>(count))
        });
        group.bench_function(BenchmarkId::new(BUMP, count), |b| {
            b.iter(|| objects::<Bump>(count))
        });
        group.bench_function(BenchmarkId::new(TYPED, count), |b| {
            b.iter(|| objects::<Arena<Node>>(count))
        });
    }
}

/// One arena for all requests, emptied after each. A typed arena cannot be.
fn fill_reset(c: &mut Criterion<CpuTime>) {
    const COUNT: usize = 1_000;
    let mut group = c.benchmark_group("reset");
    let mut region = Region::open();
    group.bench_function(BenchmarkId::new(REGION, COUNT), |b| {
        b.iter(|| {
            fill(&region, COUNT);
            region.reset();
        })
    });
    let mut bump = Bump::new();
    group.bench_function(BenchmarkId::new(BUMP, COUNT), |b| {
        b.iter(|| {
            fill(&bump, COUNT);
            bump.reset();
        })
    });
}

fn copies_of_text(c: &mut Criterion<CpuTime>) {
    const COUNT: usize = 1_000;
    let mut group = c.benchmark_group("texts");
    group.bench_function(BenchmarkId::new(REGION, COUNT), |b| {
        b.iter(|| texts::<Region>(COUNT))
    });
    group.bench_function(BenchmarkId::new(BUMP, COUNT), |b| {
        b.iter(|| texts::<Bump>(COUNT))
    });
    group.bench_function(BenchmarkId::new(TYPED, COUNT), |b| {
        b.iter(|| texts::<Arena<u8>>(COUNT))
    });
}

fn a_vector_that_grows(c: &mut Criterion<CpuTime>) {
    const COUNT: usize = 10_000;
    let mut group = c.benchmark_group("vector");
    group.bench_function(BenchmarkId::new(REGION, COUNT), |b| {
        b.iter(|| vector(&Region::open(), COUNT))
    });
    group.bench_function(BenchmarkId::new(BUMP, COUNT), |b| {
        b.iter(|| vector(&Bump::new(), COUNT))
    });
}

fn values_with_destructors(c: &mut Criterion<CpuTime>) {
    const COUNT: usize = 1_000;
    let mut group = c.benchmark_group("dropped");
    group.bench_function(BenchmarkId::new(REGION, COUNT), |b| {
        b.iter(|| dropped_region(COUNT))
    });
    group.bench_function(BenchmarkId::new(TYPED, COUNT), |b| {
        b.iter(|| dropped_typed(COUNT))
    });
}

criterion_group!(
    name = benches;
    config = Criterion::default().with_measurement(CpuTime);
    targets = open_fill_drop, fill_reset, copies_of_text, a_vector_that_grows, values_with_destructors
);
criterion_main!(benches);
