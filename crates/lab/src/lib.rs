//! The emulated grid: sites and nodes on one machine.
//!
//! A node is a set of namespaces (network, host name, System V IPC, mounts with a `/dev/shm` of its
//! own), kept alive by a holder process; a site is a bridge its nodes are plugged into, each at the
//! LAN's rate; between the sites stands a router whose links delay, limit and lose as asked. Where the
//! kernel has no netem the router's packets are queued to user space ([`link`]): they stay in the
//! kernel, only their lengths come up.
#![forbid(unsafe_code)]

mod check;
mod command;
mod grid;
pub mod link;
mod namespace;
mod netem;
mod nfqueue;
mod spec;

pub use command::{Arguments, run};
pub use grid::{Lab, LabError, Node};
pub use spec::Spec;
