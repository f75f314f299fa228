//! Common parts of the layers over the C symbols of the standard ABI: Fortran's procedures and MPICH's older ABI.
//!
//! Both give every function of C a second form, whose handles and some of whose numbers have other values. An
//! [`argument::Argument`] turns one argument into what C takes, and hands back what C has written.

pub mod argument;
pub mod callback;
pub mod empty_library;
pub mod library;
pub mod number_of;
pub mod translation;
