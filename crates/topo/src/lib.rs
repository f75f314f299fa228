//! What this machine and its links cost: sampled here, and remembered on disk between jobs.
//!
//! The numbers themselves, and what follows from them, are `wire`'s. [`sample`] takes this machine's in
//! a few milliseconds; [`cache`] keeps them, and those of links, so that a job begins with what the last
//! one learned. [`processor`] tells of cores, and what it costs to sleep and be woken on them; [`domains`] which
//! of them are near each other. [`sites`] says which processes of a job are on one node, and of one site;
//! [`transport`] over which protocol they try each other first between sites.
#![forbid(unsafe_code)]

mod between;
pub mod cache;
pub mod domains;
mod file;
pub mod processor;
pub mod sample;
pub mod sites;
pub mod transport;

pub use between::{Between, Known, Links, Remembered};
pub use cache::{Cache, Entry, Pair};
pub use file::Ignored;
