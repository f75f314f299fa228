//! Formats of all bytes that cross a rail, and the types that engine and rails share.
//!
//! A *rail* carries *frames* between two ranks. A frame is a sequence of *packets*, control before
//! data. Each packet has a fixed header; some have a payload. Rails see frames as opaque bytes;
//! only the engine parses packets. Parsers trust no byte they read.
#![forbid(unsafe_code)]

pub mod addressed;
mod bytes;
/// Version of all that the processes of a job say to each other. It is raised with each change of a format.
pub const PROTOCOL_VERSION: u8 = 9;

pub mod compress;
pub mod frame;
mod incoming;
pub mod number;
pub mod packet;

pub use addressed::RemoteKey;
pub use bytes::FrameError;
pub use frame::{
    Body, Capabilities, FIRST_CREDIT_BYTES, Frame, FrameToken, PeerId, ProcessId, RailId,
    RemoteRegion,
};
pub use incoming::Incoming;
