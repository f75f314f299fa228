//! Connections between processes as state machines, without IO: time and outcomes are arguments, actions are results.
#![forbid(unsafe_code)]

mod dial;

pub use dial::{Dialling, Due};
