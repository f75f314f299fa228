//! Files that outlive the job (MPI-5.0 §14).
//!
//! Here are the rules of MPI: who opens a file, which bytes a process sees, where its pointers are, and on what all
//! processes agree. The crate `io` moves the data.

mod access;
mod agreement;
mod buffering;
mod hints;
mod mode;
mod node_buffering;
mod node_buffers;
mod object;
mod opening;
pub(crate) mod pending;
mod place;
mod pointers;
mod representation;
mod served;
pub(crate) mod serving;
mod shared_pointer;
mod sight;
mod split;
mod split_call;
mod store;
mod together;
mod view;

pub use mode::AccessMode;
pub(crate) use object::clear;
pub use object::{File, NULL, errhandler_of, find, from_int, set_null_errhandler};
pub use opening::delete;
pub use place::{AccessKind, At};
pub use pointers::Whence;
pub use representation::{Conversion, Representation, TypedMemory};
