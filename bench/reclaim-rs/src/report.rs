// SPDX-License-Identifier: MIT OR Apache-2.0
//! The load check and the JSON report, in the schema of bench/common.c.

use crate::clock::{Clock, peak_rss_kb};
use crate::fail;
use crate::histogram::{self, Histogram};
use crate::options::Options;
use crate::timer::Timer;
use std::ffi::CStr;
use std::fmt::Write;

const SCHEMA: u32 = 2;

#[derive(Default)]
pub struct Report {
    figures: Vec<(String, f64)>,
    checks: Vec<(&'static str, bool)>,
    histograms: Vec<(String, Histogram)>,
    /// Resident memory over time, in MB.
    pub rss_mb: Vec<f64>,
    pub series_step_s: f64,
}

/// The file that `malloc` comes from.
fn allocator() -> String {
    // SAFETY: the name is a C string; all zeros is a valid Dl_info, which dladdr fills.
    unsafe {
        let entry = libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr());
        let mut info: libc::Dl_info = std::mem::zeroed();
        if entry.is_null() || libc::dladdr(entry, &mut info) == 0 || info.dli_fname.is_null() {
            fail("cannot tell which object malloc comes from");
        }
        CStr::from_ptr(info.dli_fname)
            .to_string_lossy()
            .into_owned()
    }
}

pub fn check_allocator() {
    let loaded = allocator();
    match std::env::var("LAB_EXPECT") {
        Ok(expected) if !loaded.contains(&expected) => {
            fail(&format!("malloc comes from {loaded}, expected {expected}"))
        }
        _ => (),
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            control if (control as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", control as u32);
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

fn object<T>(items: impl IntoIterator<Item = T>, text: impl Fn(T) -> String) -> String {
    format!(
        "{{{}}}",
        items.into_iter().map(text).collect::<Vec<_>>().join(", ")
    )
}

impl Report {
    pub fn figure(&mut self, name: impl Into<String>, value: f64) {
        self.figures.push((name.into(), value));
    }

    pub fn verify(&mut self, name: &'static str, holds: bool) {
        self.checks.push((name, holds));
    }

    pub fn figures_of(&mut self, clock: &Clock, ops: u64) {
        let millions = ops as f64 * 1e-6;
        self.figure("ops", ops as f64);
        self.figure("wall_s", clock.wall_s);
        self.figure("cpu_s", clock.cpu_s);
        self.figure("wall_ns_per_op", clock.wall_s * 1e3 / millions);
        self.figure("cpu_ns_per_op", clock.cpu_s * 1e3 / millions);
        self.figure("mops_per_wall_s", millions / clock.wall_s);
        self.figure("mops_per_cpu_s", millions / clock.cpu_s);
        self.figure("minor_faults", clock.minor_faults as f64);
        self.figure("major_faults", clock.major_faults as f64);
        self.figure("peak_rss_kb", peak_rss_kb() as f64);
    }

    pub fn histogram(&mut self, prefix: &str, histogram: Histogram) {
        self.figure(format!("{prefix}_mean_ns"), histogram.mean());
        for (name, percent) in [
            ("p50", 50.0),
            ("p99", 99.0),
            ("p999", 99.9),
            ("p9999", 99.99),
            ("max", 100.0),
        ] {
            self.figure(
                format!("{prefix}_{name}_ns"),
                histogram.percentile(percent) as f64,
            );
        }
        self.histograms.push((format!("{prefix}_ns"), histogram));
    }

    pub fn timer(&mut self, timer: &Timer) {
        self.figure("timer_overhead_ns", timer.overhead_ns());
        self.figure("timer_resolution_ns", timer.resolution_ns());
        self.verify("timer_keeps_time", timer.keeps_time());
    }

    fn series(&self) -> String {
        let values: Vec<_> = self.rss_mb.iter().map(|mb| format!("{mb:.3}")).collect();
        if values.is_empty() {
            return "{}".into();
        }
        format!("{{\"rss_mb\": [{}]}}", values.join(", "))
    }

    fn histogram_texts(&self) -> String {
        object(&self.histograms, |(name, histogram)| {
            let counts: Vec<_> = histogram
                .counted()
                .map(|(index, count)| format!("[{index}, {count}]"))
                .collect();
            format!(
                "\"{name}\": {{\"lowest\": {}, \"highest\": {}, \"significant_figures\": {}, \
                 \"counts\": [{}]}}",
                histogram::LOWEST_NS,
                histogram::HIGHEST_NS,
                histogram::FIGURES,
                counts.join(", ")
            )
        })
    }

    /// Prints the report. The status of the program: 1 if a check does not hold.
    pub fn print(&self, workload: &str, options: &Options) -> i32 {
        println!(
            "{{\"schema\": {SCHEMA}, \"workload\": \"{workload}\", \"allocator\": {}, \
             \"parameters\": {}, \"figures\": {}, \"series_step_s\": {}, \"series\": {}, \
             \"histograms\": {}, \"verified\": {}}}",
            quoted(&allocator()),
            object(options.all(), |option| format!(
                "\"{}\": {}",
                option.name, option.value
            )),
            object(&self.figures, |(name, value)| format!(
                "\"{name}\": {value}"
            )),
            self.series_step_s,
            self.series(),
            self.histogram_texts(),
            object(&self.checks, |(name, holds)| format!("\"{name}\": {holds}")),
        );
        i32::from(!self.checks.iter().all(|(_, holds)| *holds))
    }
}
