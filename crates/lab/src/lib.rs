//! The emulated grid: sites and nodes on one machine.
//!
//! A node is a set of namespaces (network, host name, System V IPC, mounts with a `/dev/shm` of its
//! own), kept alive by a holder process; a site is a bridge its nodes are plugged into, each at the
//! LAN's rate; between the sites stands a router whose links delay, limit and lose as asked. The router's
//! packets are queued to a process in user space, the daemon: they stay in the kernel, only their lengths
//! come up, unless packets are to be told apart. What links are like can be changed while they carry, and
//! what they carry is counted. Where the kernel queues nothing to users, its own emulator (netem) makes the
//! links, as they were asked for at first.
#![forbid(unsafe_code)]

mod check;
mod command;
mod daemon;
mod flow;
mod grid;
mod link;
mod namespace;
mod netem;
mod nfqueue;
mod spec;
mod wire;

pub use command::{Arguments, run};
pub use daemon::{Change, Cut, Link, Way, Which};
pub use flow::{Congestion, Goodput, Stream};
pub use grid::{Lab, LabError, Node};
pub use spec::{Pair, Spec, bytes, duration, pair, rate, share};
pub use wire::{Conditions, Counts};
