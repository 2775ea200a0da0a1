// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who holds memory.

use std::cmp;
use std::fmt;
use std::time::Duration;

use crate::stats::{statistics, Bytes, Count, Flag, Millis, Unit};
use crate::sys;

/// A label: what stands before the first NUL.
struct Text;

impl Unit for Text {
    type Raw = [u8; sys::EBB_LABEL_BYTES];
    type Value = String;

    fn take(raw: Self::Raw) -> String {
        let text = raw.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }

    fn show(value: &String, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(value)
    }
}

statistics! {
    /// What one region or phase holds. Sizes are bytes.
    RegionStats of sys::ebb_region_stats {
        /// The number of this region alone, from 1, never used again.
        id: u64 = Count<u64>: id,
        /// The number of blocks allocated and not freed.
        live_blocks: usize = Count<usize>: live_blocks,
        /// Address space of its slabs and large blocks.
        held_bytes: usize = Bytes: held_bytes,
        /// The most that it has held.
        peak_bytes: usize = Bytes: peak_bytes,
        /// Of what it holds, in memory.
        resident_bytes: usize = Bytes: resident_bytes,
        /// The number of its slabs.
        slabs: usize = Count<usize>: slabs,
        /// The number of its blocks that have memory of their own.
        large_blocks: usize = Count<usize>: large_blocks,
        /// The number of allocations after the close.
        late: usize = Count<usize>: late,
        /// The number of allocations that the hard limit refused.
        refused: usize = Count<usize>: refused,
        /// How often it grew beyond the soft limit.
        pressed: usize = Count<usize>: pressed,
        /// The time since it was opened.
        age: Duration = Millis: open_ms,
    }
}

statistics! {
    /// What all regions of one label hold, or a domain, as of each thread's last slow call. Sizes are bytes.
    LifetimeStats of sys::ebb_lifetime_stats {
        /// The label of the regions, or the domain's name.
        label: String = Text: label,
        /// Whether it is a domain.
        is_domain: bool = Flag: is_domain,
        /// Blocks in use.
        live_bytes: usize = Bytes: live_bytes,
        /// The number of blocks in use.
        live_blocks: usize = Count<usize>: live_blocks,
        /// Address space of slabs and large blocks.
        held_bytes: usize = Bytes: held_bytes,
        /// The most that they have held.
        peak_bytes: usize = Bytes: peak_bytes,
        /// Of what they hold, in memory.
        resident_bytes: usize = Bytes: resident_bytes,
        /// Of that, not under blocks in use.
        pinned_bytes: usize = Bytes: pinned_bytes,
        /// The number of slabs.
        slabs: usize = Count<usize>: slabs,
        /// The number of slabs of closed regions, which blocks in use keep.
        demoted: usize = Count<usize>: demoted,
        /// The number of regions that are open, or of threads that have an epoch.
        open: usize = Count<usize>: open,
        /// The number of regions, or scopes, since the start.
        opened: u64 = Count<u64>: opened,
        /// The number of regions, or epochs, that were closed.
        closed: u64 = Count<u64>: closed,
        /// Of them, those whose close gave back everything.
        drained: u64 = Count<u64>: drained,
        /// The number of regions that were released, resets included.
        released: u64 = Count<u64>: released,
        /// The number of allocations after a close.
        late: u64 = Count<u64>: late,
        /// The number of allocations that hard limits refused.
        refused: u64 = Count<u64>: refused,
        /// The age of the oldest slab that is still in use.
        oldest_age: Duration = Millis: oldest_ms,
    }
}

/// A line for each label of regions and phases, and for each domain, in the order of their first use.
/// Not for hot paths: it looks at every slab of theirs.
///
/// ```
/// use ebbtide::region::{lifetimes, Options};
///
/// let region = Options::new().label("session").open()?;
/// region.alloc([0_u8; 1000]);
/// let lines = lifetimes();
/// let line = lines.iter().find(|line| line.label == "session").unwrap();
/// assert!(!line.is_domain && line.live_bytes >= 1000);
/// # Ok::<_, std::io::Error>(())
/// ```
pub fn lifetimes() -> Vec<LifetimeStats> {
    let mut lines = Vec::new();
    let mut count = 8;
    loop {
        lines.resize(count, sys::ebb_lifetime_stats::default());
        // SAFETY: the library writes as many structs as there is room for.
        count = unsafe { sys::ebb_lifetimes_get(lines.as_mut_ptr(), lines.len()) };
        if count <= lines.len() {
            lines.truncate(count);
            return lines.into_iter().map(LifetimeStats::of).collect();
        }
        count = cmp::max(count, 2 * lines.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_end_with_a_nul() {
        let mut label = [b'x'; sys::EBB_LABEL_BYTES];
        assert_eq!(Text::take(label), "x".repeat(sys::EBB_LABEL_BYTES));
        label[3] = 0;
        assert_eq!(Text::take(label), "xxx");
    }
}
