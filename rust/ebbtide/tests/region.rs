// SPDX-License-Identifier: MIT OR Apache-2.0
//! Regions: what is allocated in them, how they end, and collections that live there. That nothing
//! escapes is in the documentation's examples, which must not compile.
#![cfg(not(miri))]

use std::alloc::Layout;
use std::collections::HashSet;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use allocator_api2::boxed::Box as RegionBox;
use allocator_api2::vec::Vec as RegionVec;
use ebbtide::region::{
    lifetimes, promote_to_heap, AllocError, LifetimeStats, Options, Policy, Region,
};

/// Counts how often it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn line_of(label: &str) -> LifetimeStats {
    let lines = lifetimes();
    let mut found = lines.into_iter().filter(|line| line.label == label);
    let line = found.next().expect("a line for the label");
    assert!(found.next().is_none(), "one line for each label");
    line
}

#[test]
fn values_stay_what_they_are() {
    let region = Region::open();
    let numbers: Vec<&mut u64> = (0..10_000).map(|i| region.alloc(i)).collect();
    let texts: Vec<&mut str> = (0..1_000)
        .map(|i| region.alloc_str(&format!("text {i}")))
        .collect();
    let large = region.alloc_slice_with(100_000, |i| i);
    let copied = region.alloc_slice_copy(large);
    large.fill(0);
    assert!(numbers.iter().enumerate().all(|(i, n)| **n == i as u64));
    assert!(texts
        .iter()
        .enumerate()
        .all(|(i, t)| **t == format!("text {i}")));
    assert!(copied.iter().enumerate().all(|(i, n)| *n == i));
    assert_eq!(region.stats().live_blocks, 11_002);
    *numbers.into_iter().next().unwrap() = 7;
}

#[test]
fn alignments_and_empty_values() {
    #[repr(align(256))]
    struct Wide(u8);

    let region = Region::open();
    for i in 0..20_u8 {
        let wide = region.alloc(Wide(i));
        region.alloc(i);
        assert!(ptr::from_ref(wide) as usize % 256 == 0 && wide.0 == i);
    }
    let blocks = region.stats().live_blocks;
    let nothing = region.alloc(());
    assert!(!region.holds(nothing));
    assert!(region.alloc_slice_copy::<u64>(&[]).is_empty());
    assert_eq!(region.alloc_str(""), "");
    assert_eq!(region.stats().live_blocks, blocks, "nothing takes no block");
    let page = Layout::from_size_align(10, 4096).unwrap();
    assert_eq!(
        region.alloc_layout(page).unwrap().as_ptr() as usize % 4096,
        0
    );
}

#[test]
fn the_end_drops_what_was_asked_for_newest_first() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut region = Region::open();
    let note = |what: usize| {
        let order = order.clone();
        move || order.lock().unwrap().push(what)
    };
    region.defer(note(1)).unwrap();
    region.defer(note(2)).unwrap();
    region.reset();
    assert_eq!(*order.lock().unwrap(), [2, 1]);
    region.defer(note(3)).unwrap();
    drop(region);
    assert_eq!(*order.lock().unwrap(), [2, 1, 3]);
    assert_eq!(
        Arc::strong_count(&order),
        1,
        "the functions are dropped too"
    );
}

#[test]
fn plain_values_are_not_dropped() {
    let count = Arc::new(AtomicUsize::new(0));
    let region = Region::open();
    region.alloc(Counted(count.clone()));
    region.alloc_dropped(Counted(count.clone()));
    let boxed = RegionBox::new_in(Counted(count.clone()), &region);
    drop(boxed);
    assert_eq!(count.load(SeqCst), 1);
    region.close();
    assert_eq!(count.load(SeqCst), 2);
    assert_eq!(Arc::strong_count(&count), 2, "the plain one is leaked");
}

#[test]
fn a_reset_region_serves_again() {
    let mut region = Region::open();
    for round in 0..100_u64 {
        let values: Vec<_> = (0..2_000).map(|i| region.alloc(round * i)).collect();
        assert!(values
            .iter()
            .zip(0..)
            .all(|(value, i)| **value == round * i));
        drop(values);
        region.reset();
        assert_eq!(region.stats().live_blocks, 0);
    }
    let peak = region.stats().peak_bytes;
    assert!(peak <= 1 << 20, "{peak} bytes for rounds of 32 KB");
}

#[test]
fn regions_nest() {
    let parent = Options::new().label("parent").open().unwrap();
    let kept = {
        let child = Options::new().label("child").open_in(&parent).unwrap();
        let grandchild = child.child();
        let deepest = grandchild.alloc(9);
        let texts: &[&str] = child.alloc_slice_copy(&[child.alloc_str("ebb"), "tide"]);
        assert!(child.holds(texts) && grandchild.holds(deepest) && !parent.holds(deepest));
        assert_eq!((*deepest, texts.concat().as_str()), (9, "ebbtide"));
        parent.promote(texts[0])
    };
    assert_eq!((&*kept, parent.label()), ("ebb", "parent".into()));
    assert!(parent.holds(kept));
}

#[test]
fn a_forgotten_child_ends_with_its_parent() {
    let count = Arc::new(AtomicUsize::new(0));
    let mut parent = Region::open();
    let child = parent.child();
    child.alloc_dropped(Counted(count.clone()));
    mem::forget(child);
    assert_eq!(count.load(SeqCst), 0);
    parent.reset();
    assert_eq!(count.load(SeqCst), 1);
}

#[test]
fn promoted_values_outlive_the_region() {
    let region = Region::open();
    let point = promote_to_heap(&*region.alloc((1.5, 2)));
    let text = promote_to_heap(&*region.alloc_str("text"));
    let slice = promote_to_heap(&*region.alloc_slice_copy(&[1, 2, 3]));
    assert!(!region.holds(&*point) && !region.holds(&*text));
    drop(region);
    assert_eq!(
        (*point, &*text, &*slice),
        ((1.5, 2), "text", &[1, 2, 3][..])
    );
}

#[test]
fn the_hard_limit_refuses() {
    let region = Options::new().hard_limit(1 << 20).open().unwrap();
    let mut values = 0_usize;
    while region.try_alloc([values; 128]).is_ok() {
        values += 1;
        assert!(values <= 1 << 10, "1 KiB each");
    }
    assert!(values > 0);
    assert_eq!(
        region.try_alloc_slice_copy(&[0_u8; 1 << 20]),
        Err(AllocError)
    );
    let mut vec: RegionVec<u8, _> = RegionVec::new_in(&region);
    assert!(vec.try_reserve(1 << 20).is_err());
    assert!(region.stats().refused >= 3 && region.stats().held_bytes <= 1 << 20);
    let limitless = Region::open();
    assert!(limitless.try_alloc([0_u8; 1 << 20]).is_ok());
}

#[test]
fn refused_values_are_dropped() {
    let count = Arc::new(AtomicUsize::new(0));
    let region = Options::new().hard_limit(64 << 10).open().unwrap();
    let value = (Counted(count.clone()), [0_u8; 200 << 10]);
    assert!(region.try_alloc_dropped(value).is_err());
    assert_eq!(count.load(SeqCst), 1);
    drop(region);
    assert_eq!(count.load(SeqCst), 1, "and no cleanup is left of it");
}

#[test]
fn several_threads_share_a_region() {
    const THREADS: usize = 4;
    let dropped = Arc::new(AtomicUsize::new(0));
    let region = Region::open();
    let fill = |id: usize| {
        let mut filled = Vec::new();
        for i in 0..5_000 {
            let slice = region.alloc_slice_with(1 + i % 9, |_| id);
            if i % 100 == 0 {
                region.alloc_dropped(Counted(dropped.clone()));
            }
            drop(RegionBox::new_in([id; 5], &region));
            filled.push(slice);
        }
        filled
    };
    let slices: Vec<&mut [usize]> = thread::scope(|scope| {
        let fill = &fill;
        let threads: Vec<_> = (0..THREADS)
            .map(|id| scope.spawn(move || fill(id)))
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    for (at, slice) in slices.iter().enumerate() {
        assert_eq!(slice.len(), 1 + at % 5_000 % 9);
        assert!(slice.iter().all(|value| *value == at / 5_000));
    }
    drop(region);
    assert_eq!(dropped.load(SeqCst), THREADS * 50);
}

#[test]
fn blocks_are_freed_by_other_threads() {
    let region = Region::open();
    let (sender, receiver) = channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            for (at, boxed) in receiver.into_iter().enumerate() {
                let boxed: RegionBox<[usize; 8], &Region> = boxed;
                assert_eq!(*boxed, [at; 8]);
            }
        });
        for at in 0..20_000 {
            sender.send(RegionBox::new_in([at; 8], &region)).unwrap();
        }
        drop(sender);
    });
    assert_eq!(region.stats().live_blocks, 0);
}

#[test]
fn a_region_moves_between_threads() {
    let count = Arc::new(AtomicUsize::new(0));
    let region = Region::open();
    region.alloc_dropped(Counted(count.clone()));
    region.detach();
    let mover = thread::spawn(move || {
        let sum = (0..1_000).map(|i| *region.alloc(i)).sum::<u64>();
        (region, sum) // its owner is gone when the next one uses it
    });
    let (region, sum) = mover.join().unwrap();
    assert_eq!(
        (sum, region.alloc_str("here again")),
        (499_500, region.alloc_str("here again"))
    );
    let ended = thread::spawn(move || drop(region));
    ended.join().unwrap();
    assert_eq!(count.load(SeqCst), 1);
}

#[test]
fn regions_of_a_thread_end_with_it() {
    thread_local! {
        static REGION: Region<'static> = Options::new().label("of a thread").open().unwrap();
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    for _ in 0..20 {
        let dropped = dropped.clone();
        let worker = thread::spawn(move || {
            REGION.with(|region| {
                region.alloc_dropped(Counted(dropped));
                region.alloc_slice_with(1_000, |i| i).iter().sum::<usize>()
            })
        });
        assert_eq!(worker.join().unwrap(), 499_500);
    }
    assert_eq!(dropped.load(SeqCst), 20);
    let line = line_of("of a thread");
    assert_eq!((line.open, line.released, line.live_blocks), (0, 20, 0));
}

#[test]
fn owners_that_never_detach_do_not_collide() {
    // The opener goes on allocating while others do.
    let region = Region::open();
    let start = Barrier::new(3);
    let addresses = |id: usize| {
        start.wait();
        (0..20_000)
            .map(|i| ptr::from_ref(region.alloc([id, i])) as usize)
            .collect::<Vec<_>>()
    };
    let all: Vec<usize> = thread::scope(|scope| {
        let others = [scope.spawn(|| addresses(1)), scope.spawn(|| addresses(2))];
        let mut all = addresses(0);
        all.extend(others.into_iter().flat_map(|other| other.join().unwrap()));
        all
    });
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), 60_000);
    assert_eq!(region.stats().live_blocks, 60_000);
}

#[test]
fn vectors_grow_and_shrink() {
    let region = Region::open();
    let mut one = RegionVec::new_in(&region);
    let mut other = RegionVec::new_in(&region);
    for i in 0..50_000_u32 {
        one.push(i);
        other.push(!i);
    }
    one.truncate(100);
    one.shrink_to_fit();
    let boxed = other.into_boxed_slice();
    assert!(one.iter().copied().eq(0..100) && region.holds(one.as_slice()));
    assert!(boxed.iter().zip(0..).all(|(value, i)| *value == !i));
    one.clear();
    one.shrink_to_fit();
    one.extend_from_slice(&[1, 2, 3]);
    assert_eq!(one, [1, 2, 3]);
    let zeroed = RegionBox::<[u64; 100], _>::new_zeroed_in(&region);
    // SAFETY: zero is a number.
    assert_eq!(*unsafe { zeroed.assume_init() }, [0; 100]);
}

#[test]
fn shrinking_needs_no_memory() {
    let region = Options::new().hard_limit(512 << 10).open().unwrap();
    let mut vec = RegionVec::new_in(&region);
    vec.extend((0..20_000_u32).rev());
    while region.try_alloc_slice_copy(&[0_u8; 16]).is_ok() {}
    vec.truncate(1_000);
    vec.shrink_to_fit();
    assert!(vec.iter().copied().eq((19_000..20_000).rev()));
    drop(vec);
    assert!(region.stats().refused > 0);
}

#[test]
fn vectors_of_wide_values() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(align(128))]
    struct Wide(usize);

    let region = Region::open();
    let mut wide = RegionVec::new_in(&region);
    for i in 0..1_000 {
        wide.push(Wide(i));
        assert_eq!(wide.as_ptr() as usize % 128, 0);
        region.alloc(i); // so that the next block is aligned to no more than it must
    }
    wide.truncate(3);
    wide.shrink_to_fit();
    assert_eq!(wide, [Wide(0), Wide(1), Wide(2)]);
    assert_eq!(wide.as_ptr() as usize % 128, 0);
}

#[test]
fn maps_live_in_a_region() {
    let region = Region::open();
    let mut map = hashbrown::HashMap::new_in(&region);
    for i in 0..10_000_u64 {
        map.insert(region.alloc_str(&i.to_string()) as &str, i);
    }
    for i in (0..10_000_u64).step_by(2) {
        assert_eq!(map.remove(i.to_string().as_str()), Some(i));
    }
    assert_eq!(map.len(), 5_000);
    assert_eq!(map.values().sum::<u64>(), 25_000_000);
    drop(map);
    assert_eq!(
        region.stats().live_blocks,
        10_000,
        "the map's blocks are gone"
    );
}

#[test]
fn labels_share_a_line_of_the_statistics() {
    const LABEL: &str = "a line";
    let options = Options::new().label(LABEL);
    let regions = [options.open().unwrap(), options.open().unwrap()];
    regions[0].alloc([0_u8; 1_000]);
    regions[1].alloc([0_u8; 3_000]);
    let line = line_of(LABEL);
    assert_eq!(
        (line.is_domain, line.open, line.opened, line.live_blocks),
        (false, 2, 2, 2)
    );
    assert!(line.live_bytes >= 4_000);
    assert_ne!(regions[0].stats().id, regions[1].stats().id);
    drop(regions);
    let line = line_of(LABEL);
    assert_eq!((line.open, line.released, line.live_blocks), (0, 2, 0));
    // The first memory of each is at hand for the next region.
    assert!(line.held_bytes <= 2 << 16);
}

#[test]
fn each_of_many_labels_has_a_line() {
    let names: Vec<String> = (0..40).map(|i| format!("one of many, {i}")).collect();
    let open = |name: &String| Options::new().label(name).open().unwrap();
    let regions: Vec<_> = names.iter().map(open).collect();
    for (region, name) in regions.iter().zip(&names) {
        region.alloc(1);
        assert_eq!(line_of(name).live_blocks, 1);
    }
}

#[test]
fn labels_are_cut_between_characters() {
    let long = "e".repeat(30) + "\u{e9}t\u{e9}";
    let region = Options::new().label(&long).open().unwrap();
    assert_eq!(region.label(), long[..30]);
    let fits = "e".repeat(31);
    let region = Options::new().label(&(fits.clone() + "x")).open().unwrap();
    assert_eq!(region.label(), fits);
    assert_eq!(Region::open().label(), "region");
}

#[test]
#[should_panic(expected = "NUL")]
fn labels_have_no_nul() {
    let _ = Options::new().label("a\0b");
}

#[test]
#[should_panic(expected = "NUL")]
fn nor_behind_what_is_kept_of_them() {
    let _ = Options::new().label(&("e".repeat(40) + "\0"));
}

#[test]
fn many_regions_are_open_at_once() {
    let regions: Vec<Region> = (0..2_000).map(|_| Region::open()).collect();
    let values: Vec<_> = regions
        .iter()
        .zip(0..)
        .map(|(r, i)| r.alloc([i; 256]))
        .collect();
    assert!(values.iter().zip(0..).all(|(value, i)| **value == [i; 256]));
    let ids: HashSet<u64> = regions.iter().map(|region| region.stats().id).collect();
    assert_eq!(ids.len(), regions.len());
}

#[test]
fn policies_of_every_nothing_are_refused() {
    let domain = ebbtide::region::Domain::open("refuses").unwrap();
    for policy in [Policy::Scopes(0), Policy::Bytes(0), Policy::Millis(0)] {
        let error = domain.set_policy(policy).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
    for name in ["", "a\0b"] {
        let error = ebbtide::region::Domain::open(name).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
}
