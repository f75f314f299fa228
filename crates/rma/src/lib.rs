//! One-sided communication: windows of memory, and operations on the memory of peers (MPI-5.0 §12).
//!
//! A [`Window`] knows no communicator. Its maker exchanges a [`Card`] of each process, and names the processes by their
//! ranks in the window. Memory that this process maps too is read and written by itself; all other memory is reached by
//! addressed traffic of the engine, which the progress thread of the target serves.
#![forbid(unsafe_code)]

mod combine;
mod control;
mod delayed;
mod fault;
mod locks;
#[cfg(test)]
mod loom_model;
mod node_memory;
mod operations;
mod outstanding;
mod parts;
mod pending;
mod pieces;
mod place;
mod request;
mod served;
#[cfg(test)]
mod tests;
mod window;
mod word_lock;

pub use combine::Combination;
pub use fault::{AccessFault, Result};
pub use locks::LockKind;
pub use node_memory::{NodeInvitation, NodeMemory};
pub use pending::PendingAccess;
pub use place::TargetPlace;
pub use served::Served;
pub use window::{Card, Window, WindowMemory};
