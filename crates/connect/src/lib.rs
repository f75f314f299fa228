//! Connections between processes as state machines, without IO: time and outcomes are arguments, actions are results.
//!
//! [`Links`] are those of one rail: it dials, and decides which of several connections is the link.
#![forbid(unsafe_code)]

mod dial;
mod links;

pub use dial::Dialling;
pub use links::{DialAction, Links, RailLink, Verdict};
