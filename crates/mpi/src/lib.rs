//! MPI semantics in safe Rust: the process, communicators, groups, requests, attributes, info. The `abi` crate turns C arguments into calls of this one.
#![forbid(unsafe_code)]

pub mod attribute;
pub mod buffer;
pub mod collective;
pub mod comm;
pub mod contexts;
pub mod errhandler;
pub mod error;
mod exchange;
mod external_end;
pub mod failures;
pub mod fault_tolerance;
pub mod file;
pub mod from_group;
pub mod generalized;
pub mod group;
pub mod info;
pub mod inter;
mod meeting;
pub mod neighbourhood;
pub mod objects;
pub mod open_ports;
mod parting;
pub mod partitioned;
pub mod point_to_point;
pub mod ports;
pub mod process;
pub mod request;
mod root_channel;
pub mod session;
pub mod spawn;
mod split;
pub mod thread_level;
pub mod tool;
pub mod topology;
pub mod vci;
mod watched;
pub mod window;
pub mod world;

pub use error::{Error, ErrorClass, Result};
