// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every item is taken once, and no thief reads a buffer that is in use anew.
#![cfg(loom)]

use ebbtide_model::clock::{self, Clock};
use ebbtide_model::deque::{Deque, Rules, SOUND};
use ebbtide_model::explore;
use loom::sync::Arc;
use loom::thread;

fn check_taken_once(mut taken: Vec<usize>) {
    let count = taken.len();
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), count, "an item was taken twice");
}

/// The owner pops once; a thief, or two, steal so often.
fn pop_against_steals(rules: Rules, items: usize, thieves: usize, steals: usize) {
    explore(4, move || {
        let shared = Arc::new((Clock::new(clock::FENCED, thieves), Deque::new(rules, 2)));
        for item in 1..=items {
            shared.1.push(&shared.0, item);
        }
        let thieves: Vec<_> = (0..thieves)
            .map(|me| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (clock, deque) = &*shared;
                    (0..steals)
                        .filter_map(|_| deque.steal(clock, me))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let mut taken: Vec<_> = shared.1.pop().into_iter().collect();
        for thief in thieves {
            taken.extend(thief.join().unwrap());
        }
        while let Some(item) = shared.1.pop() {
            taken.push(item);
        }
        assert_eq!(taken.len(), items, "an item was taken twice or lost");
        check_taken_once(taken);
    });
}

#[test]
fn the_last_item_goes_to_one() {
    pop_against_steals(SOUND, 1, 2, 1);
}

#[test]
#[should_panic(expected = "taken twice")]
fn mutant_last_item_without_exchange() {
    let rules = Rules {
        last_by_exchange: false,
        ..SOUND
    };
    pop_against_steals(rules, 1, 1, 1);
}

#[test]
fn two_items_two_steals() {
    pop_against_steals(SOUND, 2, 1, 2);
}

#[test]
#[should_panic(expected = "taken twice")]
fn mutant_pop_without_fence() {
    let rules = Rules {
        pop_fence: false,
        ..SOUND
    };
    pop_against_steals(rules, 2, 1, 2);
}

#[test]
#[should_panic(expected = "taken twice")]
fn mutant_steal_without_fence() {
    let rules = Rules {
        steal_fence: false,
        ..SOUND
    };
    pop_against_steals(rules, 2, 2, 1);
}

/// The owner grows while a thief steals, then reuses the old buffer as soon as it may.
fn growth_against_steal(rules: Rules, clock_rules: clock::Rules) {
    explore(4, move || {
        let shared = Arc::new((Clock::new(clock_rules, 1), Deque::new(rules, 1)));
        shared.1.push(&shared.0, 1);
        let of_thief = shared.clone();
        let thief = thread::spawn(move || of_thief.1.steal(&of_thief.0, 0));
        let (clock, deque) = &*shared;
        if let Some(tag) = deque.push(clock, 2) {
            clock.advance();
            clock.advance();
            deque.reclaim(clock, tag);
        }
        let mut taken: Vec<_> = thief.join().unwrap().into_iter().collect();
        while let Some(item) = deque.pop() {
            taken.push(item);
        }
        assert_eq!(taken.len(), 2, "an item was taken twice or lost");
        check_taken_once(taken);
    });
}

#[test]
fn growth_retires_the_old_buffer() {
    growth_against_steal(SOUND, clock::FENCED);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_buffer_freed_at_growth() {
    let rules = Rules {
        retires: false,
        ..SOUND
    };
    growth_against_steal(rules, clock::FENCED);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_thief_pins_without_fence() {
    let rules = clock::Rules {
        pin_fence: false,
        ..clock::FENCED
    };
    growth_against_steal(SOUND, rules);
}
