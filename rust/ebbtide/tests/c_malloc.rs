// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose C's malloc is: Ebbtide's with the feature `override` alone.
#![cfg(not(miri))]

use std::ffi::c_void;

extern "C" {
    fn malloc(bytes: usize) -> *mut c_void;
    fn free(p: *mut c_void);
}

#[test]
fn the_feature_decides() {
    const BYTES: usize = 64 << 20;
    let before = ebbtide::stats().live_bytes;
    // SAFETY: freed once, by the same library.
    let grown = unsafe {
        let block = malloc(BYTES);
        assert!(!block.is_null());
        block.cast::<u8>().write_volatile(1);
        let grown = ebbtide::stats().live_bytes - before;
        free(block);
        grown
    };
    assert_eq!(grown >= BYTES, cfg!(feature = "override"));
}
