// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sampled heap profile.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys;

// Whether there is a `Profile`. Whoever sets it has the profile to itself until it clears it.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// A sampled heap profile, which is on until this is dropped: which call stacks allocated what is in use, and all that
/// was allocated meanwhile. It is the process's: there is one at a time.
///
/// Of all bytes that are allocated some are chosen at random, and the allocations that they fall into are the samples.
/// What regions allocate is not sampled. While it is on, an allocation costs some 2 ns more, a sample up to 2 us.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let file = std::env::temp_dir().join(format!("profile.{}.pb", std::process::id()));
/// let profile = ebbtide::Profile::start(0)?; // one sample in 512 KiB
/// let words: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
/// profile.write(&file)?; // `ebb profile FILE` or `go tool pprof` reads it
/// # drop(words);
/// # std::fs::remove_file(&file)
/// # }
/// ```
#[derive(Debug)]
pub struct Profile(());

impl Profile {
    /// From now on, in all threads, with so many bytes from one sample to the next on the average; 0: 512 KiB. One that was
    /// switched on otherwise (`EBB_PROFILE`, `ebb profile PID`) goes on with this mean, and ends with this value.
    ///
    /// # Errors
    /// `AlreadyExists` while there is a `Profile`, `InvalidInput` for a mean of more than 2^40, `OutOfMemory`.
    pub fn start(mean: usize) -> io::Result<Profile> {
        // The drop of the one before is over: its stop comes before this start.
        if IS_TAKEN.swap(true, Ordering::Acquire) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "there is a heap profile already",
            ));
        }
        // SAFETY: a call without pointers.
        if unsafe { sys::ebb_profile_start(mean) } != 0 {
            let error = io::Error::last_os_error();
            IS_TAKEN.store(false, Ordering::Release);
            return Err(error);
        }
        Ok(Profile(()))
    }

    /// Writes what is known to a file, new or in place of what it held, in pprof's format. Other threads go on meanwhile.
    ///
    /// # Errors
    /// `InvalidInput` for a path with a zero byte, `OutOfMemory`, or what opening the file and writing to it say.
    pub fn write(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let file = CString::new(path.as_ref().as_os_str().as_bytes())?;
        // SAFETY: a text with a zero byte at its end, alive until the return.
        match unsafe { sys::ebb_profile_write(file.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        // SAFETY: a call without pointers.
        unsafe { sys::ebb_profile_stop() };
        IS_TAKEN.store(false, Ordering::Release);
    }
}
