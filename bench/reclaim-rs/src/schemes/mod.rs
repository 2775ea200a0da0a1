// SPDX-License-Identifier: MIT OR Apache-2.0
//! The schemes, each with the API that its documents recommend.

pub mod crossbeam;
pub mod haphazard;
pub mod kovan;
pub mod sdd;
pub mod seize;
