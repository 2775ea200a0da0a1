// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workloads that any arena can do. Each gives a number that does not depend on the arena.

use allocator_api2::alloc::Allocator;
use allocator_api2::vec::Vec;
use bumpalo::Bump;
use ebbtide::region::Region;

/// Memory that is opened, filled with values and dropped as a whole.
pub trait Arena<T> {
    /// An empty one.
    fn open() -> Self;
    /// Room in it for the value.
    fn put(&self, value: T) -> &T;
}

impl<T> Arena<T> for Region<'static> {
    fn open() -> Self {
        Region::open()
    }
    fn put(&self, value: T) -> &T {
        self.alloc(value)
    }
}

impl<T> Arena<T> for Bump {
    fn open() -> Self {
        Bump::new()
    }
    fn put(&self, value: T) -> &T {
        self.alloc(value)
    }
}

impl<T> Arena<T> for typed_arena::Arena<T> {
    fn open() -> Self {
        typed_arena::Arena::new()
    }
    fn put(&self, value: T) -> &T {
        self.alloc(value)
    }
}

/// An arena that copies text.
pub trait Texts: Arena<u8> {
    /// A copy in it.
    fn copy(&self, text: &str) -> &str;
}

impl Texts for Region<'static> {
    fn copy(&self, text: &str) -> &str {
        self.alloc_str(text)
    }
}

impl Texts for Bump {
    fn copy(&self, text: &str) -> &str {
        self.alloc_str(text)
    }
}

impl Texts for typed_arena::Arena<u8> {
    fn copy(&self, text: &str) -> &str {
        self.alloc_str(text)
    }
}

/// What most programs put into arenas: a few words.
pub type Node = [usize; 3];

/// Puts `count` nodes into the arena.
pub fn fill<A: Arena<Node>>(arena: &A, count: usize) -> usize {
    (0..count)
        .map(|i| std::hint::black_box(arena.put([i, 1, 2]))[0])
        .sum()
}

/// Opens an arena, puts `count` nodes into it and drops it.
pub fn objects<A: Arena<Node>>(count: usize) -> usize {
    fill(&A::open(), count)
}

/// Copies `count` texts of 1 to 40 bytes.
pub fn texts<A: Texts>(count: usize) -> usize {
    let arena = A::open();
    let source = "a text of forty bytes, or a part of it..";
    (0..count)
        .map(|i| std::hint::black_box(arena.copy(&source[..1 + i * 7 % 40])).len())
        .sum()
}

/// Pushes `count` numbers into a vector that grows in the arena.
pub fn vector(arena: impl Allocator, count: usize) -> usize {
    let mut numbers = Vec::new_in(arena);
    (0..count).for_each(|i| numbers.push(i));
    std::hint::black_box(&numbers).iter().sum()
}

/// Puts `count` values that have destructors into a region, and drops it and them.
pub fn dropped_region(count: usize) -> usize {
    let region = Region::open();
    (0..count)
        .map(|i| region.alloc_dropped(Box::new(i)))
        .map(|number| **number)
        .sum()
}

/// The same in a typed arena.
pub fn dropped_typed(count: usize) -> usize {
    let arena = typed_arena::Arena::new();
    (0..count)
        .map(|i| arena.alloc(Box::new(i)))
        .map(|number| **number)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_arenas_do_the_same() {
        let sum = 1_000 * 999 / 2;
        assert_eq!(objects::<Region>(1_000), sum);
        assert_eq!(objects::<Bump>(1_000), sum);
        assert_eq!(objects::<typed_arena::Arena<Node>>(1_000), sum);
        let length = texts::<Region>(1_000);
        assert_eq!(length, 20_500);
        assert_eq!(texts::<Bump>(1_000), length);
        assert_eq!(texts::<typed_arena::Arena<u8>>(1_000), length);
        assert_eq!(vector(&Region::open(), 1_000), sum);
        assert_eq!(vector(&Bump::new(), 1_000), sum);
        assert_eq!(dropped_region(1_000), sum);
        assert_eq!(dropped_typed(1_000), sum);
    }
}
