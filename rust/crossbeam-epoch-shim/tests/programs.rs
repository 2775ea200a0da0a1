// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs that ebbtide's own tests compare with the original.

mod stack {
    use ::crossbeam_epoch;
    include!("../../ebbtide/tests/program/stack.rs");
}
mod queue {
    use ::crossbeam_epoch;
    include!("../../ebbtide/tests/program/queue.rs");
}
mod list {
    use ::crossbeam_epoch;
    include!("../../ebbtide/tests/program/list.rs");
}
mod names {
    use ::crossbeam_epoch;
    include!("../../ebbtide/tests/program/names.rs");
}
