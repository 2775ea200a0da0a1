// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guards that are leaked. Safe code may do it, and lend what it has loaded under such a guard to any
//! thread, for ever. But the library ends a thread's pins with the thread: so a thread that leaves a pin
//! behind ends the process instead.
//!
//! A thread looks for such pins when its thread-local values, which may hold guards, have been dropped,
//! and before the library lets go of it: in the first of the rounds in which it destroys its keys. (A
//! thread that C code has pinned before is not watched: what that code leaves behind is its own matter.)

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::io::{self, Write};
use std::process;
use std::sync::OnceLock;

use super::collector::Local;
use super::pin;

extern "C" {
    fn pthread_key_create(
        key: *mut c_uint,
        end: Option<unsafe extern "C" fn(*mut c_void)>,
    ) -> c_int;
    fn pthread_setspecific(key: c_uint, value: *const c_void) -> c_int;
}

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// Looks at the calling thread's pins when it ends. Idempotent.
///
/// # Panics
/// When the system has no key left, or no memory for its value.
pub(super) fn watch() {
    static KEY: OnceLock<c_uint> = OnceLock::new();
    if WATCHED.get() {
        return;
    }
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: writes a key; the function may be called in any thread.
        let outcome = unsafe { pthread_key_create(&mut key, Some(thread_ends)) };
        assert_eq!(outcome, 0, "the system has no key for the ends of threads");
        key
    });
    // SAFETY: the key was made above; the value only has to be something else than null.
    let outcome = unsafe { pthread_setspecific(*key, key as *const c_uint as *const c_void) };
    assert_eq!(
        outcome, 0,
        "the system has no memory for the end of this thread"
    );
    WATCHED.set(true);
}

unsafe extern "C" fn thread_ends(_: *mut c_void) {
    if Local::any_is_pinned() || pin::default::would_end() {
        let line = b"ebbtide: a thread ends that has leaked a guard: what the guard protects could not last\n";
        let _ = io::stderr().write_all(line); // the process ends either way
        process::abort();
    }
}
