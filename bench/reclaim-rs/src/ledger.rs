// SPDX-License-Identifier: MIT OR Apache-2.0
//! The books: what was retired and what was reclaimed, each counted by the thread that
//! did it, in a line of its own. The same for every scheme, so it costs each the same.

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::Relaxed};

const PAGES: usize = 256;

#[repr(align(64))]
pub struct Page {
    retired: AtomicU64,
    reclaimed: AtomicU64,
}

static BOOK: [Page; PAGES] = [const {
    Page {
        retired: AtomicU64::new(0),
        reclaimed: AtomicU64::new(0),
    }
}; PAGES];
static USED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MINE: Cell<Option<&'static Page>> = const { Cell::new(None) };
}

#[cold]
fn open() -> &'static Page {
    // Relaxed: a number of its own for each thread.
    let Some(page) = BOOK.get(USED.fetch_add(1, Relaxed)) else {
        crate::fail("too many threads");
    };
    MINE.set(Some(page));
    page
}

/// Of the calling thread, which alone writes to it.
#[inline(always)]
pub fn page() -> &'static Page {
    MINE.get().unwrap_or_else(open)
}

impl Page {
    #[inline(always)]
    pub fn retire(&self) {
        // Relaxed: counts; one writer.
        self.retired.store(self.retired.load(Relaxed) + 1, Relaxed);
    }

    #[inline(always)]
    fn reclaim(&self) {
        // Relaxed: as above.
        self.reclaimed
            .store(self.reclaimed.load(Relaxed) + 1, Relaxed);
    }
}

/// Nodes retired and not reclaimed. Reclaimed is read first: never below the truth.
pub fn unreclaimed() -> u64 {
    // Relaxed: counts.
    let reclaimed: u64 = BOOK.iter().map(|page| page.reclaimed.load(Relaxed)).sum();
    let retired: u64 = BOOK.iter().map(|page| page.retired.load(Relaxed)).sum();
    retired.saturating_sub(reclaimed)
}

/// What a node holds beside the scheme's own link.
pub struct Body {
    pub word: u64,
    check: AtomicU64,
}

impl Body {
    #[inline(always)]
    pub fn new(word: u64) -> Self {
        Body {
            word,
            check: AtomicU64::new(!word),
        }
    }

    #[inline(always)]
    pub fn is_intact(&self) -> bool {
        // Relaxed: written before the node was published.
        self.check.load(Relaxed) == !self.word
    }
}

impl Drop for Body {
    /// Poisons the node, which a reader that still sees it would notice.
    #[inline(always)]
    fn drop(&mut self) {
        // Relaxed: the readers' check only needs to see it some day.
        self.check.store(self.word, Relaxed);
        page().reclaim();
    }
}

/// The node of the schemes that need no link in it.
#[repr(C)]
pub struct Node {
    pub body: Body,
    unused: [u64; 2],
}

const _: () = assert!(size_of::<Node>() == 32);

impl Node {
    #[inline(always)]
    pub fn create(word: u64) -> *mut Node {
        let mut node = Box::<Node>::new_uninit();
        // SAFETY: nobody reads the unused words.
        unsafe {
            (&raw mut (*node.as_mut_ptr()).body).write(Body::new(word));
            Box::into_raw(node).cast()
        }
    }
}

/// A shared pointer on a line of its own.
#[repr(align(64))]
pub struct Shared(pub AtomicPtr<Node>);

impl Shared {
    pub fn new(word: u64) -> Self {
        Shared(AtomicPtr::new(Node::create(word)))
    }

    /// The last node, which nobody else can reach any more.
    pub fn take(self) -> u64 {
        // SAFETY: made by Node::create, and never retired.
        let node = unsafe { Box::from_raw(self.0.into_inner()) };
        page().retire();
        node.body.word
    }
}
