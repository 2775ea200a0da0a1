// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library's stand-in under Miri, which runs no C. Threads pin by the same inline code; what is
//! retired waits in one list for each collector and goes when nobody is pinned in it, which is the
//! simplest rule that is right: behind the fence, who is not seen pinned will see what is unlinked.
//!
//! The functions ask for what the library's ask for (safety), and are called by this crate alone.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{fence, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

pub use ebbtide_sys::{
    ebb_collector, ebb_destructor, ebb_participant, ebb_reclaim_stats, ebb_stats, ebb_word,
    ebb_words_destructor, EBB_COLLECTOR_FENCED, EBB_PIN_ATTENTION, EBB_PIN_DEEPEST, EBB_PIN_DEPTH,
    EBB_PIN_NONE,
};

// ---- memory: a header of {layout's size, alignment} before each block ---------------------------

static LIVE_BLOCKS: AtomicUsize = AtomicUsize::new(0);
static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
const HEADER: usize = 16;

pub unsafe fn ebb_aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    let align = align.max(HEADER);
    let Some(layout) = bytes
        .checked_add(align)
        .and_then(|total| Layout::from_size_align(total, align).ok())
    else {
        return ptr::null_mut();
    };
    let start = unsafe { System.alloc(layout) };
    if start.is_null() {
        return ptr::null_mut();
    }
    LIVE_BLOCKS.fetch_add(1, Ordering::Relaxed);
    LIVE_BYTES.fetch_add(bytes, Ordering::Relaxed);
    let block = unsafe { start.add(align) };
    unsafe { block.sub(HEADER).cast::<Layout>().write(layout) };
    block.cast()
}

pub unsafe fn ebb_malloc(bytes: usize) -> *mut c_void {
    unsafe { ebb_aligned_alloc(HEADER, bytes) }
}

unsafe fn layout_of(block: *mut u8) -> Layout {
    unsafe { block.sub(HEADER).cast::<Layout>().read() }
}

pub unsafe fn ebb_free(p: *mut c_void) {
    let block = p.cast::<u8>();
    if !block.is_null() {
        let layout = unsafe { layout_of(block) };
        LIVE_BLOCKS.fetch_sub(1, Ordering::Relaxed);
        LIVE_BYTES.fetch_sub(layout.size() - layout.align(), Ordering::Relaxed);
        unsafe { System.dealloc(block.sub(layout.align()), layout) };
    }
}

pub unsafe fn ebb_calloc(count: usize, size: usize) -> *mut c_void {
    let bytes = count * size;
    let block = unsafe { ebb_malloc(bytes) };
    if !block.is_null() {
        unsafe { block.write_bytes(0, bytes) };
    }
    block
}

pub unsafe fn ebb_realloc(p: *mut c_void, bytes: usize) -> *mut c_void {
    let moved = unsafe { ebb_malloc(bytes) };
    if !moved.is_null() {
        let layout = unsafe { layout_of(p.cast()) };
        let kept = bytes.min(layout.size() - layout.align());
        unsafe {
            ptr::copy_nonoverlapping(p.cast::<u8>(), moved.cast::<u8>(), kept);
            ebb_free(p);
        }
    }
    moved
}

pub unsafe fn ebb_trim() -> usize {
    0 // nothing is kept back
}

pub unsafe fn ebb_stats_get(stats: &mut ebb_stats) {
    *stats = ebb_stats {
        live_blocks: LIVE_BLOCKS.load(Ordering::Relaxed),
        live_bytes: LIVE_BYTES.load(Ordering::Relaxed),
        ..ebb_stats::default()
    };
}

// ---- collectors ---------------------------------------------------------------------------------

struct Call {
    p: ebb_word,
    run: ebb_words_destructor,
    context: ebb_word,
}

struct Contents {
    participants: Vec<*mut ebb_participant>,
    waiting: Vec<Call>,
    running: usize, // calls that have left the list and have not ended
}

// SAFETY: under a lock, and what is pointed to goes from thread to thread as the API says.
unsafe impl Send for Contents {}

#[repr(C)]
struct Collector {
    now: AtomicU64, // first, so that a participant leads here
    contents: Mutex<Contents>,
}

const EPOCH_ONE: u64 = EBB_PIN_DEPTH + 1;

impl Collector {
    const fn new() -> Collector {
        Collector {
            now: AtomicU64::new(EPOCH_ONE | 1),
            contents: Mutex::new(Contents {
                participants: Vec::new(),
                waiting: Vec::new(),
                running: 0,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self) -> *mut ebb_participant {
        let me = Box::into_raw(Box::new(ebb_participant {
            state: AtomicU64::new(0),
            now: ptr::from_ref(self).cast(),
            busy: 0,
            thread: 0,
            next: ptr::null_mut(),
            previous: ptr::null_mut(),
            released: 0,
        }));
        self.lock().participants.push(me);
        me
    }

    /// Runs what waits, if nobody is pinned.
    fn reclaim(&self) {
        let mut contents = self.lock();
        fence(Ordering::SeqCst);
        if contents.pinned() > 0 {
            return;
        }
        self.now.fetch_add(EPOCH_ONE, Ordering::Release);
        let calls = std::mem::take(&mut contents.waiting);
        contents.running += calls.len();
        drop(contents);
        for call in calls {
            unsafe { (call.run)(call.p, call.context) };
            self.lock().running -= 1;
        }
    }

    fn wait_until(&self, done: impl Fn(&Contents) -> bool) {
        while !done(&self.lock()) {
            self.reclaim();
            thread::yield_now();
        }
    }
}

impl Contents {
    fn pinned(&self) -> usize {
        let states = self.participants.iter().map(|p| unsafe { &(**p).state });
        states
            .filter(|state| state.load(Ordering::Acquire) & EBB_PIN_DEPTH != 0)
            .count()
    }
}

static DEFAULT: Collector = Collector::new();

thread_local!(static CURRENT: Cell<*mut ebb_participant> = const { Cell::new(ptr::null_mut()) });

/// The calling thread's record in the default collector.
pub fn current() -> *mut ebb_participant {
    if CURRENT.get().is_null() {
        CURRENT.set(DEFAULT.join());
    }
    CURRENT.get()
}

unsafe fn deref<'a>(collector: *const ebb_collector) -> &'a Collector {
    unsafe { collector.cast::<Collector>().as_ref() }.unwrap_or(&DEFAULT)
}

pub unsafe fn ebb_collector_create(_: c_uint) -> *mut ebb_collector {
    Box::into_raw(Box::new(Collector::new())).cast()
}

pub unsafe fn ebb_collector_attach(collector: *mut ebb_collector) -> *mut ebb_participant {
    unsafe { deref(collector) }.join()
}

pub unsafe fn ebb_collector_destroy(collector: *mut ebb_collector) {
    unsafe {
        ebb_collector_barrier(collector);
        let owned = Box::from_raw(collector.cast::<Collector>());
        for participant in &owned.lock().participants {
            drop(Box::from_raw(*participant));
        }
    }
}

pub unsafe fn ebb_collector_synchronize(collector: *mut ebb_collector) {
    unsafe { deref(collector) }.wait_until(|contents| contents.pinned() == 0);
}

pub unsafe fn ebb_collector_barrier(collector: *mut ebb_collector) {
    unsafe { deref(collector) }.wait_until(|c| c.waiting.is_empty() && c.running == 0);
}

pub unsafe fn ebb_collector_reclaim(collector: *mut ebb_collector) -> usize {
    let before = LIVE_BYTES.load(Ordering::Relaxed);
    unsafe { deref(collector) }.reclaim();
    before.saturating_sub(LIVE_BYTES.load(Ordering::Relaxed))
}

pub unsafe fn ebb_reclaim_stats_get(collector: *mut ebb_collector, stats: &mut ebb_reclaim_stats) {
    let collector = unsafe { deref(collector) };
    let contents = collector.lock();
    *stats = ebb_reclaim_stats {
        destructors: contents.waiting.len(),
        epoch: collector.now.load(Ordering::Relaxed) / EPOCH_ONE,
        participants: contents.participants.len(),
        pinned: contents.pinned(),
        fenced: 1,
        ..ebb_reclaim_stats::default()
    };
}

// ---- pins and what they hold back ---------------------------------------------------------------

pub unsafe fn ebb_is_pinned() -> c_int {
    unreachable!("every thread has a record here")
}

/// Within a pin that has work to do.
pub unsafe fn ebb_pin_slow(me: *mut ebb_participant) {
    unsafe { (*me).state.fetch_add(1, Ordering::Relaxed) };
}

/// One level less; the outermost one looks at what waits.
pub unsafe fn ebb_unpin_slow(me: *mut ebb_participant) {
    unsafe {
        let state = (*me).state.load(Ordering::Relaxed);
        if state & EBB_PIN_DEPTH == EBB_PIN_ATTENTION | 1 {
            (*me).state.store(state & !EBB_PIN_DEPTH, Ordering::Release);
            (*(*me).now.cast::<Collector>()).reclaim();
        } else {
            (*me).state.store(state - 1, Ordering::Relaxed);
        }
    }
}

unsafe extern "C" fn free(p: *mut c_void, _: *mut c_void) {
    unsafe { ebb_free(p) }
}

pub unsafe fn ebb_retire(p: *mut c_void) {
    unsafe { ebb_participant_retire(current(), p) };
}

pub unsafe fn ebb_retire_with(
    p: *mut c_void,
    destroy: Option<ebb_destructor>,
    context: *mut c_void,
) -> c_int {
    unsafe { ebb_participant_retire_with(current(), p, destroy, context) }
}

pub unsafe fn ebb_participant_retire(me: *mut ebb_participant, p: *mut c_void) -> c_int {
    unsafe { ebb_participant_retire_with(me, p, Some(free), ptr::null_mut()) }
}

pub unsafe fn ebb_participant_retire_with(
    me: *mut ebb_participant,
    p: *mut c_void,
    destroy: Option<ebb_destructor>,
    context: *mut c_void,
) -> c_int {
    let run = destroy.expect("a destructor");
    // A word is as its pointer in every way, calls included.
    let run = unsafe { mem::transmute::<ebb_destructor, ebb_words_destructor>(run) };
    let (p, context) = (ebb_word::new(p), ebb_word::new(context));
    unsafe { ebb_participant_retire_words(me, p, run, context) }
}

pub unsafe fn ebb_retire_words(p: ebb_word, run: ebb_words_destructor, context: ebb_word) -> c_int {
    unsafe { ebb_participant_retire_words(current(), p, run, context) }
}

pub unsafe fn ebb_participant_retire_words(
    me: *mut ebb_participant,
    p: ebb_word,
    run: ebb_words_destructor,
    context: ebb_word,
) -> c_int {
    let state = unsafe { &(*me).state };
    unsafe { &*(*me).now.cast::<Collector>() }
        .lock()
        .waiting
        .push(Call { p, run, context });
    let attentive = state.load(Ordering::Relaxed) | EBB_PIN_ATTENTION;
    if attentive & EBB_PIN_DEPTH != EBB_PIN_ATTENTION {
        state.store(attentive, Ordering::Relaxed);
    }
    0
}
