//! MPICH's older ABI, `libmpi.so.12`, over the C symbols of the standard ABI.
//!
//! Intel MPI, MVAPICH and Cray MPI share it, so programs that were compiled with them run over Canele. `generated.rs` holds
//! the functions, and `constants.rs` the values; both are made from the tables in `api/`. A function translates its
//! arguments, calls the function of that name in `libmpi_abi.so.1`, and hands back what it has written. Functions of both
//! libraries have the same names, so those of the other one are found by `dlsym` when they are first called.
//!
//! Handles are integers. Predefined ones have MPICH's values. All others are the integers of `MPI_Comm_toint` and its
//! siblings with the highest bit set, which no predefined one has together with the second highest.

mod attribute;
mod buffers;
mod callback;
mod code;
mod contents;
mod extra;
mod function;
#[rustfmt::skip]
mod constants;
#[rustfmt::skip]
mod generated;
mod handle;
mod kind;
mod sentinel;
mod spawn_codes;
mod standard;
mod status;
mod text;
