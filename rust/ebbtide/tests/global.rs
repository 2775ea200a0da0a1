// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program whose global allocator is Ebbtide.

#![cfg(not(miri))]

use std::alloc::{alloc, alloc_zeroed, dealloc, realloc, GlobalAlloc, Layout};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use ebbtide::epoch::{self, Owned};
use ebbtide::Ebbtide;

#[global_allocator]
static ALLOCATOR: Ebbtide = Ebbtide;

/// For tests that look at the process's statistics, and those that change them by much.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn collections_live_in_it() {
    let _alone = alone();
    let before = ebbtide::stats().live_bytes;
    let block = vec![7_u8; 4 << 20]; // the harness may free a little meanwhile
    assert!(ebbtide::stats().live_bytes >= before + (3 << 20));
    drop(block);
    let words: HashMap<_, _> = (0..10_000).map(|i| (i, i.to_string())).collect();
    let halves = thread::spawn(move || words.into_iter().filter(|(i, _)| i % 2 == 0).count());
    assert_eq!(halves.join().unwrap(), 5_000);
}

#[test]
fn layouts_of_all_kinds() {
    let _alone = alone();
    for shift in 0..16 {
        for size in [1, 15, 48, 1_000, 40_000, 300_000] {
            let layout = Layout::from_size_align(size, 1 << shift).unwrap();
            // SAFETY: the size is not 0; each block is used within its size and freed once.
            unsafe { exercise(layout) };
        }
    }
}

/// # Safety
/// The layout's size is not 0.
unsafe fn exercise(layout: Layout) {
    let (size, align) = (layout.size(), layout.align());
    // SAFETY: the caller's word, and blocks are used within their sizes.
    unsafe {
        let zeroed = alloc_zeroed(layout);
        let block = alloc(layout);
        assert!((zeroed as usize | block as usize) % align == 0);
        assert!((0..size).all(|i| *zeroed.add(i) == 0));
        block.write_bytes(1, size);
        let block = realloc(block, layout, 2 * size);
        assert!(!block.is_null() && block as usize % align == 0);
        assert!((0..size).all(|i| *block.add(i) == 1));
        let twice = Layout::from_size_align(2 * size, align).unwrap();
        let block = realloc(block, twice, 1);
        assert_eq!((*block, block as usize % align), (1, 0));
        dealloc(block, Layout::from_size_align(1, align).unwrap());
        dealloc(zeroed, layout);
    }
}

#[test]
fn refuses_what_cannot_be() {
    let layout = Layout::from_size_align(isize::MAX as usize - 4095, 4096).unwrap();
    let modest = Layout::from_size_align(64, 4096).unwrap();
    // SAFETY: sizes are not 0; a refused realloc leaves the block as it was.
    unsafe {
        assert!(ALLOCATOR.alloc(layout).is_null());
        assert!(ALLOCATOR.alloc_zeroed(layout).is_null());
        let block = ALLOCATOR.alloc(modest);
        assert!(ALLOCATOR.realloc(block, modest, layout.size()).is_null());
        ALLOCATOR.dealloc(block, modest);
    }
}

#[test]
fn boxes_and_owned_blocks_are_the_same() {
    let raw = Box::into_raw(Box::new(String::from("boxed")));
    // SAFETY: a block of the global allocator, which is Ebbtide.
    let owned = unsafe { Owned::from_raw(raw) };
    let guard = epoch::pin();
    let shared = owned.into_shared(&guard);
    // SAFETY: was never shared.
    unsafe { guard.defer_destroy(shared) };
    drop(guard);
    epoch::default_collector().barrier();
}

#[test]
fn trim_gives_back() {
    let _alone = alone();
    drop(vec![1_u8; 64 << 20]);
    ebbtide::trim();
    assert!(ebbtide::stats().resident_free_bytes < 32 << 20);
}
