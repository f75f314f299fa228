//! Regions of application memory.
//!
//! MPI calls describe buffers by address, count and datatype. A [`Region`] is that description
//! resolved to bytes: a stream of `len` bytes in the order of the datatype (the *packed stream*,
//! MPI-5.0 §5.1). It can be read or written from any offset without being packed first. The engine
//! and the rails handle only regions; they never see a datatype.
//!
//! A region lies in a [`Space`]: host memory, or a device's. Host memory is copied by the processor, within the call.
//! A device copies its own memory, and the copy may end later ([`Copying`]).
//!
//! This crate contains unsafe code. Constructing a region from a raw address is `unsafe`: the
//! caller guarantees the memory until the operation completes. Everything afterwards is
//! bounds-checked and safe.

mod buffer;
mod copy;
mod layout;
mod page;
mod region;
mod runs;
mod scratch;
mod simulated_device;
mod span;
mod strided;

pub use buffer::Keeper;
pub use layout::{Layout, Segment, Segments};
pub use page::Page;
pub use region::{Copying, Device, DeviceCopy, Region, Space};
pub use runs::Runs;
pub use simulated_device::SimulatedDevice;
pub use span::Span;
