//! The path to another host: interfaces and networks, measured costs, pacing, congestion control, silence.
//!
//! Rails over TCP and QUIC and the gateways use it. It measures the sockets that it is given, sets their options, and
//! opens none.

mod congestion;
mod cwnd_warmup;
mod fairness;
pub mod interfaces;
mod knowledge;
mod listen_address;
mod loss_pattern;
mod measure;
mod networks;
mod pacing;
mod packet_train;
pub mod path_probe;
mod path_window;
mod probe;
mod probe_lock;
mod qdisc_drop;
mod relay_info;
mod rto;
mod startup_cap;
mod wan;

pub use congestion::Congestion;
pub use fairness::{Fairness, ShareSample};
pub use interfaces::Interface;
pub use knowledge::Knowledge;
pub use listen_address::{ListenAddress, ListenAddressError};
pub use loss_pattern::LossPattern;
pub use measure::{TcpSample, bytes_in_flight, shared_sight};
pub use networks::{QUIC_NAME, TCP_NAMES, TcpNetwork, TcpNetworks};
pub use pacing::Pacing;
pub use path_window::{PathState, PathWindow};
pub use probe::{LONG_FRAME, LongSegment, Probe};
pub use qdisc_drop::{DropWatch, QdiscDrops};
pub use relay_info::{RELAY_INFO_LEN, RelayInfo};
pub use wan::WanTcp;
