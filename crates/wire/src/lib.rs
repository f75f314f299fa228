//! Every byte that crosses a rail, and the vocabulary that engine and drivers share.
//!
//! A *rail* carries *frames* between two ranks; a frame is a sequence of *packets* (control before
//! data), each a fixed header and, for some, a payload. Rails see frames as opaque bytes; only the
//! engine parses packets. Nothing here trusts a byte it reads.
#![forbid(unsafe_code)]

pub mod compress;
pub mod cost;
pub mod frame;
pub mod number;
pub mod packet;
pub mod thresholds;
pub mod traffic;

pub use cost::{Cost, HostCost};
pub use frame::{
    Body, Capabilities, FIRST_CREDIT_BYTES, Frame, FrameToken, PeerId, RailId, RemoteRegion,
};
pub use thresholds::Thresholds;
pub use traffic::Traffic;
