//! MPI datatypes and reduction operations, as values.
//!
//! A [`Datatype`] is a type map (MPI-5.0 §5.1): the bytes of memory that make up one element, in
//! order. It records its constructor (for `MPI_Type_get_contents`) and gives the flattened
//! [`memory::Layout`] that the engine communicates by. An [`Op`] combines arrays of elements.
#![deny(unsafe_code)]

mod array;
mod builtin;
mod construct;
mod datatype;
mod external;
#[allow(unsafe_code, reason = "typed loops over memory that regions describe")]
mod kernel;
mod op;
mod replaced;

pub use array::{ArrayOrder, Cut, Distribution};
pub use builtin::{Builtin, Class};
pub use datatype::{Combiner, Contents, Datatype, ListedContents, TypeError};
pub use external::ConversionError;
pub use kernel::Reducer;
pub use op::{Op, Predefined, UserFunction};
