//! Windows: memory that other processes access by one-sided operations (MPI-5.0 §12).
//!
//! Here are the rules of MPI: who makes a window, and which epoch permits which operation. The crate `rma` moves the
//! data and takes the locks.

mod access;
mod creation;
mod epoch;
mod flavor;
mod hints;
mod object;
pub(crate) mod pending;
mod put_record;
mod shared_epochs;
mod synchronization;

pub use access::{Access, Elements, Target};
pub use creation::ReachableMemory;
pub(crate) use creation::node_memory;
pub use flavor::Flavor;
pub(crate) use object::clear;
pub use object::{NULL, Values, Window, find, from_int};
pub use rma::LockKind;
