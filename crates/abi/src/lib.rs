//! The MPI-5.0 standard ABI (MPI-5.0, chapter 20): the C symbols, handles and error codes.
//!
//! `generated.rs` holds the symbols; each calls a body in the module that the table in `api/` names.
//! A body turns C arguments into a call of the `mpi` crate and its answer back; it checks what C
//! could get wrong and decides nothing. Its failures go through [`convention::finish`] to the error
//! handler of the object concerned.
//!
//! The shims trust the caller, a C program, to pass pointers as the standard says. They turn each into a value of
//! [`caller`], by the direction, kind and length in the table; bodies are safe functions.
#![expect(clippy::too_many_arguments, reason = "the standard's signatures")]
#![expect(
    clippy::missing_transmute_annotations,
    reason = "the target is the type the standard gives"
)]

// The native interface's symbols stand in the same library: one engine per process.
use mad as _;

mod arguments;
mod attribute;
mod call_finder;
mod caller;
mod coll;
mod comm;
mod contents;
mod convention;
mod env;
mod errhandler;
mod error;
mod fault_tolerance;
mod file;
mod fortran;
mod generalized;
#[rustfmt::skip]
#[expect(clippy::undocumented_unsafe_blocks, reason = "generated: each kind of block has its reason at the head of the file")]
mod generated;
mod group;
mod info;
mod init;
mod kinds;
mod op;
mod p2p;
mod pack;
mod partitioned;
mod ports;
mod request;
mod session;
mod spawn;
mod status;
mod tool;
mod topology;
mod types;
mod window;
mod world;
