//! Regions of application memory.
//!
//! MPI calls describe buffers by address, count and datatype. A [`Region`] is that description
//! resolved to bytes: a stream of `len` bytes in the order of the datatype (the *packed stream*,
//! MPI-5.0 §5.1). It can be read or written from any offset without being packed first. The engine
//! and the rails handle only regions; they never see a datatype.
//!
//! This crate contains unsafe code. Constructing a region from a raw address is `unsafe`: the
//! caller guarantees the memory until the operation completes. Everything afterwards is
//! bounds-checked and safe.

mod copy;
pub mod device;
mod keeper;
mod layout;
mod page;
mod region;
mod runs;
mod scratch;
pub mod simulated_device;
mod span;
mod strided;

pub use keeper::Keeper;
pub use layout::{Layout, Segment, Segments};
pub use page::Page;
pub use region::Region;
pub use runs::Runs;
pub use span::Span;
