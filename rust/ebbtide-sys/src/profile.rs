// SPDX-License-Identifier: MIT OR Apache-2.0
//! `<ebbtide/profile.h>`.

use core::ffi::{c_char, c_int};

extern "C" {
    /// A sampled heap profile from now on, one sample in `mean` bytes; 0: 512 KiB. 0, or -1 with `errno`.
    pub fn ebb_profile_start(mean: usize) -> c_int;
    /// No more samples; those taken stay known.
    pub fn ebb_profile_stop();
    /// The profile into that file, as pprof reads it. 0, or -1 with `errno`.
    pub fn ebb_profile_write(file: *const c_char) -> c_int;
}
