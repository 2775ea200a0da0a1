// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log-linear histogram of bench/histogram.h: values up to 2047 ns have a count
//! each, every further power of two up to 60 s is cut into 1024 equal parts.

pub const LOWEST_NS: u64 = 1;
pub const HIGHEST_NS: u64 = 60_000_000_000;
pub const FIGURES: u32 = 3;
const HALF_BITS: u32 = 10;
const HALF: usize = 1 << HALF_BITS;
const BUCKETS: usize = 26;
const COUNTS: usize = (BUCKETS + 1) * HALF;

pub struct Histogram {
    counts: Vec<u64>,
}

fn index_of(value_ns: u64) -> usize {
    let top = 63 - (value_ns | (2 * HALF as u64 - 1)).leading_zeros();
    let bucket = top - HALF_BITS;
    ((bucket as usize) << HALF_BITS) + (value_ns >> bucket) as usize
}

/// The first two halves share the bucket of single units.
fn bucket_of(index: usize) -> u32 {
    (index >> HALF_BITS).saturating_sub(1) as u32
}

fn lowest_at(index: usize) -> u64 {
    let bucket = bucket_of(index);
    ((index - ((bucket as usize) << HALF_BITS)) as u64) << bucket
}

fn highest_at(index: usize) -> u64 {
    lowest_at(index) + (1 << bucket_of(index)) - 1
}

impl Histogram {
    /// Its pages are resident from the start, so that they are not taken for a scheme's.
    pub fn new() -> Self {
        let mut counts = vec![1; COUNTS];
        counts.fill(0);
        Histogram { counts }
    }

    pub fn record(&mut self, value_ns: u64) {
        self.counts[index_of(value_ns.min(HIGHEST_NS))] += 1;
    }

    pub fn add(&mut self, other: &Histogram) {
        for (index, count) in other.counted() {
            self.counts[index] += count;
        }
    }

    /// The counts that are not zero, with their places.
    pub fn counted(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.counts
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, count)| *count > 0)
    }

    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The highest value that shares the count; 0 for an empty histogram.
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = (percent * self.total() as f64 / 100.0 + 0.5) as u64;
        let mut seen = 0;
        for (index, count) in self.counted() {
            seen += count;
            if seen >= wanted {
                return highest_at(index);
            }
        }
        0
    }

    /// Each value counts as the middle of the range that shares its count.
    pub fn mean(&self) -> f64 {
        let middle = |index| lowest_at(index) + ((1 << bucket_of(index)) >> 1);
        let sum: f64 = self
            .counted()
            .map(|(index, n)| n as f64 * middle(index) as f64)
            .sum();
        sum / self.total().max(1) as f64
    }
}
