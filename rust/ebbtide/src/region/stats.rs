// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who holds memory.

use std::cmp;

use crate::sys;

/// What one region or phase holds.
pub type RegionStats = sys::ebb_region_stats;

/// What all regions of one label hold, or a domain, as of each thread's last slow call.
pub type LifetimeStats = sys::ebb_lifetime_stats;

/// A line for each label of regions and phases, and for each domain, in the order of their first use.
/// Not for hot paths: it looks at every slab of theirs.
///
/// ```
/// use ebbtide::region::{lifetimes, Options};
///
/// let region = Options::new().label("session").open()?;
/// region.alloc([0_u8; 1000]);
/// let lines = lifetimes();
/// let line = lines.iter().find(|line| line.label() == "session").unwrap();
/// assert!(line.is_domain == 0 && line.live_bytes >= 1000);
/// # Ok::<_, std::io::Error>(())
/// ```
pub fn lifetimes() -> Vec<LifetimeStats> {
    let mut lines = Vec::new();
    let mut count = 8;
    loop {
        lines.resize(count, LifetimeStats::default());
        // SAFETY: the library writes as many structs as there is room for.
        count = unsafe { sys::ebb_lifetimes_get(lines.as_mut_ptr(), lines.len()) };
        if count <= lines.len() {
            lines.truncate(count);
            return lines;
        }
        count = cmp::max(count, 2 * lines.len());
    }
}
