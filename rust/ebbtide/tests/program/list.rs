// SPDX-License-Identifier: MIT OR Apache-2.0
// The sorted list of Harris and Michael: a set of keys, where tag 1 in a node's link says that the
// node has been removed.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;

use self::crossbeam_epoch::{pin, unprotected, Atomic, Guard, Owned, Pointer, Shared};

struct Node {
    key: usize,
    next: Atomic<Node>,
}

struct Set {
    head: Atomic<Node>,
}

struct Place<'g> {
    link: &'g Atomic<Node>,
    at: Shared<'g, Node>, // the first node whose key is not below
    found: bool,
}

impl Set {
    // The place of a key; unlinks removed nodes on its way.
    fn find<'g>(&'g self, key: usize, guard: &'g Guard) -> Place<'g> {
        'again: loop {
            let mut link = &self.head;
            let mut at = link.load(Acquire, guard);
            // SAFETY: protected by the guard.
            while let Some(node) = unsafe { at.as_ref() } {
                let next = node.next.load(Acquire, guard);
                if next.tag() == 1 {
                    let next = next.with_tag(0);
                    let Ok(_) = link.compare_exchange(at, next, Release, Relaxed, guard) else {
                        continue 'again;
                    };
                    // SAFETY: unlinked by this thread.
                    unsafe { guard.defer_destroy(at) };
                    at = next;
                } else if node.key >= key {
                    let found = node.key == key;
                    return Place { link, at, found };
                } else {
                    link = &node.next;
                    at = next;
                }
            }
            return Place {
                link,
                at,
                found: false,
            };
        }
    }

    fn insert(&self, key: usize, guard: &Guard) -> bool {
        let mut fresh = Owned::new(Node {
            key,
            next: Atomic::null(),
        });
        loop {
            let place = self.find(key, guard);
            if place.found {
                return false;
            }
            fresh.next.store(place.at, Relaxed);
            match place
                .link
                .compare_exchange(place.at, fresh, Release, Relaxed, guard)
            {
                Ok(_) => return true,
                Err(refused) => fresh = refused.new,
            }
        }
    }

    fn remove(&self, key: usize, guard: &Guard) -> bool {
        loop {
            let place = self.find(key, guard);
            if !place.found {
                return false;
            }
            // SAFETY: found, so not null, and protected by the guard.
            let node = unsafe { place.at.deref() };
            if node.next.fetch_or(1, Release, guard).tag() == 0 {
                self.find(key, guard); // unlinks it
                return true;
            }
        }
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        // SAFETY: nobody else has the set.
        unsafe {
            let guard = unprotected();
            let mut at = self.head.load(Relaxed, guard).into_usize();
            while let Some(node) = Shared::<Node>::from_usize(at).try_into_owned() {
                at = node.next.load(Relaxed, guard).into_usize();
            }
        }
    }
}

const ROUNDS: usize = if cfg!(miri) { 4 } else { 2_000 };
const KEYS: usize = 16;

#[test]
fn inserts_and_removals_balance() {
    let set = Set {
        head: Atomic::null(),
    };
    let balances: Vec<[isize; KEYS]> = thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(|| toggle_all(&set))).collect();
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    let guard = &pin();
    for key in 0..KEYS {
        let balance: isize = balances.iter().map(|b| b[key]).sum();
        assert_eq!(balance, isize::from(set.find(key, guard).found), "key {key}");
    }
}

// Inserts less removals, by key.
fn toggle_all(set: &Set) -> [isize; KEYS] {
    let mut balance = [0; KEYS];
    for round in 0..ROUNDS {
        for (key, count) in balance.iter_mut().enumerate() {
            let guard = &pin();
            if (round + key) % 3 == 0 {
                *count -= isize::from(set.remove(key, guard));
            } else {
                *count += isize::from(set.insert(key, guard));
            }
        }
    }
    balance
}
