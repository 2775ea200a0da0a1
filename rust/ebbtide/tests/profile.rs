// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sampled heap profile: it is the process's, so this is one test and its process. With a mean of one byte each
//! allocation is a sample, and a stack that is new makes the file longer.

#![cfg(not(miri))] // the stand-in has no profile

use std::ffi::CString;
use std::io::ErrorKind;
use std::{env, fs, process};

use ebbtide::Profile;

#[global_allocator]
static ALLOCATOR: ebbtide::Ebbtide = ebbtide::Ebbtide;

const STACKS: usize = 32 * 20; // bytes in the file, at least; times, sums and ages change fewer

#[inline(never)]
fn allocate_below(depth: usize) {
    drop(std::hint::black_box(Box::new([0_u8; 1000])));
    if depth > 0 {
        allocate_below(std::hint::black_box(depth - 1));
        std::hint::black_box(depth); // no tail call
    }
}

// By 32 stacks, which are others for each place of the call.
fn allocate() {
    allocate_below(31);
}

// Of what is known, whether the profile is on or not.
fn length() -> usize {
    let path = env::temp_dir().join(format!("ebbtide-known.{}.pb", process::id()));
    let name = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a text with a zero byte at its end.
    assert_eq!(unsafe { ebbtide_sys::ebb_profile_write(name.as_ptr()) }, 0);
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    bytes.len()
}

#[test]
fn is_on_until_it_is_dropped() {
    let too_much = Profile::start((1 << 40) + 1).unwrap_err();
    assert_eq!(too_much.kind(), ErrorKind::InvalidInput);

    let profile = Profile::start(1).unwrap(); // what was refused is none
    let before = length();
    allocate();
    assert!(length() >= before + STACKS);
    let path = env::temp_dir().join(format!("ebbtide-profile.{}.pb", process::id()));
    profile.write(&path).unwrap();
    assert!(fs::read(&path).unwrap().len() >= before + STACKS);
    fs::remove_file(&path).unwrap();

    let second = Profile::start(0).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::AlreadyExists);
    let nowhere = profile.write("/nowhere/at/all").unwrap_err();
    assert_eq!(nowhere.kind(), ErrorKind::NotFound);
    let no_name = profile.write("a\0b").unwrap_err();
    assert_eq!(no_name.kind(), ErrorKind::InvalidInput);

    drop(profile);
    let after = length();
    allocate();
    assert!(length() < after + STACKS);
    let again = Profile::start(1).unwrap();
    allocate();
    assert!(length() >= after + STACKS);
    drop(again);
}
