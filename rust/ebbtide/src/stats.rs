// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics: types of their own, each field a line of a table, so that none of the library's is missed.

use std::ffi::c_int;
use std::fmt;
use std::time::Duration;

use crate::sys;

/// How the library's number becomes a field, and how it is shown.
pub(crate) trait Unit {
    type Raw;
    type Value;
    fn take(raw: Self::Raw) -> Self::Value;
    fn show(value: &Self::Value, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

pub(crate) struct Bytes;

impl Unit for Bytes {
    type Raw = usize;
    type Value = usize;

    fn take(raw: usize) -> usize {
        raw
    }

    fn show(value: &usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} MiB", *value as f64 / f64::from(1 << 20))
    }
}

pub(crate) struct Count<T>(T);

impl<T: fmt::Display> Unit for Count<T> {
    type Raw = T;
    type Value = T;

    fn take(raw: T) -> T {
        raw
    }

    fn show(value: &T, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{value}")
    }
}

pub(crate) struct Millis;

impl Unit for Millis {
    type Raw = u64;
    type Value = Duration;

    fn take(raw: u64) -> Duration {
        Duration::from_millis(raw)
    }

    fn show(value: &Duration, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s", value.as_secs_f64())
    }
}

pub(crate) struct Flag;

impl Unit for Flag {
    type Raw = c_int;
    type Value = bool;

    fn take(raw: c_int) -> bool {
        raw != 0
    }

    fn show(value: &bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *value { "yes" } else { "no" })
    }
}

/// The type, made of the library's by `of`; shown as a line for each field. A field of the library's that has
/// no line does not compile.
macro_rules! statistics {
    (
        $(#[$about:meta])*
        $name:ident of $raw:path {
            $($(#[$meaning:meta])* $field:ident: $value:ty = $unit:ty: $from:ident,)*
        }
    ) => {
        $(#[$about])*
        #[non_exhaustive]
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$meaning])* pub $field: $value,)*
        }

        impl $name {
            pub(crate) fn of(raw: $raw) -> Self {
                let $raw { $($from,)* } = raw;
                $name { $($field: <$unit as $crate::stats::Unit>::take($from),)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $(
                    write!(f, "{:26} ", stringify!($field).trim_end_matches("_bytes"))?;
                    <$unit as $crate::stats::Unit>::show(&self.$field, f)?;
                    writeln!(f)?;
                )*
                Ok(())
            }
        }
    };
}
pub(crate) use statistics;

statistics! {
    /// What the process holds. Sizes are bytes.
    ///
    /// `resident_live_bytes` to `resident_other_bytes` add up to `resident_bytes`. What running threads do
    /// while the snapshot is taken may be missed.
    Stats of sys::ebb_stats {
        /// Resident memory of the process, as the system counts it.
        resident_bytes: usize = Bytes: resident,
        /// Of it, under what the program asked for.
        resident_live_bytes: usize = Bytes: resident_live,
        /// Of it, added by rounding up to block sizes (an estimate).
        resident_rounding_bytes: usize = Bytes: resident_rounding,
        /// Of it, under blocks in the threads' caches (an estimate).
        resident_cached_bytes: usize = Bytes: resident_cached,
        /// Of it, under free blocks of slabs that also hold blocks in use.
        resident_pinned_bytes: usize = Bytes: resident_pinned,
        /// Of it, free, and not returned to the system yet.
        resident_free_bytes: usize = Bytes: resident_free,
        /// Of it, the allocator's own tables.
        resident_metadata_bytes: usize = Bytes: resident_metadata,
        /// Of it, not Ebbtide's: code, stacks, files, other mappings.
        resident_other_bytes: usize = Bytes: resident_other,
        /// Blocks in use, by their full size. Retired blocks are in use until their grace period is over.
        live_bytes: usize = Bytes: live_bytes,
        /// The number of blocks in use.
        live_blocks: usize = Count<usize>: live_blocks,
        /// Blocks in the threads' caches, by their full size, whether in memory or not.
        cached_bytes: usize = Bytes: cached_bytes,
        /// Address space of slabs.
        slab_bytes: usize = Bytes: slab_bytes,
        /// Address space of large objects.
        large_bytes: usize = Bytes: large_bytes,
        /// Address space of objects with a mapping of their own.
        huge_bytes: usize = Bytes: huge_bytes,
        /// Of the reserved address space, made usable so far.
        committed_bytes: usize = Bytes: committed_bytes,
        /// Address space reserved for all but huge objects.
        reserved_bytes: usize = Bytes: reserved_bytes,
        /// Returned to the system since the process started.
        purged_bytes: usize = Bytes: purged_bytes,
        /// The number of heaps, those of threads that have ended included.
        heaps: usize = Count<usize>: heaps,
        /// The number of slabs.
        slabs: usize = Count<usize>: slabs,
        /// Asked for as huge pages, and not split since (`EBB_THP=auto`).
        asked_huge_bytes: usize = Bytes: asked_huge_bytes,
    }
}

/// A snapshot of what the process holds. Not for hot paths: it looks at every slab.
///
/// ```
/// let stats = ebbtide::stats();
/// assert!(stats.resident_bytes > 0);
/// println!("{stats}"); // a line for each field
/// ```
pub fn stats() -> Stats {
    let mut raw = sys::ebb_stats::default();
    // SAFETY: the library writes the whole of a struct that is the caller's.
    unsafe { sys::ebb_stats_get(&mut raw) };
    Stats::of(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_the_librarys() {
        let stats = Stats::of(sys::ebb_stats {
            resident: 3 << 20,
            live_blocks: 7,
            asked_huge_bytes: 1 << 19,
            ..Default::default()
        });
        assert_eq!((stats.resident_bytes, stats.live_blocks), (3 << 20, 7));
        let text = stats.to_string();
        let lines: Vec<Vec<_>> = text
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(lines.len(), 20);
        assert_eq!(lines[0], ["resident", "3.00", "MiB"]);
        assert_eq!(lines[9], ["live_blocks", "7"]);
        assert_eq!(lines[19], ["asked_huge", "0.50", "MiB"]);
    }

    #[test]
    #[cfg(not(miri))] // the stand-in counts blocks alone
    fn the_parts_of_resident_memory_add_up() {
        let stats = stats();
        let parts = stats.resident_live_bytes
            + stats.resident_rounding_bytes
            + stats.resident_cached_bytes
            + stats.resident_pinned_bytes
            + stats.resident_free_bytes
            + stats.resident_metadata_bytes
            + stats.resident_other_bytes;
        assert_eq!(parts, stats.resident_bytes);
    }

    #[test]
    fn other_units() {
        assert_eq!(Millis::take(1_500), Duration::from_millis(1_500));
        assert!(Flag::take(2) && !Flag::take(0));
    }
}
