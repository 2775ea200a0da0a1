// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system call membarrier, which loom does not know: a full fence at some point of every other
//! thread's program before it returns. Here at those points where a thread lets itself be interrupted:
//! between its look at the clock, the store of its depth, its second look, and outside of pins.

use loom::sync::atomic::{fence, AtomicUsize, Ordering};
use loom::thread;

/// For a fixed number of threads, and one caller at a time.
#[derive(Debug)]
pub struct Membarrier {
    issued: AtomicUsize,
    answered: Vec<AtomicUsize>,
}

const ENDED: usize = usize::MAX;

impl Membarrier {
    pub(crate) fn new(threads: usize) -> Membarrier {
        Membarrier {
            issued: AtomicUsize::new(0),
            answered: (0..threads).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    /// The system call.
    pub(crate) fn issue(&self) {
        let number = self.issued.load(Ordering::Relaxed) + 1;
        fence(Ordering::SeqCst);
        self.issued.store(number, Ordering::Relaxed);
        for answer in &self.answered {
            while answer.load(Ordering::Acquire) < number {
                thread::yield_now();
            }
        }
        fence(Ordering::SeqCst);
    }

    /// The interrupt, if there is one, in thread `me`.
    pub(crate) fn interrupt(&self, me: usize) {
        let number = self.issued.load(Ordering::Relaxed);
        if number > self.answered[me].load(Ordering::Relaxed) {
            self.answer(me, number);
        }
    }

    /// A thread that has ended, as far as its accesses go, is waited for no more.
    pub(crate) fn end(&self, me: usize) {
        self.answer(me, ENDED);
    }

    fn answer(&self, me: usize, number: usize) {
        fence(Ordering::SeqCst);
        self.answered[me].store(number, Ordering::Release);
    }
}
