//! MPI semantics in safe Rust: communicators, groups, requests, attributes, info, the executor of
//! collective schedules. The `abi` crate turns C arguments into calls of this one.
#![forbid(unsafe_code)]

pub mod error;
pub mod table;

pub use error::{Error, ErrorClass, Result};
