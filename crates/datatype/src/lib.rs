//! MPI datatypes and reduction operations, as values.
//!
//! A [`Datatype`] is a type map (MPI-5.0 §5.1): which bytes of memory, in which order, make up one
//! element. It knows how it was built (for `MPI_Type_get_contents`) and gives the flattened
//! [`memory::Layout`] that the engine communicates by. An [`Op`] combines arrays of elements.
#![deny(unsafe_code)]

mod builtin;
mod construct;
mod datatype;
#[allow(unsafe_code, reason = "typed loops over memory that regions describe")]
mod kernel;
mod op;

pub use builtin::{Builtin, Class};
pub use construct::ArrayOrder;
pub use datatype::{Combiner, Contents, Datatype, TypeError};
pub use op::{Op, Predefined, UserFunction};
