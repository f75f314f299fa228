//! Regions of application memory.
//!
//! MPI calls describe buffers by address, count and datatype. A [`Region`] is that description
//! resolved to bytes: a stream of `len` bytes, in the order the datatype gives them (the *packed
//! stream*, MPI-5.0 §5.1), that can be read or written from any offset without first being packed.
//! The engine and the rails handle only regions; they never see a datatype.
//!
//! This is an unsafe zone: constructing a region from a raw address is `unsafe` (the caller vouches
//! for the memory until the operation completes); everything afterwards is bounds-checked and safe.

mod copy;
mod layout;
mod page;
mod region;
mod scratch;
mod strided;

pub use layout::{Layout, Segment, Segments};
pub use page::Page;
pub use region::{Region, Span};
