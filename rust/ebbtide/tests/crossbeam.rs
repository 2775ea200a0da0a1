// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that are written for crossbeam-epoch, with Ebbtide in its place and with the original:
//! they must compile and behave alike.

macro_rules! programs_with {
    ($library:ident, $epoch:path) => {
        mod $library {
            mod stack {
                use $epoch as crossbeam_epoch;
                include!("program/stack.rs");
            }
            mod queue {
                use $epoch as crossbeam_epoch;
                include!("program/queue.rs");
            }
            mod list {
                use $epoch as crossbeam_epoch;
                include!("program/list.rs");
            }
            mod names {
                use $epoch as crossbeam_epoch;
                include!("program/names.rs");
            }
        }
    };
}

programs_with!(ebb, ebbtide::epoch);
// Under Miri Ebbtide's own pointers are what is looked at.
#[cfg(not(miri))]
programs_with!(original, ::crossbeam_epoch);
