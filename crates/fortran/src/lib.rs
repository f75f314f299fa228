//! The Fortran symbols of MPI (MPI-5.0 chapters 19 and 20), over the C symbols of any library with the standard ABI.
//!
//! `generated.rs` holds the procedures, made from the table in `api/`. Each turns its dummy arguments into those of
//! the C function, calls it, and hands back what it has written. An [`argument::Argument`] does that for one kind of
//! argument. The modules `mpi` and `mpi_f08` and `mpif.h` only declare these procedures, so no Fortran compiler is
//! needed here, and none has to compile more than declarations.
//!
//! A Fortran compiler passes an argument by its address, an absent one as NULL, and the length of a text as a `size_t`
//! behind all arguments. Procedures of `mpi_f08` with choice buffers get descriptors.
#![expect(
    clashing_extern_declarations,
    reason = "the procedures name the types of C's parameters by those of their arguments"
)]

mod argument;
mod attribute;
mod callback;
mod compiler;
mod descriptor;
mod extra;
#[rustfmt::skip]
mod generated;
mod handle;
mod section;
mod sentinel;
mod text;
