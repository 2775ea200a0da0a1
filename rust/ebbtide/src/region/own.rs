// SPDX-License-Identifier: MIT OR Apache-2.0
//! Regions: how they open and end.

use std::alloc::{handle_alloc_error, Layout};
use std::borrow::Cow;
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::ptr::{self, NonNull};

use super::stats::RegionStats;
use crate::sys;

/// How much of a label is kept: whole characters.
const fn kept_bytes(label: &[u8]) -> usize {
    if label.len() < sys::EBB_LABEL_BYTES {
        return label.len();
    }
    let mut end = sys::EBB_LABEL_BYTES - 1;
    while label[end] & 0xC0 == 0x80 {
        end -= 1;
    }
    end
}

/// How a [`Region`] or a [`Phase`](super::Phase) is opened. May be kept and used many times.
///
/// ```
/// use ebbtide::region::Options;
///
/// const REQUEST: Options = Options::new().label("request").hard_limit(16 << 20);
/// let region = REQUEST.open()?;
/// assert_eq!(region.label(), "request");
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Options {
    label: [u8; sys::EBB_LABEL_BYTES], // filled up with NULs: the last byte is always one
    soft_limit: usize,
    hard_limit: usize,
    gives_way: bool,
}

impl Options {
    /// No label, no limits.
    pub const fn new() -> Self {
        Options {
            label: [0; sys::EBB_LABEL_BYTES],
            soft_limit: 0,
            hard_limit: 0,
            gives_way: false,
        }
    }

    /// Under which name it appears in the statistics, together with all of the same label. The first
    /// 31 bytes are kept; without one it is "region".
    ///
    /// # Panics
    /// When the label contains a NUL.
    #[must_use]
    pub const fn label(mut self, label: &str) -> Self {
        self.label = [0; sys::EBB_LABEL_BYTES];
        let bytes = label.as_bytes();
        let kept = kept_bytes(bytes);
        let mut at = 0;
        while at < bytes.len() {
            assert!(bytes[at] != 0, "a label must not contain a NUL");
            if at < kept {
                self.label[at] = bytes[at];
            }
            at += 1;
        }
        self
    }

    /// Bytes held. Above it the region looks for drained memory before it grows, and growth is
    /// counted. 0: none.
    #[must_use]
    pub const fn soft_limit(mut self, bytes: usize) -> Self {
        self.soft_limit = bytes;
        self
    }

    /// Bytes held, in steps of 64 KiB. An allocation that needs more fails. 0: none.
    #[must_use]
    pub const fn hard_limit(mut self, bytes: usize) -> Self {
        self.hard_limit = bytes;
        self
    }

    /// For a [`Phase`](super::Phase), which is always closed: while survivors of closed phases of the
    /// label pin more than 1 MiB, its blocks come from class slabs, where they are dense. Such a phase
    /// does not know its blocks, and limits do not count them. A [`Region`] takes no notice.
    #[must_use]
    pub const fn gives_way(mut self) -> Self {
        self.gives_way = true;
        self
    }

    /// Opens a region. It takes no memory before its first allocation.
    ///
    /// # Errors
    /// When memory is refused.
    pub fn open(&self) -> io::Result<Region<'static>> {
        self.open_raw(ptr::null_mut(), false).map(Region::of)
    }

    /// Opens a region that ends before its parent. The limits of both are their own.
    ///
    /// # Errors
    /// When memory is refused.
    pub fn open_in<'p>(&self, parent: &'p Region<'_>) -> io::Result<Region<'p>> {
        self.open_raw(parent.raw(), false).map(Region::of)
    }

    pub(super) fn open_raw(
        &self,
        parent: *mut sys::ebb_region,
        closes: bool,
    ) -> io::Result<NonNull<sys::ebb_region>> {
        let options = sys::ebb_region_options {
            label: if self.label[0] == 0 {
                ptr::null()
            } else {
                self.label.as_ptr().cast()
            },
            parent,
            soft_limit: self.soft_limit,
            hard_limit: self.hard_limit,
            closes: (closes && self.gives_way).into(),
        };
        // SAFETY: the label ends with a NUL, and the parent is null or open.
        NonNull::new(unsafe { sys::ebb_region_open(&options) }).ok_or_else(io::Error::last_os_error)
    }
}

impl Default for Options {
    fn default() -> Self {
        Options::new()
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("label", &String::from_utf8_lossy(&self.label))
            .field("soft_limit", &self.soft_limit)
            .field("hard_limit", &self.hard_limit)
            .finish()
    }
}

/// Memory that leaves together. Dropping it frees all that was allocated in it, in time by the slab.
///
/// `'p` is how long the parent is borrowed; a region without one is a `Region<'static>`.
///
/// Any thread may allocate, through shared references; the thread that opened the region, or that
/// first used it after [`detach`](Self::detach), does so without locks.
///
/// A region that is forgotten ([`mem::forget`]) keeps its memory until its parent ends, or for ever.
///
/// A child cannot outlive its parent:
///
/// ```compile_fail,E0505
/// use ebbtide::region::Region;
///
/// let parent = Region::open();
/// let child = parent.child();
/// drop(parent);
/// child.alloc(1);
/// ```
pub struct Region<'p> {
    raw: NonNull<sys::ebb_region>,
    parent: PhantomData<&'p ()>,
}

// SAFETY: the library's functions for regions may be called by any thread. The values in a region are
// reached through the references that `alloc` gave, which are Send as their types say, and all of
// which have ended when the region moves. Those that it drops itself are Send.
unsafe impl Send for Region<'_> {}
// SAFETY: as above; what two threads allocate are different blocks.
unsafe impl Sync for Region<'_> {}

impl Region<'static> {
    /// Opens a region without parent, label and limits; [`Options::open`] gives it these and reports
    /// failure.
    ///
    /// When memory is refused, calls [`handle_alloc_error`].
    pub fn open() -> Self {
        expect_open(Options::new().open())
    }

    /// The same as [`Options::new`].
    pub const fn options() -> Options {
        Options::new()
    }
}

impl<'p> Region<'p> {
    fn of(raw: NonNull<sys::ebb_region>) -> Self {
        Region {
            raw,
            parent: PhantomData,
        }
    }

    /// Opens a region that ends before this one; see [`Options::open_in`].
    ///
    /// When memory is refused, calls [`handle_alloc_error`].
    pub fn child(&self) -> Region<'_> {
        expect_open(Options::new().open_in(self))
    }

    #[inline]
    pub(super) fn raw(&self) -> *mut sys::ebb_region {
        self.raw.as_ptr()
    }

    /// Runs the cleanups, newest first, and frees all that is in the region, which stays open with
    /// its first memory at hand.
    ///
    /// ```compile_fail,E0502
    /// let mut region = ebbtide::region::Region::open();
    /// let old = region.alloc(1);
    /// region.reset();
    /// *old += 1;
    /// ```
    ///
    /// ```compile_fail,E0502
    /// let mut parent = ebbtide::region::Region::open();
    /// let child = parent.child();
    /// parent.reset();
    /// child.alloc(1);
    /// ```
    pub fn reset(&mut self) {
        // SAFETY: borrowed alone: no reference into it is left, no child, and no thread is in it.
        unsafe { sys::ebb_region_reset(self.raw()) }
    }

    /// Ends the region, but frees only what has been freed in it already: its other blocks live on.
    /// For blocks that left as raw pointers, to be freed one by one with `ebb_free`; what nobody frees
    /// stays for ever. The cleanups run first.
    pub fn close(self) {
        let region = ManuallyDrop::new(self);
        // SAFETY: owned, and not dropped after this.
        unsafe { sys::ebb_region_close(region.raw()) }
    }

    /// Says that the calling thread has done with the region, so that the next one that uses it does
    /// so without locks. Makes sense before the region is sent to another thread.
    pub fn detach(&self) {
        // SAFETY: open.
        unsafe { sys::ebb_region_detach(self.raw()) }
    }

    /// Whether the value is in this region, of which it is the beginning of a block: what lies further
    /// inside a block, as a field or an element, is not known. Not in a child.
    pub fn holds<T: ?Sized>(&self, value: &T) -> bool {
        let p = ptr::from_ref(value).cast();
        // SAFETY: any pointer may be asked for.
        mem::size_of_val(value) != 0 && unsafe { sys::ebb_region_of(p) } == self.raw()
    }

    /// What the region holds.
    pub fn stats(&self) -> RegionStats {
        let mut raw = sys::ebb_region_stats::default();
        // SAFETY: open, and the library writes the whole of a struct that is the caller's.
        unsafe { sys::ebb_region_stats_get(self.raw(), &mut raw) };
        RegionStats::of(raw)
    }

    /// The label that it was opened with, or "region".
    pub fn label(&self) -> Cow<'_, str> {
        // SAFETY: open; the label ends with a NUL and lasts as long as the region.
        unsafe { CStr::from_ptr(sys::ebb_region_label(self.raw())) }.to_string_lossy()
    }
}

impl Drop for Region<'_> {
    fn drop(&mut self) {
        // SAFETY: owned: no reference into it is left, no child, and no thread is in it.
        unsafe { sys::ebb_region_release(self.raw()) }
    }
}

impl fmt::Debug for Region<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("label", &self.label())
            .field("stats", &self.stats())
            .finish()
    }
}

pub(super) fn expect_open<T>(opened: io::Result<T>) -> T {
    // Nothing but refused memory makes it fail: the parent is open as long as it is borrowed.
    opened.unwrap_or_else(|_| handle_alloc_error(Layout::new::<Options>()))
}
