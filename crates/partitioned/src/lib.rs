//! Partitioned messages: partitions are sent as they become ready, and arrive one by one (MPI-5.0 §4.2).
//!
//! A [`Sender`] and a [`Receiver`] are matched once. The sender offers its partitions in a message of a context of its
//! own, and the receiver takes the offer. Each run has three steps:
//!
//! 1. The receiver starts: it exposes its memory, posts receives for long partitions, and sends a *go*.
//! 2. The sender starts, and takes the go.
//! 3. From then on, each partition leaves when it is ready. Short partitions travel as calls that say where their bytes
//!    belong; adjacent ones that are ready at the same time share a call. Long partitions are messages for the receives.
//!
//! Threads mark partitions without a lock. The thread that finds nobody at it sends what all have marked.
#![forbid(unsafe_code)]

mod channels;
mod fault;
#[cfg(test)]
mod hostile_tests;
mod layout;
#[cfg(test)]
mod loom_model;
mod offer;
mod parts;
mod port;
mod ready;
#[cfg(test)]
mod ready_tests;
mod receiver;
mod route;
mod sender;

pub use channels::Channels;
pub use fault::{Misuse, PartitionedFault};
pub use receiver::Receiver;
pub use route::Route;
pub use sender::Sender;
