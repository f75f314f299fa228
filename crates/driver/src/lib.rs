//! Rails: the only place where bytes leave or enter a process.
//!
//! A [`Rail`] connects this process with any number of peers over one kind of channel. It carries
//! frames, whole and in order per peer, and reports [`Event`]s. It knows nothing of messages, tags or
//! requests. No method blocks: a rail that cannot accept a frame returns [`Post::Full`], and a poll
//! without events returns at once. `progress` sleeps on the descriptors of its rails.

mod fairness;
mod fork;
mod identity;
mod loopback;
mod loss_pattern;
mod memory;
mod precedence;
mod quic;
mod rail;
mod readiness_probe;
mod shm;
mod sim;
mod tcp;
mod threads;

pub use fork::tell_forked;
pub use identity::Identity;
pub use loopback::LoopbackRail;
pub use precedence::{Thread, poll_when_idle};
pub use quic::{Inbox, Outbox, QuicBuffers, QuicConfig, QuicNeeds, QuicRail, TrunkConfig};
pub use rail::{Event, Fault, Neighbours, Post, Rail, RailError, RemoteReader};
pub use readiness_probe::ReadinessProbe;
pub use shm::{
    FRAME_MAX_OF_ALL, Operations, ShmColl, ShmCollInvitation, ShmConfig, ShmRail, machine_identity,
    node_identity,
};
pub use sim::{SimLoss, SimNetwork, SimPath, SimRail};
pub use tcp::relay;
pub use tcp::{
    Congestion, DropWatch, Encryption, Gateways, Knowledge, ListenAddress, ListenAddressError,
    QdiscDrops, Refusal, TcpConfig, TcpNetwork, TcpNetworks, TcpRail, TcpSample, WanTcp,
};
pub use threads::{core_here, cores_online, without_signals};
