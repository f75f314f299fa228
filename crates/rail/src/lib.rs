//! Rails: the only place where bytes leave or enter a process.
//!
//! A [`Rail`] connects this process with any number of peers over one kind of channel. It carries
//! frames, whole and in order per peer, and reports [`Event`]s. It knows nothing of messages, tags or
//! requests. No method blocks: a rail that cannot accept a frame returns [`Post::Full`], and a poll
//! without events returns at once. `progress` sleeps on the descriptors of its rails.
//!
//! This crate holds the interface, the loopback rail, and the rail over a simulated network. The others are crates of
//! their own: `rail-shm`, `rail-tcp`, `rail-quic`. One conformance kit tests them all (`tests/conformance`).

mod clock;
mod fork;
mod loopback;
mod own_memory;
mod rail;
mod readiness_probe;
mod sim;

pub use clock::Clock;
pub use connect::{Fault, Refusal};
pub use fork::{Unshared, tell_forked};
pub use loopback::LoopbackRail;
pub use own_memory::check_range;
pub use readiness_probe::{ReadinessProbe, Sockets};
pub use sim::{SimLoss, SimNetwork, SimPath, SimRail};

pub use crate::rail::{
    Affinities, Event, FRAME_MAX_OF_ALL, Neighbours, PathStatistics, Post, Rail, RailError,
    RemoteReader,
};
